//! Fits a curve to noisy points and plots it: `cargo run --release --example regression`.

mod plot;

use picograd::nn::data::Progress;
use picograd::nn::optim::{Adam, Cosine, Optimizer, Scheduler};
use picograd::nn::{Layer, Linear, Module};
use picograd::tensor::Reduction;
use picograd::{Tensor, no_grad, seq};
use std::error::Error;

const STEPS: usize = 1500;

fn main() -> Result<(), Box<dyn Error>> {
    Tensor::manual_seed(3);
    // Points around sin(3x) + x/2, with noise.
    let x = (Tensor::rand([200, 1]) * 4.0 - 2.0).realize()?;
    let y = ((&x * 3.0).sin() + &x * 0.5 + Tensor::randn([200, 1]) * 0.15).realize()?;

    let net = seq![
        Linear::new(1, 64),
        Tensor::tanh,
        Linear::new(64, 64),
        Tensor::tanh,
        Linear::new(64, 1)
    ];
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(1e-2))?;
    let mut scheduler = Scheduler::new(&mut optimizer, Cosine::new(STEPS))?;
    let mut bar = Progress::new("fit", STEPS as u64);
    for _ in 0..STEPS {
        let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
        loss.backward();
        optimizer.step()?;
        scheduler.step(&mut optimizer)?;
        bar.set("loss", loss.item::<f32>()? as f64);
        bar.tick(1);
    }
    bar.finish();

    let line = Tensor::linspace(-2.0, 2.0, 200).reshape([-1, 1]);
    let fit = no_grad(|| net.forward(&line));
    let truth = (&line * 3.0).sin() + &line * 0.5;
    let error = (&fit - &truth).square().mean(..).sqrt().item::<f32>()?;
    let points = |x: &Tensor, y: &Tensor| -> picograd::Result<Vec<(f64, f64)>> {
        Ok(x.to_vec::<f32>()?
            .into_iter()
            .map(f64::from)
            .zip(y.to_vec::<f32>()?.into_iter().map(f64::from))
            .collect())
    };
    let series = [
        plot::Series { name: "points", points: points(&x, &y)?, line: false },
        plot::Series { name: "fit", points: points(&line, &fit)?, line: true },
    ];
    plot::text(&series, 100, 24);
    std::fs::create_dir_all("target/out")?;
    plot::png("target/out/regression.png", "a fit to noisy points", &series)?;
    println!(
        "off by {error:.3} from the true curve, where the noise is 0.15; target/out/regression.png"
    );
    Ok(())
}

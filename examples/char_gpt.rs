//! A small transformer, trained character by character on the text of this project's pages: `cargo
//! run --release --example char_gpt`.

mod plot;

use picograd::nn::data::{Progress, Random};
use picograd::nn::optim::{AdamW, OneCycle, Optimizer, Scheduler, clip_grad_norm};
use picograd::nn::{Embedding, Layer, LayerNorm, Linear, Module, TransformerBlock};
use picograd::tensor::Reduction;
use picograd::{Tensor, no_grad};
use std::error::Error;

const CONTEXT: usize = 64;
const SIZE: usize = 64;
const BATCH: usize = 16;
const STEPS: usize = 1000;

const TEXT: &[&str] = &[
    include_str!("../ARCHITECTURE.md"),
    include_str!("../CONTRIBUTING.md"),
    include_str!("../docs/nn.md"),
    include_str!("../docs/data.md"),
    include_str!("../docs/debug.md"),
    include_str!("../docs/add-an-op.md"),
    include_str!("../docs/add-a-backend.md"),
];

#[derive(Module)]
struct Gpt {
    chars: Embedding,
    positions: Embedding,
    blocks: Vec<TransformerBlock>,
    norm: LayerNorm,
    head: Linear,
}

impl Gpt {
    fn new(vocabulary: usize) -> Gpt {
        Gpt {
            chars: Embedding::new(vocabulary, SIZE),
            positions: Embedding::new(CONTEXT, SIZE),
            blocks: (0..2).map(|_| TransformerBlock::new(SIZE, 4, 4 * SIZE).causal()).collect(),
            norm: LayerNorm::new(SIZE),
            head: Linear::new(SIZE, vocabulary).bias(false),
        }
    }

    /// Characters `[batch, time]` to logits of the next one, `[batch, time, vocabulary]`.
    fn forward(&self, chars: &Tensor) -> Tensor {
        let positions = Tensor::arange(0, chars.size(1) as i32, 1);
        let x = self.chars.forward(chars) + self.positions.forward(&positions);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(&x));
        self.head.forward(&self.norm.forward(&x))
    }

    /// Continues a text by sampling each character from the logits.
    fn generate(&self, prompt: &[i32], chars: usize) -> picograd::Result<Vec<i32>> {
        let mut text = prompt.to_vec();
        for _ in 0..chars {
            // A fixed window, so that one set of kernels serves all steps. Short text is padded on
            // the left, and the padding is masked.
            let seen = text.len().min(CONTEXT);
            let mut window = text[text.len() - seen..].to_vec();
            window.resize(CONTEXT, 0);
            let scores = no_grad(|| self.forward(&Tensor::from_vec(window, [1, CONTEXT])));
            let odds = (scores.realize()?.i((0, seen as isize - 1)) / 0.7).softmax(-1);
            text.push(odds.multinomial(1, true).item::<i32>()?);
        }
        Ok(text)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let text: Vec<char> = TEXT.concat().chars().collect();
    let mut alphabet = text.clone();
    alphabet.sort_unstable();
    alphabet.dedup();
    let number = |c: &char| alphabet.binary_search(c).map_or(0, |i| i as i32);
    let numbers: Vec<i32> = text.iter().map(number).collect();
    println!("{} characters, {} distinct", numbers.len(), alphabet.len());

    Tensor::manual_seed(1);
    let net = Gpt::new(alphabet.len());
    println!("{} parameters", net.num_parameters());
    let mut optimizer = Optimizer::new(net.parameters(), AdamW::new(3e-3))?;
    let mut scheduler = Scheduler::new(&mut optimizer, OneCycle::new(STEPS))?;
    let mut random = Random::new(1, 0);
    let mut losses = Vec::new();
    let mut bar = Progress::new("learning to write", STEPS as u64);
    for _ in 0..STEPS {
        let starts: Vec<usize> =
            (0..BATCH).map(|_| random.below(numbers.len() - CONTEXT)).collect();
        let cut = |by: usize| {
            starts
                .iter()
                .flat_map(|s| numbers[s + by..s + by + CONTEXT].iter().copied())
                .collect::<Vec<i32>>()
        };
        let (x, y) = (
            Tensor::from_vec(cut(0), [BATCH, CONTEXT]),
            Tensor::from_vec(cut(1), [BATCH * CONTEXT]),
        );
        let loss = net
            .forward(&x)
            .reshape([(BATCH * CONTEXT) as isize, -1])
            .cross_entropy(&y, Reduction::Mean);
        loss.backward();
        clip_grad_norm(&net.parameters(), 1.0)?;
        optimizer.step()?;
        scheduler.step(&mut optimizer)?;
        losses.push(loss.item::<f32>()?);
        bar.set("loss", losses[losses.len() - 1] as f64);
        bar.tick(1);
    }
    bar.finish();
    net.eval();
    let prompt: Vec<i32> = "The ".chars().map(|c| number(&c)).collect();
    let written: String =
        net.generate(&prompt, 200)?.iter().map(|&i| alphabet[i as usize]).collect();
    println!("\n{written}\n");
    std::fs::create_dir_all("target/out")?;
    plot::losses("target/out/char_gpt.png", "char_gpt", &losses)?;
    let last: f32 = losses[losses.len() - 20..].iter().sum::<f32>() / 20.0;
    println!(
        "final loss {last:.3} per character; a uniform guess has {:.3}",
        (alphabet.len() as f32).ln()
    );
    Ok(())
}

//! Scratch.
use picograd::nn::*; use picograd::nn::optim::*; use picograd::*; use picograd::tensor::*;
fn main() -> Result<()> {
    let net = seq![ Conv2d::new(1, 32, 5), ReLU, Conv2d::new(32, 32, 5), ReLU, BatchNorm::new(32), MaxPool2d::new(2), Conv2d::new(32, 64, 3), ReLU, Conv2d::new(64, 64, 3), ReLU, BatchNorm::new(64), MaxPool2d::new(2), Flatten::new(), Linear::new(576, 10) ];
    let (x, y) = (Tensor::zeros([512, 1, 28, 28]).contiguous().realize()?, Tensor::zeros([512]).cast(DType::I32).contiguous().realize()?);
    let mut o = Optimizer::new(net.parameters(), Adam::new(1e-3))?;
    for i in 0..2 { if i==1 {println!("=====");} let l = net.forward(&x).cross_entropy(&y, Reduction::Mean); l.backward(); o.step()?; }
    Ok(())
}

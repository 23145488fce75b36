use picograd::dtype::*;
use picograd::ir::*;
use picograd::runtime::*;
use picograd::schedule::Request;
use picograd::shape::Movement;
use picograd::*;
fn mv(x: &UOp, op: Op, m: Movement) -> UOp {
    UOp::new(op, x.dtype(), [x.clone()].to_src(), Arg::Movement(m))
}
fn red(x: &UOp, f: Fold, axes: &[usize]) -> UOp {
    UOp::new(Op::Reduce, x.dtype(), [x.clone()].to_src(), Arg::Reduce { fold: f, axes: axes.iter().copied().collect() })
}
fn main() {
    let dev = std::env::args().nth(1).unwrap_or("INTERP".into());
    let d = Device::get(&dev).unwrap();
    let buf = |n: usize, k: f32| {
        Buffer::from_bytes(d.name(), DType::F32, as_bytes(&(0..n).map(|i| (i as f32 * k).sin()).collect::<Vec<f32>>())).unwrap()
    };
    let show = |name: &str, u: UOp| {
        let out = exec::realize(&[Request { node: u, device: d.name().clone(), reuse: None }]).unwrap();
        let b = out[0].as_ref().unwrap().read().unwrap();
        let v: Vec<f32> = from_bytes(&b);
        println!("{name}: {:?} sum {}", &v[..v.len().min(6)], v.iter().sum::<f32>());
    };
    let a = mv(&buf(64 * 32, 0.1).node(), Op::Reshape, Movement::reshape([64, 32]));
    let b = mv(&buf(64 * 32, 0.7).node(), Op::Reshape, Movement::reshape([64, 32]));
    show("mul sum", red(&(&a * &b), Fold::Add, &[0]));
    show("exp", a.unary(Op::Exp));
    // softmax
    let ex = |x: &UOp| mv(x, Op::Expand, Movement::expand([64, 32]));
    let m = red(&a, Fold::Max, &[1]);
    let e = (&a - ex(&m)).unary(Op::Exp);
    let s = red(&e, Fold::Add, &[1]);
    show("softmax", e.binary(Op::Div, ex(&s)));
    // matmul a @ b.T  [64,32]x[32,64]
    let x = mv(&mv(&a, Op::Reshape, Movement::reshape([64, 1, 32])), Op::Expand, Movement::expand([64, 64, 32]));
    let y = mv(&mv(&b, Op::Reshape, Movement::reshape([1, 64, 32])), Op::Expand, Movement::expand([64, 64, 32]));
    show("matmul", red(&(&x * &y), Fold::Add, &[2]));
    show("pad", mv(&mv(&a, Op::Pad, Movement::pad([(1, 2), (3, 0)])), Op::Permute, Movement::permute([1, 0])));
    println!("{:?}", exec::counters());
}

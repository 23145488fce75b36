//! Loops of the CPU heuristic and of lowering: hoisted masks, packed inputs, rows and streams
//! computed together. Results equal those of the interpreter, whose kernels have other loops.

use crate::common::{assert_tensors_close, filled};
use picograd::exec::ScheduleItem;
use picograd::heuristic;
use picograd::ir::Op;
use picograd::lower::Program;
use picograd::opt::{Kernel, OptOp};
use picograd::target::{CoreRates, Target, Vendor};
use picograd::tensor::Conv;
use picograd::{DType, Tensor, compile, opt};

/// A machine with 16 lanes.
const WIDE: Target = Target::llvm(64);

/// The kernels of a tensor with the Opts for `WIDE`, and their programs.
fn kernels(t: &Tensor) -> Vec<(Kernel, Program)> {
    kernels_for(t, &WIDE)
}

fn kernels_for(t: &Tensor, target: &Target) -> Vec<(Kernel, Program)> {
    let items = t.schedule().expect("a schedule");
    let of = |i: ScheduleItem| match i {
        ScheduleItem::Kernel { ast, .. } => {
            let k = heuristic::choose(&Kernel::new(ast), target);
            let program = compile::lowered(&k, target).expect("a program");
            Some((k, program))
        }
        _ => None,
    };
    items.into_iter().filter_map(of).collect()
}

/// The complete list of Opts of each kernel of a tensor.
fn lists(t: &Tensor) -> Vec<String> {
    kernels(t).iter().map(|(k, _)| opt::show(&k.opts)).collect()
}

/// Varied numbers from -1 to 1.
fn numbers(shape: &[usize], from: usize, device: &str) -> Tensor {
    filled(shape, DType::F32, device, |i| ((i * 37 + from * 11) % 64) as f32 / 32.0 - 1.0)
}

/// The gradient of a convolution with respect to its image. `weight` may change the weights.
fn image_gradient(
    device: &str,
    image: [usize; 4],
    channels: usize,
    kernel: usize,
    padding: usize,
    weight: &dyn Fn(&mut Vec<f32>),
) -> Tensor {
    let x = numbers(&image, 0, device).as_param();
    let shape = [channels, image[1], kernel, kernel];
    let mut w = numbers(&shape, 1, device).to_vec::<f32>().expect("weights");
    weight(&mut w);
    let w = Tensor::new(w).reshape(shape).to(device).contiguous().realize().expect("weights");
    let y = x.conv2d(&w, Conv::new().padding(padding));
    let dy = numbers(&y.shape(), 2, device);
    (y * dy).sum(..).gradient(&[&x]).remove(0)
}

#[test]
fn convolution_gradients_match_the_interpreter() {
    // Rows that fit in registers or not, channels that fill vectors or not, and padding.
    for (image, channels, kernel, padding) in [
        ([4, 32, 12, 12], 32, 5, 0),
        ([2, 16, 7, 9], 8, 3, 1),
        ([2, 3, 40, 33], 16, 3, 0),
        ([1, 16, 5, 5], 4, 3, 2),
        ([8, 16, 6, 6], 16, 1, 0),
    ] {
        let of = |device| image_gradient(device, image, channels, kernel, padding, &|_| {});
        assert_tensors_close("gradient", &of("cpu"), &of("interp"), 1e-3);
    }
}

#[test]
fn masked_taps_do_not_spread_nan() {
    // The first tap of every channel is NaN: it reaches all outputs except those that read only
    // other taps.
    let of = |device| {
        image_gradient(device, [2, 16, 8, 8], 16, 3, 0, &|w| {
            w.iter_mut().step_by(9).for_each(|w| *w = f32::NAN)
        })
    };
    let (ours, theirs) = (of("cpu"), of("interp"));
    assert_tensors_close("gradient", &ours, &theirs, 1e-3);
    let values = ours.to_vec::<f32>().expect("values");
    assert!(values[0].is_nan() && values[63].is_finite(), "{} and {}", values[0], values[63]);
}

#[test]
fn a_loop_invariant_mask_is_hoisted() {
    let gradient = image_gradient("cpu", [8, 32, 12, 12], 32, 5, 0, &|_| {});
    let mut seen = 0;
    for (k, program) in kernels(&gradient)
        .into_iter()
        .filter(|(k, _)| k.ast.toposort().iter().any(|u| u.op() == Op::Reduce))
    {
        let ops: Vec<Op> = program.uops.iter().map(|u| u.op()).collect();
        let Some(open) = ops.iter().position(|o| *o == Op::If) else { continue };
        let end = ops.iter().position(|o| *o == Op::EndIf).expect("an end");
        assert!(
            ops[open..end].contains(&Op::Range),
            "a loop is inside a condition in {}",
            opt::show(&k.opts)
        );
        let guarded = program.uops[open..end]
            .iter()
            .filter(|u| u.op() == Op::Load && u.src()[0].src().len() > 2)
            .count();
        assert_eq!(guarded, 0, "loads still have a mask in {}", opt::show(&k.opts));
        // The channels of the weights are lanes, with a large stride.
        assert!(
            k.opts.iter().any(|o| o.op == OptOp::Stage),
            "no tile is staged: {}",
            opt::show(&k.opts)
        );
        seen += 1;
    }
    assert_eq!(seen, 1);
}

#[test]
fn row_sums_read_several_streams() {
    let x = numbers(&[64, 2048], 0, "cpu");
    assert_eq!(lists(&x.sum(1)), ["UPCAST:0:8 UNROLL:1:16 THREAD:0:3 VECTORIZE:4"]);
    assert_tensors_close("sum", &x.sum(1), &numbers(&[64, 2048], 0, "interp").sum(1), 1e-3);
}

#[test]
fn short_reductions_compute_several_rows_at_once() {
    let x = numbers(&[64, 512], 0, "cpu");
    assert_eq!(
        lists(&x.softmax(1)),
        ["UPCAST:1:16 UPCAST:0:4 UNROLL:2:16 UNROLL:3:16 THREAD:0:4 REUSE VECTORIZE:8 \
          VECTORIZE:7 VECTORIZE:6"]
    );
    assert_tensors_close(
        "softmax",
        &x.softmax(1),
        &numbers(&[64, 512], 0, "interp").softmax(1),
        1e-3,
    );
    // The remaining rows are computed as well.
    for shape in [[7usize, 33], [6, 130], [1, 1024], [3, 1]] {
        let [x, y] = ["cpu", "interp"].map(|device| numbers(&shape, 0, device));
        assert_tensors_close("softmax", &x.softmax(1), &y.softmax(1), 1e-3);
        assert_tensors_close("sum", &x.sum(1), &y.sum(1), 1e-3);
    }
}

/// A server's core: L2 in KiB, then vendor, family and model.
const SERVERS: [(usize, Vendor, u32, u32); 3] =
    [(1024, Vendor::Amd, 0x19, 0x11), (1280, Vendor::Intel, 6, 106), (2048, Vendor::Intel, 6, 143)];

#[test]
fn measured_servers_get_the_kernels_of_the_fixed_machine() {
    let x = |shape: &[usize]| numbers(shape, 0, "cpu");
    let tensors = [
        ("matmul", x(&[512, 512]).matmul(&x(&[512, 512]))),
        ("batches", x(&[8, 512, 64]).matmul(&x(&[8, 64, 512]))),
        ("vector", x(&[1, 1024]).matmul(&x(&[1024, 1024]))),
        ("softmax", x(&[512, 1024]).softmax(-1)),
        ("layernorm", x(&[512, 1024]).layernorm(-1, 1e-5)),
        ("conv 3", x(&[1, 64, 28, 28]).conv2d(&x(&[64, 64, 3, 3]), Conv::new().padding(1))),
        ("conv 5", x(&[16, 1, 28, 28]).conv2d(&x(&[32, 1, 5, 5]), Conv::new())),
        ("gradient", image_gradient("cpu", [4, 32, 24, 24], 32, 5, 0, &|_| {})),
    ];
    for (l2, vendor, family, model) in SERVERS {
        let mut server = WIDE;
        server.machine.cache_bytes[1] = l2 << 10;
        server.machine.rates = CoreRates::find(vendor, family, model, 64);
        for (name, t) in &tensors {
            let of = |(k, _): &(Kernel, Program)| opt::show(&k.opts);
            let found: Vec<String> = kernels_for(t, &server).iter().map(of).collect();
            assert_eq!(found, lists(t), "{name} with an L2 cache of {l2} KiB");
        }
    }
}

#[test]
fn packed_inputs_depend_on_the_l2_cache() {
    let mut small = WIDE;
    small.machine.cache_bytes[1] = 64 << 10;
    assert_eq!((small.stored_bytes(), WIDE.stored_bytes()), (16 << 10, 256 << 10));
    let x = numbers(&[1, 64, 28, 28], 0, "cpu");
    let t = x.conv2d(&numbers(&[64, 64, 3, 3], 1, "cpu"), Conv::new().padding(1));
    let of = |target: &Target| opt::show(&kernels_for(&t, target)[0].0.opts);
    assert_ne!(of(&small), of(&WIDE));
}

/// Sums whose panel does not fit have blocks outside the loop over rows; sums over the rows of a
/// matrix in memory read them in order.
#[test]
fn long_sums_have_blocks_outside_the_rows() {
    let lists = |a: [usize; 2], b: [usize; 2]| {
        let [a, b] = [a, b].map(|shape| Tensor::zeros(shape).contiguous().realize().unwrap());
        lists(&a.matmul(&b)).remove(0)
    };
    let long = lists([96, 16384], [16384, 512]);
    assert!(long.contains("SPLIT:2:1024 REDUCE_OUTER:2:0 STAGE:"), "{long}");
    let short = lists([96, 1024], [1024, 512]);
    assert!(!short.contains("REDUCE_OUTER"), "{short}");
    let gemv = lists([1, 2048], [2048, 2048]);
    let wanted = "UPCAST:0:64 THREAD:0:2 SPLIT:2:8 UNROLL:3:8 REDUCE_OUTER:2:0 VECTORIZE:3";
    assert_eq!(gemv, wanted);
    // In the L2 cache, any order of rows is as fast.
    let small = lists([1, 64], [64, 2048]);
    assert!(!small.contains("REDUCE_OUTER"), "{small}");
    for (m, k, n) in [(7, 2200, 64), (1, 700, 2080)] {
        let of = |device| numbers(&[m, k], 0, device).matmul(&numbers(&[k, n], 1, device));
        assert_tensors_close("product", &of("cpu"), &of("interp"), 1e-3);
    }
}

//! One smoke test per stage, all in less than two seconds: run it first after a change.

use picograd::compiler::device::Buffer;
use picograd::exec::ScheduleItem;
use picograd::ir::{AxisKind, UOp};
use picograd::opt::{Kernel, Opt, OptOp};
use picograd::render::{Clang, Renderer};
use picograd::schedule::Role;
use picograd::target::Target;
use picograd::{
    DType, Device, Tensor, compile, device, dtype, ir, lower, reference, schedule, shape, symbolic,
    verify,
};

/// `(a * b).sum(0)` over 4 rows of 8, on a device.
fn dot(device: &str) -> Tensor {
    let a = Tensor::from_vec((0..32).map(|i| i as f32).collect(), [4, 8]).to(device);
    let b = Tensor::from_vec((0..32).map(|i| (i % 3) as f32).collect(), [4, 8]).to(device);
    (a * b).sum(0)
}

/// The result of `dot`.
fn expected() -> Vec<f32> {
    (0..8).map(|j| (0..4).map(|i| ((8 * i + j) * ((8 * i + j) % 3)) as f32).sum()).collect()
}

fn kernel() -> Kernel {
    let items = dot("NULL").schedule().unwrap();
    let asts: Vec<&UOp> = items
        .iter()
        .filter_map(|i| if let ScheduleItem::Kernel { ast, .. } = i { Some(ast) } else { None })
        .collect();
    assert_eq!(asts.len(), 1, "multiply and sum are one kernel");
    Kernel::new(asts[0].clone())
}

#[test]
fn dtypes_promote_and_parse() {
    assert_eq!(dtype::promote(DType::I32, DType::F16), DType::F16);
    assert_eq!("bfloat16".parse::<DType>().unwrap(), DType::BF16);
}

#[test]
fn reshape_checks_the_number_of_elements() {
    let m = shape::Movement::Reshape(shape::Dims::from_slice(&[3, 2]));
    assert_eq!(m.apply_shape(&[2, 3]).unwrap().as_slice(), [3, 2]);
    assert!(m.apply_shape(&[2, 2]).is_err());
}

#[test]
fn the_ir_prints_and_parses() {
    let c = dot("NULL").uop();
    let (nodes, _) = (c.toposort(), ());
    assert!(nodes.len() >= 6 && nodes.last() == Some(&c));
    let k = kernel().ast;
    assert_eq!(ir::parse(&ir::print(&k)).unwrap(), k);
}

#[test]
fn rules_simplify() {
    let x = UOp::range(8i64, 0, AxisKind::Loop);
    let y = (&x * 4i64 + 3i64) / 4i64;
    assert_eq!(symbolic::simplify(&y), x);
}

#[test]
fn the_scheduler_makes_a_sound_kernel() {
    let k = kernel();
    verify::kernel(&k.ast).unwrap();
    assert_eq!(k.name(), "r_8_4");
    let before = schedule::cache_len();
    dot("NULL").schedule().unwrap();
    assert!(schedule::cache_len() >= before.max(1), "plans are cached");
}

#[test]
fn opts_apply_or_give_a_reason() {
    let target = Target::c(16);
    let k = kernel().apply(&Opt::new(OptOp::Upcast, 0, 4), &target).unwrap();
    assert_eq!(k.name(), "r_2_4_4");
    assert!(
        k.apply(&"UPCAST:7:4".parse().unwrap(), &target)
            .unwrap_err()
            .to_string()
            .contains("UPCAST:7:4")
    );
}

#[test]
fn a_kernel_is_lowered_and_rendered() {
    let target = Target::c(16);
    let mut seen = Vec::new();
    let program = lower::lower(&kernel().ast, &target, &mut |pass, _| seen.push(pass.name));
    // The kernel has no staged load, no symbolic axis and no range to unroll.
    assert_eq!(seen, ["launch_dims", "mask_bounds", "decompose", "linearize"]);
    verify::program(&program.uops).unwrap();
    verify::in_bounds(&program.uops).unwrap();
    let text = Clang::new(target).render(&program.name, &program.uops).unwrap().text();
    assert!(text.contains("r_8_4"), "{text}");
}

#[test]
fn every_available_device_computes() {
    for name in ["INTERP", "CPU:X86", "CPU:LLVM", "CPU:CLANG", "CUDA"] {
        if let Err(e) = Device::get(name) {
            eprintln!("skipped {name}: {e}");
            continue;
        }
        assert_eq!(dot(name).to_vec::<f32>().unwrap(), expected(), "on {name}");
    }
    let nothing = dot("NULL").realize().unwrap();
    assert!(
        nothing
            .to_vec::<f32>()
            .unwrap_err()
            .to_string()
            .contains("NULL runs nothing, so its tensors have no values")
    );
}

#[test]
fn the_reference_computes_the_same() {
    let c = dot("INTERP");
    let values = reference::evaluate(&[c.uop()], &|s| Buffer::of(s).read().unwrap());
    assert_eq!(values[0].to_vec::<f32>(), expected());
}

#[test]
fn launches_are_counted_and_plans_cached() {
    let c = dot("INTERP");
    let scheduled = c.schedule().unwrap();
    let kernels = device::counters().kernels;
    for item in &scheduled {
        item.compile().unwrap().run().unwrap();
    }
    assert!(device::counters().kernels > kernels && compile::programs() > 0);
    let ScheduleItem::Kernel { buffers, .. } = scheduled.last().unwrap() else {
        panic!("the last item is the kernel")
    };
    assert_eq!(buffers[0].role, Role::Output);
}

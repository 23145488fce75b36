//! Lists of Opts: what is printed, and vector lanes as part of the list.

use crate::common::filled;
use picograd::compile::OptPolicy;
use picograd::exec::ScheduleItem;
use picograd::opt::{Kernel, OptOp};
use picograd::target::Target;
use picograd::{DType, Device, Tensor, compile, heuristic, opt};
use std::rc::Rc;

/// Integers from -100 to 100: their sums are exact in any order.
fn integers(shape: &[usize], device: &str) -> Tensor {
    filled(shape, DType::F32, device, |i| ((i * 7919 + 13) % 201) as f32 - 100.0)
}

fn item(t: &Tensor) -> ScheduleItem {
    let mut items = t.schedule().unwrap();
    assert_eq!(items.len(), 1, "one kernel is expected");
    items.remove(0)
}

fn kernel(t: &Tensor) -> Kernel {
    let ScheduleItem::Kernel { ast, .. } = item(t) else { panic!("a kernel is expected") };
    Kernel::new(ast)
}

/// The elements of a tensor whose kernel has these Opts.
fn bytes(t: &Tensor, opts: &[opt::Opt]) -> Vec<u8> {
    let opts = opts.to_vec();
    let chooser = move |k: &Kernel, target: &Target| k.apply_all(&opts, target).unwrap();
    compile::with_opt_policy(OptPolicy::By(Rc::new(chooser)), || t.to_bytes().unwrap())
}

/// Kernels of a device, each with Opts that leave several axes for lanes.
fn cases(device: &str) -> Vec<(Tensor, &'static str)> {
    let d = device;
    vec![
        (integers(&[8, 64], d) * 2.0 + 1.0, "UPCAST:0:32 UPCAST:0:4"),
        (integers(&[8, 64], d).transpose(0, 1).contiguous(), "UPCAST:1:4 UPCAST:0:8"),
        (integers(&[8, 64], d).sum(1), "UPCAST:0:4 UNROLL:1:16"),
        (integers(&[16, 8], d).matmul(&integers(&[8, 16], d)), "UPCAST:1:8 UPCAST:0:4 UNROLL:2:4"),
        (integers(&[8, 30], d).pad(&[(0, 0), (1, 1)]).contiguous(), "UPCAST:1:4 UPCAST:0:2"),
        (integers(&[7, 9], d) + 1.0, "PADTO:0:8 UPCAST:0:8"),
    ]
}

/// Vectorizing any axis gives the values of the kernel without Opts. The inputs are small integers,
/// so the order of additions changes nothing.
#[test]
fn every_choice_of_lanes_keeps_values() {
    for device in ["INTERP", "CPU:CLANG", "CPU:LLVM", "CPU:X86"] {
        let Ok(d) = Device::get(device) else { continue };
        let mut applied = 0;
        for (i, (t, opts)) in cases(device).iter().enumerate() {
            let k = kernel(t).apply_all(&opt::parse(opts).unwrap(), d.target()).unwrap();
            let expected = bytes(t, &[]);
            for axis in 0..k.axes().len() {
                let lanes = opt::Opt::of_axis(OptOp::Vectorize, axis);
                let Ok(vectorized) = k.apply(&lanes, d.target()) else { continue };
                let again = &cases(device)[i].0;
                let list = opt::show(&vectorized.opts);
                assert!(bytes(again, &vectorized.opts) == expected, "{device}: {list}");
                assert_eq!(vectorized.without_lanes().ast, k.ast, "{list}");
                applied += 1;
            }
        }
        assert!(applied >= 8, "{device}: {applied} lists with lanes");
    }
}

/// The Opt list of a program contains its lanes, and gives the same program again.
#[test]
fn the_opt_list_contains_the_lanes() {
    let target = Target::c(64);
    let t = integers(&[64, 512], "INTERP").sum(1);
    let chosen = heuristic::choose(&kernel(&t), &target);
    let list = opt::show(&chosen.opts);
    assert!(list.contains("VECTORIZE:"), "{list}");
    let replayed = kernel(&t).apply_all(&opt::parse(&list).unwrap(), &target).unwrap();
    assert_eq!(replayed.ast, chosen.ast);
    let uops = |k: &Kernel| compile::lowered(k, &target).unwrap().uops;
    assert_eq!(uops(&replayed), uops(&chosen));
    // A list without lanes is applied as it is.
    assert!(uops(&chosen.without_lanes()).iter().all(|u| u.dtype().lanes == 1));
    let next = heuristic::actions(&chosen, &target);
    let scalar = chosen.without_lanes().opts;
    assert!(next.iter().any(|k| k.opts == scalar), "beam search tries no lanes");
    assert!(next.iter().any(|k| k.opts.len() > chosen.opts.len()), "and continues from lanes");
}

#[test]
fn invalid_vector_axes_are_refused() {
    let target = Target::c(64);
    let t = integers(&[16, 8], "INTERP").matmul(&integers(&[8, 48], "INTERP"));
    let refused = |opts: &str, why: &str| {
        let e = kernel(&t).apply_all(&opt::parse(opts).unwrap(), &target).unwrap_err().to_string();
        assert!(e.contains(why), "{opts}: {e}, expected {why}");
    };
    refused("VECTORIZE:0", "not an axis of UPCAST or UNROLL");
    refused("UPCAST:1:3 VECTORIZE:3", "does not fill vectors");
    refused("UPCAST:1:8 VECTORIZE:3 VECTORIZE:3", "already");
    refused("UPCAST:1:8 UPCAST:0:8 VECTORIZE:3 VECTORIZE:4", "along two axes");
    refused("UPCAST:1:8 VECTORIZE:3 UPCAST:0:2", "no other Opt may follow VECTORIZE");
}

/// A kernel whose threads have several orders: columns are summed by groups of threads.
fn column_sums(device: &str) -> Tensor {
    integers(&[64, 8, 16], device).sum(0).transpose(0, 1).contiguous()
}

/// Every order of threads gives the values of the kernel without Opts.
#[test]
fn any_thread_order_keeps_values() {
    let device = Device::get("INTERP").unwrap();
    let list = opt::parse("LOCAL:0:4 LOCAL:1:8 GROUP:3:16").unwrap();
    let k = kernel(&column_sums("INTERP")).apply_all(&list, device.target()).unwrap();
    let expected = bytes(&column_sums("INTERP"), &[]);
    let mut orders = std::collections::BTreeSet::new();
    for axis in 0..k.axes().len() {
        for position in 0..3 {
            let opt = opt::Opt::new(OptOp::Order, axis, position);
            let Ok(ordered) = k.apply(&opt, device.target()) else { continue };
            let got = bytes(&column_sums("INTERP"), &ordered.opts);
            assert!(got == expected, "{}", opt::show(&ordered.opts));
            assert_eq!(ordered.without_last().ast, k.ast);
            let program = compile::lowered(&ordered, device.target()).unwrap();
            orders.insert(program.launch.local);
        }
    }
    assert_eq!(orders.len(), 5, "{orders:?}: one Opt makes all orders but the reverse");
}

/// The list of a program has the order of its threads, and gives the same program again.
#[test]
fn thread_order_is_in_the_list() {
    let target = Target::cuda();
    let t = integers(&[512, 64], "INTERP").sum(0);
    let chosen = heuristic::choose(&kernel(&t), &target);
    let list = opt::show(&chosen.opts);
    assert!(list.contains("GROUP:") && list.contains("ORDER:"), "{list}");
    let replayed = kernel(&t).apply_all(&opt::parse(&list).unwrap(), &target).unwrap();
    assert_eq!(replayed.ast, chosen.ast);
    let launch = |k: &Kernel| compile::lowered(k, &target).unwrap().launch;
    assert_eq!(launch(&replayed), launch(&chosen));
    // A list without an order has that of the axes, which a search tries too.
    assert_ne!(launch(&chosen.without_order()), launch(&chosen));
    let others = heuristic::actions(&chosen, &target);
    assert!(others.iter().any(|k| k.opts == chosen.without_order().opts), "{list}");
    // Axis order needs no Opt.
    let elementwise = heuristic::choose(&kernel(&(integers(&[64, 64], "INTERP") + 1.0)), &target);
    assert!(!elementwise.has(OptOp::Order), "{}", opt::show(&elementwise.opts));
}

#[test]
fn unorderable_axes_are_refused() {
    let refused = |target: &Target, opts: &str, why: &str| {
        let t = integers(&[16, 32], "INTERP").cast(DType::F16);
        let t = t
            .realize()
            .unwrap()
            .matmul(&integers(&[32, 8], "INTERP").cast(DType::F16).realize().unwrap());
        let e = kernel(&t).apply_all(&opt::parse(opts).unwrap(), target).unwrap_err().to_string();
        assert!(e.contains(why), "{opts}: {e}, expected {why}");
    };
    let cuda = Target::cuda();
    refused(&cuda, "ORDER:0:0", "not an axis of workgroup threads");
    refused(&cuda, "LOCAL:0:4 ORDER:2:1", "no position 1 in the order of 1");
    refused(&cuda, "LOCAL:0:4 ORDER:7:0", "there is no axis 7");
    refused(&cuda, "LOCAL:0:4 LOCAL:1:4 ORDER:2:1 UPCAST:0:2", "no other Opt may follow ORDER");
    refused(&cuda, "TC:2:0 ORDER:0:0", "the threads of a tensor core must come last");
    refused(&Target::c(64), "THREAD:0:2 ORDER:0:0", "not an axis of workgroup threads");
}

/// Every Opt has a row in the table of docs/opts.md.
#[test]
fn opts_page_lists_all_opts() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/opts.md");
    let page = std::fs::read_to_string(path).unwrap();
    let table: Vec<&str> = page.lines().filter(|l| l.starts_with("| `")).collect();
    for op in OptOp::ALL {
        let name = format!("`{}`", op.name());
        assert!(table.iter().any(|l| l.contains(&name)), "docs/opts.md has no row for {name}");
    }
}

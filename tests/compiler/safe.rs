//! Routes by which safe code once reached machine code or memory that nobody had proven. Each is an error now. What is an
//! `unsafe fn` or not public any more is in `docs/safety.md`, as examples that do not compile.

#![forbid(unsafe_code)]

use picograd::dtype::Const;
use picograd::exec::{self, Choice, ScheduleItem};
use picograd::ir::{Arg, Custom, DeviceName, Op, Source, Src, UOp};
use picograd::opt::Kernel;
use picograd::runtime::Buffer;
use picograd::testing::{Case, Choose, Setup, Traced, check};
use picograd::{DType, Device, Tensor};
use std::rc::Rc;
use std::sync::Arc;

/// The devices whose kernels run here.
const DEVICES: [&str; 2] = ["INTERP", "CPU"];

fn there() -> impl Iterator<Item = &'static str> {
    DEVICES.into_iter().filter(|d| Device::get(d).is_ok())
}

fn item(device: &str, len: usize) -> ScheduleItem {
    let x = Tensor::ones([len]).contiguous().realize().unwrap().to(device).realize().unwrap();
    (&x + 1.0).schedule().unwrap().remove(0)
}

/// A node of source text, which would write where it likes.
fn source(device: &str, args: Vec<UOp>) -> UOp {
    let text = "void evil(float* out, float* in, long share) { out[1 << 30] = 1; }";
    let source =
        Source { device: DeviceName::new(device), entry: "evil".into(), text: text.into(), grid: [1; 3], local: [1; 3], outputs: 1 };
    UOp::new(Op::Source, DType::VOID, args.into_iter().collect::<Src>(), Arg::Source(Arc::new(source)))
}

fn refused(item: &ScheduleItem) {
    let error = match item.lower() {
        Ok(lowered) => lowered.run().err(),
        Err(e) => Some(e),
    };
    let error = error.expect("the changed item was run").to_string();
    assert!(error.contains("changed after it was planned"), "{error}");
}

#[test]
fn an_item_runs_as_it_was_planned() {
    for device in there() {
        item(device, 8).lower().unwrap().run().unwrap();
    }
}

#[test]
fn an_item_with_another_kernel_is_refused() {
    for device in there() {
        let (mut short, long) = (item(device, 8), item(device, 1 << 20));
        let ScheduleItem::Kernel { ast: other, .. } = &long else { panic!("a kernel") };
        if let ScheduleItem::Kernel { ast, .. } = &mut short {
            *ast = other.clone();
        }
        refused(&short);
        assert!(short.tune(exec::beam::Beam { width: 1, seconds: 1.0 }).is_err());
    }
}

#[test]
fn an_item_with_source_text_is_refused() {
    for device in ["CPU:CLANG", "CPU"] {
        if Device::get(device).is_err() {
            continue;
        }
        let mut short = item(device, 8);
        if let ScheduleItem::Kernel { ast, .. } = &mut short {
            let args = ast.toposort().into_iter().filter(|u| u.op() == Op::DefineGlobal).collect();
            *ast = source(device, args);
        }
        refused(&short);
    }
}

#[test]
fn an_item_with_other_buffers_devices_or_values_is_refused() {
    for device in there() {
        let tiny = Buffer::new(Device::get(device).unwrap().name(), DType::F32, 1).unwrap();
        for slot in 0..2 {
            let mut short = item(device, 1 << 20);
            if let ScheduleItem::Kernel { buffers, .. } = &mut short {
                buffers[slot].buffer = tiny.clone();
            }
            refused(&short);
        }
        let mut fewer = item(device, 8);
        if let ScheduleItem::Kernel { buffers, .. } = &mut fewer {
            buffers.pop();
        }
        refused(&fewer);
        let mut elsewhere = item(device, 8);
        if let ScheduleItem::Kernel { device, .. } = &mut elsewhere {
            *device = DeviceName::new("NULL");
        }
        refused(&elsewhere);
        let mut values_of = item(device, 8);
        if let ScheduleItem::Kernel { values, .. } = &mut values_of {
            *values = Arc::default();
        }
        refused(&values_of);
        // The proof of one item does not hold for another.
        let (mut long, short) = (item(device, 1 << 20), item(device, 8));
        let ScheduleItem::Kernel { proof: other, .. } = &short else { panic!("a kernel") };
        if let ScheduleItem::Kernel { proof, .. } = &mut long {
            *proof = other.clone();
        }
        refused(&long);
    }
}

#[test]
fn a_copy_with_other_buffers_is_refused() {
    let there = Tensor::new([1i32, 2, 3]).to("INTERP").realize().unwrap();
    let to_cpu = there.to("NULL");
    for item in to_cpu.schedule().unwrap() {
        let ScheduleItem::Copy { to, from, proof } = &item else { continue };
        item.lower().unwrap().check().unwrap();
        let onto_itself = ScheduleItem::Copy { to: from.clone(), from: from.clone(), proof: proof.clone() };
        refused(&onto_itself);
        let reversed = ScheduleItem::Copy { to: from.clone(), from: to.clone(), proof: proof.clone() };
        refused(&reversed);
    }
}

#[test]
fn a_chooser_cannot_exchange_the_kernel() {
    for device in there() {
        let long = item(device, 1 << 20);
        let ScheduleItem::Kernel { ast: other, .. } = &long else { panic!("a kernel") };
        let other = other.clone();
        let x = Tensor::ones([8]).contiguous().realize().unwrap().to(device).realize().unwrap();
        let chooser = move |_: &Kernel, _: &picograd::target::Target| Kernel::new(other.clone());
        let got = exec::with_choice(Choice::By(Rc::new(chooser)), || (&x + 3.0).to_vec::<f32>());
        assert!(got.unwrap_err().to_string().contains("the chooser returned another kernel"));
        assert_eq!((&x + 3.0).to_vec::<f32>().unwrap(), [4.0; 8]);
    }
}

#[test]
fn a_test_case_with_a_kernel_of_its_own_is_refused() {
    for device in ["INTERP", "CPU", "CPU:CLANG"] {
        if Device::get(device).is_err() {
            continue;
        }
        let arg = UOp::new(Op::DefineGlobal, DType::F32, Src::new(), Arg::Global { slot: 0, len: 4 });
        let custom = Custom { ast: source(device, vec![arg]), outputs: vec![(DType::F32, [4].into_iter().collect())] };
        let input = UOp::new(Op::Param, DType::F32, Src::new(), Arg::Param { slot: 0, len: 4, device: DeviceName::new("HERE") });
        let kernel = UOp::new(Op::Kernel, DType::VOID, [input.clone()].into_iter().collect::<Src>(), Arg::Kernel(Arc::new(custom)));
        let output = UOp::new(Op::Output, DType::F32, [kernel].into_iter().collect::<Src>(), Arg::Output(0));
        let setup = Setup { device, choose: Choose::Nothing, in_place: false, quick: false };
        let nothing: Vec<Traced> = Vec::new();
        let case = Case { outputs: vec![output], inputs: vec![vec![0; 16]] };
        let e = format!("{}", check(&case, &nothing, &setup).unwrap_err());
        assert!(e.contains("has no place in a case"), "{e}");
        // An input that is shorter than it says.
        let case = Case { outputs: vec![input], inputs: vec![vec![0; 4]] };
        let e = format!("{}", check(&case, &nothing, &setup).unwrap_err());
        assert!(e.contains("has not the bytes"), "{e}");
    }
}

/// Kernels take every bool for 0 or 1, and prove indices with it.
#[test]
fn a_byte_of_a_bool_is_one_or_zero() {
    for device in there() {
        let flags = Tensor::from_bytes(&[0, 1, 2, 7, 255, 128], DType::BOOL, [6]).to(device);
        assert_eq!(flags.to_bytes().unwrap(), [0, 1, 1, 1, 1, 1]);
        let at = flags.cast(DType::I32);
        assert_eq!(at.to_vec::<i32>().unwrap(), [0, 1, 1, 1, 1, 1]);
        let table = Tensor::new([10i32, 20]).to(device);
        assert_eq!(table.gather(0, &at).to_vec::<i32>().unwrap(), [10, 20, 20, 20, 20, 20]);
        let x = Buffer::from_bytes(Device::get(device).unwrap().name(), DType::BOOL, &[9, 0]).unwrap();
        assert_eq!(x.read().unwrap(), [1, 0]);
    }
}

/// A graph that is only built and printed is harmless, whatever it is.
#[test]
fn building_and_printing_is_safe() {
    let node = source("CPU", vec![UOp::constant(Const::from(1i64), DType::I32)]);
    assert!(picograd::ir::print(&node).contains("SOURCE") || !picograd::ir::print(&node).is_empty());
}

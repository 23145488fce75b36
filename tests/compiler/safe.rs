//! Routes by which safe code once reached unproven machine code or memory; each is an error now.
//! `docs/safety.md` has those that no longer compile.

#![forbid(unsafe_code)]

use picograd::compile::OptPolicy;
use picograd::compiler::device::Buffer;
use picograd::dtype::Const;
use picograd::exec::ScheduleItem;
use picograd::ir::{Arg, AxisKind, Custom, DeviceName, Fold, Op, Source, Src, UOp};
use picograd::opt::Kernel;
use picograd::tensor::CustomKernel;
use picograd::testing::{BoundedValue, Case, Setup, SetupOpts, check};
use picograd::{DType, Device, Jit, SymInt, Tensor, Variable, compile};
use std::rc::Rc;
use std::sync::Arc;

/// The devices whose kernels this machine runs.
const DEVICES: [&str; 2] = ["INTERP", "CPU"];

fn there() -> impl Iterator<Item = &'static str> {
    DEVICES.into_iter().filter(|d| Device::get(d).is_ok())
}

fn item(device: &str, len: usize) -> ScheduleItem {
    let x = Tensor::ones([len]).contiguous().realize().unwrap().to(device).realize().unwrap();
    (&x + 1.0).schedule().unwrap().remove(0)
}

/// A node of source text that would write out of bounds.
fn source(device: &str, args: Vec<UOp>) -> UOp {
    let text = "void evil(float* out, float* in, long share) { out[1 << 30] = 1; }";
    let source = Source {
        device: DeviceName::new(device),
        entry: "evil".into(),
        text: text.into(),
        grid: [1; 3],
        local: [1; 3],
        outputs: 1,
    };
    UOp::new(
        Op::Source,
        DType::VOID,
        args.into_iter().collect::<Src>(),
        Arg::Source(Arc::new(source)),
    )
}

fn refused(item: &ScheduleItem) {
    let error = match item.compile() {
        Ok(lowered) => lowered.run().err(),
        Err(e) => Some(e),
    };
    let error = error.expect("the modified item was run").to_string();
    assert!(error.contains("changed after it was planned"), "{error}");
}

#[test]
fn an_item_runs_as_it_was_planned() {
    for device in there() {
        item(device, 8).compile().unwrap().run().unwrap();
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
        assert!(short.tune(compile::beam::Beam { width: 1, seconds: 1.0 }).is_err());
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
fn a_modified_schedule_item_is_refused() {
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
        item.compile().unwrap().check().unwrap();
        let onto_itself =
            ScheduleItem::Copy { to: from.clone(), from: from.clone(), proof: proof.clone() };
        refused(&onto_itself);
        let reversed =
            ScheduleItem::Copy { to: from.clone(), from: to.clone(), proof: proof.clone() };
        refused(&reversed);
    }
}

#[test]
fn with_choice_cannot_replace_the_kernel() {
    for device in there() {
        let long = item(device, 1 << 20);
        let ScheduleItem::Kernel { ast: other, .. } = &long else { panic!("a kernel") };
        let other = other.clone();
        let x = Tensor::ones([8]).contiguous().realize().unwrap().to(device).realize().unwrap();
        let chooser = move |_: &Kernel, _: &picograd::target::Target| Kernel::new(other.clone());
        let got = compile::with_opt_policy(OptPolicy::By(Rc::new(chooser)), || {
            (&x + 3.0).to_vec::<f32>()
        });
        assert!(got.unwrap_err().to_string().contains("chooses Opts returned another kernel"));
        assert_eq!((&x + 3.0).to_vec::<f32>().unwrap(), [4.0; 8]);
    }
}

#[test]
fn test_cases_with_custom_kernels_are_refused() {
    for device in ["INTERP", "CPU", "CPU:CLANG"] {
        if Device::get(device).is_err() {
            continue;
        }
        let arg =
            UOp::new(Op::DefineGlobal, DType::F32, Src::new(), Arg::Global { slot: 0, len: 4 });
        let custom = Custom {
            ast: source(device, vec![arg]),
            outputs: vec![(DType::F32, [4].into_iter().collect())],
        };
        let input = UOp::new(
            Op::Param,
            DType::F32,
            Src::new(),
            Arg::Param { slot: 0, len: 4, device: DeviceName::new("HERE") },
        );
        let kernel = UOp::new(
            Op::Kernel,
            DType::VOID,
            [input.clone()].into_iter().collect::<Src>(),
            Arg::Kernel(Arc::new(custom)),
        );
        let output =
            UOp::new(Op::Output, DType::F32, [kernel].into_iter().collect::<Src>(), Arg::Output(0));
        let setup = Setup { device, choose: SetupOpts::Nothing, in_place: false, quick: false };
        let nothing: Vec<BoundedValue> = Vec::new();
        let case = Case { outputs: vec![output], inputs: vec![vec![0; 16]] };
        let e = format!("{}", check(&case, &nothing, &setup).unwrap_err());
        assert!(e.contains("is not allowed in a case"), "{e}");
        // An input that is shorter than its declared length.
        let case = Case { outputs: vec![input], inputs: vec![vec![0; 4]] };
        let e = format!("{}", check(&case, &nothing, &setup).unwrap_err());
        assert!(e.contains("are not those of"), "{e}");
    }
}

/// Kernels assume that a bool is 0 or 1, and prove indices with it.
#[test]
fn a_byte_of_a_bool_is_one_or_zero() {
    for device in there() {
        let flags = Tensor::from_bytes(&[0, 1, 2, 7, 255, 128], DType::BOOL, [6]).to(device);
        assert_eq!(flags.to_bytes().unwrap(), [0, 1, 1, 1, 1, 1]);
        let at = flags.cast(DType::I32);
        assert_eq!(at.to_vec::<i32>().unwrap(), [0, 1, 1, 1, 1, 1]);
        let table = Tensor::new([10i32, 20]).to(device);
        assert_eq!(table.gather(0, &at).to_vec::<i32>().unwrap(), [10, 20, 20, 20, 20, 20]);
        let x =
            Buffer::from_bytes(Device::get(device).unwrap().name(), DType::BOOL, &[9, 0]).unwrap();
        assert_eq!(x.read().unwrap(), [1, 0]);
    }
}

/// A bool of uninitialized memory could be any byte.
#[test]
fn a_kernel_writes_every_bool_of_its_output() {
    let x = Tensor::arange(0, 4, 1).realize().unwrap();
    let made = |by: i64| {
        let kernel = CustomKernel::new(move |outputs, inputs| {
            let i = UOp::range(4, 0, AxisKind::Global);
            vec![outputs[0].at(&i * by).store(inputs[0].at(&i).load().lt(2i64), &[i])]
        });
        Tensor::custom_kernel(&[&x], &[(&[4 * by as usize], DType::BOOL)], kernel)
    };
    assert_eq!(made(1).unwrap()[0].to_vec::<bool>().unwrap(), [true, true, false, false]);
    let e = made(2).unwrap_err().to_string();
    assert!(e.contains("not every element of output 0 is stored"), "{e}");
}

#[test]
fn elements_are_of_the_dtypes_of_tensors() {
    for dtype in [DType::F32.vec(4), DType::BOOL.vec(2), DType::INDEX, DType::VOID] {
        let e = Tensor::try_from_bytes(&[7; 16], dtype, [16 / dtype.itemsize().max(1)])
            .unwrap_err()
            .to_string();
        assert!(e.contains("from_bytes: a tensor cannot hold"), "{e}");
        let x = Tensor::new([1.0f32; 4]);
        let kernel = CustomKernel::new(|_, _| panic!("the dtype is refused before"));
        let e = Tensor::custom_kernel(&[&x], &[(&[4], dtype)], kernel).unwrap_err().to_string();
        assert!(e.contains("custom_kernel: a tensor cannot hold"), "{e}");
    }
}

fn variable(name: &str, min: i64, max: i64, value: i64) -> SymInt {
    Variable::new(name, min, max).unwrap().bind(value).unwrap()
}

/// Sums with a term that overflows 64 bits or the address space, although their value may be small.
fn wild() -> Vec<SymInt> {
    let (a, b) = (variable("a", 1, 1000, 1000), variable("b", 1, 1, 1));
    let p = i64::MAX - 8;
    vec![
        &a + p - &b * p,
        &b * p - p + &a,
        &a * p,
        &a * i64::MIN,
        &a + i64::MAX + i64::MAX + 2 - i64::MAX - i64::MAX,
        &a * (1 << 60) * 16,
        &a * (1 << 40) - &b * (1 << 40),
        variable("n", 1, i64::from(i32::MAX), 5) * (1 << 20),
    ]
}

/// Kernels compute modulo 2^64, so every part of a size or index must fit 64 bits.
#[test]
fn a_size_that_wraps_is_refused() {
    let x = Tensor::arange(0, 8, 1).realize().unwrap();
    for len in wild() {
        let says = |made: picograd::Result<Tensor>, op: &str| {
            let made = made.and_then(|t| t.contiguous().realize());
            let e = made.err().unwrap_or_else(|| panic!("{op} took {len}")).to_string();
            assert!(
                e.starts_with(&format!("{op}: ")) && e.contains("cannot be a size or an index"),
                "{e}"
            );
        };
        says(Tensor::try_zeros(&len), "zeros");
        says(Tensor::try_ones((&len, 2)), "ones");
        says(Tensor::try_full(&len, 1i32), "full");
        says(Tensor::try_rand(&len), "rand");
        says(Tensor::try_randn(&len), "randn");
        says(Tensor::try_randint(&len, 0, 4), "randint");
        says(Tensor::try_random_bits(&len), "random_bits");
        says(Tensor::new([7]).try_expand(&len), "expand");
        says(x.try_reshape(&len), "reshape");
        says(x.try_shrink_to(&len), "shrink_to");
        says(x.try_i(&len), "i");
        says(x.try_i(..&len), "i");
        says(x.try_i(len.clone()..&len + 1), "i");
        says(x.try_i(..&len - 990), "i");
    }
    // No part overflows.
    let n = variable("n", 1, 8, 5);
    assert_eq!(x.i(..&n * 1000 - &n * 999).to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4]);
    // A size that is always negative is refused.
    assert!(Tensor::try_zeros(variable("m", 1, 1, 1) - 10).is_err());
}

/// As a number, such a sum is modulo 2^64, like sums of `i64`. Its bounds are those of `i64`.
#[test]
fn symbolic_numbers_wrap_at_64_bits() {
    for sum in wild() {
        let value = Tensor::from(&sum).cast(DType::I64).to_vec::<i64>().unwrap();
        assert_eq!(value, [sum.value()], "{sum}");
        assert!(sum.min() <= sum.value() && sum.value() <= sum.max(), "{sum}");
    }
    let a = variable("a", 1, 1000, 7);
    let there_and_back = &a + i64::MAX + 5 - i64::MAX;
    assert_eq!(
        (there_and_back.value(), there_and_back.min(), there_and_back.max()),
        (12, i64::MIN, i64::MAX)
    );
}

/// User code may move an argument while another lazy argument is computed.
#[test]
fn replay_refuses_a_moved_argument() {
    for device in ["NULL", "INTERP"] {
        let mut sum = Jit::new(|(a, b): (Tensor, Tensor)| Ok(a + b));
        let stored = || Tensor::new([1.0f32; 64]).realize().unwrap();
        for _ in 0..3 {
            assert_eq!(sum.call((stored(), stored())).unwrap().to_vec::<f32>().unwrap(), [2.0; 64]);
        }
        let (lazy, b) = (stored() * 3.0, stored());
        if b.device().as_str() == device {
            continue;
        }
        let moved = b.clone();
        let chooser = move |k: &Kernel, _: &picograd::target::Target| {
            moved.to_(device).unwrap();
            k.clone()
        };
        let got = compile::with_opt_policy(OptPolicy::By(Rc::new(chooser)), || {
            sum.call((lazy, b.clone()))
        });
        let e = got.map(drop).unwrap_err().to_string();
        assert!(b.device().as_str() == device && e.contains("the memory of an argument"), "{e}");
    }
}

/// An element of a buffer if the mask holds, else 7.
fn masked(buffer: &UOp, index: UOp, mask: UOp) -> UOp {
    let place = UOp::new(
        Op::Index,
        DType::I32,
        [buffer.clone(), index, mask].into_iter().collect::<Src>(),
        Arg::None,
    );
    let other = UOp::constant(7i64, DType::I32);
    UOp::new(Op::Load, DType::I32, [place, other].into_iter().collect::<Src>(), Arg::None)
}

/// A mask that does not bound a data index becomes a literal in some lanes when its range is
/// upcast, and is dropped there.
#[test]
fn a_mask_bounds_the_index_in_every_lane() {
    let far = [1 << 28, -(1 << 28), 1, 1 << 28];
    for name in ["INTERP", "CPU:CLANG", "CPU:LLVM", "CUDA", "CL"] {
        let Ok(device) = Device::get(name) else { continue };
        let (at, table) = (
            Tensor::new(far).to(name).realize().unwrap(),
            Tensor::new([10i32, 20, 30, 40]).to(name).realize().unwrap(),
        );
        let value = |at: &UOp, table: &UOp, r: &UOp| {
            masked(table, at.at(r).load().cast(DType::INDEX), r.differs(0i64))
        };
        let kernel = CustomKernel::new(|outputs, inputs| {
            let r = UOp::range(4, 0, AxisKind::Global);
            vec![outputs[0].at(&r).store(value(&inputs[0], &inputs[1], &r), &[r])]
        });
        let got =
            Tensor::custom_kernel(&[&at, &table], &[(&[4], DType::I32)], kernel).unwrap().remove(0);
        assert_eq!(got.to_vec::<i32>().unwrap(), [7, 7, 20, 7], "{name}");
        // The same under an unrolled reduction.
        let kernel = CustomKernel::new(|outputs, inputs| {
            let (i, r) = (UOp::range(2, 1, AxisKind::Global), UOp::range(4, 0, AxisKind::Reduce));
            let sum = value(&inputs[0], &inputs[1], &r).fold(Fold::Add, &[r]);
            vec![outputs[0].at(&i).store(sum, &[i])]
        });
        let got =
            Tensor::custom_kernel(&[&at, &table], &[(&[2], DType::I32)], kernel).unwrap().remove(0);
        assert_eq!(got.to_vec::<i32>().unwrap(), [41, 41], "{name}");
        // Kernels that a beam search runs have the bounds in their mask too, for any Opts.
        let buffer =
            |slot| UOp::new(Op::DefineGlobal, DType::I32, Src::new(), Arg::Global { slot, len: 4 });
        let r = UOp::range(4, 0, AxisKind::Global);
        let store = buffer(0).at(&r).store(value(&buffer(1), &buffer(2), &r), &[r]);
        let compiled =
            compile::compiled(&UOp::sink([store].into_iter().collect::<Src>()), &device).unwrap();
        let free = |u: &&UOp| {
            u.op() == Op::Load
                && u.src()[0].src().len() == 2
                && u.src()[0].src()[0].arg() == buffer(2).arg()
        };
        assert_eq!(compiled.program.uops.iter().find(free), None, "{name} {:?}", compiled.opts);
    }
}

/// A condition around a reduction disappears when the reduction is unrolled, so it proves nothing
/// about its loads.
#[test]
fn a_condition_around_a_load_does_not_bound_its_index() {
    let x = Tensor::arange(0, 4, 1).realize().unwrap();
    let kernel = CustomKernel::new(|outputs, inputs| {
        let (i, r) = (UOp::range(8, 0, AxisKind::Global), UOp::range(4, 1, AxisKind::Reduce));
        let (value, none) =
            (inputs[0].at(&i).load() + r.cast(DType::I32), UOp::constant(0i64, DType::I32));
        let sum = i.lt(4i64).select(&value, &none).fold(Fold::Add, &[r]);
        vec![outputs[0].at(&i).store(sum, &[i])]
    });
    let e = Tensor::custom_kernel(&[&x], &[(&[8], DType::I32)], kernel).unwrap_err().to_string();
    assert!(e.contains("inside its buffers"), "{e}");
}

#[test]
fn a_masked_load_has_an_alternative() {
    let x = Tensor::arange(0, 4, 1).realize().unwrap();
    let kernel = CustomKernel::new(|outputs, inputs| {
        let i = UOp::range(8, 0, AxisKind::Global);
        let place = [inputs[0].clone(), i.clone(), i.lt(4i64)].into_iter().collect::<Src>();
        let load = UOp::new(Op::Index, DType::I32, place, Arg::None).load();
        vec![outputs[0].at(&i).store(load, &[i])]
    });
    let e = Tensor::custom_kernel(&[&x], &[(&[8], DType::I32)], kernel).unwrap_err().to_string();
    assert!(e.contains("a masked load needs an alternative value"), "{e}");
}

/// Machine division faults unless lowering has proven its operands.
#[test]
fn machine_division_is_refused() {
    let input = |slot| {
        UOp::new(
            Op::Param,
            DType::I32,
            Src::new(),
            Arg::Param { slot, len: 8, device: DeviceName::new("HERE") },
        )
    };
    let bytes = |v: i32| [v; 8].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let buffer =
        |slot| UOp::new(Op::DefineGlobal, DType::I32, Src::new(), Arg::Global { slot, len: 8 });
    for op in [Op::CDiv, Op::CMod] {
        for device in there() {
            for (a, b) in [(1, 0), (i32::MIN, -1)] {
                let setup =
                    Setup { device, choose: SetupOpts::Default, in_place: false, quick: false };
                let case = Case {
                    outputs: vec![input(0).binary(op, input(1))],
                    inputs: vec![bytes(a), bytes(b)],
                };
                let e =
                    format!("{}", check(&case, &Vec::<BoundedValue>::new(), &setup).unwrap_err());
                assert!(e.contains("only in kernels after lowering"), "{e}");
            }
            let r = UOp::range(8, 0, AxisKind::Global);
            let value = buffer(1).at(&r).load().binary(op, buffer(2).at(&r).load());
            let ast = UOp::sink([buffer(0).at(&r).store(value, &[r])].into_iter().collect::<Src>());
            let e = compile::compiled(&ast, &Device::get(device).unwrap())
                .map(drop)
                .unwrap_err()
                .to_string();
            assert!(e.contains("is not allowed in an unoptimized kernel"), "{e}");
        }
    }
}

/// Another thread could overwrite an index between its mask and its use.
#[test]
fn an_index_must_not_read_an_output() {
    let buffer =
        |slot| UOp::new(Op::DefineGlobal, DType::I32, Src::new(), Arg::Global { slot, len: 8 });
    let r = UOp::range(8, 0, AxisKind::Global);
    let value = masked(&buffer(1), buffer(0).at(&r).load().cast(DType::INDEX), r.differs(0i64));
    let ast = UOp::sink([buffer(0).at(&r).store(value, &[r])].into_iter().collect::<Src>());
    let e =
        compile::compiled(&ast, &Device::get("CPU").unwrap()).map(drop).unwrap_err().to_string();
    assert!(e.contains("computed from a buffer that the kernel stores to"), "{e}");
}

/// A kernel that is compiled by hand is proven first, because a beam search would run it.
#[test]
fn a_kernel_to_compile_is_proven() {
    let buffer =
        |slot, len| UOp::new(Op::DefineGlobal, DType::F32, Src::new(), Arg::Global { slot, len });
    let copy = |steps: usize| {
        let i = UOp::range(steps as i64, 0, AxisKind::Global);
        let value = buffer(1, 64).at(&i).load();
        UOp::sink([buffer(0, 8).at(&i).store(value, &[i])].into_iter().collect::<Src>())
    };
    for name in there() {
        let device = Device::get(name).unwrap();
        let refused = |ast: &UOp, why: &str| {
            let e = compile::compiled(ast, &device).map(drop).unwrap_err().to_string();
            assert!(e.starts_with("compile: compiled: ") && e.contains(why), "{e}");
        };
        compile::compiled(&copy(8), &device).unwrap();
        refused(&copy(9), "");
        refused(&source(name, vec![buffer(0, 8)]), "source text");
        refused(&UOp::int(1), "the root of a kernel is a sink");
        let not_closed = UOp::range(8, 0, AxisKind::Global);
        let stores = [buffer(0, 8).at(&not_closed).store(1.0f32, &[])];
        refused(&UOp::sink(stores.into_iter().collect::<Src>()), "is closed");
    }
}

#[test]
fn a_test_case_that_overflows_is_refused() {
    let setup =
        Setup { device: "INTERP", choose: SetupOpts::Nothing, in_place: false, quick: false };
    let nothing: Vec<BoundedValue> = Vec::new();
    let input = |len: usize| {
        UOp::new(
            Op::Param,
            DType::F32,
            Src::new(),
            Arg::Param { slot: 0, len, device: DeviceName::new("HERE") },
        )
    };
    for (len, inputs) in
        [(1 << 62, vec![vec![]]), ((1 << 62) + 1, vec![vec![0; 4]]), (1 << 62, vec![])]
    {
        let case = Case { outputs: vec![input(len)], inputs };
        let e = format!("{}", check(&case, &nothing, &setup).unwrap_err());
        assert!(e.contains("are not those of"), "{e}");
    }
}

/// Building and printing any graph is safe.
#[test]
fn building_and_printing_is_safe() {
    let node = source("CPU", vec![UOp::constant(Const::from(1i64), DType::I32)]);
    assert!(
        picograd::ir::print(&node).contains("SOURCE") || !picograd::ir::print(&node).is_empty()
    );
}

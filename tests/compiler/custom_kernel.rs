//! Custom kernels, as nodes and as source text: in a graph, with gradients, and the errors.

use picograd::compile::beam::Beam;
use picograd::dtype::Element;
use picograd::ir::{AxisKind, Fold, Op, UOp};
use picograd::tensor::CustomKernel;
use picograd::{DType, Device, Tensor, opt};

type Build<'a> = dyn Fn(&[UOp], &[UOp]) -> Vec<UOp> + 'a;

fn global(extent: usize, id: u32) -> UOp {
    UOp::range(extent, id, AxisKind::Global)
}

/// The available devices that run node kernels.
fn devices() -> Vec<&'static str> {
    ["INTERP", "CPU:CLANG", "CPU:LLVM", "CPU:1", "CUDA", "CL"]
        .into_iter()
        .filter(|d| Device::get(d).is_ok())
        .collect()
}

/// The kernel x·y + 1 over n elements.
fn product<'a>(n: usize) -> CustomKernel<'a> {
    CustomKernel::new(move |outputs, inputs| {
        let i = global(n, 0);
        let value = inputs[0].at(&i).load() * inputs[1].at(&i).load() + 1.0;
        vec![outputs[0].at(&i).store(value, &[i])]
    })
}

/// The same kernel with its gradient.
fn product_with_grad<'a>(n: usize) -> CustomKernel<'a> {
    product(n).grad(|g, x| Ok(vec![&g[0] * &x[1], &g[0] * &x[0]]))
}

fn run<T: Element>(inputs: &[&Tensor], output: (&[usize], DType), kernel: CustomKernel) -> Vec<T> {
    Tensor::custom_kernel(inputs, &[output], kernel).unwrap().remove(0).to_vec().unwrap()
}

#[test]
fn node_kernels_run_on_every_device() {
    for device in devices() {
        let x = Tensor::arange(0, 6, 1).cast(DType::F32).to(device).realize().unwrap();
        let y = (&x * 2.0).reshape([2, 3]).t();
        // A kernel gets row-major inputs, also from views.
        let got = run::<f32>(&[&x, &y], (&[6], DType::F32), product(6));
        assert_eq!(got, [1.0, 7.0, 5.0, 25.0, 17.0, 51.0], "{device}");
        // A reduction, transcendental functions, a masked load and another dtype.
        let kernel = CustomKernel::new(|outputs, inputs| {
            let (i, k) = (global(4, 0), UOp::range(3, 1, AxisKind::Reduce));
            let at = &i + &k;
            let inside = at.lt(5i64);
            let index = UOp::new(
                Op::Index,
                DType::F32,
                [inputs[0].clone(), at, inside].into_iter().collect::<picograd::ir::Src>(),
                picograd::ir::Arg::None,
            );
            let zero = UOp::constant(0.0, DType::F32);
            let load = UOp::new(
                Op::Load,
                DType::F32,
                [index, zero].into_iter().collect::<picograd::ir::Src>(),
                picograd::ir::Arg::None,
            );
            let sum = load.unary(Op::Exp2).fold(Fold::Add, &[k]).cast(DType::I32);
            vec![outputs[0].at(&i).store(sum, &[i])]
        });
        assert_eq!(run::<i32>(&[&x], (&[4], DType::I32), kernel), [7, 14, 28, 25], "{device}");
    }
}

#[test]
fn kernels_can_have_several_outputs() {
    for device in devices() {
        let both = || {
            CustomKernel::new(|outputs, inputs| {
                let i = global(5, 0);
                let x = inputs[0].at(&i).load();
                vec![
                    outputs[0].at(&i).store(&x + 1i64, std::slice::from_ref(&i)),
                    outputs[1].at(UOp::int(4) - &i).store(x.cast(DType::F32), &[i]),
                ]
            })
        };
        let x = Tensor::arange(0, 5, 1).to(device);
        let outputs: [(&[usize], DType); 2] = [(&[5, 1], DType::I32), (&[5], DType::F32)];
        let list = Tensor::custom_kernel(&[&x], &outputs, both()).unwrap();
        assert_eq!((list[0].shape(), list[1].dtype()), (vec![5, 1], DType::F32));
        // The kernel runs once for one output alone, and for both with their consumers.
        assert_eq!(list[1].to_vec::<f32>().unwrap(), [4.0, 3.0, 2.0, 1.0, 0.0]);
        let list = Tensor::custom_kernel(&[&(&x * 2)], &outputs, both()).unwrap();
        let sum = list[0].reshape([5]) + &list[1];
        let own = |t: &Tensor| {
            t.schedule()
                .unwrap()
                .iter()
                .filter(|i| i.to_string().matches("Store").count() == 2)
                .count()
        };
        assert_eq!(own(&sum), 1, "{device}");
        assert_eq!(sum.to_vec::<f32>().unwrap(), [9.0, 9.0, 9.0, 9.0, 9.0], "{device}");
    }
}

#[test]
fn kernels_fuse_and_order_with_their_graph() {
    let x = Tensor::arange(0, 12, 1).cast(DType::F32).reshape([3, 4]).realize().unwrap();
    // Producers and consumers fuse as usual, and chained kernels run in order.
    let a = (&x + 1.0).i((1.., ..));
    let b =
        Tensor::custom_kernel(&[&a, &a], &[(&[2, 4], DType::F32)], product(8)).unwrap().remove(0);
    let c = Tensor::custom_kernel(&[&b.t(), &Tensor::ones([8])], &[(&[8], DType::F32)], product(8))
        .unwrap()
        .remove(0);
    let want: Vec<f32> = [0, 4, 1, 5, 2, 6, 3, 7].map(|i| ((i + 5) as f32).powi(2) + 2.0).to_vec();
    assert_eq!((&c * 1.0).to_vec::<f32>().unwrap(), want);
    assert_eq!(c.sum(..).item::<f32>().unwrap(), want.iter().sum::<f32>());
    // A later assignment does not change earlier results.
    let y = x.contiguous();
    let lazy =
        Tensor::custom_kernel(&[&y, &y], &[(&[12], DType::F32)], product(12)).unwrap().remove(0);
    x.assign(0.0).unwrap();
    Tensor::realize_many(&[&x, &lazy]).unwrap();
    assert_eq!((lazy.to_vec::<f32>().unwrap()[3], x.to_vec::<f32>().unwrap()[3]), (10.0, 0.0));
    // The second call uses the schedule cache: equal kernels are one node.
    assert_eq!(product_node(), product_node());
}

fn product_node() -> UOp {
    let x = Tensor::ones([3]);
    Tensor::custom_kernel(&[&x, &x], &[(&[3], DType::F32)], product(3)).unwrap()[0].uop()
}

#[test]
fn custom_gradients_match_differences() {
    let values = [0.5f32, -1.5, 2.0, 3.0];
    let loss = |x: &Tensor| {
        let y = x.sin();
        let z = Tensor::custom_kernel(&[&y, x], &[(&[4], DType::F32)], product_with_grad(4))
            .unwrap()
            .remove(0);
        (z.square() * Tensor::new([1.0f32, 2.0, 3.0, 4.0])).sum(..)
    };
    let x = Tensor::new(values).as_param();
    loss(&x).backward();
    let got = x.grad().unwrap().to_vec::<f32>().unwrap();
    for i in 0..4 {
        let at = |d: f32| {
            let mut v = values;
            v[i] += d;
            loss(&Tensor::new(v)).item::<f32>().unwrap() as f64
        };
        let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
        assert!(
            (got[i] as f64 - slope).abs() < 2e-2 * slope.abs().max(1.0),
            "gradient {i} is {} and should be {slope}",
            got[i]
        );
    }
    // Each of two outputs contributes to the gradient. A gradient is a graph and is differentiable.
    let two = CustomKernel::new(|outputs, inputs| {
        let i = global(2, 0);
        let x = inputs[0].at(&i).load();
        vec![
            outputs[0].at(&i).store(&x * &x, std::slice::from_ref(&i)),
            outputs[1].at(&i).store(&x * 3.0, &[i]),
        ]
    });
    let two = two.grad(|g, x| Ok(vec![&g[0] * &x[0] * 2.0 + &g[1] * 3.0]));
    let x = Tensor::new([5.0f32, 7.0]).as_param();
    let list =
        Tensor::custom_kernel(&[&x], &[(&[2], DType::F32), (&[2], DType::F32)], two).unwrap();
    let dx = (&list[0] + &list[1] * 10.0).sum(..).gradient(&[&x]).remove(0);
    assert_eq!(dx.to_vec::<f32>().unwrap(), [40.0, 44.0]);
    assert_eq!(dx.sum(..).gradient(&[&x])[0].to_vec::<f32>().unwrap(), [2.0, 2.0]);
    // A kernel without a gradient is an error only if its gradient is requested.
    let x = Tensor::new([1.0f32, 2.0]).as_param();
    let y = Tensor::custom_kernel(&[&x, &x], &[(&[2], DType::F32)], product(2)).unwrap().remove(0);
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 5.0]);
    let e = y.sum(..).try_backward().unwrap_err().to_string();
    assert!(e.contains("no gradient") && e.contains("CustomKernel::grad"), "{e}");
    let wrong = product(2).grad(|g, _| Ok(vec![g[0].clone()]));
    let y = Tensor::custom_kernel(&[&x, &x], &[(&[2], DType::F32)], wrong).unwrap().remove(0);
    assert!(y.sum(..).try_backward().unwrap_err().to_string().contains("got 1 for 2 inputs"));
}

#[test]
fn source_kernels_run_on_their_device() {
    let x = |device: &str| Tensor::arange(0, 8, 1).cast(DType::F32).to(device).realize().unwrap();
    if Device::get("CPU:CLANG").is_ok() {
        let twice = "void twice(float* out, const float* in, long share) { for (int i = 0; i < 4; \
                     i++) out[share * 4 + i] = in[share * 4 + i] * 2; }";
        // SAFETY: two threads write four floats each, of eight.
        let kernel =
            unsafe { CustomKernel::source("cpu:clang", "twice", twice) }.launch([2, 1, 1], [1; 3]);
        let kernel = kernel.grad(|g, _| Ok(vec![&g[0] * 2.0]));
        let p = x("CPU:CLANG").as_param();
        let y =
            Tensor::custom_kernel(&[&(&p + 1.0)], &[(&[8], DType::F32)], kernel).unwrap().remove(0);
        for item in y.schedule().unwrap().iter().filter(|i| i.to_string().contains("twice")) {
            assert!(item.tune(Beam { width: 1, seconds: 1.0 }).unwrap().is_none());
            assert!(item.compile_with(&[]).is_ok());
            let e =
                item.compile_with(&opt::parse("UPCAST:0:4").unwrap()).err().unwrap().to_string();
            assert!(e.contains("given as source"), "{e}");
        }
        assert_eq!(
            (&y * 1.0).to_vec::<f32>().unwrap(),
            [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]
        );
        y.sum(..).backward();
        assert_eq!(p.grad().unwrap().to_vec::<f32>().unwrap(), [2.0; 8]);
        // SAFETY: neither is run.
        let broken = unsafe {
            [("f", "void f(float* out { }"), ("absent", "")]
                .map(|(entry, text)| CustomKernel::source("CPU:CLANG", entry, text))
        };
        for (kernel, says) in broken.into_iter().zip(["error", "absent"]) {
            let y = Tensor::custom_kernel(&[&x("CPU:CLANG")], &[(&[8], DType::F32)], kernel)
                .unwrap()
                .remove(0);
            let e = y.to_vec::<f32>().unwrap_err().to_string();
            assert!(
                e.starts_with("compile: ") && e.contains(says),
                "the error has the compiler's message: {e}"
            );
        }
    }
    if Device::get("CPU:LLVM").is_ok() {
        let text = "define void @first_entry(ptr %bufs, i64 %share, ptr %scratch) {
  %p = load ptr, ptr %bufs
  %q = getelementptr ptr, ptr %bufs, i64 1
  %in = load ptr, ptr %q
  %x = load float, ptr %in
  %y = fadd float %x, 5.0
  store float %y, ptr %p
  ret void
}
";
        // SAFETY: it writes one float and reads one.
        let kernel = unsafe { CustomKernel::source("CPU:LLVM", "first", text) };
        assert_eq!(run::<f32>(&[&x("CPU:LLVM")], (&[1], DType::F32), kernel), [5.0]);
        // SAFETY: it is not run.
        let kernel = unsafe { CustomKernel::source("CPU:LLVM", "first", "not a text") };
        let y = Tensor::custom_kernel(&[&x("CPU:LLVM")], &[(&[1], DType::F32)], kernel)
            .unwrap()
            .remove(0);
        assert!(y.to_vec::<f32>().unwrap_err().to_string().contains("first"));
    }
    let cuda = "extern \"C\" __global__ void add(float* out, const float* in) { int i = \
                blockIdx.x * blockDim.x + threadIdx.x; out[i] = in[i] + 3; }";
    let cl = "__kernel void add(__global float* out, __global const float* in, ulong o, ulong p) \
              { int i = get_global_id(0); out[o + i] = in[p + i] + 3; }";
    for (device, text) in
        [("CUDA", cuda), ("CL", cl)].into_iter().filter(|d| Device::get(d.0).is_ok())
    {
        // SAFETY: two workgroups of four threads, for eight floats.
        let kernel =
            unsafe { CustomKernel::source(device, "add", text) }.launch([2, 1, 1], [4, 1, 1]);
        let got = run::<f32>(&[&(x(device) + 1.0)], (&[8], DType::F32), kernel);
        assert_eq!(got, [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0], "{device}");
        // SAFETY: it is not run.
        let kernel = unsafe { CustomKernel::source(device, "add", "not a text") };
        let y =
            Tensor::custom_kernel(&[&x(device)], &[(&[8], DType::F32)], kernel).unwrap().remove(0);
        assert!(y.to_vec::<f32>().unwrap_err().to_string().starts_with("compile: "), "{device}");
    }
    // SAFETY: none of these is run.
    let source = |device: &str, entry: &str| unsafe { CustomKernel::source(device, entry, "…") };
    let error = |t: &Tensor, k: CustomKernel| {
        Tensor::custom_kernel(&[t], &[(&[8], DType::F32)], k)
            .and_then(|y| y[0].to_vec::<f32>())
            .unwrap_err()
            .to_string()
    };
    assert!(
        error(&x("INTERP"), source("CUDA", "f"))
            .contains("the source is for CUDA, but the tensors are on INTERP")
    );
    assert!(error(&x("INTERP"), source("INTERP", "f")).contains("runs no source"));
    assert!(error(&x("INTERP"), source("abacus", "f")).contains("unknown device \"abacus\""));
    assert!(error(&x("INTERP"), source("INTERP", "a b")).contains("not a function name"));
    assert!(
        error(&x("INTERP"), source("INTERP", "f").launch([0, 1, 1], [1; 3])).contains("is empty")
    );
}

/// LLVM runs in this process and trusts an invalid module, so source text is always verified, also
/// with `SPEC=0` and in release builds.
#[test]
fn text_for_llvm_is_verified() {
    if Device::get("CPU:LLVM").is_err() {
        return;
    }
    let text = "define void @f_entry(ptr %a, i64 %i, ptr %s) {\nentry:\n  %c = icmp eq i64 %i, \
                0\n  br i1 %c, label %l, label %r\nl:\n  %x = add i64 1, %i\n  br label %r\nr:\n  \
                %p = getelementptr i8, ptr %a, i64 %x\n  ret void\n}\n";
    let x = Tensor::ones([4]).contiguous().to("CPU:LLVM").realize().unwrap();
    // SAFETY: it writes nothing, and is refused.
    let kernel = unsafe { CustomKernel::source("CPU:LLVM", "f", text) };
    let e = Tensor::custom_kernel(&[&x], &[(&[4], DType::F32)], kernel).unwrap()[0]
        .to_vec::<f32>()
        .unwrap_err()
        .to_string();
    assert!(e.contains("rejects the module: "), "{e}");
}

#[test]
fn invalid_kernels_are_refused() {
    let x = Tensor::arange(0, 4, 1).realize().unwrap();
    let error = |nodes: &Build<'_>| {
        let kernel = CustomKernel::new(|outputs, inputs| nodes(outputs, inputs));
        Tensor::custom_kernel(&[&x], &[(&[4], DType::I32)], kernel).unwrap_err().to_string()
    };
    let i = || global(4, 0);
    let one = |o: &[UOp], value: UOp| vec![o[0].at(i()).store(value, &[i()])];
    // Indices out of bounds on either side, in loads and stores.
    assert!(error(&|o, x| one(o, x[0].at(i() + 1i64).load())).contains("inside its buffers"));
    assert!(error(&|o, x| one(o, x[0].at(i() - 1i64).load())).contains("inside its buffers"));
    assert!(
        error(&|o, x| vec![o[0].at(i() * 2i64).store(x[0].at(i()).load(), &[i()])])
            .contains("inside its buffers")
    );
    let wide = global(5, 0);
    assert!(
        error(&|o, x| vec![
            o[0].at(&wide).store(x[0].at(0i64).load(), std::slice::from_ref(&wide))
        ])
        .contains("inside its buffers")
    );
    // Indices computed from data.
    assert!(
        error(&|o, x| one(o, x[0].at(x[0].at(i()).load().cast(DType::INDEX)).load()))
            .contains("custom_kernel")
    );
    assert!(error(&|o, _| one(o, UOp::constant(1i64, DType::I32))).contains("input 0 is not read"));
    assert!(
        error(&|o, x| one(o, x[0].at(i()).load() + o[0].at(i()).load()))
            .contains("reads an output")
    );
    assert!(
        error(&|_, x| vec![x[0].at(i()).store(x[0].at(i()).load(), &[i()])])
            .contains("nothing is stored to output 0")
    );
    assert!(
        error(&|o, x| one(o, x[0].at(i()).load().cast(DType::F32)))
            .contains("the dtype of its buffer")
    );
    assert!(error(&|_, x| vec![x[0].at(i()).load()]).contains("sink of a kernel are stores"));
    assert!(
        error(&|o, x| vec![o[0].at(i()).store(x[0].at(i()).load(), &[])]).contains("is closed")
    );
    let loops = UOp::range(4, 0, AxisKind::Local);
    assert!(
        error(&|o, x| vec![
            o[0].at(&loops).store(x[0].at(&loops).load(), std::slice::from_ref(&loops))
        ])
        .contains("kind Global")
    );
    assert!(error(&|_, _| vec![]).contains("nothing is stored to output 0"));
    // An unread input, iterations that store to one element, one range for two nested reductions,
    // and reductions over other kinds of ranges.
    let nothing = UOp::constant(0i64, DType::I32);
    assert!(error(&|o, x| one(o, x[0].at(i()).load() * &nothing)).contains("input 0 is not read"));
    assert!(
        error(&|o, x| vec![o[0].at(0i64).store(x[0].at(i()).load(), &[i()])])
            .contains("store to distinct elements")
    );
    assert!(
        error(&|o, x| vec![o[0].at(i() / 2i64).store(x[0].at(i()).load(), &[i()])])
            .contains("store to distinct elements")
    );
    // Two stores to one element, in the same iteration or in two.
    let (at_most, value) = ("two stores write distinct elements", |x: &[UOp]| x[0].at(i()).load());
    assert!(
        error(&|o, x| vec![
            o[0].at(i()).store(value(x), &[i()]),
            o[0].at(i()).store(value(x) + 1i64, &[i()])
        ])
        .contains(at_most)
    );
    let backward = UOp::int(3) - i();
    assert!(
        error(&|o, x| vec![
            o[0].at(i()).store(value(x), &[i()]),
            o[0].at(&backward).store(value(x), &[i()])
        ])
        .contains(at_most)
    );
    let fold = |x: &[UOp], kind: AxisKind| {
        let k = UOp::range(4, 1, kind);
        let most = x[0].at(&k).load().fold(Fold::Max, std::slice::from_ref(&k));
        (x[0].at(&k).load() + most).fold(Fold::Add, &[k])
    };
    assert!(error(&|o, x| one(o, fold(x, AxisKind::Reduce))).contains("give each its own range"));
    assert!(error(&|o, x| one(o, fold(x, AxisKind::Group))).contains(
        "of the kind Reduce with a constant extent of 1 or more, because a reduction closes it"
    ));
    // Wrong counts, shapes and devices.
    assert!(
        Tensor::custom_kernel(&[], &[(&[1], DType::I32)], product(1))
            .unwrap_err()
            .to_string()
            .contains("got 0 and 1")
    );
    assert!(
        Tensor::custom_kernel(&[&x], &[], product(1))
            .unwrap_err()
            .to_string()
            .contains("got 1 and 0")
    );
    assert!(
        Tensor::custom_kernel(&[&x], &[(&[0, 4], DType::I32)], product(1))
            .unwrap_err()
            .to_string()
            .contains("is empty")
    );
    let there = Tensor::new([1, 2]).to("interp").realize().unwrap();
    let e = Tensor::custom_kernel(&[&x, &there], &[(&[1], DType::I32)], product(1))
        .unwrap_err()
        .to_string();
    assert!(e.contains("one operand is on CPU and another on INTERP"), "{e}");
}

/// Several stores to one output are accepted only if they write disjoint elements.
#[test]
fn stores_to_one_output_must_be_disjoint() {
    let x = Tensor::arange(0, 8, 1).realize().unwrap();
    for device in devices() {
        let x = x.to(device);
        let run = |len: usize, nodes: &Build<'_>| {
            let kernel = CustomKernel::new(|outputs, inputs| nodes(outputs, inputs));
            let made = Tensor::custom_kernel(&[&x], &[(&[len], DType::I32)], kernel);
            made.map(|y| y[0].to_vec::<i32>().unwrap()).map_err(|e| e.to_string())
        };
        let i = || global(8, 0);
        let two = |o: &[UOp], x: &[UOp], a: UOp, b: UOp, ranges: &[UOp], at: UOp| {
            let value = x[0].at(at).load();
            vec![o[0].at(a).store(&value, ranges), o[0].at(b).store(&value + 10i64, ranges)]
        };
        let beside = run(16, &|o, x| two(o, x, i(), i() + 8i64, &[i()], i())).unwrap();
        assert_eq!(beside, (0..8).chain(10..18).collect::<Vec<_>>(), "{device}");
        let interleaved =
            run(16, &|o, x| two(o, x, i() * 2i64, i() * 2i64 + 1i64, &[i()], i())).unwrap();
        assert_eq!(interleaved, (0..8).flat_map(|n| [n, n + 10]).collect::<Vec<_>>(), "{device}");
        let (r, c) = (|| global(2, 0), || global(4, 1));
        let at = || r() * 8i64 + c();
        let columns =
            run(16, &|o, x| two(o, x, at(), at() + 4i64, &[r(), c()], r() * 4i64 + c())).unwrap();
        assert_eq!(columns, [0, 1, 2, 3, 10, 11, 12, 13, 4, 5, 6, 7, 14, 15, 16, 17], "{device}");
        // The columns overlap in one element.
        let wrong = run(16, &|o, x| two(o, x, at(), at() + 3i64, &[r(), c()], r() * 4i64 + c()))
            .unwrap_err();
        assert!(wrong.contains("two stores write distinct elements"), "{wrong}");
    }
}

#[test]
fn kernels_run_on_sharded_inputs() {
    let names = ["CPU:0", "CPU:1", "CPU:2"];
    let x = Tensor::arange(0, 6, 1).cast(DType::F32).realize().unwrap();
    let want = run::<f32>(&[&x, &x], (&[6], DType::F32), product(6));
    let sharded = x.shard(&names, 0).as_param();
    let y = Tensor::custom_kernel(
        &[&sharded, &Tensor::ones([6])],
        &[(&[6], DType::F32)],
        product_with_grad(6),
    )
    .unwrap()
    .remove(0);
    let z =
        Tensor::custom_kernel(&[&sharded, &sharded], &[(&[6], DType::F32)], product_with_grad(6))
            .unwrap()
            .remove(0);
    assert_eq!((y * 0.0 + &z).to_vec::<f32>().unwrap(), want);
    z.sum(..).backward();
    assert_eq!(sharded.grad().unwrap().to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
}

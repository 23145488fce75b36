//! Dtypes that a device does not support, tested without such a device: a kernel that needs one is
//! an error, and no other kernel needs one. `docs/devices.md` has the table.

use crate::common::kernels;
use picograd::dtype::DType;
use picograd::heuristic;
use picograd::opt::Kernel;
use picograd::render::{Fma, Metal, OpenCl, Renderer, Wgsl};
use picograd::target::Target;
use picograd::tensor::Rounding;
use picograd::{Error, Tensor, compile};

const LONG: [DType; 3] = [DType::F64, DType::I64, DType::U64];

/// The renderer of each target, with its unsupported dtypes.
fn targets() -> Vec<(Box<dyn Renderer>, &'static [DType])> {
    let short = Target::wgsl().without_64_bits();
    let wgsl = |fma| Box::new(Wgsl::with(short.clone(), 128 << 20, fma)) as Box<dyn Renderer>;
    vec![
        (Box::new(OpenCl::new()), &[]),
        (Box::new(OpenCl::with(Target::opencl().without_f64())), &LONG[..1]),
        (Box::new(Metal::new()), &LONG[..1]),
        (Box::new(Wgsl::new()), &LONG[..1]),
        (wgsl(Fma::Native), &LONG),
        (wgsl(Fma::Integers), &LONG),
    ]
}

/// The text of each kernel for a target, or the error of realizing it.
fn texts(t: &Tensor, renderer: &dyn Renderer) -> Result<Vec<String>, Error> {
    let text = |k: &Kernel| {
        let program =
            compile::lowered(&heuristic::choose(k, renderer.target()), renderer.target())?;
        renderer.render("kernel", &program.uops).map(|r| r.text())
    };
    kernels(t).iter().map(text).collect()
}

#[test]
fn unsupported_dtypes_are_errors() {
    let x = Tensor::new([1.0f32, 2.0, 5.0]).realize().unwrap();
    for (renderer, lacking) in targets() {
        let name = renderer.target().name;
        for dtype in DType::ALL {
            assert_eq!(
                renderer.target().lacks(*dtype),
                lacking.contains(dtype),
                "{dtype} of {name}"
            );
            // Stored, used only as an intermediate, and loaded.
            let stored = x.cast(*dtype).realize().unwrap();
            for t in
                [x.cast(*dtype), (x.cast(*dtype) + 1).cast(DType::F32), stored.cast(DType::F32)]
            {
                match texts(&t, &*renderer) {
                    Ok(_) => assert!(!lacking.contains(dtype), "{name} has no {dtype}"),
                    Err(e) => {
                        assert!(lacking.contains(dtype), "{dtype} on {name}: {e}");
                        let less = if dtype.is_float() { "f32" } else { "i32" };
                        let said = format!(
                            "on this device does not compute in {dtype}; cast to {less}, or use \
                             another device"
                        );
                        assert!(
                            matches!(e, Error::DType { .. }) && e.to_string().contains(&said),
                            "{e}"
                        );
                    }
                }
            }
        }
    }
}

/// Functions, conversions, divisions, indices and random numbers use only dtypes of the target.
#[test]
fn other_kernels_avoid_unsupported_dtypes() {
    let x = Tensor::from_vec((0..60).map(|i| i as f32 / 7.0 - 4.0).collect(), [6, 10])
        .realize()
        .unwrap();
    let n = Tensor::from_vec((0..60).map(|i| i * 7919 - 200_000).collect::<Vec<i32>>(), [6, 10])
        .realize()
        .unwrap();
    let at = Tensor::new([[3i32], [0], [2], [1], [9], [4]]).realize().unwrap();
    let mut list = vec![
        ("exp", x.exp()),
        ("exp2", x.exp2()),
        ("log", x.log()),
        ("sin", x.sin()),
        ("cos", x.cos()),
        ("tan", x.tan()),
        ("tanh", x.tanh()),
        ("erf", x.erf()),
        ("pow", x.pow(2.5)),
        ("pow of integers", n.pow(3)),
        ("sqrt", x.sqrt()),
        ("division", &x / 3.0),
        ("floor division", n.div_rounded(&at, Rounding::Floor)),
        ("shift", &n << 3),
        ("softmax", x.softmax(1)),
        ("layernorm", x.layernorm(1, 1e-5)),
        ("argmax", x.argmax(1)),
        ("gather", x.gather(1, &at)),
        ("sort", x.sort(1, false).0),
        ("running sum", n.cumsum(1)),
        ("product", x.matmul(&x.t())),
        ("random numbers", Tensor::rand([8]).contiguous()),
        ("random whole numbers", Tensor::randint([8], 0, 10).contiguous()),
    ];
    for d in DType::ALL.iter().filter(|d| !LONG.contains(d)) {
        list.push(("a cast of integers", (&n + 1).cast(*d)));
        list.push(("a cast of floats", (&x + 1).cast(*d).contiguous().cast(DType::F32)));
        list.push(("a sum", x.cast(*d).sum(1)));
    }
    for (name, t) in &list {
        for (renderer, _) in targets() {
            let made = texts(t, &*renderer)
                .unwrap_or_else(|e| panic!("{name} on {}: {e}", renderer.target().name));
            assert!(!made.is_empty(), "{name} is computed");
        }
    }
}

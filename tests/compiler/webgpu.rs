//! The device `WEBGPU` apart from arithmetic, which the device tests cover: offsets, elements
//! below a word, order, copies and limits. Without the feature `webgpu` it is an error that says
//! so.

use picograd::testing::is_available;
use picograd::{DType, Device, Error, Tensor};

fn ramp(n: i64) -> Tensor {
    Tensor::arange(0, n, 1)
}

#[cfg(not(feature = "webgpu"))]
#[test]
fn a_missing_feature_is_an_error() {
    let e = Device::get("webgpu").unwrap_err().to_string();
    assert!(e.contains("built without WebGPU") && e.contains("--features webgpu"), "{e}");
}

#[test]
fn unaligned_buffers_compute() {
    if !is_available("WEBGPU") {
        return;
    }
    for dtype in [DType::BOOL, DType::U8, DType::I8, DType::F16, DType::I16, DType::I32, DType::F32]
    {
        let x = ramp(100)
            .cast(DType::I32)
            .modulo(if dtype.is_bool() { 2 } else { 100 })
            .cast(dtype)
            .to("WEBGPU")
            .realize()
            .unwrap();
        let values = x.cast(DType::I32).to_vec::<i32>().unwrap();
        for start in [1, 2, 3, 17, 64, 99] {
            let part = x.shrink(&[(start, 100)]).realize().unwrap();
            let got = (part.cast(DType::I32) + 1).to_vec::<i32>().unwrap();
            assert_eq!(
                got,
                values[start..].iter().map(|v| v + 1).collect::<Vec<_>>(),
                "{dtype} from {start} on"
            );
            assert_eq!(part.to("CPU").cast(DType::I32).to_vec::<i32>().unwrap(), values[start..]);
        }
    }
}

/// Threads that write different elements of one word do not change other elements, for every number
/// of elements per thread.
#[test]
fn packed_elements_are_written_independently() {
    if !is_available("WEBGPU") {
        return;
    }
    for n in [1i64, 2, 3, 5, 63, 64, 65, 1000, 4099] {
        let x = ramp(n).to("WEBGPU").realize().unwrap();
        for dtype in [DType::U8, DType::I8, DType::U16, DType::I16] {
            // The memory is overwritten, so that lost writes are visible.
            let ones =
                Tensor::full([n as usize], -1i64).cast(dtype).to("WEBGPU").realize().unwrap();
            let y = (&ones + (&x * 37).cast(dtype)).realize().unwrap();
            let expected = ((ramp(n) * 37).cast(dtype) - 1)
                .to("CPU")
                .cast(DType::I64)
                .to_vec::<i64>()
                .unwrap();
            assert_eq!(
                y.to("CPU").cast(DType::I64).to_vec::<i64>().unwrap(),
                expected,
                "{n} of {dtype}"
            );
        }
        let even = x.modulo(2).eq(0).realize().unwrap();
        assert_eq!(
            even.to("CPU").to_vec::<bool>().unwrap(),
            (0..n).map(|i| i % 2 == 0).collect::<Vec<_>>()
        );
    }
}

/// Only readers of a result wait for its kernel, and freed memory goes to later kernels.
#[test]
fn kernels_run_in_order() {
    if !is_available("WEBGPU") {
        return;
    }
    let mut x = Tensor::zeros([1000]).to("WEBGPU").realize().unwrap();
    for _ in 0..50 {
        x = (&x * 2.0 + 1.0).modulo(1021.0).realize().unwrap();
    }
    let expected = (0..50).fold(0.0f32, |x, _| (x * 2.0 + 1.0) % 1021.0);
    assert_eq!(x.to_vec::<f32>().unwrap(), vec![expected; 1000]);
    Device::get("WEBGPU").unwrap().synchronize().unwrap();
}

/// Copies include byte ranges that begin and end inside a word.
#[test]
fn copies_between_devices_keep_values() {
    if !is_available("WEBGPU") {
        return;
    }
    let x = ramp(1000).realize().unwrap();
    let back = (x.to("WEBGPU") * 3).to("INTERP").realize().unwrap();
    assert_eq!(
        (back + 1).to("WEBGPU").to_vec::<i64>().unwrap(),
        (0..1000).map(|i| i * 3 + 1).collect::<Vec<_>>()
    );
    let bytes = ramp(23).cast(DType::U8).to("WEBGPU").realize().unwrap();
    for (start, end) in [(0, 23), (1, 23), (3, 7), (5, 6), (8, 12), (22, 23)] {
        let part = bytes.shrink(&[(start, end)]).realize().unwrap();
        assert_eq!(
            part.to("CPU").to_vec::<u8>().unwrap(),
            (start as u8..end as u8).collect::<Vec<_>>()
        );
        assert_eq!(
            part.contiguous().to("CPU").to("WEBGPU").to_vec::<u8>().unwrap(),
            (start as u8..end as u8).collect::<Vec<_>>()
        );
    }
}

/// Grids beyond the limit of a dimension (65,535) and buffers beyond that of a binding (128 MiB).
#[test]
fn long_grids_and_large_buffers_are_split() {
    if !is_available("WEBGPU") {
        return;
    }
    // The size is a prime, so a workgroup has one thread.
    let n = 70_001i64;
    let x = ramp(n).cast(DType::I32).to("WEBGPU").realize().unwrap();
    assert_eq!(
        (&x * 3 + 1).to_vec::<i32>().unwrap(),
        (0..n as i32).map(|i| i * 3 + 1).collect::<Vec<_>>()
    );
    let n = (160usize << 20) / 4 + 3;
    let x = (Tensor::arange(0i64, n as i64, 1).cast(DType::I32).to("WEBGPU")).realize().unwrap();
    let y = (&x + 5).realize().unwrap();
    let part = y.shrink(&[(n - 10, n)]).to_vec::<i32>().unwrap();
    assert_eq!(part, (n as i32 - 5..n as i32 + 5).collect::<Vec<_>>());
    let border = (128usize << 20) / 4;
    let part = y.shrink(&[(border - 2, border + 2)]).to_vec::<i32>().unwrap();
    assert_eq!(part, (border as i32 + 3..border as i32 + 7).collect::<Vec<_>>());
}

#[test]
fn a_missing_device_is_an_error() {
    if !is_available("WEBGPU") {
        return;
    }
    let e = Device::get("webgpu:99").unwrap_err().to_string();
    assert!(e.contains("there is no WEBGPU:99: WebGPU has "), "{e}");
    let e = Tensor::zeros(&[10_000_000_000_000usize][..])
        .to("WEBGPU")
        .contiguous()
        .realize()
        .unwrap_err();
    assert!(
        matches!(
            &e,
            Error::OutOfMemory { device, asked: 40_000_000_000_000, .. } if device == "WEBGPU"
        ),
        "{e}"
    );
    let e = (Tensor::new([1.0f64]).to("WEBGPU") / 3.0).realize().unwrap_err().to_string();
    assert!(e.contains("does not compute in f64; cast to f32"), "{e}");
    assert_eq!((Tensor::ones([3]).to("WEBGPU") + 1.0).to_vec::<f32>().unwrap(), [2.0; 3]);
}

/// More buffers than a kernel may bind are split, or are an error that names the kernel.
#[test]
fn too_many_buffers_are_split_or_an_error() {
    if !is_available("WEBGPU") {
        return;
    }
    let inputs: Vec<Tensor> = (0..60)
        .map(|i| Tensor::full([7], i as f32).to("WEBGPU").contiguous().realize().unwrap())
        .collect();
    let sum = inputs[1..].iter().fold(inputs[0].clone(), |a, b| a + b);
    assert_eq!(
        sum.to_vec::<f32>().unwrap(),
        [1770.0; 7],
        "the scheduler splits the kernel if the adapter binds fewer"
    );
    assert_eq!((&inputs[3] + 1.0).to_vec::<f32>().unwrap(), [4.0; 7]);
}

/// Both emulations of fma against the host, at inputs where a separate product and sum differ most.
#[cfg(feature = "webgpu")]
mod fused {
    use picograd::DType;
    use picograd::ir::{Arg, Op, SpecialKind, Src, UOp};
    use picograd::render::{Fma, Renderer, Wgsl};
    use picograd::target::Target;
    use picograd::testing::Rng;
    use std::task::{Context, Poll, Waker};
    use wgpu::{BufferDescriptor, BufferUsages, Features};

    fn wait<F: Future>(future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        loop {
            if let Poll::Ready(value) =
                future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                return value;
            }
        }
    }

    /// A kernel with a triple for each workgroup of one thread.
    fn source(fma: Fma, n: usize) -> String {
        let node = |op: Op, dtype: DType, src: &[UOp], arg: Arg| {
            UOp::new(op, dtype, src.iter().cloned().collect::<Src>(), arg)
        };
        let args: Vec<UOp> = (0..4)
            .map(|slot| node(Op::DefineGlobal, DType::F32, &[], Arg::Global { slot, len: n }))
            .collect();
        let at = node(
            Op::Special,
            DType::I32,
            &[],
            Arg::Special { kind: SpecialKind::Group, dim: 0, extent: n },
        );
        let place = |arg: &UOp| node(Op::Index, DType::F32, &[arg.clone(), at.clone()], Arg::None);
        let loads: Vec<UOp> =
            args[1..].iter().map(|a| node(Op::Load, DType::F32, &[place(a)], Arg::None)).collect();
        let value = node(Op::Fma, DType::F32, &loads, Arg::None);
        let store = node(Op::Store, DType::VOID, &[place(&args[0]), value.clone()], Arg::None);
        let uops: Vec<UOp> =
            args.into_iter().chain([at]).chain(loads).chain([value, store]).collect();
        Wgsl::with(Target::wgsl(), 128 << 20, fma).render("triples", &uops).unwrap().text()
    }

    fn triples(n: usize) -> Vec<[f32; 3]> {
        let mut rng = Rng::new(7);
        let mut word = || rng.below(1 << 16) as u32 | (rng.below(1 << 16) as u32) << 16;
        let edges = [
            0u32,
            1,
            2,
            0x7f_ffff,
            0x80_0000,
            0x3f80_0000,
            0x3f80_0001,
            0x3f7f_ffff,
            0x7f7f_ffff,
            0x7f80_0000,
            0x7fc0_0000,
            0x4b80_0000,
            0x3380_0000,
        ];
        let mut list: Vec<[f32; 3]> = Vec::new();
        for x in edges {
            for y in edges {
                for z in edges {
                    list.extend(
                        [[x, y, z], [x | 1 << 31, y, z], [x, y, z | 1 << 31]]
                            .map(|t| t.map(f32::from_bits)),
                    );
                }
            }
        }
        // The largest number times slightly more than one, minus half an ulp: the tie between it
        // and infinity.
        list.push([f32::MAX, f32::from_bits(0x3f80_0001), -f32::from_bits(0x7300_0001)]);
        while list.len() < n {
            let [a, b, c] = [word(), word(), word()].map(f32::from_bits);
            // Numbers near one, short mantissas, cancelling sums, and subnormal results.
            let near = |x: f32| f32::from_bits(x.to_bits() & 0x807f_ffff | 0x3f80_0000);
            let few = |x: f32| f32::from_bits(x.to_bits() & 0xfff8_0000);
            let small = near(a) * 2f32.powi(-70);
            list.extend([
                [a, b, c],
                [near(a), near(b), near(c)],
                [near(a), near(b), -near(a) * near(b)],
                [few(near(a)), few(near(b)), near(c) * 2f32.powi(-30)],
            ]);
            list.extend([
                [small, near(b) * 2f32.powi(-60), c * 1e-38],
                [near(a), near(b), few(near(a)) * 2f32.powi(24)],
            ]);
        }
        list.truncate(n);
        list
    }

    #[test]
    fn fma_rounds_once() {
        if !super::is_available("WEBGPU") {
            return;
        }
        let mut wanted = wgpu::InstanceDescriptor::new_without_display_handle();
        wanted.flags = wgpu::InstanceFlags::empty();
        let adapter =
            wait(wgpu::Instance::new(wanted).request_adapter(&Default::default())).unwrap();
        let features = adapter.features() & Features::SHADER_F64;
        let wanted = wgpu::DeviceDescriptor { required_features: features, ..Default::default() };
        let (device, queue) = wait(adapter.request_device(&wanted)).unwrap();
        let n = 60_000;
        let triples = triples(n);
        let buffer = |size: usize, usage| {
            device.create_buffer(&BufferDescriptor {
                label: None,
                size: size as u64,
                usage,
                mapped_at_creation: false,
            })
        };
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let memory: Vec<wgpu::Buffer> = (0..4)
            .map(|_| buffer(4 * n, usage))
            .chain([buffer(32, BufferUsages::UNIFORM | BufferUsages::COPY_DST)])
            .collect();
        for (k, memory) in memory[1..4].iter().enumerate() {
            let bytes: Vec<u8> = triples.iter().flat_map(|t| t[k].to_le_bytes()).collect();
            queue.write_buffer(memory, 0, &bytes);
        }
        let staging = buffer(4 * n, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
        for fma in [Fma::Doubles, Fma::Integers] {
            if fma == Fma::Doubles && features.is_empty() {
                eprintln!("skipped: the adapter has no f64");
                continue;
            }
            let text = source(fma, n);
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: None,
                source: wgpu::ShaderSource::Wgsl(text.into()),
            });
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: Some("triples"),
                compilation_options: Default::default(),
                cache: None,
            });
            let entries: Vec<wgpu::BindGroupEntry> = memory
                .iter()
                .enumerate()
                .map(|(i, m)| wgpu::BindGroupEntry {
                    binding: i as u32,
                    resource: m.as_entire_binding(),
                })
                .collect();
            let layout = pipeline.get_bind_group_layout(0);
            let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &entries,
            });
            let mut encoder = device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(n as u32, 1, 1);
            drop(pass);
            encoder.copy_buffer_to_buffer(&memory[0], 0, &staging, 0, 4 * n as u64);
            queue.submit([encoder.finish()]);
            staging.map_async(wgpu::MapMode::Read, .., |_| ());
            device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
            let got: Vec<f32> = staging
                .get_mapped_range(..)
                .unwrap()
                .chunks(4)
                .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
                .collect();
            staging.unmap();
            for ([a, b, c], got) in triples.iter().zip(got) {
                let want = a.mul_add(*b, *c);
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{fma:?}: {a:e} * {b:e} + {c:e} is {got:e}, expected {want:e}"
                );
            }
        }
    }
}

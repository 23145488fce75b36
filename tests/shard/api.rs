//! The API of sharded tensors: placement, errors, laziness.

use super::{devices, tensor};
use picograd::compiler::device::Buffer;
use picograd::exec::ScheduleItem;
use picograd::ir::{Arg, Op};
use picograd::tensor::Scatter;
use picograd::{DType, Tensor};

#[test]
fn sharded_layouts_read_back_whole() {
    let four = devices(4);
    let x = Tensor::arange(0, 10, 1).shard(&four, 0);
    assert_eq!((x.shape(), x.dtype(), x.shard_axis()), (vec![10], DType::I32, Some(0)));
    assert_eq!(x.device().as_str(), "CPU+CPU:1+CPU:2+CPU:3");
    let sizes =
        |t: &Tensor| t.realize().unwrap().uop().src().iter().map(|p| p.numel()).collect::<Vec<_>>();
    assert_eq!(sizes(&x), [3, 3, 2, 2]);
    assert_eq!(sizes(&Tensor::arange(0, 3, 1).shard(&four, 0)), [1, 1, 1, 0]);
    assert_eq!(sizes(&Tensor::arange(0, 3, 1).shard(&four, None)), [3, 3, 3, 3]);
    assert_eq!(x.to_vec::<i32>().unwrap(), (0..10).collect::<Vec<_>>());
    // Along the last axis, rows of one shard are not adjacent in memory.
    let y = Tensor::arange(0, 12, 1).reshape([3, 4]).shard(&four, -1);
    assert_eq!(y.shard_axis(), Some(1));
    assert_eq!((&y * 2).to_vec::<i32>().unwrap(), (0..12).map(|i| i * 2).collect::<Vec<_>>());
    assert_eq!(y.i((1, ..)).to_vec::<i32>().unwrap(), [4, 5, 6, 7]);
    let empty = Tensor::zeros([0, 3]).shard(&four, 0);
    assert!((&empty + 1.0).to_vec::<f32>().unwrap().is_empty());
    assert_eq!(empty.sum(0).to_vec::<f32>().unwrap(), [0.0; 3]);
    // A sum with zeros would lose the sign of zero, and a product with a mask would turn infinities
    // into NaN.
    let odd = Tensor::new([-0.0f32, f32::INFINITY, f32::NAN, -0.0])
        .shard(&four, 0)
        .to("CPU")
        .to_vec::<f32>()
        .unwrap();
    assert!(
        odd[0].is_sign_negative()
            && odd[1].is_infinite()
            && odd[2].is_nan()
            && odd[3].is_sign_negative(),
        "{odd:?}"
    );
}

#[test]
fn shards_are_on_their_devices() {
    let x = (tensor(&[8, 3], 1).shard(&devices(4), 0) * 2.0).realize().unwrap();
    let node = x.uop();
    assert_eq!(node.op(), Op::Shards);
    for (part, device) in node.src().iter().zip(devices(4)) {
        let Arg::Storage(s) = part.src()[0].arg() else { panic!("a shard is a buffer: {part:?}") };
        assert_eq!(s.storage.device().as_str(), device.replace("CPU:0", "CPU"));
        assert_eq!(s.storage.len(), 6);
    }
}

/// Each device adds in the same order, so that replicas stay equal.
#[test]
fn sums_have_the_same_bits_on_every_device() {
    let read = |t: &Tensor| -> Vec<Vec<u8>> {
        let parts = t.realize().unwrap().uop().src().to_vec();
        parts
            .iter()
            .map(|p| Buffer::of(p.src()[0].arg().storage().unwrap()).read().unwrap())
            .collect()
    };
    let x = tensor(&[1000, 3], 1);
    let first = read(&x.shard(&devices(4), 0).sum(0));
    assert_eq!(first.len(), 4);
    assert!(first.iter().all(|p| *p == first[0] && p.len() == 12), "{first:?}");
    assert_eq!(read(&(x.copy() * 1.0).shard(&devices(4), 0).sum(0)), first, "in every run");
    // Half precision is summed in f32 and rounded once, as on one device.
    let ones = Tensor::ones([3000]).cast(DType::F16).realize().unwrap();
    assert_eq!(ones.shard(&devices(3), 0).sum(0).cast(DType::F32).item::<f32>().unwrap(), 3000.0);
}

#[test]
fn tensors_move_between_layouts() {
    let x = tensor(&[6, 4], 3);
    let want = x.to_vec::<f32>().unwrap();
    let sharded = x.shard(&devices(4), 0);
    // From one axis to another, to fewer devices, to one device, and back.
    assert_eq!(sharded.shard(&devices(4), 1).to_vec::<f32>().unwrap(), want);
    assert_eq!(
        sharded.shard(&devices(3), None).shard(&devices(2), 1).to_vec::<f32>().unwrap(),
        want
    );
    assert_eq!(sharded.shard(&["INTERP:1", "INTERP:2", "CPU:3"], 1).to_vec::<f32>().unwrap(), want);
    assert_eq!(sharded.to("CPU:2").device().as_str(), "CPU:2");
    assert_eq!(sharded.to("CPU:2").to_vec::<f32>().unwrap(), want);
    assert_eq!(x.shard(&["CPU"], 0).device().as_str(), "CPU");
    assert_eq!(x.to(sharded.device().as_str()).devices(), sharded.devices());
    let like = tensor(&[6], 4).shard_like(&sharded);
    assert_eq!((like.shard_axis(), like.devices()), (Some(0), sharded.devices()));
    assert_eq!(sharded.shard_like(&x).device(), x.device());
    // Split at the boundaries of the other tensor.
    let odd = sharded.shrink(&[(1, 6), (0, 4)]).realize().unwrap();
    let beside = tensor(&[5, 4], 4).shard_like(&odd);
    assert_eq!(
        (&odd + &beside)
            .schedule()
            .unwrap()
            .iter()
            .filter(|i| i.to_string().starts_with("copy"))
            .count(),
        4,
        "the shards of one"
    );
}

#[test]
fn assignments_keep_the_layout() {
    let x = tensor(&[6], 3);
    let handle = x.clone();
    let before = &x * 1.0;
    let want = x.to_vec::<f32>().unwrap();
    x.shard_(&devices(4), 0).unwrap();
    assert_eq!((handle.shard_axis(), handle.to_vec::<f32>().unwrap()), (Some(0), want.clone()));
    assert_eq!((before.device().as_str(), before.to_vec::<f32>().unwrap()), ("CPU", want.clone()));
    let old = &x * 1.0;
    // An assigned value gets the layout of the old value.
    x.assign(Tensor::ones([6]).shard(&devices(4), None) + &x).unwrap();
    assert_eq!(x.shard_axis(), Some(0));
    assert_eq!(x.to_vec::<f32>().unwrap(), want.iter().map(|v| v + 1.0).collect::<Vec<_>>());
    assert_eq!(old.to_vec::<f32>().unwrap(), want);
    let e = x.assign(tensor(&[6], 3)).unwrap_err().to_string();
    assert!(e.contains("CPU+CPU:1+CPU:2+CPU:3") && e.contains(".shard("), "{e}");
    let p = tensor(&[6], 3).as_param();
    p.square().sum(..).backward();
    p.shard_(&devices(3), 0).unwrap();
    assert!(p.is_param() && p.grad().unwrap().shard_axis() == Some(0));
    (&p * 2.0).sum(..).backward();
    let grads = p.grad().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(grads, p.to_vec::<f32>().unwrap().iter().map(|v| v * 2.0 + 2.0).collect::<Vec<_>>());
}

#[test]
fn gradients_return_to_their_device() {
    // The gradient of a constant parameter is on the parameter's device too.
    let p = Tensor::ones([5]).as_param();
    (p.shard(&devices(4), 0) * 3.0).sum(..).backward();
    let g = p.grad().unwrap();
    assert_eq!(
        (g.device().as_str(), (g + tensor(&[5], 1) * 0.0).to_vec::<f32>().unwrap()),
        ("CPU", vec![3.0; 5])
    );
}

#[test]
fn invalid_shards_are_errors() {
    let x = Tensor::zeros([4, 2]);
    let text =
        |axis: Option<isize>, devices: &[&str]| x.try_shard(devices, axis).unwrap_err().to_string();
    assert_eq!(
        text(Some(2), &["CPU:0", "CPU:1"]),
        "shard: axis 2 is outside [4, 2], whose axes are -2..=1"
    );
    assert_eq!(text(Some(0), &[]), "device: shard: expected one device or more, got none");
    assert_eq!(
        text(None, &["CPU:1", "cpu", "CPU:0"]),
        "device: shard: \"CPU:0\" is the device CPU, which is listed twice"
    );
    assert!(text(None, &["CPU", "ABACUS"]).starts_with("device: unknown device \"ABACUS\""));
    let (a, b) = (tensor(&[4], 1).shard(&devices(2), 0), tensor(&[4], 1).shard(&devices(3), 0));
    let e = a.try_add(&b).unwrap_err().to_string();
    assert_eq!(
        e,
        "device: add: one operand is on CPU+CPU:1 and another on CPU+CPU:1+CPU:2; move one with \
         .to(…) or .shard(…)"
    );
    let e = a.try_add(tensor(&[4], 1)).unwrap_err().to_string();
    assert_eq!(
        e,
        "device: add: one operand is on CPU+CPU:1 and another on CPU; move one with .to(…) or \
         .shard(…)"
    );
    assert!(
        Tensor::zeros(()).shard(&devices(2), None).try_shard_like(&a).is_err(),
        "no axis to cut"
    );
}

#[test]
fn sharded_ops_take_the_expected_kernels_and_copies() {
    let count = |t: &Tensor| {
        let items = t.schedule().unwrap();
        let copies = items.iter().filter(|i| i.to_string().starts_with("copy")).count();
        (items.len() - copies, copies)
    };
    let x = tensor(&[8, 6], 1).shard(&devices(4), 0).realize().unwrap();
    let w = tensor(&[6], 2).shard(&devices(4), None).realize().unwrap();
    assert_eq!(count(&((&x * &w + 1.0).relu() * 2.0).tanh()), (4, 0), "elementwise");
    assert_eq!(
        count(&x.t().reshape([6, 4, 2]).permute([1, 0, 2]).contiguous()),
        (4, 0),
        "movement that keeps the axis whole"
    );
    assert_eq!(count(&x.sum(1)), (4, 0), "a reduction along the other axis");
    assert_eq!(count(&x.softmax(1)), (4, 0));
    // Each device reduces its shard, sends it to the others, and adds.
    assert_eq!(count(&x.sum(0)), (8, 12));
    assert_eq!(
        count(&x.matmul(&tensor(&[6, 5], 3).shard(&devices(4), None).realize().unwrap())),
        (4, 0),
        "rows"
    );
    assert_eq!(count(&x.to("CPU")), (1, 3));
    // A constant belongs to no device.
    assert_eq!(count(&(&x + Tensor::arange(0, 6, 1))), (4, 0));
}

#[test]
fn random_numbers_do_not_depend_on_sharding() {
    let _alone = super::seeded();
    Tensor::manual_seed(3);
    let x = tensor(&[10, 4], 1);
    let (a, b) = (x.rand_like(), x.dropout(0.5));
    let want = [a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap()];
    Tensor::manual_seed(3);
    let x = x.shard(&devices(4), 0);
    let (a, b) = (x.rand_like(), x.dropout(0.5));
    assert_eq!([a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap()], want);
    assert_eq!((&x * &b).shard_axis(), Some(0));
}

#[test]
fn deep_sharded_graphs_are_planned() {
    let x = tensor(&[6], 1).shard(&devices(3), 0);
    let mut y = x.copy();
    for _ in 0..5_000 {
        y = y * 0.5 + 1.0;
    }
    y.to_vec::<f32>().unwrap().iter().for_each(|v| assert_eq!(*v, 2.0));
}

#[test]
fn constants_are_computed_on_each_device() {
    // Products of constants are stored; each device has its own.
    let ones = || {
        Tensor::ones([6, 6])
            .matmul(&Tensor::ones([6, 6]))
            .matmul(&Tensor::arange(0, 36, 1).reshape([6, 6]).cast(DType::F32))
    };
    let want = ones().to_vec::<f32>().unwrap();
    assert_eq!(ones().shard(&devices(3), 1).to_vec::<f32>().unwrap(), want);
    let x = Tensor::full([6, 6], 2.0f32).shard(&devices(3), 0).realize().unwrap();
    let y = &x * ones() + ones().softmax(0) * 0.0;
    // A kernel reads only memory of its own device.
    for item in y.schedule().unwrap() {
        if let ScheduleItem::Kernel { buffers, device, .. } = &item {
            assert!(buffers.iter().all(|b| b.buffer.device_name() == device), "{item}");
        }
    }
    assert_eq!(y.to_vec::<f32>().unwrap(), want.iter().map(|v| v * 2.0).collect::<Vec<_>>());
}

#[test]
fn shards_may_be_on_devices_of_several_kinds() {
    let kinds = ["CPU:CLANG", "CPU:LLVM", "INTERP", "CUDA", "CL"]
        .into_iter()
        .filter(|d| picograd::Device::get(d).is_ok())
        .collect::<Vec<_>>();
    let (x, w) = (tensor(&[11, 6], 1), tensor(&[6, 5], 2));
    let f =
        |x: &Tensor, w: &Tensor| (x.matmul(w).relu().softmax(0) * 2.0).sum(0) + w.square().sum(0);
    let want = f(&x, &w).to_vec::<f32>().unwrap();
    let p = w.shard(&kinds, None).as_param();
    let y = f(&x.shard(&kinds, 0), &p);
    super::assert_close("on one device", &y.to_vec::<f32>().unwrap(), &want, 1e-6);
    y.sum(..).backward();
    let q = w.as_param();
    f(&x, &q).sum(..).backward();
    let [got, want] = [p, q].map(|t| t.grad().unwrap().to_vec::<f32>().unwrap());
    super::assert_close("the gradient", &got, &want, 1e-6);
}

/// The saved state of a sharded network loads into a network on one device, and vice versa.
#[test]
fn sharded_state_saves_and_loads() {
    use picograd::nn::{Linear, Module};
    // Constructing layers uses the random generator.
    let _alone = super::seeded();
    let (a, b) = (Linear::new(6, 5), Linear::new(6, 5));
    a.weight.shard_(&devices(4), 1).unwrap();
    let want = a.weight.to_vec::<f32>().unwrap();
    b.load_state_dict(&a.state_dict(), true).unwrap();
    assert_eq!((b.weight.to_vec::<f32>().unwrap(), b.weight.device().as_str()), (want, "CPU"));
    b.weight.assign(b.weight.detach() * 2.0).unwrap();
    a.load_state_dict(&b.state_dict(), true).unwrap();
    assert_eq!(
        (a.weight.to_vec::<f32>().unwrap(), a.weight.shard_axis()),
        (b.weight.to_vec::<f32>().unwrap(), Some(1))
    );
}

/// Rows read at sharded indices are sharded, and reads, writes and gradients equal those of one
/// device.
#[test]
fn indexed_reads_and_writes_of_shards_match_one_device() {
    let two = devices(2);
    let (table, list, rows) =
        (tensor(&[7, 4], 1), Tensor::new([3, -1, 3, 9, 0]), tensor(&[5, 4], 2));
    let index = list.reshape([5, 1]).expand([5, 4]);
    let read = table.shard(&two, None).index_select(0, &list.shard(&two, 0));
    assert_eq!(read.shard_axis(), Some(0));
    let alone = table.index_select(0, &list);
    assert_eq!(read.to_vec::<f32>().unwrap(), alone.to_vec::<f32>().unwrap());
    for axis in [None, Some(0), Some(1)] {
        let parts = |t: &Tensor| t.shard(&two, axis);
        let read = parts(&table).gather(0, &parts(&index));
        assert_eq!(read.to_vec::<f32>().unwrap(), alone.to_vec::<f32>().unwrap(), "{axis:?}");
        for how in [Scatter::Sum, Scatter::Prod, Scatter::Amax] {
            let one = table.scatter_reduce(0, &index, &rows, how, true);
            let many = parts(&table).scatter_reduce(0, &parts(&index), parts(&rows), how, true);
            assert_eq!(
                many.to_vec::<f32>().unwrap(),
                one.to_vec::<f32>().unwrap(),
                "{axis:?} {how:?}"
            );
        }
        let w = table.as_param();
        let grad = |t: Tensor| {
            (&t * &t).sum(..).to("CPU").gradient(&[&w]).remove(0).to_vec::<f32>().unwrap()
        };
        let tokens = list.shard(&two, axis.filter(|a| *a == 0));
        assert_eq!(
            grad(w.shard(&two, None).index_select(0, &tokens)),
            grad(w.index_select(0, &list)),
            "{axis:?}"
        );
    }
}

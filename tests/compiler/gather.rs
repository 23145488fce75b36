//! A gather is a load: the masked sum over all rows has no loop left.

use crate::common;
use picograd::exec::ScheduleItem;
use picograd::ir::{Fold, Op};
use picograd::{DType, Tensor};

/// `table[index]` along axis 0 of a matrix, as a masked sum.
fn rows(table: &Tensor, index: &Tensor) -> Tensor {
    let (n, v, d) = (index.numel(), table.size(0), table.size(1));
    let places = Tensor::arange(0, v as i64, 1).cast(index.dtype()).reshape([1, v, 1]);
    let there = index.reshape([n, 1, 1]).eq(places);
    let chosen = there
        .expand([n, v, d])
        .where_(table.reshape([1, v, d]), Tensor::zeros(()).cast(table.dtype()));
    // SAFETY: the verifier accepts the graph, and it has no custom kernels.
    unsafe {
        Tensor::from_uop_unchecked(chosen.uop().reduced(Fold::Add, [1]), table.device().clone())
    }
    .reshape([n, d])
}

fn loops_over(t: &Tensor, extent: i128) -> usize {
    let items = t.schedule().unwrap();
    let asts = items.iter().filter_map(|i| match i {
        ScheduleItem::Kernel { ast, .. } => Some(ast),
        ScheduleItem::Copy { .. } => None,
    });
    asts.flat_map(|a| a.toposort())
        .filter(|u| u.op() == Op::Range && u.src()[0].vmax() == extent)
        .count()
}

#[test]
fn a_gather_has_no_loop_over_the_table() {
    for dtype in [DType::F32, DType::F16, DType::I32, DType::BOOL] {
        let table = Tensor::arange(0, 50021 * 3, 1)
            .reshape([50021, 3])
            .cast(dtype)
            .contiguous()
            .realize()
            .unwrap();
        for index_dtype in [DType::I32, DType::I64, DType::U32] {
            let index = Tensor::new([3i32, 0, 117, 42]).cast(index_dtype).realize().unwrap();
            let got = rows(&table, &index);
            assert_eq!(loops_over(&got, 50021), 0, "{dtype} by {index_dtype}");
            let want: Vec<i32> =
                [3, 0, 117, 42].iter().flat_map(|r| (0..3).map(move |c| r * 3 + c)).collect();
            let want = Tensor::new(want)
                .reshape([4, 3])
                .cast(dtype)
                .cast(DType::F32)
                .to_vec::<f32>()
                .unwrap();
            assert_eq!(
                got.cast(DType::F32).to_vec::<f32>().unwrap(),
                want,
                "{dtype} by {index_dtype}"
            );
        }
    }
}

#[test]
fn an_index_outside_reads_zero() {
    let table = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
    for (index, want) in [
        (5i64, [0.0; 2]),
        (-1, [0.0; 2]),
        (1 << 40, [0.0; 2]),
        ((1 << 32) + 1, [0.0; 2]),
        (1, [3.0, 4.0]),
    ] {
        assert_eq!(
            rows(&table, &Tensor::new([index])).to_vec::<f32>().unwrap(),
            want,
            "at {index}"
        );
    }
    // Rows that are not read have no effect, NaN included.
    let table = Tensor::new([[f32::NAN, f32::INFINITY], [3.0, 4.0]]);
    assert_eq!(rows(&table, &Tensor::new([1])).to_vec::<f32>().unwrap(), [3.0, 4.0]);
}

#[test]
fn gathers_accept_computed_values_and_indices() {
    let x = Tensor::arange(0, 12, 1).cast(DType::F32).reshape([4, 3]);
    let index = Tensor::new([2, 0]);
    let got = rows(&(x.softmax(-1).log() * 2.0), &((&index + 1) % 4));
    let want = x.log_softmax(-1) * 2.0;
    let (got, want) = (got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap());
    for (i, w) in want[9..12].iter().chain(&want[3..6]).enumerate() {
        assert!((got[i] - w).abs() < 1e-6, "{got:?} {want:?}");
    }
}

#[test]
fn gathers_accept_narrow_indices() {
    for (dtype, n) in [(DType::U8, 256i64), (DType::I8, 128), (DType::U16, 65536)] {
        let x = (Tensor::arange(0, n, 1).cast(DType::F32) + 1.0).realize().unwrap();
        let index = Tensor::new([[0i32], [3], [n as i32 - 1]]).cast(dtype).realize().unwrap();
        let got = index.eq(Tensor::arange(0, n, 1).cast(dtype)).where_(&x, 0.0).sum(1);
        assert_eq!(got.to_vec::<f32>().unwrap(), [1.0, 4.0, n as f32], "{dtype}");
    }
}

#[test]
fn a_sum_masked_by_itself_keeps_its_value() {
    for shape in [[3, 4], [5, 7], [8, 16]] {
        let x = (Tensor::arange(0, (shape[0] * shape[1]) as i64, 1).cast(DType::F32) - 10.0)
            .reshape(shape)
            .realize()
            .unwrap();
        for device in common::devices() {
            let s = x.to(&device).sum(1);
            let got = s.gt(0.0).where_(&s, 0.0).sum(0).item::<f32>().unwrap();
            let want: f32 = x
                .to_vec::<f32>()
                .unwrap()
                .chunks(shape[1])
                .map(|r| r.iter().sum::<f32>().max(0.0))
                .sum();
            assert_eq!(got, want, "{shape:?} on {device}");
        }
    }
}

/// The gradient of a convolution is one reduction over channels and window, without division or
/// masked-out iterations.
#[test]
fn convolution_gradient_is_a_plain_loop() {
    use picograd::tensor::Conv;
    for padding in [0, 1, 2] {
        gradient_is_plain(Conv::new().padding(padding));
    }
}

fn gradient_is_plain(how: picograd::tensor::Conv) {
    let x = Tensor::rand([2, 3, 12, 12]).realize().unwrap().as_param();
    let w = Tensor::rand([4, 3, 5, 5]).realize().unwrap();
    let y = x.exp().conv2d(&w, how);
    let g = (&y * &y.detach()).sum(..).gradient(&[&x]).remove(0);
    let items = g.schedule().unwrap();
    let Some(ScheduleItem::Kernel { ast, .. }) = items.last() else { panic!("a kernel") };
    let order = ast.toposort();
    assert!(
        !order.iter().any(|u| matches!(u.op(), Op::IDiv | Op::Mod)),
        "{}",
        items[items.len() - 1]
    );
    let reduces: Vec<_> = order.iter().filter(|u| u.op() == Op::Reduce).collect();
    assert_eq!(reduces.len(), 1);
    let steps: i128 = reduces[0].src()[1..].iter().map(|r| r.src()[0].vmax()).product();
    assert_eq!(steps, 4 * 5 * 5);
}

#[test]
fn few_rows_of_a_long_table_are_one_kernel() {
    let table = Tensor::zeros([100_000, 8]).contiguous().realize().unwrap();
    let got = rows(&table, &Tensor::new([7, 9]));
    assert_eq!(got.schedule().unwrap().len(), 1);
    assert_eq!(loops_over(&got, 100_000), 0);
}

//! Gather and scatter against loops.

use super::{check, close, ramp};
use half::f16;
use picograd::exec::ScheduleItem;
use picograd::ir::Op;
use picograd::tensor::{NewAxis, Scatter, step};
use picograd::{DType, Tensor};

/// The coordinates of every element of a shape, in row-major order.
fn coordinates(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all, &n| {
        all.iter().flat_map(|c| (0..n).map(move |i| [&c[..], &[i]].concat())).collect()
    })
}

fn place(shape: &[usize], at: &[usize]) -> usize {
    shape.iter().zip(at).fold(0, |p, (n, i)| p * n + i)
}

/// Index tensors with no pattern, some of them negative.
fn some_index(shape: &[usize], size: usize) -> Vec<i32> {
    let n = shape.iter().product::<usize>();
    (0..n).map(|i| (i * 7 + 3 * (i / 2)) as i32 % (2 * size as i32) - size as i32).collect()
}

fn from_end(i: i32, size: usize) -> usize {
    if i < 0 { (i + size as i32) as usize } else { i as usize }
}

#[test]
fn gather_matches_loops() {
    let shape = [3, 4, 5];
    let x = ramp(&shape);
    for axis in 0..3 {
        for wide in [1, 4, 9] {
            let mut index_shape = [2, 3, 5];
            index_shape[axis] = wide;
            let index = some_index(&index_shape, shape[axis]);
            let expected: Vec<f32> = coordinates(&index_shape)
                .iter()
                .zip(&index)
                .map(|(c, &i)| {
                    let mut at = c.clone();
                    at[axis] = from_end(i, shape[axis]);
                    place(&shape, &at) as f32
                })
                .collect();
            for dtype in [DType::I8, DType::I32, DType::I64] {
                let index = Tensor::from_slice(&index, index_shape).cast(dtype);
                check(&x.gather(axis as isize, &index), &index_shape, &expected);
            }
        }
    }
    let unsigned = Tensor::new([2u64, 0, u64::MAX, 3]);
    check(&Tensor::new([5, 6, 7]).gather(0, &unsigned), &[4], &[7, 5, 0, 0]);
    // An i8 alone cannot represent an index from the end of a long axis.
    check(
        &Tensor::arange(0, 300, 1).gather(0, &Tensor::new([-1i8, -128, 127])),
        &[3],
        &[299, 172, 127],
    );
    check(
        &Tensor::new([true, false, true]).gather(0, &Tensor::new([2, 1, 5])),
        &[3],
        &[true, false, false],
    );
    check(
        &Tensor::new([f32::INFINITY, f32::NEG_INFINITY]).gather(0, &Tensor::new([1, 0])),
        &[2],
        &[f32::NEG_INFINITY, f32::INFINITY],
    );
    check(&Tensor::new([1u8, 255]).gather(0, &Tensor::new([1])), &[1], &[255u8]);
    check(&Tensor::new([f16::MAX, f16::ONE]).gather(-1, &Tensor::new([0])), &[1], &[f16::MAX]);
    assert!(x.gather(0, &Tensor::full([0, 2, 2], 0)).to_vec::<f32>().unwrap().is_empty());
    let e = x.try_gather(0, &Tensor::full([2, 5, 5], 0)).unwrap_err();
    assert_eq!(
        e.to_string(),
        "gather: an index of [2, 5, 5] exceeds the tensor [3, 4, 5] outside axis 0"
    );
    let e = x.try_gather(0, &Tensor::zeros([1, 1, 1])).unwrap_err();
    assert_eq!(e.to_string(), "gather: expected an integer index, got f32");
    assert!(x.try_gather(3, &Tensor::full([1, 1, 1], 0)).is_err());
}

#[test]
fn index_select_picks_slices() {
    let x = ramp(&[2, 3, 2]);
    check(
        &x.index_select(1, &Tensor::new([2, 0, -1])),
        &[2, 3, 2],
        &[4f32, 5., 0., 1., 4., 5., 10., 11., 6., 7., 10., 11.],
    );
    check(&x.transpose(0, 1).index_select(0, &Tensor::new([1])), &[1, 2, 2], &[2f32, 3., 8., 9.]);
    check(
        &x.index_select(-1, &Tensor::new([9, 1])),
        &[2, 3, 2],
        &[0f32, 1., 0., 3., 0., 5., 0., 7., 0., 9., 0., 11.],
    );
    assert!(x.try_index_select(0, &Tensor::new([[0]])).is_err());
}

#[test]
fn scatter_matches_loops() {
    let shape = [3, 4];
    let x = ramp(&shape);
    for axis in 0..2 {
        for wide in [1, 3, 6] {
            let mut index_shape = [2, 3];
            index_shape[axis] = wide;
            let index = some_index(&index_shape, shape[axis]);
            let src: Vec<f32> = (0..index.len() + 20).map(|i| -1.0 - i as f32).collect();
            // The source is larger than the index; the rest of it is unused.
            let src_shape = [index_shape[0] + 1, index_shape[1] + 1];
            let mut expected = ramp(&shape).to_vec::<f32>().unwrap();
            for (c, &i) in coordinates(&index_shape).iter().zip(&index) {
                let mut at = c.clone();
                at[axis] = from_end(i, shape[axis]);
                expected[place(&shape, &at)] = src[place(&src_shape, c)];
            }
            let n = src_shape[0] * src_shape[1];
            let (index, src) =
                (Tensor::from_slice(&index, index_shape), Tensor::from_slice(&src[..n], src_shape));
            check(&x.scatter(axis as isize, &index, &src), &shape, &expected);
        }
    }
    check(&Tensor::new([1, 2, 3]).scatter(0, &Tensor::new([1, 7, -3]), 9), &[3], &[9, 9, 3]);
    check(&Tensor::new([true, true]).scatter(0, &Tensor::new([1]), false), &[2], &[true, false]);
    check(
        &Tensor::new([1f32, 2.0]).scatter(0, &Tensor::new([0]), Tensor::new([f32::INFINITY])),
        &[2],
        &[f32::INFINITY, 2.0],
    );
    let e = x.try_scatter(0, &Tensor::full([1, 1], 0), Tensor::full([1, 1], 1)).unwrap_err();
    assert_eq!(e.to_string(), "scatter: expected a source of f32, got i32; cast it");
    assert!(x.try_scatter(0, &Tensor::full([1, 2], 0), Tensor::zeros([1, 1])).is_err());
    check(
        &x.scatter(0, &Tensor::full([0, 4], 0), 1.0),
        &shape,
        &ramp(&shape).to_vec::<f32>().unwrap(),
    );
}

#[test]
fn scatter_reduce_combines_duplicates() {
    let x = Tensor::new([10f32, 20.0, 30.0, 40.0]);
    let (index, src) =
        (Tensor::new([0, 0, 2, -2, 1, 0]), Tensor::new([1f32, 2.0, 3.0, 4.0, 5.0, -6.0]));
    let go = |how: Scatter, include: bool| x.scatter_reduce(0, &index, &src, how, include);
    check(&go(Scatter::Sum, true), &[4], &[7f32, 25.0, 37.0, 40.0]);
    check(&go(Scatter::Sum, false), &[4], &[-3f32, 5.0, 7.0, 40.0]);
    check(&go(Scatter::Prod, true), &[4], &[-120f32, 100.0, 360.0, 40.0]);
    check(&go(Scatter::Prod, false), &[4], &[-12f32, 5.0, 12.0, 40.0]);
    check(&go(Scatter::Mean, true), &[4], &[1.75f32, 12.5, 37.0 / 3.0, 40.0]);
    check(&go(Scatter::Mean, false), &[4], &[-1f32, 5.0, 3.5, 40.0]);
    check(&go(Scatter::Amax, true), &[4], &[10f32, 20.0, 30.0, 40.0]);
    check(&go(Scatter::Amax, false), &[4], &[2f32, 5.0, 4.0, 40.0]);
    check(&go(Scatter::Amin, true), &[4], &[-6f32, 5.0, 3.0, 40.0]);
    check(&go(Scatter::Amin, false), &[4], &[-6f32, 5.0, 3.0, 40.0]);
    let ints = Tensor::new([10, 0]).scatter_reduce(
        0,
        &Tensor::new([0, 0]),
        Tensor::new([-4, -9]),
        Scatter::Mean,
        true,
    );
    check(&ints, &[2], &[-1, 0]);
    let nan = Tensor::new([f32::NAN, 1.0]);
    close(
        &nan.scatter_reduce(
            0,
            &Tensor::new([0, 1]),
            Tensor::new([2f32, f32::NAN]),
            Scatter::Amax,
            false,
        ),
        &[2.0, f64::NAN],
        0.0,
    );
    // An f16 accumulator would lose the ones next to 2048.
    let many = Tensor::full([1], f16::from_f32(2048.0)).scatter_reduce(
        0,
        &Tensor::full([4], 0),
        Tensor::full([4], f16::ONE),
        Scatter::Sum,
        true,
    );
    check(&many, &[1], &[f16::from_f32(2052.0)]);
    let rows = ramp(&[2, 3]).scatter_reduce(
        1,
        &Tensor::new([[2, 2]]),
        Tensor::new([[10f32, 20.0]]),
        Scatter::Sum,
        true,
    );
    check(&rows, &[2, 3], &[0f32, 1.0, 32.0, 3.0, 4.0, 5.0]);
}

#[test]
fn nonzero_lists_the_set_elements() {
    let x = Tensor::new([[0f32, 1.0, -0.0], [f32::NAN, 0.0, 2.0]]);
    check(&x.nonzero(None), &[3, 2], &[0, 1, 1, 0, 1, 2]);
    check(&x.nonzero(Some(2)), &[2, 2], &[0, 1, 1, 0]);
    check(
        &x.nonzero(Some(8)),
        &[8, 2],
        &[0, 1, 1, 0, 1, 2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1],
    );
    check::<i32>(&Tensor::zeros([3]).nonzero(None), &[0, 1], &[]);
    check::<i32>(&Tensor::zeros([0, 2]).nonzero(None), &[0, 2], &[]);
    assert_eq!(Tensor::from(1).nonzero(None).shape(), [1, 0]);
    check(&x.masked_select(&x.ge(1.0), None), &[2], &[1f32, 2.0]);
    check(
        &x.masked_select(&Tensor::new([[false], [true]]), Some(5)).isnan(),
        &[5],
        &[true, false, false, false, false],
    );
    check(
        &Tensor::new([1, 2]).masked_select(&Tensor::new([[true, false], [true, true]]), None),
        &[3],
        &[1, 1, 2],
    );
    assert!(x.try_masked_select(&x, None).is_err());
}

#[test]
fn indexed_axes_follow_numpy() {
    let x = ramp(&[2, 3, 4, 5]);
    let (a, b) = (Tensor::new([[0, 1, 1]]), Tensor::new([[1], [0]]));
    let shape = |t: Tensor| t.shape();
    assert_eq!(shape(x.i(&a)), [1, 3, 3, 4, 5]);
    assert_eq!(shape(x.i((.., &a))), [2, 3, 4, 1, 3]);
    assert_eq!(shape(x.i((.., &a, &b))), [2, 3, 2, 3]);
    assert_eq!(shape(x.i((&a, .., &b))), [2, 3, 3, 4]);
    assert_eq!(shape(x.i((0.., &a, 0.., &b))), [2, 3, 2, 4]);
    assert_eq!(shape(x.i((&a, NewAxis, &b))), [2, 3, 1, 4, 5]);
    assert_eq!(shape(x.i((0, .., &b))), [3, 4, 2, 1]);
    assert_eq!(shape(x.i((&a, 0, &b))), [2, 3, 5]);
    assert_eq!(shape(x.i((0.., 1, [0, 1], 2))), [2, 2]);
    assert_eq!(shape(x.i((Tensor::from(1), 0..2))), [2, 4, 5]);
    assert_eq!(shape(x.i((.., [true, false, true, true, false]))), [2, 3, 4, 3]);
    assert_eq!(shape(x.i((x.sum([2, 3]).gt(300.0), 0))), [5, 5]);
}

#[test]
fn tensors_and_masks_are_indices() {
    let x = ramp(&[3, 4]);
    check(&x.i([2, 0]), &[2, 4], &[8f32, 9., 10., 11., 0., 1., 2., 3.]);
    check(&x.i(([2, 0, -1], [1, -1, 0])), &[3], &[9f32, 3.0, 8.0]);
    check(&x.i((step(.., -1), [3, 0])), &[3, 2], &[11f32, 8., 7., 4., 3., 0.]);
    check(&x.i((Tensor::new([[0], [2]]), Tensor::new([[1, 3]]))), &[2, 2], &[1f32, 3., 9., 11.]);
    // An index out of range of one axis is out of range, even if the row-major offset exists.
    check(&x.i(([0, 1, 3], [4, -5, 0])), &[3], &[0f32, 0.0, 0.0]);
    check(&x.i(x.gt(9.0)), &[2], &[10f32, 11.0]);
    check(&x.i(([true, false, true], 1)), &[2], &[1f32, 9.0]);
    check(&x.i(([true, false, true], [1, 2])), &[2], &[1f32, 10.0]);
    check::<f32>(&x.i([false, false, false]), &[0, 4], &[]);
    check(&Tensor::new([[5, 6]]).i((vec![0i64, 0, 0], 1..)), &[3, 1], &[6, 6, 6]);
    let e = x.try_i([true, false]).unwrap_err();
    assert_eq!(e.to_string(), "i: mask [2] does not match [3, 4] from axis 0 on");
    assert!(x.try_i(Tensor::zeros([2])).is_err());
    assert!(x.try_i(([0, 1], [0, 1, 2])).is_err());
    assert!(x.try_i(([0], [0], [0])).is_err());
}

#[test]
fn set_writes_only_its_part() {
    let fresh = || Tensor::full([3, 4], 0);
    let set = |f: &dyn Fn(&Tensor) -> picograd::Result<()>| {
        let x = fresh();
        f(&x).unwrap();
        x.to_vec::<i32>().unwrap()
    };
    assert_eq!(set(&|x| x.set(1, 5)), [0, 0, 0, 0, 5, 5, 5, 5, 0, 0, 0, 0]);
    assert_eq!(set(&|x| x.set(.., 5.9)), [5; 12]);
    assert_eq!(set(&|x| x.set((0, -1), 5)), [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        set(&|x| x.set((1.., 1..3), Tensor::new([1, 2]))),
        [0, 0, 0, 0, 0, 1, 2, 0, 0, 1, 2, 0]
    );
    assert_eq!(
        set(&|x| x.set((0, step(.., -2)), Tensor::new([1, 2]))),
        [0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        set(&|x| x.set((step(.., 2), 3), Tensor::new([1, 2]))),
        [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    );
    assert_eq!(
        set(&|x| x.set([2, 0, 2], Tensor::new([[1], [2], [3]]))),
        [2, 2, 2, 2, 0, 0, 0, 0, 3, 3, 3, 3]
    );
    assert_eq!(
        set(&|x| x.set((.., [3, 1]), Tensor::new([1, 2]))),
        [0, 2, 0, 1, 0, 2, 0, 1, 0, 2, 0, 1]
    );
    assert_eq!(
        set(&|x| x.set(([0, -1, 9], [3, 1, 0]), Tensor::new([1, 2, 3]))),
        [0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0]
    );
    assert_eq!(
        set(&|x| x.set((1.., [0, 1]), Tensor::new([[1, 2], [3, 4]]))),
        [0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0]
    );
    assert_eq!(
        set(&|x| x.set([true, false, true], Tensor::new([1, 2, 3, 4]))),
        [1, 2, 3, 4, 0, 0, 0, 0, 1, 2, 3, 4]
    );
    assert_eq!(
        set(&|x| x.set([true, false, true], Tensor::new([[1], [2]]))),
        [1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2]
    );
    assert_eq!(
        set(&|x| x.set((.., [false, true, false, true]), 7)),
        [0, 7, 0, 7, 0, 7, 0, 7, 0, 7, 0, 7]
    );
    assert_eq!(set(&|x| x.set(Vec::<i32>::new(), 7)), [0; 12]);
    let x = fresh();
    assert_eq!(
        x.set(0, Tensor::new([1, 2])).unwrap_err().to_string(),
        "set: [2] does not broadcast to [4]"
    );
    assert!(x.set(3, 1).is_err());
    let x = Tensor::new([[1i64, 2], [3, 4]]);
    let before = x.sum(..);
    x.set((.., 0), 5_000_000_000i64).unwrap();
    x.set((0, ..), x.i((1, ..)) + 1).unwrap();
    check(&x, &[2, 2], &[5_000_000_001i64, 5, 5_000_000_000, 4]);
    check(&before, &[], &[10i64]);
}

/// A read costs its result: no kernel loops over the table.
#[test]
fn reads_do_not_go_through_the_table() {
    let table = Tensor::zeros([50021, 3]).contiguous().realize().unwrap();
    let index = Tensor::new([4, -2, 9]).realize().unwrap();
    let best = ramp(&[4, 7]).realize().unwrap();
    let asked = [
        table.index_select(0, &index),
        table.i(&index),
        table.gather(0, &index.reshape([3, 1])),
        table.i((&index, [0, 1, 2])),
        table.i(best.argmax(1)),
        table.reshape([50021 * 3]).gather(0, &index),
    ];
    for (i, t) in asked.iter().enumerate() {
        for item in t.schedule().unwrap() {
            let text = item.to_string();
            assert!(
                !text.contains("Range index 50021") && !text.contains("Range index 150063"),
                "{i}: {text}"
            );
        }
        t.realize().unwrap();
    }
}

/// The number of iterations of the kernels of a tensor.
fn work(t: &Tensor) -> usize {
    let of = |item: &ScheduleItem| match item {
        ScheduleItem::Kernel { ast, .. } => {
            let ranges: Vec<_> =
                ast.toposort().into_iter().filter(|u| u.op() == Op::Range).collect();
            ranges.iter().map(|r| r.src()[0].vmax() as usize).product()
        }
        _ => 0,
    };
    t.schedule().unwrap().iter().map(of).sum()
}

/// A write and its gradients cost a pass over the table and one over the updates, never their
/// product.
#[test]
fn writes_cost_the_table_and_the_updates() {
    let (rows, columns, count) = (5003, 3, 1009);
    let table = Tensor::zeros([rows, columns]).contiguous().as_param();
    let list = Tensor::new((0..count as i32).map(|i| i * 37 % 4001).collect::<Vec<_>>())
        .realize()
        .unwrap()
        .clone();
    let index = list.reshape([count, 1]).expand([count, columns]);
    let src = (ramp(&[count, columns]) + 0.5).contiguous().as_param();
    let mut asked = vec![table.scatter(0, &index, &src)];
    for how in [Scatter::Sum, Scatter::Prod, Scatter::Mean, Scatter::Amax, Scatter::Amin] {
        for include_self in [true, false] {
            asked.push(table.scatter_reduce(0, &index, &src, how, include_self));
        }
    }
    asked.extend([
        table.gather(0, &index),
        table.index_select(0, &list),
        table.i(&list),
        table.i((&list, 1)),
    ]);
    for (i, t) in asked.iter().enumerate() {
        let limit = 16 * columns * (rows + count);
        assert!(work(t) <= limit, "{i}: {} iterations", work(t));
        let sum = (t * t).sum(..);
        for g in sum
            .try_gradient(&[&table])
            .unwrap()
            .iter()
            .chain(&sum.try_gradient(&[&src]).unwrap_or_default())
        {
            assert!(work(g) <= limit, "gradient of {i}: {} iterations", work(g));
        }
    }
}

#[test]
fn an_index_may_be_a_reduction() {
    let x = Tensor::new([[3f32, 9.0, 1.0], [7.0, 2.0, 5.0]]);
    check(&x.gather(1, &x.argmax(picograd::tensor::keepdim(1))), &[2, 1], &[9f32, 7.0]);
    // The number of elements below 4 is the index; it may be past the end.
    let count = x.lt(10.0).sum(1);
    check(&x.gather(1, &count.reshape([2, 1])), &[2, 1], &[0f32, 0.0]);
    check(&x.gather(1, &x.lt(4.0).sum(1).reshape([2, 1])), &[2, 1], &[1f32, 2.0]);
}

#[test]
fn gradients_go_where_elements_came_from() {
    let x = Tensor::new([3f32, 1.0, 2.0, 1.0]).as_param();
    let weight = Tensor::new([1f32, 10.0, 100.0, 1000.0]);
    let of = |y: Tensor, x: &Tensor| y.sum(..).gradient(&[x]).remove(0);
    check(&of(x.sort(0, false).0 * &weight, &x), &[4], &[1000f32, 1.0, 100.0, 10.0]);
    check(
        &of(x.topk(2, 0, true, true).0 * Tensor::new([1f32, 10.0]), &x),
        &[4],
        &[1f32, 0.0, 10.0, 0.0],
    );
    check(
        &of(x.gather(0, &Tensor::new([2, 2, -4, 9])) * &weight, &x),
        &[4],
        &[100f32, 0.0, 11.0, 0.0],
    );
    check(&of(x.i([1, 1, 0]) * Tensor::new([1f32, 2.0, 4.0]), &x), &[4], &[4f32, 3.0, 0.0, 0.0]);
    let (index, src) = (Tensor::new([0, 2, 0]), Tensor::new([5f32, 6.0, 7.0]).as_param());
    let y = x.scatter(0, &index, &src) * &weight;
    check(&of(y.copy(), &x), &[4], &[0f32, 10.0, 0.0, 1000.0]);
    check(&of(y, &src), &[3], &[0f32, 100.0, 1.0]);
    let y = x.scatter_reduce(0, &index, &src, Scatter::Mean, true) * &weight;
    close(&of(y.copy(), &x), &[1.0 / 3.0, 10.0, 50.0, 1000.0], 1e-6);
    close(&of(y, &src), &[1.0 / 3.0, 50.0, 1.0 / 3.0], 1e-6);
    let y = x.scatter_reduce(0, &index, &src, Scatter::Amax, false) * &weight;
    check(&of(y, &src), &[3], &[0f32, 100.0, 1.0]);
    check(&of(x.masked_select(&x.gt(1.5), Some(4)) * &weight, &x), &[4], &[1f32, 0.0, 10.0, 0.0]);
    let (values, _) = x.cummax(0);
    check(&of(values * &weight, &x), &[4], &[1111f32, 0.0, 0.0, 0.0]);
    let pooled = ramp(&[1, 4, 4]).as_param();
    let (v, p) = pooled.max_pool2d_with_indices([2, 2], picograd::tensor::Pool::new());
    let g = of(v.max_unpool2d(&p, 2, picograd::tensor::Pool::new(), None), &pooled)
        .to_vec::<f32>()
        .unwrap();
    assert_eq!(
        g.iter().enumerate().filter(|(_, v)| **v == 1.0).map(|(i, _)| i).collect::<Vec<_>>(),
        [5, 7, 13, 15]
    );
}

#[test]
fn indexing_runs_on_another_device() {
    let x = ramp(&[3, 4]).realize().unwrap().to("interp");
    check(&x.i(([2, 0], [true, false, false, true])), &[2], &[8f32, 3.0]);
    x.set([1], Tensor::from(7f32)).unwrap();
    check(&x.sort(1, true).0.i((.., 0)), &[3], &[3f32, 7.0, 11.0]);
    check(&x.cumsum(1).i((.., 3)), &[3], &[6f32, 28.0, 38.0]);
    check(&x.nonzero(Some(1)), &[1, 2], &[0, 1]);
    assert_eq!(x.qr().1.shape(), [3, 4]);
}

#[test]
fn an_index_may_be_a_remainder() {
    let x = ramp(&[3, 4]).realize().unwrap();
    let index = Tensor::new([-1, -5, 7, i32::MIN]).realize().unwrap();
    check(&x.i((&index % 3, index.modulo(4))), &[4], &[11f32, 7.0, 7.0, 4.0]);
}

/// Many updates of few elements, some out of range at either end, match a sequential loop.
#[test]
fn many_updates_of_few_elements_match_a_loop() {
    let (n, table) = (40_000usize, 97usize);
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    // Indices from before the start to beyond the end.
    let places: Vec<i64> = (0..n).map(|_| next() as i64 % 300 - 150).collect();
    let values: Vec<f32> = (0..n).map(|_| next() as f32 / 1e6).collect();
    let base: Vec<f32> = (0..table).map(|i| i as f32).collect();
    let run = |combine: &dyn Fn(f32, f32) -> f32| {
        let mut out = base.clone();
        for (&p, &v) in places.iter().zip(&values) {
            let p = if p < 0 { p + table as i64 } else { p };
            if (0..table as i64).contains(&p) {
                out[p as usize] = combine(out[p as usize], v);
            }
        }
        out
    };
    let (x, v) = (Tensor::new(base.clone()), Tensor::new(values.clone()));
    for dtype in [DType::I64, DType::I32, DType::I16] {
        let at = Tensor::new(places.clone()).cast(dtype);
        let folded = |how| x.scatter_reduce(0, &at, &v, how, true);
        check(&x.scatter(0, &at, &v), &[table], &run(&|_, v| v));
        check(&folded(Scatter::Sum), &[table], &run(&|a, v| a + v));
        check(&folded(Scatter::Amax), &[table], &run(&f32::max));
    }
}

/// Compaction of random masks to fewer and more elements than are set.
#[test]
fn nonzero_of_random_masks_matches_a_loop() {
    for (n, every) in [(1usize, 1u32), (5_000, 2), (5_000, 97), (40_000, 3)] {
        let mask: Vec<bool> = (0..n as u32)
            .map(|i| i.wrapping_mul(2_654_435_761) >> 7 & 0xffff < 0x1_0000 / every)
            .collect();
        let set: Vec<i32> = (0..n).filter(|i| mask[*i]).map(|i| i as i32).collect();
        let x = Tensor::new(mask.clone());
        check(&x.nonzero(None), &[set.len(), 1], &set);
        for size in [0, set.len() / 2, set.len(), set.len() + 1, set.len() + 70] {
            let expected: Vec<i32> = (0..size).map(|i| set.get(i).copied().unwrap_or(-1)).collect();
            check(&x.nonzero(Some(size)), &[size, 1], &expected);
        }
        let picked: Vec<f32> = set.iter().map(|i| *i as f32).collect();
        check(
            &Tensor::new((0..n).map(|i| i as f32).collect::<Vec<_>>()).masked_select(&x, None),
            &[set.len()],
            &picked,
        );
    }
}

/// Every form of index reads the exact element, including the sign of zero.
#[test]
fn reading_keeps_the_sign_of_zero() {
    let line = |n: usize| Tensor::arange(0, n as i64, 1);
    type Form = (&'static str, fn(Tensor, i64) -> Tensor);
    const FORMS: &[Form] = &[
        ("stored", |i, n| Tensor::new((i * 5 + 3).modulo(n).to_vec::<i64>().unwrap())),
        ("stored, narrow", |i, n| {
            Tensor::new((i * 5 + 3).modulo(n.min(100)).to_vec::<i64>().unwrap()).cast(DType::U8)
        }),
        ("line", |i, _| i),
        ("next", |i, n| (i + 1).minimum(n - 1)),
        ("next, around", |i, n| (i + 1).modulo(n)),
        ("from the end", |i, _| -i - 1),
        ("turned", |i, n| -i + (n - 1)),
        ("twice", |i, n| (i * 2).modulo(n)),
        ("half", |i, _| i.idiv(2)),
        ("same", |i, _| i.mul(0)),
        ("last", |i, n| i.mul(0) + (n - 1)),
        ("literal", |i, _| Tensor::full(i.shape(), 0i64)),
        ("bool", |i, n| i.modulo(2).eq(1).cast(DType::I64).minimum(n - 1)),
        ("chosen", |i, n| i.modulo(3).eq(0).where_(0, (i + 2).modulo(n))),
        ("wide", |i, _| i.cast(DType::I32)),
    ];
    let mut checked = 0;
    for n in [1usize, 2, 3, 33, 70_000] {
        let width = n.min(40);
        for (name, form) in FORMS {
            let index = form(line(width), n as i64);
            let want = vec![(-0f32).to_bits(); width];
            for dtype in [DType::F32, DType::F16] {
                let stored = Tensor::full([n], -0f32).cast(dtype).contiguous().realize().unwrap();
                let computed = &stored * 3.0;
                let read = [
                    stored.gather(0, &index),
                    computed.gather(0, &index),
                    stored.index_select(0, &index),
                    stored.reshape([n, 1]).expand([n, 3]).index_select(0, &index).i((.., 1)),
                    stored.gather(0, &index).gather(0, &line(width).flip(0)),
                    -(stored.gather(0, &index).abs()),
                ];
                for (i, read) in read.iter().enumerate() {
                    let got: Vec<u32> = read
                        .cast(DType::F32)
                        .to_vec::<f32>()
                        .unwrap()
                        .into_iter()
                        .map(f32::to_bits)
                        .collect();
                    assert_eq!(got, want, "{name} index of {n}, {dtype}, read {i}");
                    checked += got.len();
                }
            }
        }
    }
    println!("{checked} elements");
}

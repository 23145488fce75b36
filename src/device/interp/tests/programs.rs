//! Valid programs give correct results.

use crate::device::interp::tests::*;
use crate::dtype::Const;

#[test]
fn saxpy_is_computed() {
    let mut p = List::default();
    let (y, x) = (p.global(0, 10, DType::F32), p.global(1, 10, DType::F32));
    let r = p.range(0, &i32c(10));
    let (a, b) = (p.load(&x, &r), p.load(&y, &r));
    p.store(&y, &r, &(&(&a * 2.0f32) + &b));
    p.end(&r);
    let v: Vec<f32> = (0..10).map(|i| i as f32).collect();
    let mut bufs = [f32s(&v), f32s(&v)];
    run(&p, &mut bufs).unwrap();
    assert_eq!(to_f32(&bufs[0]), v.iter().map(|x| x * 3.0).collect::<Vec<_>>());
}

#[test]
fn accumulators_sum() {
    let mut p = List::default();
    let (out, x) = (p.global(0, 1, DType::I32), p.global(1, 100, DType::I32));
    let acc = p.acc(0, &i32c(5));
    let r = p.range(0, &i32c(100));
    let v = p.load(&x, &r);
    let last = p.assign(&acc, &(&acc + &v));
    p.end(&r);
    p.store(&out, &i32c(0), &last);
    let mut bufs = [vec![0; 4], i32s(&(0..100).collect::<Vec<_>>())];
    run(&p, &mut bufs).unwrap();
    assert_eq!(to_i32(&bufs[0]), [4955]);
}

/// C[n,m] = A[n,k] @ B[k,m]; the accumulator is reset for each element.
fn matmul(n: i32, m: i32, k: i32) -> List {
    let mut p = List::default();
    let c = p.global(0, (n * m) as usize, DType::F32);
    let (a, b) =
        (p.global(1, (n * k) as usize, DType::F32), p.global(2, (k * m) as usize, DType::F32));
    let i = p.range(0, &i32c(n));
    let j = p.range(1, &i32c(m));
    let acc = p.acc(0, &f32c(0.0));
    let l = p.range(2, &i32c(k));
    let x = p.load(&a, &(&(&i * k) + &l));
    let y = p.load(&b, &(&(&l * m) + &j));
    let last = p.assign(&acc, &x.fma(&y, &acc));
    p.end(&l);
    p.store(&c, &(&(&i * m) + &j), &last);
    p.end(&j);
    p.end(&i);
    p
}

#[test]
fn matmul_resets_its_accumulator() {
    let (n, m, k) = (5, 7, 3);
    let p = matmul(n as i32, m as i32, k as i32);
    crate::verify::in_bounds(&p.0).unwrap();
    let a: Vec<f32> = (0..n * k).map(|i| i as f32 - 4.0).collect();
    let b: Vec<f32> = (0..k * m).map(|i| (i % 5) as f32).collect();
    let mut bufs = [vec![0; n * m * 4], f32s(&a), f32s(&b)];
    run(&p, &mut bufs).unwrap();
    let want: Vec<f32> =
        (0..n * m).map(|e| (0..k).map(|l| a[e / m * k + l] * b[l * m + e % m]).sum()).collect();
    assert_eq!(to_f32(&bufs[0]), want);
}

#[test]
fn loop_extents_may_be_expressions() {
    // out[i] = sum of x[0..=i], the inner extent an expression of the outer counter; then as many
    // as a variable says.
    let mut p = List::default();
    let (out, x) = (p.global(0, 6, DType::I32), p.global(1, 6, DType::I32));
    let n = p.push(Op::Var, DType::I32, Src::new(), Arg::Var { name: "n".into(), min: 1, max: 6 });
    let i = p.range(0, &n);
    let acc = p.acc(0, &i32c(0));
    let extent = p.expr(&(&i + 1i32));
    let j = p.range(1, &extent);
    let v = p.load(&x, &j);
    let last = p.assign(&acc, &(&acc + &v));
    p.end(&j);
    p.store(&out, &i, &last);
    p.end(&i);
    crate::verify::program(&p.0).unwrap();
    crate::verify::in_bounds(&p.0).unwrap();
    let mut bufs = [vec![0; 24], i32s(&[1, 2, 3, 4, 5, 6])];
    run_unverified(&p, &mut bufs, &[("n", 4)]).unwrap();
    assert_eq!(to_i32(&bufs[0]), [1, 3, 6, 10, 0, 0]);
    let none = run_unverified(&p, &mut bufs, &[]).unwrap_err();
    assert!(none.to_string().contains("variable n has no value"), "{none}");
    let much = run_unverified(&p, &mut bufs, &[("n", 7)]).unwrap_err();
    assert!(much.to_string().contains("outside 1..=6"), "{much}");
}

#[test]
fn threads_of_a_workgroup_leave_a_loop_at_different_times() {
    // out[l] = 0 + 1 + … + (l-1), with l trips in thread l, inside a masked region that two threads
    // do not enter.
    let mut p = List::default();
    let out = p.global(0, 6, DType::I32);
    let l = p.special(SpecialKind::Local, 0, 6);
    let acc = p.acc(0, &i32c(100));
    let open = p.open_if(&l.lt(4i32));
    let r = p.range(0, &l);
    let last = p.assign(&acc, &(&acc + &r));
    p.end(&r);
    p.end_if(&open);
    p.store(&out, &l, &last);
    let mut bufs = [vec![0; 24]];
    run(&p, &mut bufs).unwrap();
    assert_eq!(to_i32(&bufs[0]), [100, 100, 101, 103, 100, 100]);
}

#[test]
fn masked_loads_and_stores_access_nothing_where_the_mask_is_false() {
    // Padding by two on both sides: the index is outside the buffer where the mask is false.
    let mut p = List::default();
    let (out, x) = (p.global(0, 8, DType::F32), p.global(1, 4, DType::F32));
    let r = p.range(0, &i32c(8));
    let mask = r.ge(2i32).and(r.lt(6i32));
    let v = p.masked_load(&x, &(&r + -2i32), &mask, &f32c(-1.0));
    let open = p.open_if(&r.lt(7i32));
    p.store(&out, &r, &v);
    p.end_if(&open);
    p.end(&r);
    crate::verify::in_bounds(&p.0).unwrap();
    let mut bufs = [f32s(&[9.0; 8]), f32s(&[1.0, 2.0, 3.0, 4.0])];
    run(&p, &mut bufs).unwrap();
    assert_eq!(to_f32(&bufs[0]), [-1.0, -1.0, 1.0, 2.0, 3.0, 4.0, -1.0, 9.0]);
}

#[test]
fn four_lanes_are_computed() {
    // out = reverse each four of x, times its sum; a vector accumulator counts.
    let mut p = List::default();
    let (out, x) = (p.global(0, 8, DType::F32), p.global(1, 9, DType::F32));
    let acc = p.acc(0, &UOp::constant(0.0f32, DType::F32.vec(4)));
    let r = p.range(0, &i32c(2));
    // Unaligned: from element 1.
    let v = p.load_lanes(&x, &(&(&r * 4i32) + 1i32), 4);
    let back = UOp::new(
        Op::Gep,
        DType::F32.vec(4),
        [v.clone()].to_src(),
        Arg::Lanes([3, 2, 1, 0].as_slice().into()),
    );
    let first = v.lane(0);
    let scale = UOp::new(
        Op::Vectorize,
        DType::F32.vec(4),
        [first.clone(), first.clone(), first.clone(), first].to_src(),
        Arg::None,
    );
    let total = p.assign(&acc, &(&acc + &(&back * &scale)));
    p.store(&out, &(&r * 4i32), &total);
    p.end(&r);
    let mut bufs = [vec![0; 32], f32s(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])];
    run(&p, &mut bufs).unwrap();
    assert_eq!(to_f32(&bufs[0]), [4.0, 3.0, 2.0, 1.0, 44.0, 38.0, 32.0, 26.0]);
}

#[test]
fn masked_lanes_access_nothing() {
    // Reads x[-1..3] and writes out[1..5] where the lane is 1 or more: element -1 and 1 are not
    // accessed.
    let mut p = List::default();
    let (out, x) = (p.global(0, 5, DType::F32), p.global(1, 3, DType::F32));
    let numbers = UOp::vectorize((0..4).map(i32c).collect::<Src>());
    let mask = UOp::constant(0i64, DType::I32.vec(4)).binary(Op::Lt, numbers);
    let v = p.masked_load(&x, &i32c(-1), &mask, &UOp::constant(9.0f32, DType::F32.vec(4)));
    let place = UOp::masked_index(&out, i32c(1), Some(mask.clone()));
    let place = p.expr(&place);
    let twice = p.expr(&(&v + &v));
    p.add(&place.store(&twice, &[]));
    let mut bufs = [f32s(&[5.0; 5]), f32s(&[1.0, 2.0, 3.0])];
    run(&p, &mut bufs).unwrap();
    assert_eq!(to_f32(&bufs[0]), [5.0, 5.0, 2.0, 4.0, 6.0]);
}

#[test]
fn vectors_are_concatenated() {
    let mut p = List::default();
    let (out, x) = (p.global(0, 4, DType::F32), p.global(1, 4, DType::F32));
    let (a, b) = (p.load_lanes(&x, &i32c(0), 2), p.load_lanes(&x, &i32c(2), 2));
    let pair = p.expr(&UOp::vectorize([a, b].to_src()));
    let mixed = p.expr(&pair.gep([2, 0, 3, 1]));
    p.store(&out, &i32c(0), &mixed);
    let mut bufs = [vec![0; 16], f32s(&[1.0, 2.0, 3.0, 4.0])];
    run(&p, &mut bufs).unwrap();
    assert_eq!(to_f32(&bufs[0]), [3.0, 1.0, 4.0, 2.0]);
}

#[test]
fn a_workgroup_reduces_through_shared_memory() {
    // Each group of 4x2 threads sums 8 elements: all write to shared memory, one reads them back.
    let mut p = List::default();
    let (out, x) = (p.global(0, 3, DType::F32), p.global(1, 24, DType::F32));
    let tmp = p.shared(0, 8, DType::F32);
    let g = p.special(SpecialKind::Group, 0, 3);
    let (a, b) = (p.special(SpecialKind::Local, 0, 4), p.special(SpecialKind::Local, 1, 2));
    let l = p.expr(&(&(&b * 4i32) + &a));
    let v = p.load(&x, &(&(&g * 8i32) + &l));
    let stored = p.store(&tmp, &l, &v);
    let barrier = p.barrier(&stored);
    let acc = p.acc(0, &f32c(0.0));
    let r = p.range(0, &i32c(8));
    let w = p.load_after(&tmp, &r, &barrier);
    let last = p.assign(&acc, &(&acc + &w));
    p.end(&r);
    let open = p.open_if(&l.equals(0i32));
    p.store(&out, &g, &last);
    p.end_if(&open);
    crate::verify::in_bounds(&p.0).unwrap();
    let mut bufs = [vec![0; 12], f32s(&(0..24).map(|i| i as f32).collect::<Vec<_>>())];
    run(&p, &mut bufs).unwrap();
    assert_eq!(to_f32(&bufs[0]), [28.0, 92.0, 156.0]);
}

#[test]
fn threads_write_disjoint_elements() {
    let mut p = List::default();
    let out = p.global(0, 12, DType::I32);
    let t = p.special(SpecialKind::Thread, 0, 4);
    let r = p.range(0, &i32c(3));
    let at = p.expr(&(&(&t * 3i32) + &r));
    p.store(&out, &at, &(&t * 10i32));
    p.end(&r);
    let mut bufs = [vec![0; 48]];
    run(&p, &mut bufs).unwrap();
    assert_eq!(to_i32(&bufs[0]), [0, 0, 0, 10, 10, 10, 20, 20, 20, 30, 30, 30]);
    let wrong = Interp::compile(&p.0)
        .unwrap()
        .run(&[Memory::new(&mut bufs[0])], [1; 3], [1; 3], 5)
        .unwrap_err();
    assert!(matches!(wrong, Fault::Launch(_)), "{wrong}");
}

#[test]
fn narrow_floats_are_stored_and_converted() {
    let values: Vec<f32> =
        vec![0.0, -0.0, 1.0, 1.0009, -3.3, 448.0, 1e6, 1e-7, f32::INFINITY, f32::NAN];
    for dtype in [DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2] {
        let mut p = List::default();
        let (out, x) = (p.global(0, 10, dtype), p.global(1, 10, dtype));
        let r = p.range(0, &i32c(10));
        let v = p.load(&x, &r).cast(DType::F32);
        p.store(&out, &r, &(&v * 2.0f32).cast(dtype));
        p.end(&r);
        let size = dtype.itemsize();
        let encode = |f: &dyn Fn(f64) -> f64| -> Vec<u8> {
            values
                .iter()
                .flat_map(|v| {
                    Const::Float(f(*v as f64)).to_bits(dtype).to_le_bytes()[..size].to_vec()
                })
                .collect()
        };
        let mut bufs = [vec![0; 10 * size], encode(&|v| v)];
        run(&p, &mut bufs).unwrap();
        let rounded = |v: f64| Const::Float(v).cast(DType::F64, dtype).as_f64(dtype) * 2.0;
        let want =
            encode(&|v| if v.is_nan() || rounded(v).is_nan() { f64::NAN } else { rounded(v) });
        assert_eq!(bufs[0], want, "{dtype}");
    }
}

#[test]
fn a_loaded_byte_that_is_not_zero_is_true() {
    let mut p = List::default();
    let (out, x, n) =
        (p.global(0, 4, DType::BOOL), p.global(1, 4, DType::BOOL), p.global(2, 4, DType::U8));
    let r = p.range(0, &i32c(4));
    let v = p.load(&x, &r);
    p.store(&out, &r, &v.not());
    p.store(&n, &r, &v.cast(DType::U8));
    p.end(&r);
    let mut bufs = [vec![9; 4], vec![0, 1, 2, 255], vec![9; 4]];
    run(&p, &mut bufs).unwrap();
    assert_eq!(bufs[0], [1, 0, 0, 0]);
    assert_eq!(bufs[2], [0, 1, 1, 1]);
}

#[test]
fn ops_without_a_fast_form_take_the_definition() {
    let mut p = List::default();
    let x = p.global(0, 4, DType::F64);
    let r = p.range(0, &i32c(4));
    let v = p.load(&x, &r);
    p.store(&x, &r, &v.unary(Op::Exp2));
    p.end(&r);
    let mut bufs = [bytes(&[0.0f64, 1.0, 2.5, -1.0], |v| v.to_le_bytes())];
    run(&p, &mut bufs).unwrap();
    assert_eq!(bufs[0], bytes(&[1.0f64, 2.0, 2.5f64.exp2(), 0.5], |v| v.to_le_bytes()));
}

#[test]
fn an_empty_launch_does_nothing() {
    let mut p = List::default();
    let out = p.global(0, 0, DType::I32);
    let l = p.special(SpecialKind::Local, 0, 0);
    p.store(&out, &l, &i32c(1));
    run(&p, &mut [vec![]]).unwrap();
    // SAFETY: no byte is looked at.
    assert!(unsafe { Memory::from_raw(std::ptr::null_mut(), 0) }.is_empty());
}

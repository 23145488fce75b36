//! Invalid programs are stopped, and the fault names the location.

use crate::device::interp::tests::*;

#[test]
fn accesses_out_of_bounds_are_reported() {
    for (extent, offset, index) in [(5, 0, 4), (4, -1, -1), (1, i32::MAX, i32::MAX as i64)] {
        let mut p = List::default();
        let x = p.global(0, 4, DType::F32);
        let r = p.range(0, &i32c(extent));
        p.store(&x, &(&r + offset), &f32c(1.0));
        p.end(&r);
        let fault = run(&p, &mut [vec![0; 16]]).unwrap_err();
        assert!(
            matches!(&fault, Fault::OutOfBounds { at, len: 4, lanes: 1 } if at.index == index),
            "{fault}"
        );
        let text = fault.to_string();
        assert!(
            text.contains("global 0") && text.contains("Store") && text.contains("gidx [0, 0, 0]"),
            "{text}"
        );
        assert!(crate::verify::in_bounds(&p.0).is_err());
    }
}

#[test]
fn vectors_past_the_end_are_reported() {
    let mut p = List::default();
    let x = p.global(0, 6, DType::F32);
    let v = p.load_lanes(&x, &i32c(3), 4);
    p.store(&x, &i32c(0), &v.lane(0));
    let fault = run(&p, &mut [vec![0; 24]]).unwrap_err();
    assert!(
        matches!(&fault, Fault::OutOfBounds { at, lanes: 4, len: 6 } if at.index == 3),
        "{fault}"
    );
    assert!(crate::verify::in_bounds(&p.0).is_err());
}

#[test]
fn faults_name_their_thread() {
    let mut p = List::default();
    let x = p.global(0, 5, DType::U8);
    let (g, l) = (p.special(SpecialKind::Group, 1, 2), p.special(SpecialKind::Local, 0, 3));
    p.store(&x, &(&(&g * 3i32) + &l), &UOp::constant(1, DType::U8));
    let fault = run(&p, &mut [vec![0; 5]]).unwrap_err();
    let Fault::OutOfBounds { at, .. } = &fault else { panic!("{fault}") };
    assert_eq!((at.thread.group, at.thread.local), ([0, 1, 0], [2, 0, 0]));
}

#[test]
fn uninitialized_shared_memory_is_reported() {
    let mut p = List::default();
    let out = p.global(0, 4, DType::I32);
    let tmp = p.shared(0, 4, DType::I32);
    let g = p.special(SpecialKind::Group, 0, 2);
    // The first group writes, the second reads: shared memory does not outlive a workgroup.
    p.index(&tmp, &i32c(1));
    let open = p.open_if(&g.equals(0i32));
    p.store(&tmp, &i32c(1), &i32c(7));
    p.end_if(&open);
    let v = p.load(&tmp, &i32c(1));
    p.store(&out, &g, &v);
    let fault = run(&p, &mut [vec![0; 16]]).unwrap_err();
    let Fault::Uninitialized(at) = &fault else { panic!("{fault}") };
    assert_eq!((at.index, at.thread.group), (1, [1, 0, 0]));
    assert!(fault.to_string().contains("shared 0"), "{fault}");
}

/// A kernel in which every thread writes its element of shared memory and reads its neighbour's.
fn neighbours(barrier: bool) -> List {
    let mut p = List::default();
    let out = p.global(0, 4, DType::I32);
    let tmp = p.shared(0, 4, DType::I32);
    let l = p.special(SpecialKind::Local, 0, 4);
    let stored = p.store(&tmp, &l, &(&l * 2i32));
    let order = if barrier { p.barrier(&stored) } else { stored };
    let v = p.load_after(&tmp, &l.binary(Op::Xor, 1i32), &order);
    p.store(&out, &l, &v);
    p
}

#[test]
fn shared_memory_races_are_reported() {
    let mut bufs = [vec![0; 16]];
    run(&neighbours(true), &mut bufs).unwrap();
    assert_eq!(to_i32(&bufs[0]), [2, 0, 6, 4]);
    let fault = run(&neighbours(false), &mut bufs).unwrap_err();
    assert!(matches!(fault, Fault::Race { what: "read after write", .. }), "{fault}");
    // Without the option, lockstep execution hides the race.
    let interp = Interp::compile(&neighbours(false).0).unwrap();
    interp.run(&[Memory::new(&mut bufs[0])], [1; 3], [4, 1, 1], 1).unwrap();
}

#[test]
fn two_writers_are_a_race() {
    let mut p = List::default();
    let tmp = p.shared(0, 1, DType::I32);
    p.special(SpecialKind::Local, 0, 2);
    p.store(&tmp, &i32c(0), &i32c(1));
    let fault = run(&p, &mut []).unwrap_err();
    assert!(matches!(fault, Fault::Race { what: "write after write", .. }), "{fault}");
}

#[test]
fn a_write_after_a_read_is_a_race() {
    // All read element 0, then thread 0 overwrites it with no barrier between.
    let mut p = List::default();
    let out = p.global(0, 2, DType::I32);
    let tmp = p.shared(0, 1, DType::I32);
    let l = p.special(SpecialKind::Local, 0, 2);
    p.index(&tmp, &i32c(0));
    let open = p.open_if(&l.equals(0i32));
    let stored = p.store(&tmp, &i32c(0), &i32c(1));
    p.end_if(&open);
    let barrier = p.barrier(&stored);
    let v = p.load_after(&tmp, &i32c(0), &barrier);
    p.store(&out, &l, &v);
    let again = p.open_if(&l.lt(1i32));
    p.store(&tmp, &i32c(0), &v);
    p.end_if(&again);
    let fault = run(&p, &mut [vec![0; 8]]).unwrap_err();
    assert!(matches!(fault, Fault::Race { what: "write after read", .. }), "{fault}");
}

#[test]
fn global_memory_races_are_reported() {
    for kind in [SpecialKind::Group, SpecialKind::Local, SpecialKind::Thread] {
        // Writes of equal values are allowed, writes of different values are a race.
        for (scale, fine) in [(0, true), (1, false)] {
            let mut p = List::default();
            let out = p.global(0, 1, DType::I32);
            let s = p.special(kind, 0, 3);
            p.store(&out, &i32c(0), &(&s * scale));
            let got = run(&p, &mut [vec![0; 4]]);
            assert_eq!(got.is_ok(), fine, "{kind:?} {got:?}");
        }
    }
}

#[test]
fn in_place_at_another_index_is_reported() {
    // x[i] = x[i+1] in different groups: the order of groups is not known.
    let mut p = List::default();
    let x = p.global(0, 5, DType::I32);
    let g = p.special(SpecialKind::Group, 0, 4);
    let v = p.load(&x, &(&g + 1i32));
    p.store(&x, &g, &v);
    let fault = run(&p, &mut [i32s(&[1, 2, 3, 4, 5])]).unwrap_err();
    assert!(matches!(fault, Fault::Race { what: "write after read", .. }), "{fault}");
}

/// All threads have to be there, also those that are read from.
#[test]
fn partial_shuffles_are_reported() {
    let shuffled = |p: &mut List, x: &UOp, bits| {
        p.push(Op::Shuffle, x.dtype(), vec![x.clone()], Arg::Shuffle(bits))
    };
    let mut p = List::default();
    let l = p.special(SpecialKind::Local, 0, 4);
    let open = p.open_if(&l.lt(2i32));
    shuffled(&mut p, &l, 1);
    p.end_if(&open);
    let fault = run(&p, &mut []).unwrap_err();
    assert!(matches!(fault, Fault::DivergentBarrier(_)), "{fault}");
    let mut p = List::default();
    let l = p.special(SpecialKind::Local, 0, 6);
    shuffled(&mut p, &l, 4);
    let fault = run(&p, &mut []).unwrap_err();
    assert!(
        fault
            .to_string()
            .contains("thread 2 shuffles with thread 6, but the workgroup has 6 threads"),
        "{fault}"
    );
}

#[test]
fn missed_barriers_are_reported() {
    let mut p = List::default();
    let l = p.special(SpecialKind::Local, 0, 4);
    let open = p.open_if(&l.lt(2i32));
    p.barrier(&l);
    p.end_if(&open);
    let fault = run(&p, &mut []).unwrap_err();
    let Fault::DivergentBarrier(at) = &fault else { panic!("{fault}") };
    assert_eq!(at.thread.local, [2, 0, 0]);
}

#[test]
fn mismatched_buffers_are_reported() {
    let mut p = List::default();
    p.global(0, 4, DType::F32);
    for bufs in [&mut [vec![0; 15]][..], &mut [], &mut [vec![0; 16], vec![]]] {
        let fault = run(&p, bufs).unwrap_err();
        assert!(matches!(fault, Fault::Launch(_)), "{fault}");
    }
    let error: crate::error::Error = run(&p, &mut []).unwrap_err().into();
    assert!(error.to_string().contains("0 buffers given to a program that takes 1"), "{error}");
}

#[test]
fn invalid_programs_are_reported() {
    let mut p = List::default();
    let r = p.range(0, &i32c(4));
    let fault = Interp::compile(&p.0).err().unwrap();
    assert!(fault.to_string().contains("every region is closed"), "{fault}");
    p.0 = vec![r.lt(2i32)];
    let fault = Interp::compile(&p.0).err().unwrap();
    assert!(fault.to_string().contains("operands are listed before their users"), "{fault}");
}

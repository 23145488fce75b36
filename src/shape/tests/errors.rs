//! Tests of errors, and of sizes near the largest that an index can count.

use super::super::{View, checked_numel};
use super::*;

#[test]
fn errors_name_op_and_shapes() {
    let check = |movement: Movement, shape: &[usize], expected: &str| {
        let told = movement.apply_shape(shape).unwrap_err().to_string();
        assert_eq!(told, expected);
        let tracked = ShapeTracker::new(shape).apply(&movement).unwrap_err().to_string();
        assert_eq!(tracked, expected);
    };
    check(Movement::reshape([4]), &[2, 3], "reshape: [2, 3] has 6 elements and [4] has 4");
    check(Movement::reshape([]), &[0], "reshape: [0] has 0 elements and [] has 1");
    let huge = usize::MAX / 2;
    check(
        Movement::reshape([huge, 4]),
        &[2],
        &format!("reshape: [{huge}, 4] has more elements than an index can count"),
    );
    check(
        Movement::expand([3, 3]),
        &[2, 1],
        "expand: [2, 1] to [3, 3]: axis 0 has size 2, and only an axis of size 1 expands",
    );
    check(Movement::expand([2, 3]), &[1], "expand: 2 axes given for [1], which has 1");
    check(
        Movement::expand([huge, huge]),
        &[1, 1],
        &format!("expand: [{huge}, {huge}] has more elements than an index can count"),
    );
    check(Movement::permute([0]), &[2, 3], "permute: 1 axes given for [2, 3], which has 2");
    check(Movement::permute([0, 2]), &[2, 3], "permute: axis 2 of [0, 2] is outside [2, 3]");
    check(Movement::permute([1, 1]), &[2, 3], "permute: axis 1 comes twice in [1, 1], for [2, 3]");
    check(Movement::pad([]), &[2], "pad: 0 axes given for [2], which has 1");
    check(
        Movement::pad([(usize::MAX, 1)]),
        &[2],
        &format!("pad: [({}, 1)] around [2] is more than an index can count", usize::MAX),
    );
    check(Movement::shrink([(0, 3)]), &[2], "shrink: 0..3 is not within axis 0 of [2]");
    check(Movement::shrink([(2, 1)]), &[2], "shrink: 2..1 is not within axis 0 of [2]");
    check(Movement::flip([true]), &[], "flip: 1 axes given for [], which has 0");
}

#[test]
fn sizes_are_counted_without_overflow() {
    assert_eq!(checked_numel("t", &[]), Ok(1));
    assert_eq!(checked_numel("t", &[3, 0]), Ok(0));
    assert!(checked_numel("t", &[usize::MAX]).is_err());
    // Strides are products of the other sizes, so a zero does not make these right.
    assert!(checked_numel("t", &[0, usize::MAX / 2, 3]).is_err());
    assert!(ShapeTracker::try_new(&[1 << 40, 1 << 40]).is_err());
    assert!(ShapeTracker::try_new(&[1 << 40, 1 << 22]).is_ok());
}

#[test]
fn an_offset_that_does_not_fit_makes_a_second_view() {
    let st = ShapeTracker::new(&[1 << 20, 1 << 20])
        .apply(&Movement::shrink([(3, 5), (7, 8)]))
        .and_then(|st| st.apply(&Movement::pad([(1 << 60, 0), (0, 0)])))
        .unwrap();
    assert_eq!(st.views().len(), 2, "{st}");
    let row = 1 << 60;
    assert_eq!(st.index_of(&[row - 1, 0]), None);
    assert_eq!(st.index_of(&[row, 0]), Some((3 << 20) + 7));
    assert_eq!(st.index_of(&[row + 1, 0]), Some((4 << 20) + 7));
    let bounds = ((3 << 20) + 7, (4 << 20) + 7);
    assert_eq!(st.extent(), Some(bounds));
    // Cut back, it is one view again.
    let back = st.apply(&Movement::shrink([(row, row + 2), (0, 1)])).unwrap();
    assert_eq!(back.views().len(), 1, "{back}");
}

#[test]
fn overlaps_of_large_views_are_exact() {
    let base = ShapeTracker::new(&[4096, 4096]);
    let cut = |rows, cols| base.apply(&Movement::shrink([rows, cols])).unwrap();
    let quarter = cut((0, 2048), (0, 2048));
    assert!(!quarter.overlaps(&cut((0, 2048), (2048, 4096))));
    assert!(!quarter.overlaps(&cut((2048, 4096), (0, 4096))));
    assert!(quarter.overlaps(&cut((2047, 4096), (2047, 4096))));
    // Even and odd columns lie between each other and share none.
    let split = base.apply(&Movement::reshape([4096, 2048, 2])).unwrap();
    let every =
        |from| split.apply(&Movement::shrink([(0, 4096), (0, 2048), (from, from + 1)])).unwrap();
    assert!(!every(0).overlaps(&every(1)));
    assert!(every(0).overlaps(&quarter));
    // A hidden element is not touched.
    let nothing = quarter
        .apply(&Movement::pad([(1, 0), (0, 0)]))
        .and_then(|st| st.apply(&Movement::shrink([(0, 1), (0, 2048)])))
        .unwrap();
    assert!(!nothing.overlaps(&base));
    assert_eq!(nothing.extent(), None);
}

#[test]
fn printed_views_show_all_parts() {
    assert_eq!(Movement::reshape([2, 3]).to_string(), "reshape [2, 3]");
    assert_eq!(Movement::pad([(1, 0), (0, 2)]).to_string(), "pad [(1, 0), (0, 2)]");
    assert_eq!(Movement::shrink([(1, 3)]).to_string(), "shrink [1..3]");
    assert_eq!(Movement::flip([true, false, true]).to_string(), "flip [0, 2]");
    let flat = ShapeTracker::new(&[2, 3])
        .apply(&Movement::permute([1, 0]))
        .and_then(|st| st.apply(&Movement::reshape([6])))
        .unwrap();
    assert_eq!(flat.to_string(), "base 6: [3, 2] strides [1, 3] | [6] strides [1]");
    assert_eq!(View::contiguous(&[]).to_string(), "[] strides []");
}

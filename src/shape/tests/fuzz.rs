//! Tests on thousands of random chains: trackers against arrays of indices that are moved element
//! by element.

use super::super::{IndexExpr, ShapeTracker, movement_index};
use super::*;

/// An index whose value is known, so that expressions evaluate as they are built.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Value(i64);

impl IndexExpr for Value {
    fn int(value: i64) -> Self {
        Value(value)
    }
    fn add(&self, other: &Self) -> Self {
        Value(self.0.wrapping_add(other.0))
    }
    fn mul(&self, factor: i64) -> Self {
        Value(self.0.wrapping_mul(factor))
    }
    fn div(&self, divisor: i64) -> Self {
        assert!(divisor > 1, "a division by {divisor} was made");
        // Truncating, because dividends are not negative where the mask is true.
        Value(self.0 / divisor)
    }
    fn modulo(&self, divisor: i64) -> Self {
        assert!(divisor > 1, "a remainder by {divisor} was made");
        Value(self.0 % divisor)
    }
    fn ge(&self, bound: i64) -> Self {
        Value((self.0 >= bound) as i64)
    }
    fn lt(&self, bound: i64) -> Self {
        Value((self.0 < bound) as i64)
    }
    fn and(&self, other: &Self) -> Self {
        assert!(self.0 & !1 == 0 && other.0 & !1 == 0, "`and` of no booleans");
        Value(self.0 & other.0)
    }
    fn truth() -> Self {
        Value(1)
    }
}

/// Returns the element that an index and its validity name.
fn named((index, valid): (Value, Value)) -> Option<usize> {
    (valid.0 == 1).then(|| usize::try_from(index.0).expect("a valid index is not negative"))
}

/// Returns the base element of an index through one rewrite per op, as the scheduler does it.
fn through_ops(chain: &Chain, index: &[Value]) -> Option<usize> {
    let mut shapes = vec![chain.base.clone()];
    for op in &chain.ops {
        let next = op.apply_shape(shapes.last().unwrap()).unwrap();
        shapes.push(next);
    }
    let mut index: Vec<Value> = index.to_vec();
    let mut valid = Value::truth();
    for (op, shape) in chain.ops.iter().zip(&shapes).rev() {
        let (before, exists) = movement_index(op, shape, &index);
        index = before.to_vec();
        valid = valid.and(&exists);
    }
    let flat = index
        .iter()
        .zip(&chain.base)
        .fold(0i64, |flat, (i, &s)| flat.wrapping_mul(s as i64).wrapping_add(i.0));
    named((Value(flat), valid))
}

#[test]
fn random_chains_map_each_element_as_brute_force_does() {
    let mut rng = Rng::new(1);
    for _ in 0..6000 {
        let base = random_shape(&mut rng);
        let length = rng.below(9);
        let chain = Chain::random(&mut rng, &base, length);
        let (st, brute) = (&chain.tracker, &chain.brute);
        let story = chain.story();
        assert_eq!(st.shape(), brute.shape.as_slice(), "{story}");
        assert_eq!(st.numel(), brute.data.len(), "{story}");
        for (i, &expected) in brute.data.iter().enumerate() {
            let index = unravel(st.shape(), i);
            assert_eq!(st.index_of(&index), expected, "index_of {index:?}: {story}");
            let values: Vec<Value> = index.iter().map(|&i| Value(i as i64)).collect();
            assert_eq!(named(st.expr(&values)), expected, "expr {index:?}: {story}");
            assert_eq!(through_ops(&chain, &values), expected, "movement_index {index:?}: {story}");
        }
    }
}

#[test]
fn random_chains_know_their_place_in_the_base() {
    let mut rng = Rng::new(2);
    let (mut slices, mut missed) = (0, 0);
    for _ in 0..20_000 {
        let base = random_shape(&mut rng);
        let length = rng.below(7);
        let chain = Chain::random(&mut rng, &base, length);
        let (st, brute) = (&chain.tracker, &chain.brute);
        let story = chain.story();
        assert_eq!(st.extent(), brute.extent(), "{story}");
        match (st.bounds(), brute.extent()) {
            (Some(bounds), Some(exact)) => {
                assert!(bounds.0 <= exact.0 && exact.1 <= bounds.1, "{story}");
                assert!(bounds.1 < st.base_numel(), "{story}");
            }
            (bounds, exact) => {
                assert!(exact.is_none() && (bounds.is_none() || st.views().len() > 1), "{story}")
            }
        }

        let whole = brute.slice() == Some(0..st.base_numel());
        if st.views().len() == 1 {
            assert_eq!(st.contiguous_slice(), brute.slice(), "{story}");
            assert_eq!(st.is_contiguous(), whole, "{story}");
        } else {
            assert_eq!(st.contiguous_slice(), None, "{story}");
            assert!(!st.is_contiguous(), "{story}");
            missed += usize::from(brute.slice().is_some());
        }
        slices += usize::from(brute.slice().is_some());
    }
    println!("{missed} of {slices} slices were hidden by a stack of several views");
    assert!(missed * 200 <= slices, "{missed} of {slices} slices were missed");
}

#[test]
fn overlaps_is_never_wrongly_false_and_seldom_wrongly_true() {
    let mut rng = Rng::new(3);
    let (mut apart, mut unsure) = (0, 0);
    for _ in 0..6000 {
        let base = random_shape(&mut rng);
        let lengths = (1 + rng.below(6), 1 + rng.below(6));
        let a = Chain::random(&mut rng, &base, lengths.0);
        let b = Chain::random(&mut rng, &base, lengths.1);
        let (said, truth) = (a.tracker.overlaps(&b.tracker), a.brute.overlaps(&b.brute));
        assert_eq!(said, b.tracker.overlaps(&a.tracker), "{}\n{}", a.story(), b.story());
        assert!(said || !truth, "{}\n{}", a.story(), b.story());
        apart += usize::from(!truth);
        unsure += usize::from(said && !truth);
    }
    println!("{unsure} of {apart} disjoint pairs were taken to overlap");
    assert_eq!(unsure, 0, "of {apart} disjoint pairs");
}

#[test]
fn a_tracker_on_a_tracker_is_the_whole_chain() {
    let mut rng = Rng::new(4);
    for _ in 0..3000 {
        let base = random_shape(&mut rng);
        let lengths = (rng.below(5), rng.below(5));
        let below = Chain::random(&mut rng, &base, lengths.0);
        let above = Chain::random(&mut rng, below.tracker.shape(), lengths.1);
        let both = below.tracker.then(&above.tracker);
        for (i, at) in above.brute.data.iter().enumerate() {
            let expected = at.and_then(|at| below.brute.data[at]);
            let index = unravel(both.shape(), i);
            assert_eq!(both.index_of(&index), expected, "{}\n{}", below.story(), above.story());
        }
        assert_eq!(both.clone().simplify(), both);
    }
}

#[test]
fn views_are_canonical() {
    let mut rng = Rng::new(5);
    for _ in 0..6000 {
        let base = random_shape(&mut rng);
        let length = rng.below(8);
        let chain = Chain::random(&mut rng, &base, length);
        let story = chain.story();
        if chain.brute.extent().is_none() && chain.tracker.views().len() > 1 {
            // A stack may hide everything without one view of it doing so.
            continue;
        }
        for view in chain.tracker.views() {
            let nothing = view.maps_nothing();
            assert!(!nothing || chain.tracker.views().len() == 1, "{story}");
            assert!(
                !nothing || (view.offset() == 0 && view.strides().iter().all(|&s| s == 0)),
                "{story}"
            );
            let full: Vec<(usize, usize)> = view.shape().iter().map(|&s| (0, s)).collect();
            assert!(nothing || view.mask() != Some(&full), "{story}");
            let open = view.mask().unwrap_or(&full);
            for (axis, &(lo, hi)) in open.iter().enumerate() {
                assert!(lo <= hi && hi <= view.shape()[axis], "{story}");
                assert!(hi - lo > 1 || view.strides()[axis] == 0, "{story}");
            }
        }
        // Equal single views say the same, so a chain that does nothing to its base is the base.
        if chain.brute.slice() == Some(0..chain.brute.data.len())
            && chain.tracker.views().len() == 1
        {
            let fresh = ShapeTracker::new(&chain.brute.shape);
            assert_eq!(chain.tracker.views(), fresh.views(), "{story}");
        }
    }
}

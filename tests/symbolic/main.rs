//! Simplification preserves every value. Expressions are random; values are compared for every
//! assignment of small domains and at the ends of large ones.

mod check;
mod exhaustive;
mod order;
mod random;

use check::same_value;
use picograd::dtype::DType;
use picograd::ir::{Op, UOp, eval, print};
use picograd::rewrite::{Rules, traced};
use picograd::symbolic::{Linear, simplify, simplify_under, tables};
use random::{Gen, Rng, range, seeds, var};

/// Simplifies and checks the result. Returns the number of compared assignments.
#[track_caller]
fn check(rng: &mut Rng, u: &UOp, limit: usize) -> usize {
    let s = simplify(u);
    let counted = same_value(rng, u, &s, None, limit);
    // A new memo has no earlier results, so every node is visited.
    thread_local! { static FORGETFUL: Rules<()> = Rules::new(&tables()); }
    let again = FORGETFUL.with(|rules| rules.fixpoint(&s, &mut ()));
    assert!(
        simplify(&s) == s && FORGETFUL.with(|rules| rules.fixpoint(u, &mut ())) == s,
        "two simplifications differ\n{}",
        print(u)
    );
    assert!(again == s, "not idempotent\n{}=>\n{}=>\n{}", print(u), print(&s), print(&again));
    counted
}

/// Checks `count` random expressions of these dtypes for each seed.
fn expressions(fixed: &[u64], dtypes: &[DType], count: usize, depth: usize, limit: usize) {
    for seed in seeds(fixed) {
        let rng = &mut Rng(seed);
        let mut counted = 0;
        for _ in 0..count {
            let mut g = Gen::new(rng, dtypes);
            let d = if g.rng.one_in(4) { DType::BOOL } else { g.dtypes[0] };
            let u = g.expr(d, depth);
            counted += check(rng, &u, limit);
        }
        assert!(
            counted > count * 4,
            "seed {seed}: only {counted} values were compared for {count} expressions"
        );
    }
}

#[test]
fn index_expressions_keep_their_value() {
    expressions(&[1, 2], &[DType::INDEX], 8000, 4, 24);
    expressions(&[3], &[DType::INDEX], 2000, 3, 600);
}

#[test]
fn wrapping_integers_keep_their_value() {
    for d in [DType::I8, DType::U8, DType::I32, DType::U32, DType::I64, DType::U64] {
        let all =
            [d, DType::I8, DType::U8, DType::I32, DType::U32, DType::I64, DType::U64, DType::INDEX];
        expressions(&[4], &[d], 1000, 4, 24);
        expressions(&[5], &all, 1000, 4, 24);
    }
}

#[test]
fn floats_keep_every_bit() {
    for d in [DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16, DType::F32, DType::F64] {
        expressions(&[6], &[d], 800, 4, 24);
        expressions(
            &[7],
            &[d, DType::F16, DType::F32, DType::F64, DType::I8, DType::U8, DType::I32, DType::I64],
            1200,
            4,
            24,
        );
    }
}

#[test]
fn bools_keep_their_value() {
    expressions(&[8], &[DType::BOOL], 3000, 5, 32);
    expressions(&[9], &[DType::BOOL, DType::INDEX, DType::I32], 3000, 5, 32);
}

#[test]
fn masked_indices_are_valid_under_their_mask() {
    for seed in seeds(&[10, 11]) {
        let rng = &mut Rng(seed);
        let mut counted = 0;
        for _ in 0..3000 {
            let mut g = Gen::new(rng, &[DType::INDEX]);
            let (index, x, y) =
                (g.expr(DType::INDEX, 3), g.expr(DType::INDEX, 2), g.expr(DType::INDEX, 2));
            let (a, b) = (g.literal(DType::INDEX), g.literal(DType::INDEX));
            let (low, high) = if a.vmin() < b.vmin() { (a, b) } else { (b, a) };
            let valid = simplify(&x.ge(&low).and(x.lt(&high)).and(y.lt(g.literal(DType::INDEX))));
            let under = simplify_under(&index, &valid);
            counted += same_value(rng, &index, &under, Some(&valid), 40);
        }
        assert!(counted > 8000, "seed {seed}: only {counted} values were compared");
    }
}

/// The absolute value of the least coefficient overflows.
#[test]
fn a_mask_with_the_minimum_coefficient_keeps_its_value() {
    let (v, r) = (range(2, 0), range(4, 1));
    let valid = (&(&v * i64::MIN) + &r).ge(2);
    let index = &r / 2;
    let under = simplify_under(&index, &valid);
    assert!(same_value(&mut Rng(1), &index, &under, Some(&valid), 40) > 1);
}

#[test]
fn a_linear_form_keeps_the_value() {
    for seed in seeds(&[12]) {
        let rng = &mut Rng(seed);
        for _ in 0..4000 {
            let u = Gen::new(rng, &[DType::INDEX]).expr(DType::INDEX, 4);
            if let Some(l) = Linear::of(&u) {
                same_value(rng, &u, &l.build(), None, 24);
                assert_eq!(Linear::of(&l.build()), Some(l));
            }
        }
    }
}

/// The values computed by `check` agree with the evaluator of the rest of the crate.
#[test]
fn check_values_match_the_evaluator() {
    let rng = &mut Rng(13);
    for _ in 0..500 {
        let u = Gen::new(rng, &[DType::INDEX, DType::I32, DType::F32]).expr(DType::INDEX, 4);
        let leaves = check::leaves(std::slice::from_ref(&u));
        for at in check::assignments(rng, &leaves, 8) {
            assert_eq!(eval::eval(&u, &at), check::values(&u.toposort(), &at)[&u.id()]);
        }
    }
}

/// If nothing changes, the result is the same node, and no rule is counted.
#[test]
fn a_simple_graph_is_returned_unchanged() {
    let rng = &mut Rng(14);
    let roots: Vec<UOp> = (0..500)
        .map(|_| simplify(&Gen::new(rng, &[DType::INDEX, DType::F32]).expr(DType::INDEX, 4)))
        .collect();
    let rules = Rules::new(&tables());
    let (after, steps) = traced(|| {
        (rules.fixpoint_all(&roots, &mut ()), rules.once(&UOp::sink(roots.clone()), &mut ()))
    });
    assert!(after.0 == roots && after.1 == UOp::sink(roots) && steps.is_empty(), "{steps:#?}");
}

/// Divisions and remainders nested ten thousand deep simplify on the stack of a test thread, with
/// constant work per level.
#[test]
fn deep_expressions_simplify_in_linear_time() {
    let mut x = var("x", DType::INDEX, -100, 100);
    for i in 0..10_000i64 {
        let r = range(2 + i % 5, (i % 7) as u32);
        x = match i % 4 {
            0 => &x * 3i64 + &r,
            1 => &(&x + &r) % (5 + i % 9),
            2 => (&x / (1 + i % 3)) * (i % 4) + &x % (2 + i % 4),
            _ => x.binary(Op::Max, &r) + 1i64,
        };
    }
    assert_eq!(simplify(&simplify(&x)), simplify(&x));
}

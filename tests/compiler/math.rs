//! The f32 functions against f64: errors, special values, and operation counts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::oracle::{Pairs, UNARY, pow, ulp_error};
use picograd::math;
use picograd::math::Val;

/// Numbers at which the class, the sign, the code path or the limit of a result changes.
#[rustfmt::skip]
const EDGES: &[f32] = &[
    0.0, 1e-45, 1e-40, 1.1754942e-38, 1.1754944e-38, 1e-30, 1e-8, 6e-8, 1.2e-7, 0.3, 0.5,
    0.54999995, 0.55, 0.70710677, std::f32::consts::FRAC_PI_4, 0.87, 0.99999994, 1.0, 1.0000001,
    1.16, std::f32::consts::SQRT_2, 1.5, 1.5707964, 2.0, 3.0, std::f32::consts::PI, 3.92, 4.0, 7.0,
    9.01, 9.02, 10.0, 16.6, 17.3, 23.5, 24.0, 87.3, 88.0, 88.72283, 88.72284, 89.0, 103.27, 103.97,
    103.98, 104.0, 105.0, 110.0, 126.0, 126.5, 127.5, 128.0, 149.0, 149.5, 150.0, 151.0, 160.0, 1e4,
    8388607.0, 8388608.0, 16777215.0, 16777216.0, 1.8446743e19, 1.8446744e19, 7.730943e31, 1e38,
    f32::MAX, f32::INFINITY, f32::NAN, ];

/// [`EDGES`] with both signs.
fn edges() -> impl Iterator<Item = f32> + Clone {
    EDGES.iter().flat_map(|&x| [x, -x])
}

/// 262,144 inputs: 512 for each sign and exponent, including both ends of the binade.
fn inputs() -> impl Iterator<Item = f32> {
    let fractions = (0..512u32).map(|k| {
        (k * 0x8000 + (k * k).wrapping_mul(0x9e37) % 0x8000) * u32::from(k != 0) + k / 511
    });
    let fractions: Vec<u32> = fractions.map(|f| f.min(0x7f_ffff)).collect();
    (0..512u32).flat_map(move |top| {
        fractions.clone().into_iter().map(move |f| f32::from_bits(top << 23 | f))
    })
}

#[test]
fn unary_functions_keep_their_bounds() {
    for f in UNARY {
        let error = |x: f32| ulp_error((f.run)(x), (f.oracle)(x as f64));
        let (worst, at) = inputs()
            .chain(edges())
            .map(|x| (error(x), x))
            .reduce(|a, b| if b.0 > a.0 { b } else { a })
            .unwrap();
        println!("{:8} {worst:.3} of {} ulp at {at:e} (0x{:08x})", f.name, f.ulp, at.to_bits());
        assert!(worst <= f.ulp, "{}({at:e}) = {:e} is off by {worst} ulp", f.name, (f.run)(at));
    }
}

#[test]
fn pow_keeps_its_bound_and_its_special_cases() {
    let error = |(x, y): (f32, f32)| ulp_error(pow(x, y), (x as f64).powf(y as f64));
    let special = edges().flat_map(|x| edges().map(move |y| (x, y)));
    let (worst, at) = Pairs(0)
        .take(1 << 18)
        .chain(special)
        .map(|p| (error(p), p))
        .reduce(|a, b| if b.0 > a.0 { b } else { a })
        .unwrap();
    println!("pow      {worst:.3} of 2 ulp at {at:?}");
    assert!(worst <= 2.0, "pow{at:?} = {:e} is off by {worst} ulp", pow(at.0, at.1));
}

#[test]
fn limits_are_exact() {
    let run = |name: &str, x: f32| (UNARY.iter().find(|f| f.name == name).unwrap().run)(x);
    for (name, x, want) in [
        ("exp", 0.0, 1.0),
        ("exp", f32::NEG_INFINITY, 0.0),
        ("exp2", 10.0, 1024.0),
        ("exp2", -149.0, 1e-45),
        ("exp2", 127.0, 1.7014118e38),
        ("log", 1.0, 0.0),
        ("log2", 8.0, 3.0),
        ("log2", 1e-45, -149.0),
        ("sin", 0.0, 0.0),
        ("cos", 0.0, 1.0),
        ("tanh", 20.0, 1.0),
        ("tanh", f32::NEG_INFINITY, -1.0),
        ("sigmoid", 0.0, 0.5),
        ("sigmoid", f32::INFINITY, 1.0),
        ("sigmoid", f32::NEG_INFINITY, 0.0),
        ("erf", 4.0, 1.0),
        ("erf", f32::NEG_INFINITY, -1.0),
        ("rsqrt", 4.0, 0.5),
    ] {
        assert_eq!(run(name, x).to_bits(), f32::to_bits(want), "{name}({x})");
    }
    for x in inputs().filter(|x| !x.is_nan()) {
        assert!(
            run("erf", x).abs() <= 1.0 && run("tanh", x).abs() <= 1.0,
            "erf or tanh of {x:e} is above one"
        );
        assert!(
            (0.0..=1.0).contains(&run("sigmoid", x)),
            "sigmoid({x:e}) is not between zero and one"
        );
    }
}

#[test]
fn odd_and_even_functions_are_symmetric_in_bits() {
    for f in UNARY.iter().filter(|f| f.mirror != 0.0) {
        for x in inputs().filter(|x| x.is_finite()) {
            let (got, want) = ((f.run)(-x), (f.run)(x) * f.mirror);
            assert_eq!(got.to_bits(), want.to_bits(), "{}({:e})", f.name, -x);
        }
    }
}

/// A function with its operation count; bitcasts are free on most targets and counted separately.
type Counted = (&'static str, fn(&Node) -> Node, usize, usize);

#[test]
fn operation_counts_match_the_table() {
    let table: &[Counted] = &[
        ("exp", math::exp, 20, 3),
        ("exp2", math::exp2, 19, 3),
        ("log", math::log, 27, 3),
        ("log2", math::log2, 27, 3),
        ("sin", math::sin, 86, 7),
        ("cos", math::cos, 86, 7),
        ("tan", math::tan, 88, 7),
        ("tanh", math::tanh, 26, 6),
        ("sigmoid", math::sigmoid, 21, 4),
        ("erf", math::erf, 26, 6),
        ("rsqrt", math::rsqrt, 2, 0),
        ("pow", |x| math::pow(x, &x.leaf("y")), 100, 14),
    ];
    let counts = table.iter().map(|(name, f, ops, casts)| (*name, count(*f), (*ops, *casts)));
    let (got, want): (Vec<_>, Vec<_>) =
        counts.map(|(name, got, want)| ((name, got), (name, want))).unzip();
    println!("{got:?}");
    assert_eq!(got, want);
}

/// The number of distinct operations of `f` except bitcasts, and the number of bitcasts.
fn count(f: fn(&Node) -> Node) -> (usize, usize) {
    let root = Node { id: 0, seen: Rc::default() }.leaf("x");
    let result = f(&root);
    let seen = result.seen.borrow();
    let nodes: Vec<&Key> = {
        let mut by_id: Vec<_> = seen.iter().collect();
        by_id.sort_by_key(|(_, id)| **id);
        by_id.into_iter().map(|(key, _)| key).collect()
    };
    let mut live = vec![false; nodes.len()];
    live[result.id] = true;
    for id in (0..nodes.len()).rev().filter(|id| live[*id]).collect::<Vec<_>>() {
        mark(&nodes, &mut live, id);
    }
    let live = |cast: bool| {
        nodes
            .iter()
            .zip(&live)
            .filter(|((op, args), live)| {
                **live && !args.is_empty() && op.starts_with("bitcast") == cast
            })
            .count()
    };
    (live(false), live(true))
}

/// Marks the nodes that `id` depends on.
fn mark(nodes: &[&Key], live: &mut [bool], id: usize) {
    for &arg in &nodes[id].1 {
        if !std::mem::replace(&mut live[arg], true) {
            mark(nodes, live, arg);
        }
    }
}

/// An operation and its operands.
type Key = (String, Vec<usize>);

/// A node of a hash-consed expression, as in the IR.
#[derive(Clone)]
struct Node {
    id: usize,
    seen: Rc<RefCell<HashMap<Key, usize>>>,
}

impl Node {
    fn leaf(&self, name: &str) -> Node {
        self.op(name, &[])
    }
    fn op(&self, op: &str, args: &[&Node]) -> Node {
        let key = (op.to_string(), args.iter().map(|a| a.id).collect());
        let next = self.seen.borrow().len();
        let id = *self.seen.borrow_mut().entry(key).or_insert(next);
        Node { id, seen: self.seen.clone() }
    }
}

macro_rules! ops {
    ($($name:ident($($arg:ident),*);)*) => {
        $(fn $name(&self, $($arg: &Self),*) -> Self {
            self.op(stringify!($name), &[self, $($arg),*])
        })*
    };
}

impl Val for Node {
    fn f32(&self, v: f32) -> Self {
        self.leaf(&format!("f32 {:08x}", v.to_bits()))
    }
    fn i32(&self, v: i32) -> Self {
        self.leaf(&format!("i32 {v}"))
    }
    fn u32(&self, v: u32) -> Self {
        self.leaf(&format!("u32 {v}"))
    }
    ops! {
        add(o); sub(o); mul(o); div(o); fma(b, c); sqrt(); neg(); trunc();
        lt(o); eq(o); ne(o); and(o); or(o); xor(o); shl(o); shr(o); select(a, b);
        bitcast_f32(); bitcast_i32(); bitcast_u32(); to_f32(); to_i32();
    }
}

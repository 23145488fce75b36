//! Random tensor graphs on the devices under test, with the heuristic's Opts, without Opts, and
//! with random ones, against the reference evaluator. A failure is printed as text that `cargo
//! xtask fuzz --replay FILE` runs again.

mod common;

use common::env_number;
use picograd::ir::{Group, Op};
use picograd::testing::{
    Campaign, Case, Found, Setup, devices, graphs, is_slow, makes, random_case, setups,
};
use picograd::{DType, Device};
use std::collections::BTreeMap;
use std::time::Instant;

fn run(first: u64, count: u64) -> Found {
    let start = Instant::now();
    let found = Campaign::new(first, count).run();
    let t = &found.tally;
    eprintln!(
        "{} graphs from seed {first}: {:.1} nodes each, {:.1} % finite and varied, elements {} \
         exact {} bounded {} open, {} ops at dtypes, {:.1} s",
        t.cases,
        t.nodes as f64 / t.cases as f64,
        t.share() * 100.0,
        t.elements[0],
        t.elements[1],
        t.elements[2],
        t.covered.len(),
        start.elapsed().as_secs_f64()
    );
    eprintln!("Opts applied: {:?}", t.opts);
    for (device, n) in &t.left_out {
        eprintln!(
            "{n} of {} runs skipped on {device}, which does not compute in one of their dtypes",
            t.cases
        );
    }
    for r in &found.reports {
        eprintln!("\n{r}");
    }
    for (kind, (count, seed, setup)) in &found.kinds {
        eprintln!("{count} × {kind} (first: seed {seed}, {setup})");
    }
    found
}

#[test]
fn fixed_seeds_match_the_reference() {
    let count = graphs();
    let found = run(env_number("FUZZ_FIRST", 0), count);
    assert!(found.kinds.is_empty(), "see above");
    if count >= 500 {
        assert!(
            found.tally.share() >= 0.9,
            "only {} of the graphs have finite and varied outputs",
            found.tally.share()
        );
    }
    if count >= 2000 {
        let mut covered = found.tally.covered;
        let missing = |covered: &BTreeMap<(Op, DType), usize>| -> Vec<String> {
            let missing = wanted().filter(|w| !covered.contains_key(w));
            missing.map(|(op, d)| format!("{op:?} {d}")).collect()
        };
        // A rare op at a rare dtype may take some more graphs.
        for more in (0..5).map(|i| env_number("FUZZ_FIRST", 0) + count + 200 * i) {
            if missing(&covered).is_empty() {
                break;
            }
            let found = run(more, 200);
            assert!(found.kinds.is_empty(), "see above");
            covered.extend(found.tally.covered);
        }
        let missing = missing(&covered);
        assert!(missing.is_empty(), "never generated: {}", missing.join(", "));
        let grid = devices().iter().any(|d| Device::get(d).is_ok_and(|d| d.target().grid));
        let possible = [
            "UPCAST", "UNROLL", "SWAP", "PADTO", "SPLIT", "STAGE", "OVERLAP", "THREAD", "REUSE",
            "PREFETCH", "NOLOCALS",
        ];
        let all =
            possible.iter().chain(if grid { &["LOCAL", "GROUP", "GROUPTOP"][..] } else { &[] });
        all.for_each(|name| {
            assert!(
                found.tally.opts.contains_key(name),
                "{name} is never applied: {:?}",
                found.tally.opts
            )
        });
    }
}

#[test]
fn a_fresh_seed_matches_the_reference() {
    let clock =
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64 >> 10);
    let count = if devices().iter().any(|d| is_slow(d)) { 8 } else { 32 };
    let found = run(env_number("FUZZ_SEED", clock), count);
    assert!(found.kinds.is_empty(), "see above");
}

/// Every op of the tensor graph at each of its dtypes.
fn wanted() -> impl Iterator<Item = (Op, DType)> {
    let has = |op: Op, d: DType| match op {
        Op::Iota => !d.is_bool(),
        Op::Pow => !d.is_bool(),
        Op::Sqrt | Op::Trunc | Op::Div | Op::Fma => d.is_float(),
        Op::IDiv | Op::Mod | Op::Shl | Op::Shr => d.is_int(),
        Op::And | Op::Or | Op::Xor => !d.is_float(),
        _ => d.is_float() || !op.is(Group::Transcendental),
    };
    let ops = Op::ALL.iter().copied().filter(|op| makes(*op));
    ops.flat_map(move |op| {
        DType::ALL.iter().copied().filter(move |d| has(op, *d)).map(move |d| (op, d))
    })
}

#[test]
fn cases_and_setups_round_trip() {
    for seed in 0..50 {
        let case = random_case(seed);
        let again = Case::parse(&case.text()).unwrap();
        assert_eq!(again.outputs, case.outputs);
        assert_eq!(again.text(), case.text());
        for setup in setups(seed) {
            assert_eq!(format!("; seed {seed} on {setup}").parse::<Setup>().unwrap(), setup);
        }
    }
    let given = "CPU in place with kernel 0: [UPCAST:0:4 THREAD:1:2] kernel 1: []";
    assert_eq!(given.parse::<Setup>().unwrap().to_string(), given);
}

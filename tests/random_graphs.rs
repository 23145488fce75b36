//! Random tensor graphs on every device, with the heuristic's optimisations, without any, and with random ones, against the reference.
//! A failure is printed as text that `cargo xtask fuzz --replay FILE` runs again.

use picograd::testing::{Campaign, Found};
use std::time::Instant;

fn run(first: u64, count: u64) -> Found {
    let start = Instant::now();
    let found = Campaign::new(first, count).run();
    let t = &found.tally;
    eprintln!(
        "{} graphs from seed {first}: {:.1} nodes each, {:.1} % finite and varied, elements {} exact {} bounded {} open, {:.1} s",
        t.cases,
        t.nodes as f64 / t.cases as f64,
        t.share() * 100.0,
        t.elements[0],
        t.elements[1],
        t.elements[2],
        start.elapsed().as_secs_f64()
    );
    for (kind, (count, seed, setup)) in &found.kinds {
        eprintln!("{count} × {kind} (first: seed {seed}, {setup})");
    }
    for r in &found.reports {
        eprintln!("\n{r}");
    }
    found
}

/// Numbers from the environment, for looking at some seeds only.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn fixed_seeds() {
    let found = run(number("FUZZ_FIRST", 0), number("FUZZ_COUNT", 2000));
    assert!(found.tally.share() >= 0.9, "only {} of the graphs have finite and varied outputs", found.tally.share());
    assert!(found.kinds.is_empty(), "see above");
}

//! `cargo xtask fuzz`: runs random tensor graphs on every device until the time is up, or repeats
//! one failure.

use picograd::testing::{Campaign, Case, Setup, check, setups};
use std::time::{Duration, Instant};

const USAGE: &str = "cargo xtask fuzz [--seconds N] [--seed S] | --realizations N [--seed S] | \
                     --replay FILE
  --seconds N    how long to look for failures (60)
  --seed S       the first seed; without it one from the clock
  --realizations N  runs N random programs with gradients of which a random part is realized in \
                     between
  --replay FILE  runs a failure again, as it was printed, in its own setup and in all others";

/// Returns the command.
pub fn main(args: &[String]) -> Result<(), String> {
    let (mut seconds, mut seed, mut replayed, mut realizations) = (60, None, None, None);
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number\n{USAGE}"));
        match name.as_str() {
            "--seconds" => seconds = number()?,
            "--seed" => seed = Some(number()?),
            "--realizations" => realizations = Some(number()?),
            "--replay" => replayed = Some(value.clone()),
            _ => return Err(USAGE.into()),
        }
    }
    match (replayed, realizations) {
        (Some(file), _) => replay(&file),
        (None, Some(count)) => realized(count, seed.unwrap_or(0)),
        (None, None) => {
            let clock = || {
                std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64 >> 10)
            };
            search(seconds, seed.unwrap_or_else(clock))
        }
    }
}

/// Runs `tests/random_realizations.rs` with a number of programs.
fn realized(count: u64, first: u64) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.args(["test", "--release", "--test", "random_realizations", "--", "--nocapture"]);
    command.env("PICO_GRAPHS", count.to_string()).env("FUZZ_FIRST", first.to_string());
    let status = command.status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("random programs differ from the reference, see above".into())
    }
}

fn search(seconds: u64, seed: u64) -> Result<(), String> {
    let start = Instant::now();
    println!("seed {seed}, {seconds} s");
    let campaign = Campaign {
        deadline: Some(start + Duration::from_secs(seconds)),
        ..Campaign::new(seed, u64::MAX)
    };
    let found = campaign.run();
    let t = &found.tally;
    println!(
        "{} graphs in {:.0} s, {:.1} nodes each; {:.1} % have finite and varied outputs; {} kinds \
         of op and dtype",
        t.cases,
        start.elapsed().as_secs_f64(),
        t.nodes as f64 / t.cases.max(1) as f64,
        t.share() * 100.0,
        t.covered.len()
    );
    for r in &found.reports {
        println!("\n{r}");
    }
    for (kind, (count, seed, setup)) in &found.kinds {
        println!("{count} × {kind} (first: seed {seed}, {setup})");
    }
    if found.kinds.is_empty() {
        Ok(())
    } else {
        Err("failures were found; each text above is input for --replay".into())
    }
}

fn replay(file: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let case = Case::parse(&text).map_err(|e| format!("{file}: {e}"))?;
    let expected = case.expected();
    let mut list = setups(1);
    let own = text
        .lines()
        .find(|l| l.starts_with("; seed "))
        .map(|l| l.parse::<Setup>().map_err(|e| format!("{file}: {e}")));
    if let Some(own) = own {
        list.insert(0, own?);
    }
    let mut failed = 0;
    for setup in &list {
        match check(&case, &expected, setup) {
            Ok(()) => println!("passed on {setup}"),
            Err(failure) => {
                failed += 1;
                println!("failed on {setup}\n  {failure}");
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} of {} setups fail", list.len())) }
}

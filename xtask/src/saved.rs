//! Saved runs: `cargo xtask bench SUITE --save` writes the figures of the run to
//! `benches/results/MACHINE.json`, and a run without `--save` on the same machine prints each
//! figure's speed as a ratio to the saved one (above 1 is faster), then every ratio below
//! [`LIMIT`].
//!
//! The file is one JSON object with one figure per line, so that two runs can be compared with
//! `diff`.

use picograd::Device;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The ratio to the saved run below which a figure is listed at the end.
const LIMIT: f64 = 0.95;

/// The saved run of this machine and the figures of this run.
pub struct Run {
    path: PathBuf,
    save: bool,
    saved: BTreeMap<String, (f64, String)>,
    now: Mutex<Vec<(String, f64, &'static str)>>,
}

static RUN: OnceLock<Run> = OnceLock::new();

/// Starts to record the figures of a run. Called once, before the first figure.
pub fn start(save: bool) {
    let path = Path::new("benches/results").join(format!("{}.json", machine()));
    let saved = std::fs::read_to_string(&path).map(|text| parse(&text)).unwrap_or_default();
    let _ = RUN.set(Run { path, save, saved, now: Mutex::default() });
}

/// Records a figure. Returns its speed as a ratio to the saved run, if that has the figure.
pub fn record(name: String, value: f64, unit: &'static str) -> Option<f64> {
    let run = RUN.get()?;
    let ratio = run.saved.get(&name).and_then(|(saved, _)| ratio(value, *saved, unit));
    run.now.lock().unwrap_or_else(PoisonError::into_inner).push((name, value, unit));
    ratio
}

/// Writes the file if the run is to be saved, else lists what became slower.
pub fn finish() -> Result<(), String> {
    let Some(run) = RUN.get() else { return Ok(()) };
    let now = run.now.lock().unwrap_or_else(PoisonError::into_inner);
    if run.save {
        let mut all = run.saved.clone();
        all.extend(
            now.iter().map(|(name, value, unit)| (name.clone(), (*value, unit.to_string()))),
        );
        let folder = run.path.parent().expect("the file lies in a folder");
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&run.path, text(&all)));
        written.map_err(|e| format!("{}: {e}", run.path.display()))?;
        eprintln!("{} figures are in {}", now.len(), run.path.display());
        return Ok(());
    }
    let mut slower: Vec<(f64, &str)> = now
        .iter()
        .filter_map(|(name, value, unit)| {
            Some((ratio(*value, run.saved.get(name)?.0, unit)?, name.as_str()))
        })
        .filter(|(ratio, _)| *ratio < LIMIT)
        .collect();
    slower.sort_by(|a, b| a.0.total_cmp(&b.0));
    if !run.saved.is_empty() {
        eprintln!("{} of {} figures below {LIMIT} of the saved run", slower.len(), now.len());
        slower.iter().for_each(|(ratio, name)| eprintln!("{ratio:8.2}  {name}"));
    }
    Ok(())
}

/// The speed of a value relative to a saved one: of times and sizes the smaller is better, of rates
/// the larger.
fn ratio(value: f64, saved: f64, unit: &str) -> Option<f64> {
    let is_rate = unit.ends_with("/s") || unit.contains("FLOPS");
    let ratio = if is_rate { value / saved } else { saved / value };
    ratio.is_finite().then_some(ratio)
}

/// A name of the machine that can be a file's: the default device's description where that is a
/// GPU, else the processor's model and the number of threads.
fn machine() -> String {
    let device = Device::default().ok();
    let gpu = device
        .filter(|d| {
            !["CPU", "NULL", "INTERP"].iter().any(|name| d.name().to_string().starts_with(name))
        })
        .map(|d| d.describe());
    let gpu = gpu.map(|about| about.split(',').next().unwrap_or_default().to_string());
    let processor = || {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |key: &str| {
            let line = info.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == key));
            line.and_then(|l| l.split_once(':')).map_or("unknown", |(_, value)| value.trim())
        };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        format!(
            "{} family {} model {} with {threads} threads",
            field("model name"),
            field("cpu family"),
            field("model")
        )
    };
    let name = gpu.unwrap_or_else(processor).to_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    words.take(12).collect::<Vec<_>>().join("-")
}

fn text(all: &BTreeMap<String, (f64, String)>) -> String {
    let line = |(name, (value, unit)): (&String, &(f64, String))| {
        format!("  \"{name}\": [{value:.3}, \"{unit}\"]")
    };
    format!("{{\n{}\n}}\n", all.iter().map(line).collect::<Vec<_>>().join(",\n"))
}

/// Reads what [`text`] wrote. Lines of another form are left out.
fn parse(text: &str) -> BTreeMap<String, (f64, String)> {
    let line = |line: &str| {
        let (name, rest) = line.trim().strip_prefix('"')?.split_once("\": [")?;
        let (value, unit) = rest.trim_end_matches(',').strip_suffix("\"]")?.split_once(", \"")?;
        Some((name.to_string(), (value.parse().ok()?, unit.to_string())))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_run_reads_back() {
        let all = BTreeMap::from([
            ("cpu/matmul".to_string(), (1.5, "GFLOPS".to_string())),
            ("ops/add@16".to_string(), (2.0, "us".to_string())),
        ]);
        assert_eq!(parse(&text(&all)), all);
        assert!(parse("not a saved run").is_empty());
    }

    #[test]
    fn faster_is_above_one() {
        assert_eq!(ratio(2.0, 4.0, "us"), Some(2.0));
        assert_eq!(ratio(2.0, 4.0, "GB/s"), Some(0.5));
        assert_eq!(ratio(0.0, 0.0, "us"), None);
    }
}

//! Saved runs: `cargo xtask bench SUITE --save` writes the figures of the run to
//! `benches/results/MACHINE.json`. A run without `--save` on the same machine prints each figure's
//! speed as a ratio to the saved one (above 1 is faster), then every ratio below [`LIMIT`].
//!
//! The file is one JSON object with one figure per line, so that two runs can be compared with
//! `diff`: `"suite/name": [value, "unit"]`, with a third element where a note qualifies the figure
//! (`"tf32"`). `"machine"` and `"date"` describe the run. `MACHINE.peers.json` has the figures of
//! other frameworks under `"framework: suite/name"`; `benches/peers/peers.py save` writes it.

use picograd::{Device, testing};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The ratio to the saved run below which a figure is listed at the end.
const LIMIT: f64 = 0.95;

/// The saved run of this machine and the figures of this run.
pub struct Run {
    path: PathBuf,
    save: bool,
    saved: Results,
    now: Mutex<Vec<(String, f64, &'static str)>>,
    /// Names and fields of loops, in the order of the run.
    counts: Mutex<Vec<(String, String)>>,
}

/// The contents of a file in `benches/results`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    pub machine: String,
    /// The day of the last run that was saved, as `2026-11-16`.
    pub date: String,
    pub figures: BTreeMap<String, Saved>,
}

/// A saved figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    pub value: f64,
    pub unit: String,
    /// A qualification that a table prints beside the value, such as `tf32`.
    pub note: Option<String>,
}

static RUN: OnceLock<Run> = OnceLock::new();

/// Starts to record the figures of a run. Called once, before the first figure.
pub fn start(save: bool) {
    let path = Path::new("benches/results").join(format!("{}.json", file_name(&machine())));
    let saved = Results::read(&path).unwrap_or_default();
    let _ = RUN.set(Run { path, save, saved, now: Mutex::default(), counts: Mutex::default() });
}

/// Records a figure. Returns its speed as a ratio to the saved run, if that has the figure.
pub fn record(name: String, value: f64, unit: &'static str) -> Option<f64> {
    let run = RUN.get()?;
    let ratio = run.saved.figures.get(&name).and_then(|s| ratio(value, s.value, unit));
    run.now.lock().unwrap_or_else(PoisonError::into_inner).push((name, value, unit));
    ratio
}

/// Records the counts of a loop: a name, and fields of JSON.
pub fn record_counts(name: String, fields: String) {
    if let Some(run) = RUN.get() {
        run.counts.lock().unwrap_or_else(PoisonError::into_inner).push((name, fields));
    }
}

/// Writes the counts of a run beside its figures, to `MACHINE.counts.json`.
fn save_counts(run: &Run, counts: &[(String, String)]) -> Result<(), String> {
    let path = run.path.with_extension("counts.json");
    std::fs::write(&path, counts_text(&machine(), &today(), counts))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    eprintln!("saved the counts of {} loops to {}", counts.len(), path.display());
    Ok(())
}

/// Returns one JSON object with one loop per line.
fn counts_text(machine: &str, date: &str, counts: &[(String, String)]) -> String {
    let about = [format!("  \"machine\": \"{machine}\""), format!("  \"date\": \"{date}\"")];
    let loops = counts.iter().map(|(name, fields)| format!("  \"{name}\": {{{fields}}}"));
    format!("{{\n{}\n}}\n", about.into_iter().chain(loops).collect::<Vec<_>>().join(",\n"))
}

/// Writes the file if the run is to be saved, else lists what became slower.
pub fn finish() -> Result<(), String> {
    let Some(run) = RUN.get() else { return Ok(()) };
    let now = run.now.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = run.counts.lock().unwrap_or_else(PoisonError::into_inner);
    if run.save && !counts.is_empty() {
        save_counts(run, &counts)?;
    }
    if now.is_empty() {
        return Ok(());
    }
    if run.save {
        let mut all = run.saved.clone();
        (all.machine, all.date) = (machine(), today());
        all.figures.extend(now.iter().map(|(name, value, unit)| {
            (name.clone(), Saved { value: *value, unit: unit.to_string(), note: None })
        }));
        let folder = run.path.parent().expect("the path has a parent directory");
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&run.path, all.text()));
        written.map_err(|e| format!("{}: {e}", run.path.display()))?;
        eprintln!("saved {} figures to {}", now.len(), run.path.display());
        return Ok(());
    }
    let mut slower: Vec<(f64, &str)> = now
        .iter()
        .filter_map(|(name, value, unit)| {
            Some((ratio(*value, run.saved.figures.get(name)?.value, unit)?, name.as_str()))
        })
        .filter(|(ratio, _)| *ratio < LIMIT)
        .collect();
    slower.sort_by(|a, b| a.0.total_cmp(&b.0));
    if !run.saved.figures.is_empty() {
        eprintln!("{} of {} figures are below {LIMIT} of the saved run", slower.len(), now.len());
        slower.iter().for_each(|(ratio, name)| eprintln!("{ratio:8.2}  {name}"));
    }
    Ok(())
}

/// Returns the speed of a value relative to a saved one: of times and sizes the smaller is better,
/// of rates the larger.
fn ratio(value: f64, saved: f64, unit: &str) -> Option<f64> {
    let is_rate = unit.ends_with("/s") || unit.contains("FLOPS");
    let ratio = if is_rate { value / saved } else { saved / value };
    ratio.is_finite().then_some(ratio)
}

/// Returns the machine: the description of the default device if that is a GPU, otherwise the
/// processor's model and the number of threads.
fn machine() -> String {
    let device = Device::default().ok();
    let gpu = device.filter(|d| testing::has_own_memory(d.name())).map(|d| d.describe());
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
    gpu.unwrap_or_else(processor)
}

/// Returns the first words of a machine's description, joined by `-`.
fn file_name(machine: &str) -> String {
    let name = machine.to_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    words.take(12).collect::<Vec<_>>().join("-")
}

/// Today in UTC, as `2026-11-16`.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (mut year, mut day) = (1970, seconds / 86_400);
    let leap = |y: u64| (y.is_multiple_of(4) && !y.is_multiple_of(100)) || y.is_multiple_of(400);
    while day >= 365 + leap(year) as u64 {
        day -= 365 + leap(year) as u64;
        year += 1;
    }
    let february = 28 + leap(year) as u64;
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, day + 1)
}

impl Results {
    /// Reads a file that [`Results::text`] wrote.
    pub fn read(path: &Path) -> std::io::Result<Results> {
        Ok(Results::parse(&std::fs::read_to_string(path)?))
    }

    fn text(&self) -> String {
        let figure = |(name, s): (&String, &Saved)| {
            let note = s.note.as_ref().map_or(String::new(), |n| format!(", \"{n}\""));
            format!("  \"{name}\": [{:.3}, \"{}\"{note}]", s.value, s.unit)
        };
        let about = [("machine", &self.machine), ("date", &self.date)];
        let about = about.iter().map(|(key, value)| format!("  \"{key}\": \"{value}\""));
        let lines: Vec<String> = about.chain(self.figures.iter().map(figure)).collect();
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }

    /// Parses the text of a file. Skips lines of another form.
    fn parse(text: &str) -> Results {
        let mut results = Results::default();
        for line in text.lines() {
            let line = line.trim().trim_end_matches(',');
            let Some((name, rest)) = line.strip_prefix('"').and_then(|l| l.split_once("\": "))
            else {
                continue;
            };
            let list = rest.strip_prefix('[').and_then(|r| r.strip_suffix(']'));
            match (name, list) {
                ("machine", None) => results.machine = rest.trim_matches('"').to_string(),
                ("date", None) => results.date = rest.trim_matches('"').to_string(),
                (_, Some(list)) => {
                    let mut parts = list.split(", ").map(|p| p.trim_matches('"').to_string());
                    let value = parts.next().and_then(|v| v.parse().ok());
                    if let (Some(value), Some(unit)) = (value, parts.next()) {
                        let saved = Saved { value, unit, note: parts.next() };
                        results.figures.insert(name.to_string(), saved);
                    }
                }
                _ => {}
            }
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_round_trip() {
        let saved = |value, unit: &str, note: Option<&str>| Saved {
            value,
            unit: unit.into(),
            note: note.map(str::to_string),
        };
        let all = Results {
            machine: "Xeon, 2 threads".into(),
            date: "2026-11-16".into(),
            figures: BTreeMap::from([
                ("cpu/matmul".to_string(), saved(1.5, "GFLOP/s", None)),
                ("JAX 0.11: gpu/matmul".to_string(), saved(2.0, "TFLOP/s", Some("tf32"))),
            ]),
        };
        assert_eq!(Results::parse(&all.text()), all);
        assert!(Results::parse("not a saved run").figures.is_empty());
    }

    #[test]
    fn counts_are_one_loop_per_line() {
        let text = counts_text("Xeon", "2026-11-16", &[("sum/r/0".into(), "\"loads\":4".into())]);
        assert_eq!(text.lines().nth(3), Some("  \"sum/r/0\": {\"loads\":4}"));
        assert!(text.ends_with("\n}\n"));
    }

    #[test]
    fn faster_is_above_one() {
        assert_eq!(ratio(2.0, 4.0, "us"), Some(2.0));
        assert_eq!(ratio(2.0, 4.0, "GB/s"), Some(0.5));
        assert_eq!(ratio(0.0, 0.0, "us"), None);
    }

    #[test]
    fn dates_have_ten_characters() {
        let today = today();
        assert!(today.len() == 10 && today.starts_with("20"), "{today}");
    }
}

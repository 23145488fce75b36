//! The progress bar, on a terminal and in a log.

use picograd::nn::data::{Progress, Style};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, b: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(b)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Text {
    fn get(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn run(style: Style, every: Duration, total: u64, ticks: u64) -> String {
    let text = Text::default();
    let mut bar = Progress::with("train", total, style, every, Box::new(text.clone()));
    for i in 0..ticks {
        bar.set("loss", 1.0 / (i + 1) as f64);
        bar.tick(1);
    }
    bar.finish();
    text.get()
}

#[test]
fn log_has_periodic_plain_lines() {
    let text = run(Style::Log, Duration::ZERO, 4, 4);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(
        lines[0].starts_with("train  25% 1/4 ")
            && lines[0].contains(" eta ")
            && lines[0].ends_with(" loss 1.0000"),
        "{text}"
    );
    assert!(
        lines[4].starts_with("train 100% 4/4 ")
            && lines[4].contains(" in ")
            && lines[4].ends_with(" loss 0.2500"),
        "{text}"
    );
    assert!(!text.contains(['\x1b', '\r']), "no codes of terminals: {text:?}");
    // A short run has one line.
    assert_eq!(run(Style::Log, Duration::from_secs(60), 1000, 1000).lines().count(), 1);
}

#[test]
fn terminal_has_one_line_that_fits() {
    let text = run(Style::Line { width: 60, color: false }, Duration::ZERO, 10, 10);
    let states: Vec<&str> = text.split('\r').skip(1).collect();
    assert_eq!((states.len(), text.matches('\n').count()), (11, 1));
    assert!(text.ends_with("\x1b[K\n"));
    for s in &states {
        assert!(s.trim_end_matches(['\n', 'K', '[', '\x1b']).chars().count() < 60, "{s:?}");
    }
    assert!(states[4].contains("50%") && states[4].contains("━─"), "{:?}", states[4]);
    assert!(states[10].contains('━') && !states[10].contains('─'));
    let narrow = run(Style::Line { width: 20, color: false }, Duration::ZERO, 10, 1);
    assert!(
        narrow.split('\r').skip(1).all(|s| s
            .trim_end_matches(['\n', 'K', '[', '\x1b'])
            .chars()
            .count()
            < 20),
        "{narrow:?}"
    );
    assert!(
        run(Style::Line { width: 80, color: true }, Duration::ZERO, 10, 1).contains("\x1b[36m")
    );
    let unknown = run(Style::Line { width: 80, color: false }, Duration::ZERO, 0, 3);
    assert!(unknown.contains("train 3 ") && !unknown.contains('%'), "{unknown:?}");
}

#[test]
fn dropped_bar_ends_its_line() {
    let text = Text::default();
    let mut bar = Progress::with(
        "x",
        10,
        Style::Line { width: 80, color: false },
        Duration::from_secs(60),
        Box::new(text.clone()),
    );
    bar.tick(3);
    drop(bar);
    assert!(text.get().contains(" 30%") && text.get().ends_with('\n'), "{:?}", text.get());
    // The percentage stays at 100 beyond the total.
    assert!(run(Style::Log, Duration::from_secs(60), 2, 5).starts_with("train 100% 5/2"));
}

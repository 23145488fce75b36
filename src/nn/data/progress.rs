//! A progress bar: one line that is redrawn on a terminal, periodic plain lines in a pipe or a log.

use crate::env;
use crate::os::terminal_columns;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Output style of [`Progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One line of a terminal, redrawn in place.
    Line {
        /// Columns of the terminal.
        width: usize,
        /// True if the line may have colors.
        color: bool,
    },
    /// Periodic plain lines, and one at the end.
    Log,
}

/// Shows steps done, rate, estimated remaining time, and metrics such as a loss. It writes to
/// stderr, so that the program's own output can be piped. In a pipe or a log it writes a plain line
/// every five seconds. `NO_COLOR` turns colors off.
pub struct Progress {
    label: String,
    total: u64,
    done: u64,
    metrics: Vec<(String, f64)>,
    start: Instant,
    shown: Option<Instant>,
    every: Duration,
    style: Style,
    out: Box<dyn Write + Send>,
    finished: bool,
}

impl Progress {
    /// Creates a progress bar of `total` steps; 0 if the number is not known.
    ///
    /// ```
    /// use picograd::nn::data::Progress;
    /// let mut bar = Progress::new("epoch 1", 100);
    /// for step in 0..100 {
    ///     bar.set("loss", 1.0 / (step + 1) as f64);
    ///     bar.tick(1);
    /// }
    /// bar.finish(); // epoch 1 100% 100/100 … loss 0.0100
    /// ```
    pub fn new(label: &str, total: u64) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let style = match terminal_columns() {
            Some(width) if terminal => {
                Style::Line { width, color: env::config().is_ok_and(|c| c.color) }
            }
            _ => Style::Log,
        };
        let every =
            if style == Style::Log { Duration::from_secs(5) } else { Duration::from_millis(80) };
        Progress::with(label, total, style, every, Box::new(std::io::stderr()))
    }

    /// Creates a progress bar of a given style, written to `out` at most once per `every`.
    ///
    /// ```
    /// use picograd::nn::data::{Progress, Style};
    /// use std::time::Duration;
    /// let bar = Progress::with(
    ///     "epoch 1",
    ///     100,
    ///     Style::Log,
    ///     Duration::from_secs(1),
    ///     Box::new(std::io::sink()),
    /// );
    /// bar.finish();
    /// ```
    pub fn with(
        label: &str,
        total: u64,
        style: Style,
        every: Duration,
        out: Box<dyn Write + Send>,
    ) -> Progress {
        let (label, start) = (label.to_string(), Instant::now());
        Progress {
            label,
            total,
            done: 0,
            metrics: Vec::new(),
            start,
            shown: None,
            every,
            style,
            out,
            finished: false,
        }
    }

    /// Sets a metric, which is shown after the progress.
    ///
    /// ```
    /// use picograd::nn::data::Progress;
    /// let mut bar = Progress::new("epoch 1", 100);
    /// bar.set("loss", 0.5);
    /// bar.finish();
    /// ```
    pub fn set(&mut self, name: &str, value: f64) {
        match self.metrics.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.metrics.push((name.to_string(), value)),
        }
    }

    /// Advances by a number of steps.
    ///
    /// ```
    /// use picograd::nn::data::Progress;
    /// let mut bar = Progress::new("epoch 1", 100);
    /// bar.tick(100);
    /// bar.finish();
    /// ```
    pub fn tick(&mut self, steps: u64) {
        self.done = self.done.saturating_add(steps);
        // The first line of a log waits until the rate is meaningful.
        let last = self.shown.or((self.style == Style::Log).then_some(self.start));
        if last.is_none_or(|t| t.elapsed() >= self.every) {
            self.show();
        }
    }

    /// Shows the final state and ends the line.
    ///
    /// ```
    /// use picograd::nn::data::Progress;
    /// let mut bar = Progress::new("epoch 1", 100);
    /// bar.tick(100);
    /// bar.finish();
    /// ```
    pub fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.finished, true) {
            self.show();
            if self.style != Style::Log {
                let _ = self.out.write_all(b"\n");
            }
        }
    }

    fn show(&mut self) {
        self.shown = Some(Instant::now());
        let text = match self.style {
            Style::Log => self.text(None) + "\n",
            Style::Line { width, color } => format!("\r{}\x1b[K", self.text(Some((width, color)))),
        };
        // A closed stderr is not an error.
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }

    /// Returns the state as one line; with a width, it has a bar and fits in the width.
    fn text(&self, line: Option<(usize, bool)>) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let rate = self.done as f64 / seconds.max(1e-9);
        let part = self.done as f64 / self.total.max(1) as f64;
        let (mut head, mut tail) = (self.label.clone(), format!("{}", self.done));
        if self.total > 0 {
            head += &format!(" {:3.0}%", (part * 100.0).min(100.0).floor());
            tail += &format!("/{}", self.total);
        }
        tail += &format!(" {}/s", short(rate));
        if self.finished || self.done >= self.total {
            tail += &format!(" in {}", clock(seconds));
        } else if self.done > 0 {
            tail += &format!(" eta {}", clock((self.total - self.done) as f64 / rate));
        }
        for (name, value) in &self.metrics {
            tail += &format!(" {name} {}", short(*value));
        }
        let Some((width, color)) = line else { return format!("{head} {tail}") };
        // The last column stays free: some terminals wrap when it is written.
        let room = width.saturating_sub(1);
        let bar = room.saturating_sub(head.chars().count() + tail.chars().count() + 2).min(30);
        if self.total == 0 || bar < 5 {
            return format!("{head} {tail}").chars().take(room).collect();
        }
        let full = ((part * bar as f64) as usize).min(bar);
        let (done, rest) = ("━".repeat(full), "─".repeat(bar - full));
        if color {
            format!("{head} \x1b[36m{done}\x1b[2;39m{rest}\x1b[0m {tail}")
        } else {
            format!("{head} {done}{rest} {tail}")
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Formats a number in a few characters.
fn short(v: f64) -> String {
    match v.abs() {
        a if a >= 1e6 || (a > 0.0 && a < 1e-3) => format!("{v:.2e}"),
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.4}"),
    }
}

/// Formats hours, minutes and seconds.
fn clock(seconds: f64) -> String {
    if !seconds.is_finite() || seconds >= 360_000.0 {
        return "?".into();
    }
    let s = seconds.round() as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, _) if seconds < 10.0 => format!("{seconds:.1}s"),
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}:{s:02}"),
        (h, m, s) => format!("{h}:{m:02}:{s:02}"),
    }
}

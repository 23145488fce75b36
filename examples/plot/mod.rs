//! Plots of the examples: PNG files, and text for the terminal.

use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::error::Error;
use std::ops::Range;

/// A named line or scatter plot.
pub struct Series<'a> {
    /// Label in the legend.
    pub name: &'a str,
    /// Points of the series, in data coordinates.
    pub points: Vec<(f64, f64)>,
    /// True if a line joins the points.
    pub line: bool,
}

fn span(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (lo, hi) = values
        .filter(|v| v.is_finite())
        .fold((f64::MAX, f64::MIN), |(lo, hi), v| (lo.min(v), hi.max(v)));
    if lo < hi { lo..hi } else { 0.0..1.0 }
}

/// Draws the series to a PNG file.
pub fn png(path: &str, title: &str, series: &[Series<'_>]) -> Result<(), Box<dyn Error>> {
    register_font("sans-serif", FontStyle::Normal, dejavu::sans_mono::regular())
        .map_err(|_| "the font cannot be read")?;
    let all = || series.iter().flat_map(|s| s.points.iter());
    let root = BitMapBackend::new(path, (800, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(64)
        .build_cartesian_2d(span(all().map(|p| p.0)), span(all().map(|p| p.1)))?;
    chart.configure_mesh().light_line_style(WHITE).draw()?;
    for (i, s) in series.iter().enumerate() {
        let color = [BLUE, RED, GREEN, MAGENTA][i % 4];
        let drawn = if s.line {
            chart.draw_series(LineSeries::new(s.points.iter().copied(), &color))?
        } else {
            chart
                .draw_series(s.points.iter().map(|&p| Circle::new(p, 2, color.mix(0.4).filled())))?
        };
        drawn.label(s.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    chart.configure_series_labels().label_font(("sans-serif", 14)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// Prints the series as text: `·` for points, `█` for lines.
#[allow(dead_code, reason = "not every example prints one")]
pub fn text(series: &[Series<'_>], width: usize, height: usize) {
    let all = || series.iter().flat_map(|s| s.points.iter());
    let (xs, ys) = (span(all().map(|p| p.0)), span(all().map(|p| p.1)));
    let mut field = vec![vec![' '; width]; height];
    for s in series {
        for &(x, y) in &s.points {
            let at = |v: f64, range: &Range<f64>, n: usize| {
                ((v - range.start) / (range.end - range.start) * (n - 1) as f64).round() as usize
            };
            field[height - 1 - at(y, &ys, height).min(height - 1)]
                [at(x, &xs, width).min(width - 1)] = if s.line { '█' } else { '·' };
        }
    }
    field.iter().for_each(|row| println!("{}", row.iter().collect::<String>()));
}

/// Plots the losses of the training steps with their running mean.
#[allow(dead_code, reason = "not every example has one")]
pub fn losses(path: &str, title: &str, losses: &[f32]) -> Result<(), Box<dyn Error>> {
    let mut mean = losses.first().copied().unwrap_or_default();
    let smooth = losses.iter().enumerate().map(|(i, l)| {
        mean += (l - mean) * 0.05;
        (i as f64, mean as f64)
    });
    let smooth = Series { name: "running mean", points: smooth.collect(), line: true };
    let raw = Series {
        name: "loss",
        points: losses.iter().enumerate().map(|(i, l)| (i as f64, *l as f64)).collect(),
        line: false,
    };
    png(path, title, &[raw, smooth])?;
    println!("the loss curve is in {path}");
    Ok(())
}

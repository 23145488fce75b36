//! The statistics of a comparison and its table.
//! In: the seconds of every participant in every round. Out: medians, and lines of Markdown.

use super::reference;
use crate::cpu_workloads::Work;
use std::fmt::Write as _;

/// The seconds of one workload, by round.
pub struct Row {
    pub name: &'static str,
    pub work: Work,
    pub ours: Vec<f64>,
    /// The reference kernel and the peers.
    pub others: Vec<(String, Vec<f64>)>,
    /// The shortest time that the roofline of the round allows.
    pub roofline: Vec<f64>,
}

impl Row {
    pub fn new(name: &'static str, work: Work, others: Vec<String>) -> Row {
        let others = others.into_iter().map(|name| (name, vec![])).collect();
        Row { name, work, ours: vec![], others, roofline: vec![] }
    }
    /// Returns the seconds of the reference kernel.
    pub fn reference(&self) -> Option<&[f64]> {
        let found = self.others.iter().find(|(name, _)| name == reference::NAME);
        found.map(|(_, seconds)| &seconds[..])
    }
    /// Returns the peer with the shortest median time.
    pub fn best_peer(&self) -> Option<(&str, &[f64])> {
        self.others
            .iter()
            .filter(|(name, _)| name != reference::NAME)
            .min_by(|a, b| median(&a.1).total_cmp(&median(&b.1)))
            .map(|(name, seconds)| (name.as_str(), &seconds[..]))
    }
}

/// Returns the median; of an even number of values the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Returns the median of the ratios of pairs of the same round.
pub fn median_ratio(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "both took part in every round");
    median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>())
}

const HEAD: [&str; 9] = [
    "work",
    "unit",
    "ours",
    "best peer",
    "reference",
    "roofline",
    "ours/peer",
    "ours/reference",
    "ours/roofline",
];

/// Returns the table of all rows, with columns of equal width.
pub fn text(rows: &[Row]) -> String {
    let mut cells: Vec<Vec<String>> = vec![HEAD.map(str::to_string).to_vec()];
    cells.push(HEAD.map(|_| "---".to_string()).to_vec());
    cells.extend(rows.iter().map(line));
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|i| cells.iter().map(|line| line[i].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for line in cells {
        for (cell, width) in line.iter().zip(&widths) {
            write!(out, "| {cell:width$} ").expect("a string takes all text");
        }
        out.push_str("|\n");
    }
    out
}

/// Returns the cells of a row.
fn line(row: &Row) -> Vec<String> {
    let value = |seconds: &[f64]| figure(row.work.value(median(seconds)));
    let ratio = |other: Option<&[f64]>| {
        other.map_or(String::new(), |o| format!("{:.2}", median_ratio(o, &row.ours)))
    };
    let (peer, reference) = (row.best_peer(), row.reference());
    vec![
        row.name.to_string(),
        row.work.unit().to_string(),
        value(&row.ours),
        peer.map_or(String::new(), |(name, seconds)| format!("{} ({name})", value(seconds))),
        reference.map_or(String::new(), value),
        value(&row.roofline),
        ratio(peer.map(|p| p.1)),
        ratio(reference),
        ratio(Some(&row.roofline)),
    ]
}

/// Returns a number with three digits.
fn figure(value: f64) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            name: "sum",
            work: Work::Read(2e9),
            ours: vec![1.0, 2.0, 4.0],
            others: vec![
                (reference::NAME.to_string(), vec![0.5, 2.0, 3.0]),
                ("torch 2.15".to_string(), vec![3.0, 3.0, 3.0]),
                ("jax 0.10".to_string(), vec![2.0, 9.0, 2.0]),
            ],
            roofline: vec![0.5, 0.5, 0.5],
        }
    }

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_of_pairs_of_a_round() {
        // The ratio of the medians would be 2.
        assert_eq!(median_ratio(&[1.0, 4.0, 8.0], &[1.0, 8.0, 2.0]), 1.0);
    }

    #[test]
    fn the_best_peer_has_the_shortest_median_and_is_not_the_reference() {
        assert_eq!(row().best_peer().unwrap().0, "jax 0.10");
        assert_eq!(row().reference(), Some(&[0.5, 2.0, 3.0][..]));
    }

    #[test]
    fn tables_have_figures_and_ratios() {
        let text = text(&[row()]);
        let last: Vec<&str> = text.lines().last().unwrap().split('|').map(str::trim).collect();
        let want =
            ["sum", "GB/s", "1.00", "1.00 (jax 0.10)", "1.00", "4.00", "2.00", "0.75", "0.25"];
        assert_eq!(last[1..10], want);
        assert_eq!(text.lines().count(), 3);
        let none = Row::new("sum", Work::Read(1.0), vec![]);
        assert!(none.best_peer().is_none() && none.reference().is_none());
    }
}

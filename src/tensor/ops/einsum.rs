//! Einstein summation and rearrangement of named axes, as permutes, reshapes and sums of products.

use super::matmul::sum_of_products;
use crate::error::Result;
use crate::shape::{Dims, checked_numel};
use crate::tensor::{Tensor, autocast};
use std::collections::BTreeSet;

/// Name of an axis: a letter, or an axis of `...`, counted from the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Rest(usize),
    Letter(char),
}

/// Tensor with distinct axis names.
#[derive(Clone)]
struct Labelled {
    x: Tensor,
    labels: Vec<Label>,
}

/// An `Err` that shows the formula: the formula, then a format string and its arguments.
macro_rules! wrong_formula {
    ($formula:expr, $($msg:tt)+) => {
        shape_error!("{:?}: {}", $formula, format_args!($($msg)+))
    };
}

/// Returns the names of one term, with `rest` axes for `...`.
fn labels(formula: &str, term: &str, rest: usize) -> Result<Vec<Label>> {
    let parts: Vec<&str> = term.split("...").collect();
    if parts.len() > 2 {
        return wrong_formula!(formula, "`...` is repeated in {term:?}");
    }
    let mut all = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        if i == 1 {
            all.extend((0..rest).rev().map(Label::Rest));
        }
        for c in part.chars() {
            if !c.is_alphabetic() {
                return wrong_formula!(formula, "{c:?} is not an axis name; expected letters");
            }
            all.push(Label::Letter(c));
        }
    }
    Ok(all)
}

impl Labelled {
    fn new(formula: &str, term: &str, x: &Tensor) -> Result<Labelled> {
        let dims = x.dims();
        let letters = term.replace("...", "").chars().count();
        let dotted = term.contains("...");
        if letters > dims.len() || (!dotted && letters != dims.len()) {
            return wrong_formula!(
                formula,
                "{term:?} names {letters} axes, but the tensor is {dims:?}"
            );
        }
        let mut l = Labelled { x: x.clone(), labels: labels(formula, term, dims.len() - letters)? };
        // A repeated name is a diagonal.
        let twice = |labels: &[Label]| {
            (0..labels.len()).find_map(|a| {
                (a + 1..labels.len()).find(|&b| labels[a] == labels[b]).map(|b| (a, b))
            })
        };
        while let Some((a, b)) = twice(&l.labels) {
            let dims = l.x.dims();
            if dims[a] != dims[b] {
                return wrong_formula!(
                    formula,
                    "{term:?} repeats a name for axes of {dims:?} of sizes {} and {}",
                    dims[a],
                    dims[b]
                );
            }
            l.x = l.x.try_diagonal(0, a as isize, b as isize)?;
            l.labels.remove(b);
            let label = l.labels.remove(a);
            l.labels.push(label);
        }
        Ok(l)
    }
    /// Permutes the axes to an order, with size 1 for missing ones.
    fn align(&self, order: &[Label]) -> Result<Tensor> {
        let dims = self.x.dims();
        let place = |l: &Label| self.labels.iter().position(|m| m == l);
        let axes: Dims = order.iter().filter_map(place).collect();
        let sizes: Dims = order.iter().map(|l| place(l).map_or(1, |a| dims[a])).collect();
        self.x.permuted(axes)?.shaped(sizes)
    }
    /// Sums over the axes that are not kept.
    fn sum_except(&self, keep: &dyn Fn(&Label) -> bool) -> Result<Labelled> {
        let gone: Dims = (0..self.labels.len()).filter(|&i| !keep(&self.labels[i])).collect();
        if gone.is_empty() {
            return Ok(self.clone());
        }
        let labels = self.labels.iter().copied().filter(keep).collect();
        Ok(Labelled { x: self.x.try_sum(&gone)?, labels })
    }
    /// Multiplies by another term and sums over the axes that are not kept.
    fn times(&self, other: &Labelled, keep: &dyn Fn(&Label) -> bool) -> Result<Labelled> {
        let new = other.labels.iter().filter(|l| !self.labels.contains(l));
        let both = self.labels.iter().chain(new).copied();
        let (kept, gone): (Vec<Label>, Vec<Label>) = both.partition(keep);
        let order = [&kept[..], &gone[..]].concat();
        let (x, y) = (self.align(&order)?, other.align(&order)?);
        let x = if gone.is_empty() { x.try_mul(y)? } else { sum_of_products(&x, &y, gone.len())? };
        Ok(Labelled { x, labels: kept })
    }
}

/// Result axes of a formula without `->`: `...` first, then the letters that occur once, in
/// alphabetical order.
fn implied(terms: &[Labelled], inputs: &[&str]) -> Vec<Label> {
    let rest = terms.iter().flat_map(|t| &t.labels).filter(|l| matches!(l, Label::Rest(_))).max();
    let mut out: Vec<Label> = match rest {
        Some(Label::Rest(n)) => (0..=*n).rev().map(Label::Rest).collect(),
        _ => Vec::new(),
    };
    let letters: Vec<char> = inputs.iter().flat_map(|t| t.chars()).filter(|c| *c != '.').collect();
    let occurs = |c: &char| letters.iter().filter(|d| *d == c).count();
    let mut once: Vec<char> = letters.iter().copied().filter(|c| occurs(c) == 1).collect();
    once.sort_unstable();
    out.extend(once.into_iter().map(Label::Letter));
    out
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Label::Letter(c) => c.fmt(f),
            Label::Rest(_) => f.write_str("..."),
        }
    }
}

/// Checks that the sizes of equal names match or are 1, and that the result has each name once.
fn check_labels(formula: &str, terms: &[Labelled], out: &[Label]) -> Result<()> {
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for (label, size) in terms.iter().flat_map(|t| t.labels.iter().copied().zip(t.x.dims())) {
        match sizes.iter_mut().find(|(l, _)| *l == label) {
            None => sizes.push((label, size)),
            Some((_, known)) if *known == 1 => *known = size,
            Some((_, known)) if size == 1 || *known == size => {}
            Some((_, known)) => {
                return wrong_formula!(formula, "{label} has sizes {known} and {size}");
            }
        }
    }
    for (i, label) in out.iter().enumerate() {
        if out[..i].contains(label) {
            return wrong_formula!(formula, "axis {label} is repeated in the result");
        }
        if !sizes.iter().any(|(l, _)| l == label) {
            return wrong_formula!(formula, "{label} of the result is in no term");
        }
    }
    Ok(())
}

/// Multiplies terms from left to right, and sums over each name as soon as no later term has it.
fn contract(terms: &[Labelled], out: &[Label]) -> Result<Tensor> {
    let later = |from: usize| {
        let rest = terms[from.min(terms.len())..].iter().flat_map(|t| t.labels.clone());
        let needed: Vec<Label> = rest.chain(out.iter().copied()).collect();
        move |l: &Label| needed.contains(l)
    };
    let mut all = terms[0].sum_except(&later(1))?;
    for (i, t) in terms.iter().enumerate().skip(1) {
        let others = later(i + 1);
        let alone = t.sum_except(&|l: &Label| others(l) || all.labels.contains(l))?;
        all = all.times(&alone, &others)?;
    }
    all.align(out)
}

fn einsum(formula: &str, operands: &[&Tensor]) -> Result<Tensor> {
    let text: String = formula.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (text.as_str(), None),
    };
    let inputs: Vec<&str> = left.split(',').collect();
    let (expected, given) = (inputs.len(), operands.len());
    if expected != given {
        return wrong_formula!(
            formula,
            "expected {expected} tensors, one for each term, got {given}"
        );
    }
    let terms = inputs.iter().zip(operands).map(|(t, x)| Labelled::new(formula, t, x));
    let terms = terms.collect::<Result<Vec<_>>>()?;
    let out = match right {
        None => implied(&terms, &inputs),
        Some(right) => {
            let rest = terms.iter().flat_map(|t| &t.labels).filter(|l| matches!(l, Label::Rest(_)));
            labels(formula, right, rest.collect::<BTreeSet<_>>().len())?
        }
    };
    check_labels(formula, &terms, &out)?;
    contract(&terms, &out)
}

/// Returns the axes of one side of a rearrangement, each with the names that it is composed of.
/// `rest` are the names of `...`.
fn groups(formula: &str, side: &str, rest: &[String]) -> Result<Vec<Vec<String>>> {
    let spaced = side.replace('(', " ( ").replace(')', " ) ").replace("...", " ... ");
    let mut open: Option<Vec<String>> = None;
    let mut all = Vec::new();
    for word in spaced.split_whitespace() {
        match (word, &mut open) {
            ("(", None) => open = Some(Vec::new()),
            (")", Some(_)) => all.extend(open.take()),
            ("(" | ")", _) => {
                return wrong_formula!(formula, "parentheses do not match; they do not nest");
            }
            ("...", None) => all.extend(rest.iter().map(|r| vec![r.clone()])),
            ("...", Some(group)) => group.extend(rest.iter().cloned()),
            ("1", None) => all.push(Vec::new()),
            ("1", Some(_)) => {}
            (name, _)
                if !name.chars().all(|c| c.is_alphanumeric() || c == '_')
                    || name.starts_with(|c: char| c.is_numeric()) =>
            {
                return wrong_formula!(formula, "{name:?} is not an axis name");
            }
            (name, Some(group)) => group.push(name.to_string()),
            (name, None) => all.push(vec![name.to_string()]),
        }
    }
    if open.is_some() { wrong_formula!(formula, "a parenthesis is not closed") } else { Ok(all) }
}

/// Returns the sizes of the names of each axis: given, or inferred from the size of the axis.
fn split_sizes(
    formula: &str,
    groups: &[Vec<String>],
    dims: &[usize],
    given: &[(&str, usize)],
) -> Result<Vec<usize>> {
    let mut sizes: Vec<usize> = Vec::new();
    for (group, &size) in groups.iter().zip(dims) {
        let known: Vec<Option<usize>> =
            group.iter().map(|n| given.iter().find(|(m, _)| m == n).map(|(_, s)| *s)).collect();
        let product =
            checked_numel("rearrange", &known.iter().flatten().copied().collect::<Dims>())?;
        let open = known.iter().filter(|k| k.is_none()).count();
        let left_over = if open == 0 { 1 } else { size.checked_div(product).unwrap_or(0) };
        if open > 1 || product * left_over != size {
            let what =
                if open > 1 { "give all sizes but one" } else { "its sizes do not divide it" };
            let names = group.join(" and ");
            return wrong_formula!(formula, "an axis of {size} is composed of {names}: {what}");
        }
        sizes.extend(known.into_iter().map(|k| k.unwrap_or(left_over)));
    }
    Ok(sizes)
}

/// Returns the axes of both sides of a rearrangement, each with the names that it is composed of.
fn parse_sides(formula: &str, dims: &[usize]) -> Result<[Vec<Vec<String>>; 2]> {
    let Some((left, right)) = formula.split_once("->") else {
        return wrong_formula!(formula, "expected `->`");
    };
    if [left, right].iter().any(|side| side.matches("...").count() > 1) {
        return wrong_formula!(formula, "`...` is repeated on one side");
    }
    let without = groups(formula, left, &[])?.len();
    let dotted = left.contains("...");
    if without > dims.len() || (!dotted && without != dims.len()) {
        return wrong_formula!(
            formula,
            "the left side has {without} axes, but the tensor is {dims:?}"
        );
    }
    let rest = if dotted { dims.len() - without } else { 0 };
    let rest: Vec<String> = (0..rest).map(|i| format!("...{i}")).collect();
    Ok([groups(formula, left, &rest)?, groups(formula, right, &rest)?])
}

fn rearrange(x: &Tensor, formula: &str, given: &[(&str, usize)]) -> Result<Tensor> {
    let dims = x.dims();
    let [from, to] = parse_sides(formula, &dims)?;
    let (names, wanted): (Vec<String>, Vec<String>) = (from.concat(), to.concat());
    if let Some((_, name)) = names.iter().enumerate().find(|(i, n)| names[..*i].contains(n)) {
        return wrong_formula!(formula, "axis {name} is repeated on the left");
    }
    if wanted.len() != names.len() || names.iter().any(|n| !wanted.contains(n)) {
        return wrong_formula!(formula, "expected the same names on both sides, each once");
    }
    if let Some((name, _)) = given.iter().find(|(n, _)| !names.iter().any(|m| m == n)) {
        return wrong_formula!(formula, "a size is given for {name}, which is not an axis");
    }
    let sizes = split_sizes(formula, &from, &dims, given)?;
    let place =
        |n: &String| names.iter().position(|m| m == n).expect("both sides have the same names");
    let out = to.iter().map(|group| group.iter().map(|n| sizes[place(n)]).product());
    x.shaped(sizes.iter().copied())?.permuted(wanted.iter().map(place))?.shaped(out)
}

impl Tensor {
    fallible! {
        /// Einstein summation: one term per tensor, with a letter per axis; after `->` the axes of
        /// the result. Letters that the result lacks are summed over, a letter repeated in a term
        /// is a diagonal, and `...` stands for broadcast axes. Without `->` the result has the
        /// letters that occur once, in alphabetical order. Dtypes are those of
        /// [`matmul`](Self::matmul).
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (x, y) = (Tensor::new([[1, 2], [3, 4]]), Tensor::new([[5, 6], [7, 8]]));
        /// assert_eq!(Tensor::einsum("ij,jk->ik", &[&x, &y]).to_vec::<i32>()?, [19, 22, 43, 50]);
        /// assert_eq!(Tensor::einsum("ii", &[&x]).item::<i32>()?, 5);
        /// assert_eq!(Tensor::einsum("...i->...", &[&x]).to_vec::<i32>()?, [3, 7]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn einsum | try_einsum(formula: &str, operands: &[&Tensor]) -> Tensor {
            match autocast::narrow_all(operands) {
                Some(cast) => einsum(formula, &cast.iter().collect::<Vec<_>>()),
                None => einsum(formula, operands),
            }
        }

        /// Permutes, merges and splits axes by name. Names in parentheses form one axis; the sizes
        /// of all but one of them are given as pairs. `...` stands for any axes, `1` for an axis of
        /// size 1.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::zeros([2, 12, 5]);
        /// assert_eq!(x.rearrange("b (h d) n -> b h n d", &[("h", 3)]).shape(), [2, 3, 5, 4]);
        /// assert_eq!(x.rearrange("b ... -> (b ...) 1", &[]).shape(), [120, 1]);
        /// ```
        pub fn rearrange | try_rearrange(&self, formula: &str, sizes: &[(&str, usize)]) -> Tensor {
            rearrange(self, formula, sizes)
        }
    }
}

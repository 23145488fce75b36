//! The renderer's view of a value: its text, and enough of its form to write `x-y` for `x + y*-1`.

use crate::dtype::Const;
use crate::ir::Op;
use std::rc::Rc;

/// The form of a text, if it allows a shorter one around it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    Plain,
    /// `-x`.
    Negated(String),
    /// A signed integer that was computed as unsigned: the text before the cast back.
    Wrapped(String),
    /// A comparison whose negation is a comparison too.
    Compared {
        op: Op,
        x: String,
        y: String,
    },
}

/// A value as text.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    /// Empty for a vector that is built where it is used, from `lanes`.
    pub text: String,
    pub form: Form,
    /// The value of a literal.
    pub literal: Option<Const>,
    /// The text of each lane of a literal vector, or of one built from scalars.
    pub lanes: Option<Rc<[String]>>,
}

impl Operand {
    pub fn plain(text: impl Into<String>) -> Operand {
        Operand { text: text.into(), form: Form::Plain, literal: None, lanes: None }
    }
    /// Returns a scalar of one lane, or a vector built from several.
    pub fn of_lanes(mut lanes: Vec<String>) -> Operand {
        if lanes.len() == 1 { Operand::plain(lanes.remove(0)) } else { Operand::from_lanes(lanes) }
    }
    /// Returns a vector built from these lanes.
    pub fn from_lanes(lanes: Vec<String>) -> Operand {
        Operand { text: String::new(), form: Form::Plain, literal: None, lanes: Some(lanes.into()) }
    }
    pub fn with_form(text: String, form: Form) -> Operand {
        Operand { text, form, literal: None, lanes: None }
    }
    /// Returns the one scalar that every lane holds.
    pub fn splat(&self) -> Option<&str> {
        let lanes = self.lanes.as_ref()?;
        lanes.iter().all(|l| *l == lanes[0]).then(|| lanes[0].as_str())
    }
    /// Returns the characters of its text.
    pub fn len(&self) -> usize {
        self.text.len()
            + self.lanes.as_ref().map_or(0, |l| {
                if self.splat().is_some() {
                    l[0].len()
                } else {
                    l.iter().map(|t| t.len() + 1).sum()
                }
            })
    }
}

/// Returns the operands of an op for destructuring: `let [x, y] = operands(args)`.
///
/// # Panics
/// There are fewer.
pub(super) fn operands<const N: usize>(args: &[Operand]) -> [&Operand; N] {
    std::array::from_fn(|i| &args[i])
}

/// Returns `x-y` as text. Two minus signs in a row would be a decrement.
pub(super) fn minus(x: &str, y: &str) -> String {
    if y.starts_with('-') { format!("{x}-({y})") } else { format!("{x}-{y}") }
}

//! The table of `docs/ir.md`, made from the table of ops.

use super::Op;
use super::parse::sample;

/// Every op with its operands, payload, groups and meaning, as a Markdown table. A test holds
/// `docs/ir.md` to it.
pub fn doc_table() -> String {
    let mut out =
        String::from("| op | operands | payload | groups | meaning |\n|---|---|---|---|---|\n");
    for &op in Op::ALL {
        let payload =
            if sample(op).is_empty() { String::new() } else { format!("`{}`", sample(op)) };
        let groups = op.groups().iter().map(|g| format!("{g:?}")).collect::<Vec<_>>().join(", ");
        let meaning = op.doc().split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        out.push_str(&format!(
            "| `{}` | {} | {payload} | {groups} | {meaning} |\n",
            op.name(),
            op.operands().join(", ")
        ));
    }
    out
}

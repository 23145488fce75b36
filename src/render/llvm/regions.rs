//! Loops and masked regions: blocks, and a phi for each accumulator that a region changes.

use super::text::ty;
use super::{Done, LlvmWriter, Region, Scope};
use crate::ir::UOp;
use crate::ir::typed::Range;
use crate::render::facts::closes;

impl LlvmWriter<'_> {
    /// Opens a loop, which is tested at its end. One whose trip count may be zero is in a masked
    /// region.
    pub(super) fn open_loop(&mut self, u: &UOp) -> Done {
        let Some(Range { extent, id, .. }) = u.as_range() else {
            return Err("it has no number".to_string());
        };
        let masked = extent.vmin() < 1;
        if masked {
            let extent = self.text(extent)?;
            let any = self.define("alu", &format!("icmp sgt {} {extent}, 0", ty(u.dtype())));
            self.open_masked(u, &any);
        }
        let (label, from) = (self.fresh("loop"), self.block.clone());
        self.line(format!("br label %{label}"));
        self.begin(label.clone());
        let name = format!("%ridx{id}");
        let mut phis = vec![(self.lines.len(), None)];
        self.line(format!("{name} = phi {} [ 0, %{from} ]", ty(u.dtype())));
        for acc in self.changed.get(&u.id()).cloned().unwrap_or_default() {
            // An accumulator that is defined inside is set again in each iteration.
            let Some((before, dtype)) = self.accs.get(&acc).cloned() else { continue };
            phis.push((self.lines.len(), Some(acc)));
            let inside = self.define("acc", &format!("phi {} [ {before}, %{from} ]", ty(dtype)));
            self.accs.insert(acc, (inside, dtype));
        }
        self.open.push(Region {
            opened: u.clone(),
            scope: Scope::default(),
            label,
            from,
            before: Vec::new(),
            phis,
            masked,
        });
        self.value(u, name);
        Ok(())
    }

    pub(super) fn close_loop(&mut self, range: &UOp) -> Done {
        let extent = self.text(range.operand())?;
        let region = self.open.pop_if(|r| r.opened == *range && !r.phis.is_empty());
        closes(region.is_some(), range)?;
        let Some(region) = region else { return Ok(()) };
        let (ty, counter) = (ty(range.dtype()), region.scope.values[&range.id()].clone());
        let next = self.define("next", &format!("add nsw {ty} {counter}, 1"));
        let more = self.define("more", &format!("icmp slt {ty} {next}, {extent}"));
        let after = self.fresh("end");
        self.line(format!("br i1 {more}, label %{}, label %{after}", region.label));
        for (line, acc) in region.phis {
            let value = acc.map_or(&next, |acc| &self.accs[&acc].0);
            self.lines[line] += &format!(", [ {value}, %{} ]", self.block);
        }
        self.begin(after);
        if region.masked { self.close_masked(range) } else { Ok(()) }
    }

    pub(super) fn open_masked(&mut self, u: &UOp, condition: &str) {
        let (inside, label) = (self.fresh("then"), self.fresh("endif"));
        self.line(format!("br i1 {condition}, label %{inside}, label %{label}"));
        let before = self.accs.iter().map(|(acc, (value, _))| (*acc, value.clone())).collect();
        let from = std::mem::take(&mut self.block);
        self.open.push(Region {
            opened: u.clone(),
            scope: Scope::default(),
            label,
            from,
            before,
            phis: Vec::new(),
            masked: false,
        });
        self.begin(inside);
    }

    pub(super) fn close_masked(&mut self, opened: &UOp) -> Done {
        let region = self.open.pop_if(|r| r.opened == *opened && r.phis.is_empty());
        closes(region.is_some(), opened)?;
        let Some(region) = region else { return Ok(()) };
        self.line(format!("br label %{}", region.label));
        let inside = self.block.clone();
        self.begin(region.label);
        for (acc, before) in region.before {
            let (value, dtype) = self.accs[&acc].clone();
            if value != before {
                let merged = self.define(
                    "acc",
                    &format!(
                        "phi {} [ {before}, %{} ], [ {value}, %{inside} ]",
                        ty(dtype),
                        region.from
                    ),
                );
                self.accs.insert(acc, (merged, dtype));
            }
        }
        Ok(())
    }
}

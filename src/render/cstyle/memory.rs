//! Loads and stores of the C family.

use super::Walker;
use super::dialect::{Address, Text};
use crate::dtype::DType;
use crate::ir::typed::{Index, Load, Store};
use crate::ir::{Op, UOp};
use crate::kernel::is_multiple;

/// A buffer and an offset as text.
struct Place {
    /// The address space of the pointer.
    space: &'static str,
    base: String,
    offset: String,
    aligned: bool,
}

impl Place {
    fn address(&self) -> Address<'_> {
        let (space, aligned) = (self.space, self.aligned);
        Address { space, base: &self.base, offset: &self.offset, aligned }
    }
}

impl Walker<'_> {
    /// Returns the buffer and the offset of an index. The offset must be a name if it is written
    /// more than once.
    fn place(&mut self, at: Index, dtype: DType, repeated: bool) -> Result<Place, String> {
        let words = self.cx.dialect.words();
        let space = if at.buffer.op() == Op::DefineShared { words.shared } else { words.global };
        let aligned = is_multiple(at.index, dtype.lanes as i64);
        let base = self.text(at.buffer)?;
        let offset = if repeated { self.named(at.index)? } else { self.text(at.index)? };
        Ok(Place { space, base, offset, aligned })
    }

    /// Returns the value of a load.
    pub(super) fn load(&mut self, u: &UOp) -> Text {
        let Load { place: index, alt, .. } = u.expect_load();
        let (dtype, dialect) = (u.dtype(), self.cx.dialect);
        if let Some((mask, alt)) = index.mask.zip(alt).filter(|(m, _)| m.dtype().lanes > 1) {
            let (masks, alt) = (self.text(mask)?, self.text(alt)?);
            let place = self.place(index, dtype, false)?;
            let text = dialect.load_lanes(&mut self.cx, &place.address(), dtype, &masks, &alt);
            return text.ok_or_else(|| "the language has no masks of lanes".to_string());
        }
        let place = self.place(index, dtype, false)?;
        let is_vector = dtype.lanes > 1 && self.cx.has_vector(dtype);
        let vector =
            if is_vector { dialect.load(&mut self.cx, &place.address(), dtype) } else { None };
        let value = match vector {
            Some(text) => text,
            None => {
                let repeated = dtype.lanes > 1;
                let place = if repeated { self.place(index, dtype, true)? } else { place };
                let element = |l: usize| {
                    let element = place.address().element(l);
                    if dtype.is_bool() { format!("({element}!=0)") } else { element }
                };
                let lanes: Vec<String> = (0..dtype.lanes as usize).map(element).collect();
                if repeated { self.cx.build(dtype, &lanes)? } else { lanes[0].clone() }
            }
        };
        match (index.mask, alt) {
            (Some(mask), Some(alt)) => {
                Ok(format!("({}?{value}:{})", self.text(mask)?, self.text(alt)?))
            }
            _ => Ok(value),
        }
    }

    /// Writes a store.
    pub(super) fn store(&mut self, u: &UOp) -> Result<(), String> {
        let Store { place: index, value, .. } = u.expect_store();
        let (dtype, dialect) = (value.dtype(), self.cx.dialect);
        let place = self.place(index, dtype, false)?;
        if let Some(mask) = index.mask {
            let (masks, text) = (self.text(mask)?, self.text(value)?);
            let place = place.address();
            let statement = dialect.store_lanes(&mut self.cx, &place, dtype, &masks, &text);
            self.line(&statement.ok_or("the language has no masks of lanes")?);
            return Ok(());
        }
        if dtype.lanes == 1 {
            let text = self.text(value)?;
            self.line_of(&[&place.address().element(0), " = ", &text, ";"]);
            return Ok(());
        }
        if self.cx.has_vector(dtype) {
            let text = self.text(value)?;
            if let Some(statement) = dialect.store(&mut self.cx, &place.address(), dtype, &text) {
                self.line(&statement);
                return Ok(());
            }
        }
        let place = self.place(index, dtype, true)?;
        for l in 0..dtype.lanes as usize {
            let text = self.lane(value, l)?;
            self.line_of(&[&place.address().element(l), " = ", &text, ";"]);
        }
        Ok(())
    }
}

//! Cases: tensor graphs with the content of their inputs.
//!
//! The text of a case is text IR of its outputs, with a comment for each input:
//!
//! ```text
//! ; input 0: f32 0000803f00000040   ; [1.0, 2.0]
//! %0 = Param f32 {slot=0 len=2 device=HERE}
//! %1 = Add f32 %0, %0
//! %2 = Sink void %1
//! ```

use super::bounds::{BoundedValue, evaluate_bounded};
use crate::device::Buffer;
use crate::dtype::{DType, read};
use crate::error::{Error, Result};
use crate::ir::{self, Arg, DeviceName, Op, Src, UOp, rebuild_all, substitute_all, toposort};
use crate::reference::Value;
use rustc_hash::FxHashMap;

/// The name of the device under test in a case.
pub const TESTED_DEVICE: &str = "HERE";
/// The name of another device, for copies.
pub const OTHER_DEVICE: &str = "THERE";

/// A tensor graph over `Param`s, and the bytes of each.
#[derive(Clone, Debug)]
pub struct Case {
    /// The outputs.
    pub outputs: Vec<UOp>,
    /// The content of each input, by slot.
    pub inputs: Vec<Vec<u8>>,
}

impl Case {
    /// Returns the outputs with the bounds of correct results.
    pub fn expected(&self) -> Vec<BoundedValue> {
        let order = toposort(&self.outputs);
        let mut values: FxHashMap<u64, BoundedValue> = FxHashMap::default();
        for u in &order {
            let traced = match u.arg() {
                Arg::Param { slot, .. } => {
                    BoundedValue::exact(Value::from_bytes(&self.inputs[*slot], u.dtype()))
                }
                _ => evaluate_bounded(
                    u,
                    &u.src().iter().map(|s| &values[&s.id()]).collect::<Vec<_>>(),
                ),
            };
            values.insert(u.id(), traced);
        }
        self.outputs.iter().map(|o| values[&o.id()].clone()).collect()
    }

    /// Returns the outputs over new buffers on a device; `there` replaces [`THERE`].
    pub fn place(&self, device: &DeviceName, there: &DeviceName) -> Result<Vec<UOp>> {
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for u in toposort(&self.outputs) {
            if let Arg::Param { slot, .. } = u.arg() {
                map.insert(
                    u.clone(),
                    Buffer::from_bytes(device, u.dtype(), &self.inputs[*slot])?.node(),
                );
            }
        }
        let placed = substitute_all(&self.outputs, &map);
        Ok(rebuild_all(&placed, |u, src| match u.arg() {
            Arg::Device(d) => {
                let device = if d.as_str() == OTHER_DEVICE { there } else { device };
                Some(u.with_src(src).with_arg(Arg::Device(device.clone())))
            }
            _ => None,
        }))
    }

    /// Returns the number of nodes.
    pub fn size(&self) -> usize {
        toposort(&self.outputs).len()
    }

    /// Returns the text of the case, which [`Case::parse`] parses.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for u in toposort(&self.outputs) {
            if let Arg::Param { slot, .. } = u.arg() {
                let bytes = &self.inputs[*slot];
                let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
                let shown: Vec<String> = bytes
                    .chunks_exact(u.dtype().itemsize())
                    .take(12)
                    .map(|b| read(b, u.dtype()).to_string())
                    .collect();
                text.push_str(&format!(
                    "; input {slot}: {} {hex} ; [{}]\n",
                    u.dtype(),
                    shown.join(", ")
                ));
            }
        }
        text + &ir::print(&UOp::sink(self.outputs.iter().cloned().collect::<Src>()))
    }

    /// Parses a case.
    pub fn parse(text: &str) -> Result<Case> {
        let sink = ir::parse(text)?;
        let mut inputs: Vec<Vec<u8>> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let Some(rest) = line.trim().strip_prefix("; input ") else { continue };
            let bad =
                |what: &str| Error::Parse { line: i + 1, msg: format!("an input has {what}") };
            let (slot, rest) = rest.split_once(':').ok_or_else(|| bad("a slot and a colon"))?;
            let slot: usize = slot.trim().parse().map_err(|_| bad("a number for its slot"))?;
            let hex = rest
                .split(';')
                .next()
                .and_then(|r| r.split_whitespace().nth(1))
                .unwrap_or_default();
            let byte = |i: usize| {
                hex.get(i..i + 2)
                    .and_then(|b| u8::from_str_radix(b, 16).ok())
                    .ok_or_else(|| bad("hexadecimal bytes"))
            };
            let bytes = (0..hex.len()).step_by(2).map(byte).collect::<Result<Vec<u8>>>()?;
            inputs.resize(inputs.len().max(slot + 1), Vec::new());
            inputs[slot] = bytes;
        }
        for u in sink.toposort() {
            if let Arg::Param { slot, len, .. } = u.arg()
                && inputs.get(*slot).is_none_or(|b| b.len() != len * u.dtype().itemsize())
            {
                return Err(Error::Parse {
                    line: 1,
                    msg: format!("input {slot} is not {len} elements of {}", u.dtype()),
                });
            }
        }
        Ok(Case { outputs: sink.src().to_vec(), inputs })
    }
}

/// Returns an input of a case.
pub fn param(slot: usize, len: usize, dtype: DType) -> UOp {
    UOp::new(
        Op::Param,
        dtype,
        Src::new(),
        Arg::Param { slot, len, device: DeviceName::new(TESTED_DEVICE) },
    )
}

//! Checks of programs against memory. Only memory that was checked here reaches
//! [`Executable::run`](crate::device::Executable::run).
//!
//! Input: a program, a device and buffers. Output: the memory of the arguments. Every argument has
//! the dtype of its slot and at least its bytes, is memory that kernels of the device can access,
//! and is writable where the program writes it. A copy has two buffers of one length, the target is
//! writable, and the two do not overlap.

use crate::device::registry::{accepts_host_memory, is_null};
use crate::device::{Buffer, Memory};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Arg, DeviceName, Storage, UOp};
use crate::lower::Program;
use crate::schedule::{SlotRef, VariableValues};
use std::sync::Arc;

/// The item as planned, for which its bounds were proven. Only the scheduler issues one; an item
/// whose kernel, buffers, device or variables were changed afterwards does not run.
#[derive(Clone)]
pub struct Proof(Arc<Planned>);

struct Planned {
    ast: Option<UOp>,
    device: Option<DeviceName>,
    buffers: Vec<u64>,
    values: Option<Arc<VariableValues>>,
}

impl Proof {
    /// Returns the proof of a kernel with its arguments.
    pub(super) fn of_kernel<'a>(
        ast: &UOp,
        device: &DeviceName,
        buffers: impl Iterator<Item = &'a Buffer>,
        values: &Arc<VariableValues>,
    ) -> Proof {
        let buffers = buffers.map(Storage::id).collect();
        Proof(Arc::new(Planned {
            ast: Some(ast.clone()),
            device: Some(device.clone()),
            buffers,
            values: Some(values.clone()),
        }))
    }

    /// Returns the proof of a copy.
    pub(super) fn of_copy(to: &Buffer, from: &Buffer) -> Proof {
        Proof(Arc::new(Planned {
            ast: None,
            device: None,
            buffers: vec![to.id(), from.id()],
            values: None,
        }))
    }

    /// Checks that a kernel is the one that was planned.
    pub(super) fn holds_for_kernel<'a>(
        &self,
        ast: &UOp,
        device: &DeviceName,
        mut buffers: impl ExactSizeIterator<Item = &'a Buffer>,
        values: &Arc<VariableValues>,
    ) -> Result<()> {
        let planned = &*self.0;
        let same = planned.ast.as_ref() == Some(ast)
            && planned.device.as_ref() == Some(device)
            && planned.values.as_ref().is_some_and(|v| Arc::ptr_eq(v, values))
            && planned.buffers.len() == buffers.len()
            && planned.buffers.iter().all(|id| buffers.next().map(Storage::id) == Some(*id));
        if same { Ok(()) } else { Err(changed()) }
    }

    /// Checks that a copy is the one that was planned.
    pub(super) fn holds_for_copy(&self, to: &Buffer, from: &Buffer) -> Result<()> {
        let same = self.0.ast.is_none() && self.0.buffers == [to.id(), from.id()];
        if same { Ok(()) } else { Err(changed()) }
    }
}

fn changed() -> Error {
    let why = "a schedule item was changed after it was planned, so nothing proves that it stays \
               inside its buffers";
    Error::Device(format!("{why}; run the item as Tensor::schedule returned it"))
}

/// Requirements of a program on the memory of a slot.
#[derive(Clone, Copy, Default)]
pub(super) struct Needs {
    /// Minimum number of bytes.
    pub(super) bytes: usize,
    /// True if kernels write it.
    pub(super) written: bool,
}

impl Needs {
    /// Returns the requirements of an argument of a program.
    pub(super) fn of(program: &Program, slot: usize) -> Needs {
        let arg = &program.args[slot];
        let len = if let Arg::Global { len, .. } = arg.arg() { *len } else { 0 };
        Needs {
            bytes: len.saturating_mul(arg.dtype().itemsize()),
            written: program.writes.contains(&slot),
        }
    }

    /// Checks a buffer from an offset on.
    pub(super) fn check(
        self,
        slot: usize,
        device: &DeviceName,
        buffer: &Buffer,
        offset: usize,
    ) -> Result<()> {
        let name = buffer.device_name();
        // Devices of the host share memory.
        if name != device && !(accepts_host_memory(name) && accepts_host_memory(device)) {
            return Err(Error::Device(format!("a kernel on {device} cannot access {buffer:?}")));
        }
        // NULL has no memory, and only its own kernels do not access any.
        let runs_on_host = accepts_host_memory(device) && !is_null(device);
        if runs_on_host && !matches!(buffer.place().memory, Memory::Host(_)) {
            return Err(Error::Device(format!(
                "a kernel on {device} was given {buffer:?}, which has no memory of the host"
            )));
        }
        let has = buffer.bytes().saturating_sub(offset);
        if has < self.bytes {
            return Err(too_short(slot, has, self.bytes));
        }
        if self.written && !buffer.is_writable() {
            return Err(Error::Device(format!(
                "the kernel writes slot {slot}, but {buffer:?} is borrowed and read-only"
            )));
        }
        Ok(())
    }
}

/// Checks the number of arguments of a launch.
pub(super) fn check_count(program: &Program, given: usize) -> Result<()> {
    match program.args.len() {
        takes if takes == given => Ok(()),
        takes => Err(Error::Device(format!("{given} buffers for a kernel that takes {takes}"))),
    }
}

/// Checks an argument of a launch: a view of a buffer that begins at `offset`.
pub(super) fn check_arg(
    program: &Program,
    arg: usize,
    device: &DeviceName,
    view: &SlotRef,
    buffer: &Buffer,
    offset: usize,
) -> Result<()> {
    let needs = Needs::of(program, arg);
    let has = view.len.saturating_mul(view.dtype.itemsize());
    if has < needs.bytes {
        return Err(too_short(arg, has, needs.bytes));
    }
    needs.check(arg, device, buffer, offset)?;
    check_dtype(program, arg, view.dtype)
}

fn check_dtype(program: &Program, arg: usize, dtype: DType) -> Result<()> {
    match program.args[arg].dtype() {
        takes if takes == dtype => Ok(()),
        takes => Err(Error::Device(format!(
            "the buffer in slot {arg} is {dtype}, but the kernel takes {takes}"
        ))),
    }
}

fn too_short(slot: usize, has: usize, needs: usize) -> Error {
    Error::Device(format!(
        "the buffer in slot {slot} has {has} bytes, but the kernel needs {needs}"
    ))
}

/// Checks a copy of all elements of a buffer.
pub(super) fn bind_copy(to: &Buffer, from: &Buffer) -> Result<()> {
    let (dtype, len, bytes) = (to.dtype(), to.size(), to.bytes());
    let wrong = |why: &str| {
        Err(Error::Device(format!("a copy of {len} × {dtype} from {from:?} to {to:?}: {why}")))
    };
    if to.size() != from.size() {
        return wrong("the lengths differ");
    }
    if dtype != from.dtype() {
        return wrong("the dtypes differ");
    }
    if !to.is_writable() {
        return wrong("the target is borrowed and read-only");
    }
    let ((block, t), (other, f)) = (to.span(), from.span());
    if bytes > 0 && block == other && t.start < f.end && f.start < t.end {
        return wrong("source and target overlap");
    }
    match (to.place().memory, from.place().memory) {
        (Memory::Host(_) | Memory::Remote(_), Memory::Null) => {
            Err(Error::Device("NULL runs no kernels, so its buffers have no values to copy".into()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::memory::SlotMemory;
    use crate::exec::{command, copy_buffer};
    use crate::schedule::Command;

    fn buffer(dtype: DType, len: usize) -> Buffer {
        Buffer::new(&DeviceName::new("INTERP"), dtype, len).unwrap()
    }

    fn says<T>(done: Result<T>, what: &str) {
        let e = done.err().expect("an error").to_string();
        assert!(e.contains(what), "{e}");
    }

    #[test]
    fn copies_are_checked() {
        let (a, b) = (buffer(DType::F32, 8), buffer(DType::F32, 8));
        copy_buffer(&a, &b).unwrap();
        says(copy_buffer(&a, &a), "source and target overlap");
        says(copy_buffer(&a, &buffer(DType::F32, 7)), "lengths differ");
        says(copy_buffer(&buffer(DType::F32, 7), &a), "lengths differ");
        says(copy_buffer(&a, &buffer(DType::I32, 8)), "dtypes differ");
        says(copy_buffer(&a.part(0..4), &a.part(2..6)), "source and target overlap");
        copy_buffer(&a.part(0..4), &a.part(4..8)).unwrap();
        let lent = Buffer::borrowed(&DeviceName::new("INTERP"), vec![1f32; 8]).unwrap();
        copy_buffer(&a, &lent).unwrap();
        assert_eq!(a.read().unwrap(), lent.read().unwrap());
        says(copy_buffer(&lent, &b), "the target is borrowed and read-only");
    }

    #[test]
    fn arguments_are_checked() {
        let needs = |bytes, written| Needs { bytes, written };
        let (here, x) = (DeviceName::new("INTERP"), buffer(DType::F32, 8));
        needs(32, true).check(0, &here, &x, 0).unwrap();
        says(needs(33, false).check(0, &here, &x, 0), "has 32 bytes, but the kernel needs 33");
        says(needs(32, false).check(0, &here, &x, 1), "has 31 bytes");
        says(needs(1, false).check(0, &here, &x, usize::MAX), "has 0 bytes");
        says(needs(8, false).check(0, &DeviceName::new("CUDA"), &x, 0), "cannot access");
        let null = Buffer::new(&DeviceName::new("NULL"), DType::F32, 8).unwrap();
        for device in ["CPU", "CPU:CLANG", "INTERP"] {
            says(needs(32, true).check(0, &DeviceName::new(device), &null, 0), "has no memory");
        }
        needs(32, true).check(0, &DeviceName::new("NULL"), &null, 0).unwrap();
        needs(32, true).check(0, &DeviceName::new("NULL"), &x, 0).unwrap();
        let lent = Buffer::borrowed(&here, vec![1f32; 8]).unwrap();
        needs(32, false).check(0, &here, &lent, 0).unwrap();
        says(needs(32, true).check(0, &here, &lent, 0), "is borrowed and read-only");
    }

    #[test]
    fn dtypes_and_counts_of_arguments_are_checked() {
        let x = crate::Tensor::ones([8])
            .contiguous()
            .realize()
            .unwrap()
            .to("interp")
            .realize()
            .unwrap();
        let item = (&x + 1.0).schedule().unwrap().remove(0).compile().unwrap();
        let program = item.compiled().unwrap();
        assert_eq!(program.program.writes, [0]);
        let here = DeviceName::new("INTERP");
        let check = |buffers: &[&Buffer]| {
            let view = |(slot, b): (usize, &&Buffer)| SlotRef {
                slot,
                offset: 0,
                dtype: b.dtype(),
                len: b.size(),
            };
            let launch = Command::Launch {
                program: program.clone(),
                device: here.clone(),
                args: buffers.iter().enumerate().map(view).collect(),
                writes: vec![0],
            };
            let memory = buffers.iter().map(|b| Some((*b).clone())).collect();
            command::check(&[launch], &SlotMemory(memory))
        };
        let (f, i) = (buffer(DType::F32, 8), buffer(DType::I32, 8));
        check(&[&f, &f]).unwrap();
        says(check(&[&f]), "1 buffers for a kernel that takes 2");
        says(check(&[&f, &i]), "is i32, but the kernel takes f32");
        says(check(&[&f, &f.part(0..7)]), "has 28 bytes");
        let lent = Buffer::borrowed(&here, vec![1f32; 8]).unwrap();
        check(&[&f, &lent]).unwrap();
        says(check(&[&lent, &f]), "is borrowed and read-only");
    }
}

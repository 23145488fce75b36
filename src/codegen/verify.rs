//! The machine verifier. In: a machine program and an instruction set. Out: the first thing that is
//! wrong with it. It runs after selection and after scheduling, in debug builds and with `SPEC=1`.
//!
//! It checks that each register has one definition, which dominates its uses; that operands have
//! the classes that the table says; that instructions exist at the level; that blocks get as many
//! arguments of the same class as they have parameters; and that no instruction between one that
//! sets the flags and one that reads them changes them.

use super::Isa;
use super::mir::{Inst, Machine, Terminator};
use super::x86::inst::Form;
use iced_x86::Code;
use regalloc2::{OperandConstraint, OperandKind, RegClass, VReg};

/// Checks a machine program.
pub(super) fn verify(machine: &Machine, isa: Isa) -> Result<(), String> {
    let definitions = definitions(machine)?;
    let dominators = dominators(machine);
    for (b, block) in machine.blocks.iter().enumerate() {
        let mut flags = false;
        for (i, inst) in block.insts.iter().enumerate() {
            let wrong = |what: String| Err(format!("{} in block {b}: {what}", inst.row.name));
            for v in inst.used() {
                if !is_defined(&definitions, &dominators, v, b, i) {
                    return wrong(format!("{v} is not defined before it"));
                }
            }
            if let Err(what) = check_form(inst, isa).and_then(|()| check_classes(inst)) {
                return wrong(what);
            }
            if inst.reads_flags() && !flags {
                return wrong("nothing sets the flags that it reads".to_string());
            }
            flags =
                inst.only_sets_flags() || (flags && (inst.reads_flags() || !inst.touches_flags()));
        }
        if matches!(block.end, Terminator::Branch(..)) && !flags {
            return Err(format!("nothing sets the flags of the branch of block {b}"));
        }
        if let Terminator::Jump(to, args) = &block.end {
            let params = &machine.blocks[*to].params;
            let alike = args.len() == params.len()
                && args.iter().zip(params).all(|(a, p)| a.class() == p.class());
            if !alike {
                return Err(format!("block {b} has other arguments than block {to} parameters"));
            }
            let end = block.insts.len();
            if let Some(v) =
                args.iter().find(|v| !is_defined(&definitions, &dominators, **v, b, end))
            {
                return Err(format!("argument {v} of block {b} is not defined before its end"));
            }
        }
    }
    Ok(())
}

/// Returns the block and the position after the definition of each register.
fn definitions(machine: &Machine) -> Result<Vec<Option<(usize, usize)>>, String> {
    let mut found = vec![None; machine.vregs];
    for (b, block) in machine.blocks.iter().enumerate() {
        let params = block.params.iter().map(|v| (*v, 0));
        let insts = block.insts.iter().enumerate().flat_map(|(i, inst)| {
            let defs = inst.ops.iter().filter(|o| o.kind() == OperandKind::Def);
            defs.map(move |o| (o.vreg(), i + 1))
        });
        for (v, at) in params.chain(insts) {
            let place = found.get_mut(v.vreg()).ok_or_else(|| format!("{v} has no number"))?;
            if place.replace((b, at)).is_some() {
                return Err(format!("{v} is defined twice, again in block {b}"));
            }
        }
    }
    Ok(found)
}

fn is_defined(
    definitions: &[Option<(usize, usize)>],
    dominators: &[Option<usize>],
    v: VReg,
    b: usize,
    i: usize,
) -> bool {
    let Some(Some((of, at))) = definitions.get(v.vreg()).copied() else { return false };
    if of == b {
        return at <= i;
    }
    let mut block = b;
    while let Some(above) = dominators[block].filter(|above| *above != block) {
        if above == of {
            return true;
        }
        block = above;
    }
    false
}

fn successors(end: &Terminator) -> impl Iterator<Item = usize> {
    let list = match end {
        Terminator::Return => [None, None],
        Terminator::Jump(to, _) => [Some(*to), None],
        Terminator::Branch(_, yes, no) => [Some(*yes), Some(*no)],
    };
    list.into_iter().flatten()
}

/// Returns the immediate dominator of each block that is reached.
fn dominators(machine: &Machine) -> Vec<Option<usize>> {
    let n = machine.blocks.len();
    // Blocks are in an order in which all but the jumps back of loops go forward.
    let mut found: Vec<Option<usize>> = vec![None; n];
    found[0] = Some(0);
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for b in 0..n {
            if found[b].is_none() {
                continue;
            }
            for to in successors(&machine.blocks[b].end).filter(|to| *to != 0) {
                let new = match found[to] {
                    None => b,
                    Some(other) => common(&found, other, b),
                };
                changed |= found[to].replace(new) != Some(new);
            }
        }
    }
    found
}

fn common(found: &[Option<usize>], mut x: usize, mut y: usize) -> usize {
    while x != y {
        let deeper = x.max(y);
        let above = found[deeper].unwrap_or(0);
        if x > y { x = above } else { y = above }
    }
    x
}

/// Checks that the instruction exists at the level.
fn check_form(inst: &Inst, isa: Isa) -> Result<(), String> {
    if inst.is_entry() {
        return Ok(());
    }
    if inst.code == Code::INVALID {
        return Err(format!("it has no form {:?}", inst.form));
    }
    let is_general = inst.row.codes[2..].iter().all(|c| *c == Code::INVALID);
    let has = match inst.form {
        _ if is_general => true,
        Form::Legacy => true,
        Form::Vex16 | Form::Vex32 => isa.avx(),
        Form::Evex16 | Form::Evex32 | Form::Evex64 => isa.masks(),
    };
    if !has {
        return Err(format!("{} has no form {:?}", isa.describe(), inst.form));
    }
    if inst.mem.is_some_and(|mem| mem.broadcast) && !isa.masks() {
        return Err("only instructions with masks read one element for all lanes".to_string());
    }
    Ok(())
}

/// Checks the operands by the letters of the table.
fn check_classes(inst: &Inst) -> Result<(), String> {
    let fixed = |c| matches!(c, OperandConstraint::FixedReg(_));
    if inst.ops.iter().any(|o| fixed(o.constraint())) {
        return Ok(());
    }
    let address = inst.ops.len() - inst.address_registers();
    if inst.ops[address..].iter().any(|o| o.vreg().class() != RegClass::Int) {
        return Err("an address that is not in a general register".to_string());
    }
    if inst.masking.is_some() && inst.ops[address - 1].vreg().class() != RegClass::Vector {
        return Err("a mask that is not in a mask register".to_string());
    }
    let is_general = inst.row.codes[2..].iter().all(|c| *c == Code::INVALID);
    let expected = |letter: u8| match letter {
        b'k' => RegClass::Vector,
        b'b' | b'c' | b'r' | b'R' => RegClass::Int,
        b'w' if is_general && !inst.row.operands.contains('x') => RegClass::Int,
        _ => RegClass::Float,
    };
    if inst.mem.is_some() || inst.masking.is_some() {
        return Ok(());
    }
    let letters = inst.row.operands.bytes().filter(|l| *l != b'i');
    for (letter, operand) in letters.zip(&inst.ops) {
        if operand.vreg().class() != expected(letter) {
            let class = operand.vreg().class();
            return Err(format!("a register of class {class:?} as operand {}", letter as char));
        }
    }
    Ok(())
}

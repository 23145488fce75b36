//! The instruction table: name, encodings, operands. Its rows are in the files `rows_*`; the
//! encoder, the allocator and the listing read them.
//!
//! The letters of `operands`, in the order of the encoding: `w` a register of the width of the
//! instruction, `h`, `q`, `e` a vector of a half, a quarter or an eighth of it, `x` a vector of 16
//! bytes, `s` and `d` the lowest 4 and 8 bytes of one, `b`, `c`, `r`, `R` a general register of 8,
//! 16, 32 and 64 bits, `k` a mask register, `i` an immediate.

use iced_x86::Code;

/// The operand that may be in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The last register operand.
    Last,
    /// The first operand: the instruction stores.
    First,
    /// No operand.
    Never,
}

/// An instruction.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its name in the table.
    pub name: &'static str,
    /// Its operands, a letter each.
    pub operands: &'static str,
    /// True if the legacy form overwrites its second operand.
    pub tied: bool,
    /// The operand that may be in memory.
    pub memory: Memory,
    /// The codes by [`Form`]; `INVALID` where there is none.
    pub codes: [Code; 6],
}

/// The encoding and the width of an instruction: an index of [`Row::codes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Form {
    /// SSE, 16 bytes; of a general register, 32 bits.
    Legacy,
    /// VEX, 16 bytes; of a general register, 64 bits.
    Vex16,
    /// VEX, 32 bytes.
    Vex32,
    /// EVEX, 16 bytes.
    Evex16,
    /// EVEX, 32 bytes.
    Evex32,
    /// EVEX, 64 bytes.
    Evex64,
}

/// 32-bit general registers.
pub(crate) const R32: Form = Form::Legacy;
/// 64-bit general registers.
pub(crate) const R64: Form = Form::Vex16;

impl Form {
    /// Returns the bytes of a vector register.
    pub fn bytes(self) -> usize {
        match self {
            Form::Legacy | Form::Vex16 | Form::Evex16 => 16,
            Form::Vex32 | Form::Evex32 => 32,
            Form::Evex64 => 64,
        }
    }
}

impl Row {
    /// Returns the code of a form, which exists.
    pub fn code(&self, form: Form) -> Code {
        let code = self.codes[form as usize];
        assert!(code != Code::INVALID, "{} has no form {form:?}", self.name);
        code
    }
    /// Returns true if there is this form.
    pub fn has(&self, form: Form) -> bool {
        self.codes[form as usize] != Code::INVALID
    }
}

/// A condition of the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cond {
    /// Equal operands.
    E,
    /// Not equal.
    Ne,
    /// Signed less.
    L,
    /// Signed greater or equal.
    Ge,
    /// Signed less or equal.
    Le,
    /// Signed greater.
    G,
    /// Unsigned less.
    B,
    /// Unsigned greater or equal.
    Ae,
    /// Unsigned less or equal.
    Be,
    /// Unsigned greater.
    A,
    /// Unordered floats.
    P,
    /// Ordered floats.
    Np,
}

impl Cond {
    /// Returns the codes of the jump, the set, and the moves of 32 and 64 bits.
    pub fn codes(self) -> [Code; 4] {
        use Code::*;
        match self {
            Cond::E => [Je_rel32_64, Sete_rm8, Cmove_r32_rm32, Cmove_r64_rm64],
            Cond::Ne => [Jne_rel32_64, Setne_rm8, Cmovne_r32_rm32, Cmovne_r64_rm64],
            Cond::L => [Jl_rel32_64, Setl_rm8, Cmovl_r32_rm32, Cmovl_r64_rm64],
            Cond::Ge => [Jge_rel32_64, Setge_rm8, Cmovge_r32_rm32, Cmovge_r64_rm64],
            Cond::Le => [Jle_rel32_64, Setle_rm8, Cmovle_r32_rm32, Cmovle_r64_rm64],
            Cond::G => [Jg_rel32_64, Setg_rm8, Cmovg_r32_rm32, Cmovg_r64_rm64],
            Cond::B => [Jb_rel32_64, Setb_rm8, Cmovb_r32_rm32, Cmovb_r64_rm64],
            Cond::Ae => [Jae_rel32_64, Setae_rm8, Cmovae_r32_rm32, Cmovae_r64_rm64],
            Cond::Be => [Jbe_rel32_64, Setbe_rm8, Cmovbe_r32_rm32, Cmovbe_r64_rm64],
            Cond::A => [Ja_rel32_64, Seta_rm8, Cmova_r32_rm32, Cmova_r64_rm64],
            Cond::P => [Jp_rel32_64, Setp_rm8, Cmovp_r32_rm32, Cmovp_r64_rm64],
            Cond::Np => [Jnp_rel32_64, Setnp_rm8, Cmovnp_r32_rm32, Cmovnp_r64_rm64],
        }
    }
    /// Returns the opposite condition.
    pub fn not(self) -> Cond {
        match self {
            Cond::E => Cond::Ne,
            Cond::Ne => Cond::E,
            Cond::L => Cond::Ge,
            Cond::Ge => Cond::L,
            Cond::Le => Cond::G,
            Cond::G => Cond::Le,
            Cond::B => Cond::Ae,
            Cond::Ae => Cond::B,
            Cond::Be => Cond::A,
            Cond::A => Cond::Be,
            Cond::P => Cond::Np,
            Cond::Np => Cond::P,
        }
    }
}

/// Declares rows as statics, and the list of them.
macro_rules! rows {
    ($list:ident $($name:ident $operands:literal $tied:ident $memory:ident: $($code:ident)*;)*) => {
        $(
            pub(crate) static $name: $crate::codegen::x86::inst::Row =
                $crate::codegen::x86::inst::Row {
                    name: stringify!($name),
                    operands: $operands,
                    tied: $crate::codegen::x86::inst::rows!(@tied $tied),
                    memory: $crate::codegen::x86::inst::Memory::$memory,
                    codes: [$(iced_x86::Code::$code),*],
                };
        )*
        /// All rows of this file.
        #[cfg(test)]
        pub(crate) static $list: &[&$crate::codegen::x86::inst::Row] = &[$(&$name),*];
    };
    (@tied tied) => { true };
    (@tied free) => { false };
}
pub(crate) use rows;

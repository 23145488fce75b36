//! Instruction sets as data: the levels of x86-64 and the features that each adds.

/// A level of x86-64, as compilers define them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// SSE2, which every x86-64 has.
    V1,
    /// SSE up to 4.2.
    V2,
    /// AVX2, FMA, F16C, BMI2.
    V3,
    /// AVX-512: F, BW, CD, DQ, VL.
    V4,
}

impl Level {
    /// All levels in order.
    pub const ALL: [Level; 4] = [Level::V1, Level::V2, Level::V3, Level::V4];

    /// Returns its name in compiler flags.
    pub const fn name(self) -> &'static str {
        match self {
            Level::V1 => "x86-64",
            Level::V2 => "x86-64-v2",
            Level::V3 => "x86-64-v3",
            Level::V4 => "x86-64-v4",
        }
    }
    /// Returns the bytes of its widest vector register.
    pub const fn vector_bytes(self) -> usize {
        match self {
            Level::V1 | Level::V2 => 16,
            Level::V3 => 32,
            Level::V4 => 64,
        }
    }
}

/// The instructions that code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa {
    /// Its level.
    pub level: Level,
    /// Shuffles of bytes by a vector of indices (AVX512_VBMI).
    pub vbmi: bool,
}

impl Isa {
    /// Returns the instruction set of a level, without further features.
    pub const fn of(level: Level) -> Isa {
        Isa { level, vbmi: false }
    }
    /// Returns the bytes of the widest vector register.
    pub const fn vector_bytes(self) -> usize {
        self.level.vector_bytes()
    }
    /// Returns the number of vector registers.
    pub fn vector_registers(self) -> usize {
        if self.masks() { 32 } else { 16 }
    }
    /// Returns true if there are mask registers.
    pub fn masks(self) -> bool {
        self.level >= Level::V4
    }
    /// Returns true if instructions have a destination of their own.
    pub fn avx(self) -> bool {
        self.level >= Level::V3
    }
    /// Returns true if there is SSE4.1 and SSE4.2.
    pub fn sse4(self) -> bool {
        self.level >= Level::V2
    }
    /// Describes level and features.
    pub fn describe(self) -> String {
        let more = if self.vbmi { " with AVX512_VBMI" } else { "" };
        format!("{}{more}", self.level.name())
    }
}

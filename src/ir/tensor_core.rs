//! Tensor cores as data: the matrix product that the threads of a warp compute together, and for
//! each matrix element the thread and the register that hold it.

use crate::dtype::Scalar;

/// A coordinate of the element that a register of a thread holds, as a linear function of the two
/// coordinates of the thread in its warp and of the bits of the register index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Coordinate {
    /// The increment per coordinate of the thread; `TensorCore::lanes` has their extents.
    pub lanes: [i64; 2],
    /// The increment per bit of the register index, lowest first.
    pub registers: &'static [i64],
}

impl Coordinate {
    /// Returns the contribution of the register.
    pub fn of_register(&self, register: usize) -> i64 {
        self.registers
            .iter()
            .enumerate()
            .map(|(bit, step)| (register >> bit & 1) as i64 * step)
            .sum()
    }
    /// Returns the stride and the number of registers along the coordinate.
    pub fn run(&self) -> (i64, usize) {
        let steps = || self.registers.iter().copied().filter(|s| *s != 0);
        (steps().min().unwrap_or(1), 1 << steps().count())
    }
    /// Returns the coordinate for a thread of the warp and a register.
    pub fn at(&self, core: &TensorCore, thread: usize, register: usize) -> usize {
        let (x, y) = (thread % core.lanes[0], thread / core.lanes[0]);
        (self.lanes[0] * x as i64 + self.lanes[1] * y as i64 + self.of_register(register)) as usize
    }
}

/// A matrix in the registers of a warp.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fragment {
    /// The row of an element: of A along m, of B along k, of C along m.
    pub row: Coordinate,
    /// The column: of A along k, of B along n, of C along n.
    pub column: Coordinate,
}

impl Fragment {
    /// Returns the number of elements per thread.
    pub const fn registers(&self) -> usize {
        1 << self.row.registers.len()
    }
}

/// `C += A·B` by all threads of a warp, where A has m × k elements and B k × n.
///
/// The columns of A and the rows of B may be numbered in any order that is the same for both. The
/// order here is the one in which a thread holds adjacent elements: four of 16 bits are one load.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TensorCore {
    /// The name in text and in messages.
    pub name: &'static str,
    /// The sizes m, n and k.
    pub dims: [usize; 3],
    /// The dtype of A and B in memory.
    pub input: Scalar,
    /// The dtype of C.
    pub output: Scalar,
    /// The extents of the two coordinates of a thread in its warp, the faster one first; their
    /// product is the number of threads.
    pub lanes: [usize; 2],
    /// The fragment of A.
    pub a: Fragment,
    /// The fragment of B.
    pub b: Fragment,
    /// The fragment of C.
    pub c: Fragment,
    /// The PTX instruction, without its operands.
    pub instruction: &'static str,
    /// The number of instructions along k, which read equal parts of the registers of A and B.
    pub steps: usize,
    /// True if A and B are rounded to fewer bits than those of their dtype.
    pub rounds: bool,
}

const fn at(lanes: [i64; 2], registers: &'static [i64]) -> Coordinate {
    Coordinate { lanes, registers }
}

/// The fragment of C of the instructions with 16 rows and 8 columns.
const SUM: Fragment = Fragment { row: at([0, 1], &[0, 8]), column: at([2, 0], &[1, 0]) };

impl TensorCore {
    /// f16 products, accumulated in f32.
    pub const F16: TensorCore = TensorCore {
        name: "m16n8k16_f16_f32",
        dims: [16, 8, 16],
        input: Scalar::F16,
        output: Scalar::F32,
        lanes: [4, 8],
        a: Fragment { row: at([0, 1], &[0, 8, 0]), column: at([4, 0], &[1, 0, 2]) },
        b: Fragment { row: at([4, 0], &[1, 2]), column: at([0, 1], &[0, 0]) },
        c: SUM,
        instruction: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        steps: 1,
        rounds: false,
    };
    /// Two steps of f16 products, so that a thread holds eight adjacent elements along k.
    pub const F16_LONG: TensorCore = TensorCore {
        name: "m16n8k32_f16_f32",
        dims: [16, 8, 32],
        a: Fragment { row: at([0, 1], &[0, 8, 0, 0]), column: at([8, 0], &[1, 0, 2, 4]) },
        b: Fragment { row: at([8, 0], &[1, 2, 4]), column: at([0, 1], &[0, 0, 0]) },
        steps: 2,
        ..TensorCore::F16
    };
    /// bf16 products, accumulated in f32.
    pub const BF16: TensorCore = TensorCore {
        name: "m16n8k16_bf16_f32",
        input: Scalar::BF16,
        instruction: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        ..TensorCore::F16
    };
    /// Two steps of bf16 products.
    pub const BF16_LONG: TensorCore = TensorCore {
        name: "m16n8k32_bf16_f32",
        input: Scalar::BF16,
        instruction: TensorCore::BF16.instruction,
        ..TensorCore::F16_LONG
    };
    /// Products of f32 rounded to 11 binary digits, accumulated in f32.
    pub const TF32: TensorCore = TensorCore {
        name: "m16n8k8_tf32_f32",
        dims: [16, 8, 8],
        input: Scalar::F32,
        a: Fragment { row: at([0, 1], &[8, 0]), column: at([2, 0], &[0, 1]) },
        b: Fragment { row: at([2, 0], &[1]), column: at([0, 1], &[0]) },
        instruction: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        rounds: true,
        ..TensorCore::F16
    };
    /// All tensor cores.
    pub const ALL: &'static [TensorCore] = &[
        TensorCore::F16,
        TensorCore::F16_LONG,
        TensorCore::BF16,
        TensorCore::BF16_LONG,
        TensorCore::TF32,
    ];

    /// Returns the tensor core of a name.
    pub fn from_name(name: &str) -> Option<&'static TensorCore> {
        TensorCore::ALL.iter().find(|c| c.name == name)
    }
    /// Returns the number of threads of a warp.
    pub const fn threads(&self) -> usize {
        self.lanes[0] * self.lanes[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element is held by as many threads as there are registers for it, and C by one.
    #[test]
    fn every_element_has_its_place() {
        for core in TensorCore::ALL {
            let [m, n, k] = core.dims;
            assert_eq!(
                core.a.column.run(),
                core.b.row.run(),
                "{}: the registers of A and B go along the sum together",
                core.name
            );
            assert_eq!(core.b.column.run().1, 1, "{}", core.name);
            for (f, rows, columns) in [(&core.a, m, k), (&core.b, k, n), (&core.c, m, n)] {
                let mut held = vec![0; rows * columns];
                for thread in 0..core.threads() {
                    for r in 0..f.registers() {
                        held[f.row.at(core, thread, r) * columns + f.column.at(core, thread, r)] +=
                            1;
                    }
                }
                assert!(held.iter().all(|h| *h == 1), "{}: {held:?}", core.name);
                assert_eq!(f.row.registers.len(), f.column.registers.len(), "{}", core.name);
                for c in [&f.row, &f.column] {
                    let (step, count) = c.run();
                    let mut places: Vec<i64> =
                        (0..f.registers()).map(|r| c.of_register(r)).collect();
                    places.sort_unstable();
                    places.dedup();
                    assert!(
                        places.iter().copied().eq((0..count as i64).map(|i| i * step)),
                        "{}: {places:?}",
                        core.name
                    );
                }
            }
        }
    }

    /// What the description of the instruction set says, with one renumbering of k for A and B.
    #[test]
    fn the_places_are_those_of_the_instructions() {
        for core in TensorCore::ALL {
            // The position of an element along k in the instruction, for each position in the core.
            let mut renumbered = vec![None; core.dims[2]];
            let mut is_at = |ours: usize, theirs: usize| {
                let known = *renumbered[ours].get_or_insert(theirs);
                assert_eq!(known, theirs, "{}: k {ours}", core.name);
            };
            // Each instruction has its part of the registers, and of k.
            let size = core.dims[2] / core.steps;
            let part = |registers: usize, r: usize| {
                (r % (registers / core.steps), r / (registers / core.steps) * size)
            };
            for thread in 0..32 {
                let (group, inside) = (thread >> 2, thread & 3);
                for r in 0..core.a.registers() {
                    let place = (core.a.row.at(core, thread, r), core.a.column.at(core, thread, r));
                    let (r, first) = part(core.a.registers(), r);
                    // 16 bits: two to a word; 32 bits: one.
                    let (row, column) = match size {
                        16 => (group + 8 * (r >> 1 & 1), inside * 2 + (r & 1) + 8 * (r >> 2)),
                        _ => (group + 8 * (r & 1), inside + 4 * (r >> 1)),
                    };
                    assert_eq!(place.0, row, "{}", core.name);
                    is_at(place.1, first + column);
                }
                for r in 0..core.b.registers() {
                    let place = (core.b.row.at(core, thread, r), core.b.column.at(core, thread, r));
                    let (r, first) = part(core.b.registers(), r);
                    let row = if size == 16 {
                        inside * 2 + (r & 1) + 8 * (r >> 1)
                    } else {
                        inside + 4 * r
                    };
                    is_at(place.0, first + row);
                    assert_eq!(place.1, group, "{}", core.name);
                }
                for r in 0..4 {
                    let place = (core.c.row.at(core, thread, r), core.c.column.at(core, thread, r));
                    assert_eq!(
                        place,
                        (group + 8 * (r >> 1), inside * 2 + (r & 1)),
                        "{}",
                        core.name
                    );
                }
            }
            renumbered.sort();
            assert!(renumbered.iter().enumerate().all(|(i, r)| *r == Some(i)), "{}", core.name);
        }
    }
}

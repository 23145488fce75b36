//! The proof of `verify::in_bounds` against what happens: a program that is proven never faults
//! when it runs.

use crate::device::interp::tests::*;

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> i32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n) as i32
    }
    /// Returns an index expression over the leaves.
    fn expr(&mut self, leaves: &[UOp], depth: u32) -> UOp {
        if depth == 0 || self.roll(5) == 0 {
            return leaves[self.roll(leaves.len() as u64) as usize].clone();
        }
        let x = self.expr(leaves, depth - 1);
        match self.roll(12) {
            0..4 => &x + &self.expr(leaves, depth - 1),
            4 | 5 => &x * (self.roll(6) - 2),
            6 | 7 => &x + (self.roll(9) - 4),
            8 => x.binary(Op::CDiv, self.roll(3) + 1),
            9 => x.binary(if self.roll(2) == 0 { Op::Max } else { Op::Min }, self.roll(8) - 2),
            10 => x.binary(Op::CMod, self.roll(5) + 1),
            _ => self.clause(leaves).select(&x, &self.expr(leaves, depth - 1)),
        }
    }
    fn clause(&mut self, leaves: &[UOp]) -> UOp {
        let x = self.expr(leaves, 1);
        let c = self.roll(12) - 3;
        match self.roll(6) {
            0 | 1 => x.lt(c),
            2 | 3 => x.ge(c),
            4 => i32c(c).lt(&x),
            _ => x.lt(self.expr(leaves, 1)),
        }
    }
}

#[test]
fn what_is_proven_never_faults() {
    let mut dice = Dice(11);
    let (mut proven, mut safe) = (0, 0);
    for round in 0..3000 {
        let mut p = List::default();
        let (x, out) = (p.global(0, 8, DType::U8), p.global(1, 1, DType::U8));
        let i = p.range(0, &i32c(dice.roll(5) + 1));
        // Every third inner loop has an extent that depends on the outer counter.
        let extent =
            if round % 3 == 0 { p.expr(&(&i + dice.roll(3))) } else { i32c(dice.roll(5) + 1) };
        let j = p.range(1, &extent);
        let leaves = [i.clone(), j.clone()];
        let idx = dice.expr(&leaves, 3);
        let mask = (0..dice.roll(4)).fold(UOp::truth(true), |v, _| v.and(dice.clause(&leaves)));
        let v = p.masked_load(&x, &idx, &mask, &UOp::constant(0, DType::U8));
        p.store(&out, &i32c(0), &v);
        p.end(&j);
        p.end(&i);
        crate::verify::program(&p.0).unwrap();
        let proof = crate::verify::in_bounds(&p.0);
        let happened = run_unverified(&p, &mut [vec![0; 8], vec![0]], &[]);
        assert!(
            proof.is_err() || happened.is_ok(),
            "proven, and yet: {}\n{}",
            happened.unwrap_err(),
            crate::ir::print_program(&p.0)
        );
        proven += proof.is_ok() as u32;
        safe += happened.is_ok() as u32;
    }
    // The proof must succeed for accesses that are clearly in bounds.
    assert!(proven > 800 && proven * 10 > safe * 8, "{proven} proven of {safe} that are safe");
}

//! The dtype table, promotion, rounding, casts and elements, checked exhaustively where the type is
//! small enough and against independent definitions where not.

mod casts;
mod elements;
mod promotion;
mod rounding;
mod table;

use super::DType;

fn everything() -> Vec<DType> {
    DType::ALL.iter().copied().chain([DType::VOID, DType::INDEX]).collect()
}

/// Returns a small generator, so that samples are the same on every run (Knuth's MMIX constants).
fn samples(count: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state ^ (state >> 29)
    })
    .take(count)
}

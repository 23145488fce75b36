//! Every public operation against PyTorch: forward and gradient, in every dtype, on every device;
//! and each gradient against finite differences. `tests/fixtures/make_ops.py` generates the
//! expected values.

mod api;
mod cases;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod cuda;
mod differences;
mod elementwise;
mod fixture;
mod folds;
mod losses;
mod movement;
mod pools;
mod products;
mod systems;
mod table;

#[test]
fn elementwise_ops_match_pytorch() {
    check::check(elementwise::CASES, true);
}

#[test]
fn reductions_match_pytorch() {
    check::check(folds::CASES, false);
}

#[test]
fn movement_and_indexing_match_pytorch() {
    check::check(movement::CASES, false);
}

#[test]
fn products_and_windows_match_pytorch() {
    check::check(products::CASES, false);
}

#[test]
fn losses_match_pytorch() {
    check::check(losses::CASES, false);
}

#[test]
fn statistics_special_functions_and_images_match_pytorch() {
    check::check(api::CASES, false);
}

#[test]
fn linear_systems_match_pytorch() {
    check::check(systems::CASES, false);
}

#[test]
fn pools_match_pytorch() {
    check::check(pools::CASES, false);
}

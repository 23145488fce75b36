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
fn elementwise_is_as_in_pytorch() {
    check::check(elementwise::CASES, true);
}

#[test]
fn folds_are_as_in_pytorch() {
    check::check(folds::CASES, false);
}

#[test]
fn movement_and_indexing_are_as_in_pytorch() {
    check::check(movement::CASES, false);
}

#[test]
fn products_and_windows_are_as_in_pytorch() {
    check::check(products::CASES, false);
}

#[test]
fn losses_are_as_in_pytorch() {
    check::check(losses::CASES, false);
}

#[test]
fn statistics_special_functions_and_images_match_pytorch() {
    check::check(api::CASES, false);
}

#[test]
fn linear_systems_are_as_in_pytorch() {
    check::check(systems::CASES, false);
}

#[test]
fn pools_are_as_in_pytorch() {
    check::check(pools::CASES, false);
}

//! pico
fn main() {}

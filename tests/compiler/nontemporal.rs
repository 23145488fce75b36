//! Stores past the caches in the text and the code of kernels. `src/compile/nontemporal_tests.rs`
//! runs them.

use picograd::codegen::{Isa, Level, listing};
use picograd::ir::{UOp, parse};
use picograd::lower::lower;
use picograd::opt::{self, Kernel};
use picograd::render::{Clang, Llvm, Renderer};
use picograd::target::Target;

/// A kernel over `len` elements whose stores have the hint, with 16 lanes.
fn program(len: usize, target: &Target) -> Vec<UOp> {
    let text = format!(
        "%0 = DefineGlobal f32 {{slot=0 len={len}}}\n\
         %1 = Range index {len}:index {{id=0 kind=Global}}\n\
         %2 = Index f32 %0, %1\n\
         %3 = DefineGlobal f32 {{slot=1 len={len}}}\n\
         %4 = Index f32 %3, %1\n\
         %5 = Load f32 %4\n\
         %6 = Mul f32 %5, 2.0:f32\n\
         %7 = Store void %2, %6, %1 {{nontemporal}}\n\
         %8 = Sink void %7\n"
    );
    let kernel = Kernel::new(parse(&text).unwrap());
    let opts = opt::parse("UPCAST:0:16 VECTORIZE:1").unwrap();
    let kernel = kernel.apply_all(&opts, target).unwrap();
    lower(&kernel.ast, target, &mut |_, _| {}).uops
}

#[test]
fn x86_stores_lines_past_the_caches_and_has_a_plain_version() {
    let text = |len: usize, level: Level| {
        let target = Target::x86(level.vector_bytes());
        listing(&program(len, &target), Isa::of(level)).unwrap()
    };
    let large = text(1 << 20, Level::V4);
    assert!(large.contains("vmovntps") && large.contains("sfence"), "{large}");
    assert!(large.contains("],zmm") || large.contains("], zmm"), "{large}");
    // A buffer that fits in L2, and vectors of half a line.
    for other in [text(1 << 16, Level::V4), text(1 << 20, Level::V3), text(1 << 20, Level::V1)] {
        assert!(!other.contains("movntps") && !other.contains("sfence"), "{other}");
    }
}

#[test]
fn llvm_stores_lines_past_the_caches_and_has_a_plain_version() {
    let target = Target::llvm(64);
    let text = |len| {
        let renderer = Llvm::new(target.clone());
        renderer.render("k", &program(len, &target)).unwrap().text()
    };
    let (large, small) = (text(1 << 20), text(1 << 16));
    assert!(large.contains("!nontemporal") && large.contains("sfence"), "{large}");
    assert!(large.contains("define internal void @k_plain("), "{large}");
    assert!(!small.contains("nontemporal") && !small.contains("_plain"), "{small}");
}

#[test]
fn c_ignores_the_hint() {
    let target = Target::c(64);
    let text = Clang::new(target.clone()).render("k", &program(1 << 20, &target)).unwrap().text();
    assert!(!text.contains("nontemporal"), "{text}");
}

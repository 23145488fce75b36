//! Tests of LLVM in the process: which library is chosen, rejected text, and errors that do not end
//! the process.

use crate::device::host::elf::Code;
use crate::device::host::llvm::*;
use crate::device::testing::TempDir;

/// LLVM, or a line that it is not here.
fn found() -> Option<&'static Llvm> {
    Llvm::find().inspect_err(|e| eprintln!("skipped: {e}")).ok()
}

const ADD: &str = "define float @k(float %a, float %b, float %c) nounwind {\n  %m = fmul float \
                   %a, %b\n  %s = fadd float %m, %c\n  ret float %s\n}\n";

#[test]
fn parallel_compilations_give_one_object() {
    let Some(llvm) = found() else { return };
    let object = llvm.compile_text(ADD, "k", false).unwrap();
    std::thread::scope(|scope| {
        let all: Vec<_> =
            (0..8).map(|_| scope.spawn(|| llvm.compile_text(ADD, "k", false).unwrap())).collect();
        all.into_iter().for_each(|t| {
            assert_eq!(t.join().unwrap(), object, "the same text gives the same object")
        });
    });
    let code = Code::load(&object).unwrap();
    // SAFETY: the text defines the function with this type.
    let k: extern "C" fn(f32, f32, f32) -> f32 =
        unsafe { std::mem::transmute(code.symbol("k").unwrap()) };
    let (a, b) = (1.0 + f32::EPSILON, 1.0 - f32::EPSILON);
    assert_eq!(k(a, b, -1.0), a * b - 1.0);
    assert_ne!(k(a, b, -1.0), a.mul_add(b, -1.0));
    assert_ne!(llvm.key(ADD), llvm.key("another text"));
    let level = if cfg!(target_arch = "aarch64") { "armv8.2-a" } else { "x86-64-v2" };
    let other = llvm.for_cpu(level);
    assert!(std::ptr::eq(other, llvm.for_cpu(level)) && std::ptr::eq(llvm, llvm.for_cpu("native")));
    assert_ne!(llvm.key(ADD), other.key(ADD));
    other.compile_text(ADD, "k", false).unwrap();
}

#[test]
fn rejected_text_is_saved_with_the_error() {
    let Some(llvm) = found() else { return };
    let tmp = TempDir::new("llvm");
    let cache = DiskCache::at(tmp.path());
    let broken = "define float @k(i32 %x) {\n  ret float %y\n}\n";
    let unsound = "define i32 @k(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n  %x = add \
                   i32 1, 1\n  br label %b\nb:\n  ret i32 %x\n}\n";
    // An instruction of another machine: LLVM finds no way to select it, and would end the process.
    let fatal = "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\ndefine i32 @k() {\n  %x = call i32 \
                 @llvm.nvvm.read.ptx.sreg.tid.x()\n  ret i32 %x\n}\n";
    // The assembler of LLVM reports the error as a remark.
    let remark =
        "define void @k() {\n  call void asm \"no_such_instruction\", \"\"()\n  ret void\n}\n";
    for (ir, word) in [
        (broken, "%y"),
        (unsound, "dominate"),
        (fatal, "select"),
        (remark, ""),
        ("\0", "null byte"),
    ] {
        let Err(Error::Compile { msg, source_at }) = llvm.compile_within(ir, "bad", true, &cache)
        else {
            panic!("{ir} was taken")
        };
        assert!(msg.contains("kernel bad") && msg.contains(word), "{msg}");
        let file = source_at.unwrap();
        assert!(
            file.extension().is_some_and(|e| e == "ll")
                && std::fs::read_to_string(file).unwrap() == ir
        );
    }
    assert!(llvm.compile_text(ADD, "k", false).is_ok(), "it goes on after all of these");
}

#[test]
fn unusable_libraries_say_why() {
    let why = |name: &str| Llvm::search(Some(name)).map(drop).unwrap_err().to_string();
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    assert!(
        why("/no/such/libLLVM.so").contains("PICO_LLVM=/no/such/libLLVM.so: "),
        "{}",
        why("/no/such/libLLVM.so")
    );
    assert!(why("libc.so.6").contains("it has no LLVM"), "{}", why("libc.so.6"));
    assert!(why("off").contains("PICO_LLVM disables LLVM"));
    let old = "libLLVM-14.so.1";
    match Api::open(old).map(drop) {
        Err(why) if why.contains("14 or older") => (),
        Err(why) => eprintln!("skipped: {why}"),
        Ok(()) => panic!("{old} was taken"),
    }
}

//! Platforms on which kernels run as machine code of the host.

/// Checks that kernels can run as machine code on an architecture, by Rust's name for it. The error
/// is one sentence.
pub(in crate::device) fn check_cpu(arch: &str) -> Result<(), String> {
    match arch {
        "x86_64" => Ok(()),
        _ => Err(format!("CPU makes machine code for x86-64 only, and this machine is {arch}")),
    }
}

/// Checks that objects of the system's C compiler can be loaded. LLVM writes ELF on every system.
pub(in crate::device) fn check_clang(arch: &str, os: &str) -> Result<(), String> {
    check_cpu(arch)?;
    match os {
        "macos" => Err("the C compiler of macOS writes Mach-O objects, and the loader reads ELF; \
                        CPU:LLVM works"
            .into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_that_cannot_run_machine_code_are_named() {
        assert!(check_cpu("x86_64").is_ok() && check_clang("x86_64", "linux").is_ok());
        for (arch, os) in [("aarch64", "linux"), ("aarch64", "macos"), ("riscv64", "linux")] {
            let why = check_cpu(arch).unwrap_err();
            assert!(why.contains(arch) && !why.contains('\n'), "{why}");
            assert_eq!(check_clang(arch, os), Err(why));
        }
        assert!(check_clang("x86_64", "macos").unwrap_err().contains("CPU:LLVM works"));
    }
}

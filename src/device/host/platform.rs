//! Platforms on which kernels run as machine code of the host, by Rust's names of architectures and
//! systems. An error is one sentence.

/// Checks that kernels can run as machine code on an architecture.
pub(in crate::device) fn check_cpu(arch: &str) -> Result<(), String> {
    match arch {
        "x86_64" | "aarch64" => Ok(()),
        _ => Err(format!(
            "CPU makes machine code for x86-64 and arm64 only, and this machine is {arch}"
        )),
    }
}

/// Checks that objects of LLVM can be loaded. LLVM writes ELF on every system.
pub(in crate::device) fn check_llvm(arch: &str, os: &str) -> Result<(), String> {
    check_cpu(arch)?;
    match os {
        "windows" => Err("objects of LLVM call functions of the C library, and those of Windows \
                          have another calling convention"
            .into()),
        _ => Ok(()),
    }
}

/// Checks that objects of the system's C compiler can be loaded.
pub(in crate::device) fn check_clang(arch: &str, os: &str) -> Result<(), String> {
    check_cpu(arch)?;
    match os {
        "macos" => Err("the C compiler of macOS writes Mach-O objects, and the loader reads ELF; \
                        CPU:LLVM works"
            .into()),
        "windows" => {
            Err("C compilers of Windows write COFF objects, and the loader reads ELF".into())
        }
        _ => Ok(()),
    }
}

/// Checks that kernels that are assembled here can run.
pub(in crate::device) fn check_x86(arch: &str) -> Result<(), String> {
    match arch {
        "x86_64" => Ok(()),
        _ => Err(format!("kernels are assembled for x86-64 only, and this machine is {arch}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_that_cannot_run_machine_code_are_named() {
        for check in [check_llvm, check_clang] {
            assert!(check("x86_64", "linux").is_ok() && check("aarch64", "linux").is_ok());
            let why = check_cpu("riscv64").unwrap_err();
            assert!(why.contains("riscv64") && !why.contains('\n'), "{why}");
            assert_eq!(check("riscv64", "linux"), Err(why));
            let why = check("x86_64", "windows").unwrap_err();
            assert!(why.contains("Windows") && !why.contains('\n'), "{why}");
        }
        assert!(check_clang("x86_64", "macos").unwrap_err().contains("CPU:LLVM works"));
        assert!(check_x86("x86_64").is_ok() && check_x86("aarch64").is_err());
        assert!(check_llvm("x86_64", "macos").is_ok() && check_llvm("aarch64", "macos").is_ok());
    }
}

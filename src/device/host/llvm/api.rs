//! The C API of LLVM, from a shared library that is found at run time: building needs no LLVM.

use crate::device::library::{Library, functions};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

/// A handle to an LLVM object.
pub(super) type Handle = *mut c_void;
/// The handler of fatal errors, which receives the reason. It must not return.
pub(super) type OnFatal = extern "C" fn(*const c_char);
/// The handler of diagnostics, which receives the registered context.
pub(super) type OnDiagnostic = extern "C" fn(Handle, *mut c_void);

functions! {
    /// The used functions, with LLVM's names. Their types are the same from LLVM 15
    /// to 21.
    Api:
    LLVMInstallFatalErrorHandler(OnFatal);
    LLVMGetHostCPUName() -> *mut c_char;
    LLVMGetHostCPUFeatures() -> *mut c_char;
    LLVMDisposeMessage(*mut c_char);
    LLVMGetTargetFromTriple(*const c_char, *mut Handle, *mut *mut c_char) -> c_int;
    LLVMCreateTargetMachine(
        Handle, *const c_char, *const c_char, *const c_char, c_int, c_int, c_int
    ) -> Handle;
    LLVMContextCreate() -> Handle;
    LLVMContextDispose(Handle);
    LLVMContextSetDiagnosticHandler(Handle, OnDiagnostic, *mut c_void);
    LLVMGetDiagInfoDescription(Handle) -> *mut c_char;
    LLVMGetDiagInfoSeverity(Handle) -> c_int;
    LLVMCreateMemoryBufferWithMemoryRangeCopy(*const c_char, usize, *const c_char) -> Handle;
    LLVMParseIRInContext(Handle, Handle, *mut Handle, *mut *mut c_char) -> c_int;
    LLVMVerifyModule(Handle, c_int, *mut *mut c_char) -> c_int;
    LLVMDisposeModule(Handle);
    LLVMTargetMachineEmitToMemoryBuffer(
        Handle, Handle, c_int, *mut *mut c_char, *mut Handle
    ) -> c_int;
    LLVMGetBufferStart(Handle) -> *const u8;
    LLVMGetBufferSize(Handle) -> usize;
    LLVMDisposeMemoryBuffer(Handle);
}

/// LLVM's name of the architecture of this machine, in the names of its functions.
const TARGET: &str = if cfg!(target_arch = "aarch64") { "AArch64" } else { "X86" };

impl Api {
    /// Opens a library with the code generator for this machine, and returns its version and file.
    /// One that is too old is rejected with the reason.
    pub fn open(name: &str) -> Result<(Api, String, PathBuf), String> {
        let library = Library::open(name)?;
        let version = version(&library)?;
        for part in ["TargetInfo", "Target", "TargetMC", "AsmPrinter"] {
            let initialize = library.function(&format!("LLVMInitialize{TARGET}{part}"))?;
            // SAFETY: the functions of these names have this type, and only set up LLVM.
            unsafe { std::mem::transmute::<Handle, unsafe extern "C" fn()>(initialize)() };
        }
        Ok((
            Api::load(&library)?,
            version,
            library.path("LLVMContextCreate").unwrap_or_else(|| name.into()),
        ))
    }

    /// Copies a text of LLVM and frees it.
    pub fn take(&self, text: *mut c_char) -> String {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: LLVM returns texts that end in a null byte and are freed by it.
        unsafe {
            let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
            (self.LLVMDisposeMessage)(text);
            copy
        }
    }
}

/// Returns the version. LLVM reports it from 16 on; 15 differs from earlier ones by a function for
/// opaque pointers.
fn version(library: &Library) -> Result<String, String> {
    let Ok(ask) = library.function("LLVMGetVersion") else {
        library.function("LLVMContextCreate")?;
        return match library.function("LLVMContextSetOpaquePointers") {
            Ok(_) => Ok("15".into()),
            Err(_) => Err("it is LLVM 14 or older; 15 is the oldest supported version".into()),
        };
    };
    let [mut major, mut minor, mut patch]: [c_uint; 3] = [0; 3];
    // SAFETY: the function exists and writes three numbers.
    unsafe {
        let ask = std::mem::transmute::<
            Handle,
            unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint),
        >(ask);
        ask(&mut major, &mut minor, &mut patch);
    }
    Ok(format!("{major}.{minor}.{patch}"))
}

const NEWEST: u32 = 21;
const OLDEST: u32 = 15;

/// Returns the file names of a version's library. Those without a slash are resolved by the system.
fn names(version: u32) -> Vec<String> {
    let mut names = vec![
        format!("libLLVM.so.{version}.1"),
        format!("libLLVM-{version}.so.1"),
        format!("libLLVM-{version}.so"),
    ];
    names.push(format!("libLLVM.so.{version}"));
    for folder in [
        format!("/usr/lib/llvm-{version}/lib"),
        format!("/usr/lib/llvm{version}/lib"),
        format!("/usr/lib64/llvm{version}/lib"),
    ] {
        names.extend([format!("{folder}/libLLVM.so.1"), format!("{folder}/libLLVM.so")]);
    }
    for folder in ["/usr/local/opt", "/opt/homebrew/opt", "/home/linuxbrew/.linuxbrew/opt"] {
        names.extend(
            ["dylib", "so"].map(|ending| format!("{folder}/llvm@{version}/lib/libLLVM.{ending}")),
        );
    }
    names
}

/// Returns every name to try, newest version first.
pub(super) fn candidates() -> impl Iterator<Item = String> {
    let there = |name: &String| !name.contains('/') || Path::new(name).exists();
    (OLDEST..=NEWEST).rev().flat_map(names).filter(there)
}

/// Returns the newest library that is too old, for the error if no other is found.
pub(super) fn too_old() -> Option<u32> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = [multiarch.as_str(), "/usr/lib64", "/usr/lib"];
    let there = |version: &u32| {
        let file = format!("libLLVM-{version}.so.1");
        Path::new(&format!("/usr/lib/llvm-{version}/lib/{file}")).exists()
            || folders.iter().any(|f| Path::new(f).join(&file).exists())
    };
    (7..OLDEST).rev().find(there)
}

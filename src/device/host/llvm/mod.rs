//! LLVM in this process, from a shared library that is found at run time. In: a module as text.
//! Out: the bytes of an object, or an error with LLVM's message and the file of the rejected text.
//!
//! **Invariant:** compilations have separate contexts and run in parallel, each on its own thread:
//! a fatal error of LLVM would end the process, so that the thread sleeps instead, and the caller
//! gets an error.
//!
//! No optimization pass runs before code generation: the text has its vectors, shared values and
//! loops in order already, and passes cost as much as the rest.

mod api;

use self::api::{Api, Handle};
use super::arch::{self, NATIVE};
use super::platform;
use crate::device::backend::lock;
use crate::device::module::{first_lines, rejected};
use crate::disk_cache::{self, CacheKey, DiskCache};
use crate::env;
use crate::error::{Error, Result};
use crate::os;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env::consts::{ARCH, OS};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Time limit of a compilation, which takes a few milliseconds.
const LIMIT: Duration = Duration::from_secs(60);
/// LLVM recurses by the depth of expressions. Memory is taken only as far as it is touched.
const STACK: usize = 64 << 20;
/// Objects are of the format that the loader reads, on every system.
const TRIPLE: &CStr = if cfg!(target_arch = "aarch64") {
    c"aarch64-unknown-linux-gnu"
} else {
    c"x86_64-unknown-linux-gnu"
};
/// Features that the code needs on every CPU of this system: macOS clears the register x18 at any
/// time.
const RESERVED: &str =
    if cfg!(all(target_arch = "aarch64", target_os = "macos")) { "+reserve-x18" } else { "" };
// Constants of LLVM's headers: default optimization, position-independent code, object output, and
// errors as return values.
const DEFAULT_LEVEL: c_int = 2;
const PIC: c_int = 2;
const DEFAULT_MODEL: c_int = 0;
const OBJECT_FILE: c_int = 1;
const RETURN_STATUS: c_int = 2;
const SEVERITY_ERROR: c_int = 0;

/// A working LLVM library.
pub struct Llvm {
    api: Api,
    /// Its version; for 15 only the major number is known.
    pub version: String,
    /// The CPU that it compiles for, in LLVM's names: `generic` with features for levels of arm64.
    pub cpu: String,
    features: String,
    /// The file of the library as it is now, for the cache key.
    library: String,
    target: Handle,
    /// Idle target machines. One serves one compilation at a time.
    idle: Mutex<Vec<TargetMachine>>,
}

// SAFETY: the target is a table of LLVM's that does not change, and the functions are free of
// threads.
unsafe impl Send for Llvm {}
// SAFETY: as above; `idle` is behind a lock.
unsafe impl Sync for Llvm {}

struct TargetMachine(Handle);
// SAFETY: it belongs to no thread, and has one owner at a time.
unsafe impl Send for TargetMachine {}

/// A target machine in use, which becomes idle when dropped.
struct InUse<'a> {
    machine: TargetMachine,
    idle: &'a Mutex<Vec<TargetMachine>>,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        lock(self.idle).push(TargetMachine(self.machine.0));
    }
}

type Object = std::result::Result<Vec<u8>, String>;

thread_local! {
    /// The channel that reports a fatal error of LLVM.
    static REPORT: RefCell<Option<Sender<Object>>> = const { RefCell::new(None) };
}

/// Reports a fatal error. LLVM ends the process when its handler returns, so this function does not
/// return while a caller waits for the thread.
extern "C" fn on_fatal(reason: *const c_char) {
    // SAFETY: LLVM gives a text that ends in a null byte.
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned();
    if let Some(report) = REPORT.with_borrow_mut(Option::take)
        && report.send(Err(reason)).is_ok()
    {
        loop {
            std::thread::park();
        }
    }
}

/// The diagnostics of a module.
struct Diagnostics<'a> {
    api: &'a Api,
    errors: Vec<String>,
}

extern "C" fn on_diagnostic(info: Handle, diagnostics: *mut c_void) {
    // SAFETY: the context was given a `Diagnostics` that outlives it and that nothing else accesses
    // meanwhile.
    let diagnostics = unsafe { &mut *diagnostics.cast::<Diagnostics>() };
    // SAFETY: the remark is alive during the call.
    let (severity, text) = unsafe {
        (
            (diagnostics.api.LLVMGetDiagInfoSeverity)(info),
            diagnostics.api.take((diagnostics.api.LLVMGetDiagInfoDescription)(info)),
        )
    };
    if severity == SEVERITY_ERROR {
        diagnostics.errors.push(text);
    }
}

/// A handle with the function that frees it.
struct Owned(Handle, unsafe extern "C" fn(Handle));

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the value is whole, ours, and of the kind that the function takes.
        unsafe { (self.1)(self.0) }
    }
}

/// Returns true if `PICO_LLVM` names a library.
pub(in crate::device) fn is_named() -> bool {
    env::var("PICO_LLVM").is_some_and(|name| !matches!(name.trim(), "" | "0" | "off"))
}

impl Llvm {
    /// Returns the LLVM of this process: the library that `PICO_LLVM` names, else the newest from
    /// 21 to 15 that is found. Searched once.
    pub fn find() -> Result<&'static Llvm> {
        static FOUND: OnceLock<Result<Llvm>> = OnceLock::new();
        FOUND
            .get_or_init(|| Llvm::search(env::var("PICO_LLVM").as_deref()))
            .as_ref()
            .map_err(Clone::clone)
    }

    fn search(wanted: Option<&str>) -> Result<Llvm> {
        let fail = |msg: String| Error::Device(format!("{msg}\n{}", advice()));
        platform::check_llvm(ARCH, OS).map_err(Error::Device)?;
        match wanted.map(str::trim).filter(|w| !w.is_empty()) {
            Some("0" | "off") => return Err(Error::Device("PICO_LLVM disables LLVM".into())),
            Some(name) => {
                return Llvm::open(name).map_err(|why| fail(format!("PICO_LLVM={name}: {why}")));
            }
            None => {}
        }
        let mut tried = String::new();
        for name in api::candidates() {
            match Llvm::open(&name) {
                Ok(found) => return Ok(found),
                // An unusable library is skipped; if no other works, the error lists
                // it. Most names do not exist.
                Err(why) if name.contains('/') => tried += &format!("\n{name}: {why}"),
                Err(_) => {}
            }
        }
        let old =
            api::too_old().map_or(String::new(), |v| format!(", only LLVM {v}, which is too old"));
        Err(fail(format!("found no library of LLVM 15 to 21{old}{tried}")))
    }

    fn open(name: &str) -> std::result::Result<Llvm, String> {
        let (api, version, path) = Api::open(name)?;
        // SAFETY: the functions are those of LLVM's headers; the texts end in null bytes, and the
        // pointers are to local variables.
        unsafe {
            (api.LLVMInstallFatalErrorHandler)(on_fatal);
            let (cpu, features) =
                (api.take((api.LLVMGetHostCPUName)()), api.take((api.LLVMGetHostCPUFeatures)()));
            let (mut target, mut error) = (null_mut(), null_mut());
            if (api.LLVMGetTargetFromTriple)(TRIPLE.as_ptr(), &mut target, &mut error) != 0 {
                return Err(api.take(error));
            }
            Ok(Llvm {
                library: identity(&path),
                api,
                version,
                cpu,
                features: with_reserved(&features),
                target,
                idle: Mutex::default(),
            })
        }
    }

    /// Returns the library for another CPU. There are few names, so that each instance is created
    /// once and lives as long as the process.
    pub fn for_cpu(&'static self, cpu: &'static str) -> &'static Llvm {
        static MADE: Mutex<BTreeMap<&'static str, &'static Llvm>> = Mutex::new(BTreeMap::new());
        if cpu == NATIVE {
            return self;
        }
        let (version, library) = (self.version.clone(), self.library.clone());
        let (cpu_name, features) = arch::llvm_names(cpu);
        let (cpu_name, features) = (cpu_name.to_string(), with_reserved(features));
        let idle = Mutex::default();
        let make = || {
            &*Box::leak(Box::new(Llvm {
                api: self.api,
                version,
                cpu: cpu_name,
                features,
                library,
                target: self.target,
                idle,
            }))
        };
        lock(&MADE).entry(cpu).or_insert_with(make)
    }

    /// Returns the cache key of the object that this text gives: library, CPU and text.
    pub fn key(&self, ir: &str) -> CacheKey {
        let parts = ["llvm object 1", &self.library, &self.version, &self.cpu, &self.features, ir];
        CacheKey::of(&parts.map(str::as_bytes))
    }

    /// Compiles a module to an object, after LLVM's verifier. The name is for messages only.
    ///
    /// # Safety
    /// LLVM works in this process, and its verifier does not find everything that makes it fail:
    /// the text is one that a renderer wrote, or one that LLVM is known to compile.
    #[cfg(feature = "testing")]
    pub unsafe fn compile(&'static self, ir: &str, name: &str) -> Result<Vec<u8>> {
        self.compile_text(ir, name, true)
    }

    /// Compiles a text of the renderer, which LLVM verifies if the settings ask for it, or of a
    /// user, which it always verifies.
    pub(crate) fn compile_text(
        &'static self,
        ir: &str,
        name: &str,
        verify: bool,
    ) -> Result<Vec<u8>> {
        self.compile_within(ir, name, verify || env::config()?.verify, disk_cache::global())
    }

    fn compile_within(
        &'static self,
        ir: &str,
        name: &str,
        verify: bool,
        cache: &DiskCache,
    ) -> Result<Vec<u8>> {
        self.compile_on_thread(ir, verify).map_err(|why| {
            let why = format!("LLVM {} {}", self.version, first_lines(&why));
            rejected(cache, name, ir, ".ll", &why)
        })
    }

    /// Compiles on a separate thread, which may never return.
    fn compile_on_thread(&'static self, ir: &str, verify: bool) -> Object {
        let (report, result) = mpsc::channel();
        let ir = ir.to_string();
        let work = move || {
            REPORT.set(Some(report.clone()));
            // After a timeout nobody receives the result.
            let _ = report.send(self.emit(&ir, verify));
        };
        let thread = std::thread::Builder::new().name("llvm".into()).stack_size(STACK).spawn(work);
        thread.map_err(|e| format!("cannot start a thread: {e}"))?;
        match result.recv_timeout(LIMIT) {
            Ok(object) => object,
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("took longer than the limit of {} s", LIMIT.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err("ended without a result".into()),
        }
    }

    fn emit(&self, ir: &str, verify: bool) -> Object {
        let api = &self.api;
        let mut diagnostics = Diagnostics { api, errors: Vec::new() };
        let length = ir.len();
        let ir = CString::new(ir).map_err(|_| "cannot read text with a null byte".to_string())?;
        let machine = InUse { machine: self.machine()?, idle: &self.idle };
        // SAFETY: handles go only to the functions that take them and are alive; the module is
        // dropped before its context, and `diagnostics` after both. The text ends in a null byte,
        // as the reader requires, and is copied. The output pointers are to local variables.
        let object = unsafe {
            let context = Owned((api.LLVMContextCreate)(), api.LLVMContextDispose);
            (api.LLVMContextSetDiagnosticHandler)(
                context.0,
                on_diagnostic,
                (&raw mut diagnostics).cast(),
            );
            let text = (api.LLVMCreateMemoryBufferWithMemoryRangeCopy)(
                ir.as_ptr(),
                length,
                c"kernel".as_ptr(),
            );
            let (mut module, mut error) = (null_mut(), null_mut());
            if (api.LLVMParseIRInContext)(context.0, text, &mut module, &mut error) != 0 {
                return Err(format!("cannot parse the module: {}", api.take(error)));
            }
            let module = Owned(module, api.LLVMDisposeModule);
            if verify {
                let broken = (api.LLVMVerifyModule)(module.0, RETURN_STATUS, &mut error) != 0;
                let why = api.take(error);
                if broken {
                    return Err(format!("rejects the module: {why}"));
                }
            }
            let mut buffer = null_mut();
            error = null_mut();
            if (api.LLVMTargetMachineEmitToMemoryBuffer)(
                machine.machine.0,
                module.0,
                OBJECT_FILE,
                &mut error,
                &mut buffer,
            ) != 0
            {
                return Err(format!("cannot generate code: {}", api.take(error)));
            }
            let buffer = Owned(buffer, api.LLVMDisposeMemoryBuffer);
            std::slice::from_raw_parts(
                (api.LLVMGetBufferStart)(buffer.0),
                (api.LLVMGetBufferSize)(buffer.0),
            )
            .to_vec()
        };
        if !diagnostics.errors.is_empty() {
            return Err(format!("reports: {}", diagnostics.errors.join("\n")));
        }
        Ok(object)
    }

    fn machine(&self) -> std::result::Result<TargetMachine, String> {
        if let Some(machine) = lock(&self.idle).pop() {
            return Ok(machine);
        }
        let text =
            |s: &str| CString::new(s).map_err(|_| "got a CPU name with a null byte".to_string());
        let (cpu, features) = (text(&self.cpu)?, text(&self.features)?);
        let (cpu, features) = (cpu.as_ptr(), features.as_ptr());
        // SAFETY: the target is LLVM's own, and the texts end in null bytes and are copied.
        let machine = unsafe {
            (self.api.LLVMCreateTargetMachine)(
                self.target,
                TRIPLE.as_ptr(),
                cpu,
                features,
                DEFAULT_LEVEL,
                PIC,
                DEFAULT_MODEL,
            )
        };
        if machine.is_null() {
            Err(format!("cannot generate code for {}", self.cpu))
        } else {
            Ok(TargetMachine(machine))
        }
    }
}

/// Adds [`RESERVED`] to features in LLVM's notation.
fn with_reserved(features: &str) -> String {
    let parts = [features, RESERVED].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(",")
}

/// Returns the identity of a file: its path, and what changes when it is replaced.
fn identity(path: &Path) -> String {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let state = std::fs::metadata(&path).map_or(String::new(), |meta| os::file_identity(&meta));
    format!("{} {state}", path.display())
}

fn advice() -> &'static str {
    "install one with `apt install libllvm19` (or any from libllvm15 on; `dnf install llvm-libs`, \
     `pacman -S llvm-libs`), or name one in PICO_LLVM; DEV=CPU:CLANG and DEV=INTERP work without"
}

#[cfg(test)]
mod tests;

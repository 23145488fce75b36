//! NVRTC, NVIDIA's compiler as a shared library, found at run time. In: CUDA C. Out: machine code
//! for an architecture, or an error with the compiler's message and the file of the rejected text.
//! It needs no GPU.

use crate::device::library::{Library, functions};
use crate::device::module::{first_lines, rejected};
use crate::disk_cache::{self, CacheKey};
use crate::env;
use crate::error::{Error, Result};
use std::ffi::{CString, OsString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

type Program = *mut c_void;

functions! {
    /// The used functions, with NVRTC's names.
    Api:
    nvrtcVersion(*mut c_int, *mut c_int) -> c_int;
    nvrtcGetNumSupportedArchs(*mut c_int) -> c_int;
    nvrtcGetSupportedArchs(*mut c_int) -> c_int;
    nvrtcCreateProgram(
        *mut Program, *const c_char, *const c_char, c_int, *const *const c_char,
        *const *const c_char
    ) -> c_int;
    nvrtcDestroyProgram(*mut Program) -> c_int;
    nvrtcCompileProgram(Program, c_int, *const *const c_char) -> c_int;
    nvrtcGetProgramLogSize(Program, *mut usize) -> c_int;
    nvrtcGetProgramLog(Program, *mut c_char) -> c_int;
    nvrtcGetCUBINSize(Program, *mut usize) -> c_int;
    nvrtcGetCUBIN(Program, *mut c_char) -> c_int;
    nvrtcGetPTXSize(Program, *mut usize) -> c_int;
    nvrtcGetPTX(Program, *mut c_char) -> c_int;
}

/// A query of a size of a program.
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type GetBytes = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// Operations round once: multiply and add are not contracted to FMA. Everything else is
/// exact by default.
const FLAGS: [&str; 2] = ["--fmad=false", "--disable-warnings"];

const ADVICE: &str =
    "install it with `pip install nvidia-cuda-nvrtc`, or name the file of libnvrtc in PICO_NVRTC";

/// A working NVRTC library.
pub struct Nvrtc {
    api: Api,
    /// Its version, such as `13.0`.
    pub version: String,
    /// Its file.
    pub path: PathBuf,
    /// The architectures that it compiles for, such as 90.
    archs: Vec<u32>,
}

impl Nvrtc {
    /// Returns the NVRTC of this process: the file that `PICO_NVRTC` names, else the first in the
    /// system, CUDA's folders or Python's packages. Searched once.
    pub fn find() -> Result<&'static Nvrtc> {
        static FOUND: OnceLock<Result<Nvrtc>> = OnceLock::new();
        FOUND.get_or_init(|| Nvrtc::search(&env::var_os)).as_ref().map_err(Clone::clone)
    }

    fn search(env: &dyn Fn(&str) -> Option<OsString>) -> Result<Nvrtc> {
        let fail = |msg: String| Error::Device(format!("{msg}\n{ADVICE}"));
        if let Some(named) = env("PICO_NVRTC").filter(|n| !n.is_empty()) {
            let named = named.to_string_lossy();
            if named == "off" {
                return Err(Error::Device(
                    "PICO_NVRTC=off disables NVRTC, the compiler of CUDA".into(),
                ));
            }
            return Nvrtc::open(&named).map_err(|why| fail(format!("PICO_NVRTC={named}: {why}")));
        }
        let mut tried = String::new();
        for name in candidates(env) {
            match Nvrtc::open(&name) {
                Ok(found) => return Ok(found),
                // A file that exists and cannot be used is reported; a name that the system does
                // not know is not.
                Err(why) if name.contains('/') => tried += &format!("\n{name}: {why}"),
                Err(_) => {}
            }
        }
        Err(fail(format!("NVRTC, the compiler of CUDA, was not found{tried}")))
    }

    fn open(name: &str) -> std::result::Result<Nvrtc, String> {
        let file = Path::new(name);
        // NVRTC looks for its second library by name, and finds it if it is loaded.
        if let Some(folder) = file.parent().filter(|p| !p.as_os_str().is_empty()) {
            for builtins in files(folder, "libnvrtc-builtins.so") {
                let _ = Library::open(&builtins);
            }
        }
        let library = Library::open(name)?;
        let api = Api::load(&library)?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: each call writes one number.
        let codes = unsafe {
            [
                (api.nvrtcVersion)(&mut major, &mut minor),
                (api.nvrtcGetNumSupportedArchs)(&mut count),
            ]
        };
        let mut archs = vec![0; count.max(0) as usize];
        // SAFETY: the list has the length that the library returned.
        let code = unsafe { (api.nvrtcGetSupportedArchs)(archs.as_mut_ptr()) };
        if codes != [0, 0] || code != 0 {
            return Err("its version cannot be read".into());
        }
        let path = library.path("nvrtcVersion").unwrap_or_else(|| file.to_path_buf());
        Ok(Nvrtc {
            api,
            version: format!("{major}.{minor}"),
            path,
            archs: archs.into_iter().map(|a| a as u32).collect(),
        })
    }

    /// Returns the architecture to compile for on a GPU of this capability, such as 90: its own
    /// machine code, or PTX that the driver translates if the compiler is older than the GPU. For a
    /// requested architecture the same: machine code if the GPU runs it, otherwise PTX.
    pub fn arch(&self, capability: u32, asked: Option<u32>) -> Result<String> {
        let usable = || self.archs.iter().copied().filter(|a| *a <= capability);
        let known = || {
            let usable: Vec<String> = usable().map(|a| format!("sm_{a}")).collect();
            format!(
                "NVRTC {} supports {:?}; the GPU of capability {capability} runs {}",
                self.version,
                self.archs,
                usable.join(", ")
            )
        };
        let arch = match asked {
            Some(asked) => usable()
                .find(|a| *a == asked)
                .ok_or_else(|| Error::Device(format!("no ARCH sm_{asked}: {}", known()))),
            None => usable().max().ok_or_else(|| Error::Device(known())),
        }?;
        // Machine code runs on GPUs of its generation.
        let runs = if asked.is_some() { arch / 10 == capability / 10 } else { arch == capability };
        Ok(format!("{}_{arch}", if runs { "sm" } else { "compute" }))
    }

    /// Returns the cache key of the object of a source text.
    pub fn key(&self, source: &str, arch: &str) -> CacheKey {
        CacheKey::of(&[
            b"cuda 1",
            self.version.as_bytes(),
            FLAGS.join(" ").as_bytes(),
            arch.as_bytes(),
            source.as_bytes(),
        ])
    }

    /// Compiles CUDA C for an architecture: machine code for `sm_90`, text for the driver for
    /// `compute_90`.
    pub fn compile(&self, source: &str, name: &str, arch: &str) -> Result<Vec<u8>> {
        self.attempt(source, arch).map_err(|why| {
            let why = format!("NVRTC {} for {arch}: {}", self.version, first_lines(&why));
            rejected(disk_cache::global(), name, source, ".cu", &why)
        })
    }

    /// Compiles programs together, and drops the code: for tests without a GPU.
    #[cfg(feature = "testing")]
    pub fn check(&self, programs: &[&crate::lower::Program], arch: &str) -> Result<()> {
        use crate::device::module::entry_name;
        use crate::render::{self, Cuda, Renderer};
        let renderer = Cuda::new(arch);
        let rendered = programs
            .iter()
            .map(|p| renderer.render(entry_name(&p.name), &p.uops))
            .collect::<Result<Vec<_>>>()?;
        let (text, _) = render::module(rendered.iter());
        self.compile(&text, "many", arch).map(drop)
    }

    fn attempt(&self, source: &str, arch: &str) -> std::result::Result<Vec<u8>, String> {
        let text = |s: &str| CString::new(s).map_err(|_| "a text with a null byte".to_string());
        let source = text(source)?;
        let mut flags = vec![text(&format!("--gpu-architecture={arch}"))?];
        for flag in FLAGS {
            flags.push(text(flag)?);
        }
        let pointers: Vec<*const c_char> = flags.iter().map(|f| f.as_ptr()).collect();
        let mut made = OwnedProgram { api: &self.api, program: std::ptr::null_mut() };
        let null = std::ptr::null();
        // SAFETY: the texts end in null bytes and live through the calls; there are no headers.
        let code = unsafe {
            (self.api.nvrtcCreateProgram)(
                &mut made.program,
                source.as_ptr(),
                null,
                0,
                null.cast(),
                null.cast(),
            )
        };
        if code != 0 {
            return Err(format!("creating the program failed with error {code}"));
        }
        // SAFETY: the program is valid, and the number of flags is passed.
        let code = unsafe {
            (self.api.nvrtcCompileProgram)(made.program, pointers.len() as c_int, pointers.as_ptr())
        };
        if code != 0 {
            let log = made
                .get(self.api.nvrtcGetProgramLogSize, self.api.nvrtcGetProgramLog)
                .unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            return Err(format!("error {code}\n{}", log.trim_end_matches('\0')));
        }
        let image = match arch.starts_with("sm_") {
            true => made.get(self.api.nvrtcGetCUBINSize, self.api.nvrtcGetCUBIN),
            false => made.get(self.api.nvrtcGetPTXSize, self.api.nvrtcGetPTX),
        };
        image.filter(|code| !code.is_empty()).ok_or_else(|| "it returned no code".to_string())
    }
}

/// An NVRTC program, destroyed when dropped.
struct OwnedProgram<'a> {
    api: &'a Api,
    program: Program,
}

impl OwnedProgram<'_> {
    fn get(&self, size: GetSize, bytes: GetBytes) -> Option<Vec<u8>> {
        let mut n = 0;
        // SAFETY: the program is compiled; the call writes one number.
        if unsafe { size(self.program, &mut n) } != 0 {
            return None;
        }
        let mut out = vec![0u8; n];
        // SAFETY: the call writes as many bytes as it returned before.
        (unsafe { bytes(self.program, out.as_mut_ptr().cast()) } == 0).then_some(out)
    }
}

impl Drop for OwnedProgram<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program is owned and not used again.
            unsafe { (self.api.nvrtcDestroyProgram)(&mut self.program) };
        }
    }
}

/// Lists files of a folder by prefix, newest version first.
fn files(folder: &Path, start: &str) -> Vec<String> {
    let Ok(list) = std::fs::read_dir(folder) else { return Vec::new() };
    let fits = |name: &str| name.starts_with(start) && !name.contains(".alt");
    let mut found: Vec<String> = list
        .flatten()
        .filter(|f| f.file_name().to_str().is_some_and(fits))
        .map(|f| f.path().to_string_lossy().into_owned())
        .collect();
    found.sort();
    found.reverse();
    found
}

/// Lists folders of a folder by prefix.
fn folders(folder: &Path, start: &str) -> Vec<PathBuf> {
    files(folder, start).into_iter().map(PathBuf::from).filter(|p| p.is_dir()).collect()
}

/// Candidates for NVRTC: names that the system resolves, then CUDA's folders, then Python's
/// packages.
fn candidates(env: &dyn Fn(&str) -> Option<OsString>) -> Vec<String> {
    let mut names: Vec<String> =
        ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
            .map(String::from)
            .to_vec();
    let mut places: Vec<PathBuf> = Vec::new();
    let mut roots: Vec<PathBuf> =
        ["CUDA_PATH", "CUDA_HOME"].iter().filter_map(|v| env(v)).map(PathBuf::from).collect();
    roots.extend(folders(Path::new("/usr/local"), "cuda"));
    roots.push("/opt/cuda".into());
    for root in roots {
        places.extend(["lib64", "targets/x86_64-linux/lib", "lib"].map(|l| root.join(l)));
    }
    // The `bin` of a Python is next to the `lib` of its packages.
    let pythons: Vec<PathBuf> = env("PATH")
        .map(|p| std::env::split_paths(&p).filter(|d| d.join("python3").exists()).collect())
        .unwrap_or_default();
    for prefix in env("VIRTUAL_ENV")
        .map(PathBuf::from)
        .into_iter()
        .chain(pythons.into_iter().filter_map(|d| Some(d.parent()?.to_path_buf())))
    {
        for python in folders(&prefix.join("lib"), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                places.extend(
                    ["cu13", "cuda_nvrtc", "cu12"]
                        .map(|n| python.join(packages).join("nvidia").join(n).join("lib")),
                );
            }
        }
    }
    names.extend(places.iter().flat_map(|p| files(p, "libnvrtc.so")));
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|n| seen.insert(n.clone()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvrtc_is_searched_in_known_folders() {
        let env = |name: &str| {
            Some(OsString::from(if name == "CUDA_PATH" { "/nowhere/cuda" } else { "" }))
        };
        assert!(candidates(&env).contains(&"libnvrtc.so.13".to_string()));
        let off = Nvrtc::search(&|name| (name == "PICO_NVRTC").then(|| "off".into()))
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(off.contains("PICO_NVRTC=off disables NVRTC"), "{off}");
        let wrong = Nvrtc::search(&|name| (name == "PICO_NVRTC").then(|| "/no/such/file".into()))
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(
            wrong.contains("/no/such/file") && wrong.contains("pip install nvidia-cuda-nvrtc"),
            "{wrong}"
        );
    }
}

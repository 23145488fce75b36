//! The C compiler of the machine, as a child process. In: C text. Out: the bytes of an object, or
//! an error with the compiler's message and the file of the rejected text.
//!
//! The text is passed by standard input. clang writes the object to standard output; the assembler
//! of gcc seeks, so gcc writes a file in a private folder, in memory if the system supports it,
//! which is always removed. Neither ever writes to a device file: gcc, run by root, would replace
//! it.

use super::arch::NATIVE;
use crate::device::module::{first_lines, rejected};
use crate::disk_cache::{self, CacheEntry, CacheKey, DiskCache, create_unique, unique};
use crate::env;
use crate::error::{Error, Result};
use crate::os;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Time limit of a compilation, which takes 30 to 300 ms.
const LIMIT: Duration = Duration::from_secs(60);
/// Time limit of a run that prints the compiler's version.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
const MAX_OUTPUT: u64 = 256 << 20;

/// The optimization level, and the one for code that runs once: gcc takes 40 % less time for it.
const LEVEL: &str = "-O2";
const QUICK_LEVEL: &str = "-O0";

/// Candidates in this order if `CC` is not set. clang is first: it compiles vector code in less
/// time.
const NAMES: [&str; 9] =
    ["clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14", "cc", "gcc"];

/// The family of a compiler, which determines some flags and how the object is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompilerKind {
    /// clang, Apple clang included.
    Clang,
    /// gcc, and compilers with its command line.
    Gcc,
}

/// A working C compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CCompiler {
    /// The program.
    pub path: PathBuf,
    /// Its family.
    pub kind: CompilerKind,
    /// The first line of its version output; part of the cache key.
    pub version: String,
    /// Its arguments, before the flags of the CPU, the output and the input.
    pub flags: Vec<String>,
    /// The CPU that it compiles for, in the names of compilers.
    pub cpu: &'static str,
    /// The flags for that CPU.
    cpu_flags: Vec<String>,
}

impl CCompiler {
    /// Returns the compiler of this process: the one that `CC` names, else the first of clang,
    /// clang-19 … clang-14, cc and gcc on the path. Searched once.
    pub fn find() -> Result<&'static CCompiler> {
        static FOUND: OnceLock<Result<CCompiler>> = OnceLock::new();
        let find = || {
            let path = env::var("PATH").unwrap_or_default();
            CCompiler::search(&env::var, &path, Some(disk_cache::global()))
        };
        FOUND.get_or_init(find).as_ref().map_err(Clone::clone)
    }

    /// Like [`find`](Self::find), with the given environment and search path, and not cached.
    #[cfg(feature = "testing")]
    pub fn find_with(env: &dyn Fn(&str) -> Option<String>, path: &str) -> Result<CCompiler> {
        CCompiler::search(env, path, None)
    }

    fn search(
        env: &dyn Fn(&str) -> Option<String>,
        path: &str,
        cache: Option<&DiskCache>,
    ) -> Result<CCompiler> {
        if let Some(cc) = env("CC").filter(|s| !s.trim().is_empty()) {
            // A program with optional arguments, as in make.
            let mut words = cc.split_whitespace();
            let name = words.next().unwrap_or_default();
            let program = find_program(name, path).ok_or_else(|| {
                Error::compile(format!("CC={cc}: there is no program `{name}`\n{}", advice()))
            })?;
            return CCompiler::probe(program, words.map(str::to_string).collect(), cache)
                .map_err(|why| Error::compile(format!("CC={cc}: {why}\n{}", advice())));
        }
        let mut tried = String::new();
        for program in NAMES.iter().filter_map(|name| find_program(name, path)) {
            match CCompiler::probe(program.clone(), Vec::new(), cache) {
                Ok(found) => return Ok(found),
                // A broken compiler is skipped; if no other works, the error lists it.
                Err(why) => tried += &format!("{}: {why}\n", program.display()),
            }
        }
        Err(Error::compile(format!(
            "no C compiler found (tried clang, clang-19 to clang-14, cc, gcc)\n{tried}{}",
            advice()
        )))
    }

    fn probe(
        path: PathBuf,
        mut flags: Vec<String>,
        cache: Option<&DiskCache>,
    ) -> std::result::Result<CCompiler, String> {
        // A compiler takes 25 ms to print its version; the disk cache holds it until the program
        // file changes.
        let known = cache.and_then(|cache| Some((cache, program_key(&path, &flags)?)));
        let said = match known.and_then(|(cache, key)| cache.get(&[key]).pop().flatten()) {
            Some(said) => said,
            None => {
                let said = run_version(&path, &flags)?;
                known.inspect(|(cache, key)| {
                    cache.put(&[CacheEntry {
                        key: *key,
                        kind: disk_cache::EntryKind::Compiler,
                        device: "CPU:CLANG",
                        value: &said,
                    }])
                });
                said
            }
        };
        let said = String::from_utf8_lossy(&said);
        let version = said.lines().next().unwrap_or_default().trim().to_string();
        let kind = if said.contains("clang") { CompilerKind::Clang } else { CompilerKind::Gcc };
        if kind == CompilerKind::Clang && cfg!(target_arch = "aarch64") {
            return Err("on arm64, clang may round conversions of 64-bit integers to f32 twice; \
                        gcc works"
                .into());
        }
        flags.extend(flags_of(kind).into_iter().map(str::to_string));
        Ok(CCompiler { path, kind, version, flags, cpu: NATIVE, cpu_flags: Vec::new() }
            .for_cpu(NATIVE))
    }

    /// Returns the compiler for another CPU.
    pub fn for_cpu(&self, cpu: &'static str) -> CCompiler {
        let mut found = CCompiler { cpu, cpu_flags: Vec::new(), ..self.clone() };
        // All compilers for x86-64 accept this flag; elsewhere a small compilation tests it.
        #[cfg(target_arch = "x86_64")]
        {
            found.cpu_flags.push(format!("-march={cpu}"));
            // With AVX-512, both families prefer 256 bits by default, for CPUs whose clock drops.
            // Measured: 512 is 1.6 times as fast.
            if super::arch::Arch::find(Some(cpu)).is_ok_and(|a| a.vector_bytes == 64) {
                found.cpu_flags.push("-mprefer-vector-width=512".into());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        for flag in [format!("-march={cpu}"), format!("-mcpu={cpu}")] {
            found.cpu_flags = vec![flag];
            if found.attempt("int picograd_probe;\n", VERSION_LIMIT).is_ok() {
                break;
            }
            found.cpu_flags.clear();
        }
        found
    }

    /// Returns the compiler without optimization, for kernels that run once.
    pub fn quick(&self) -> CCompiler {
        let mut quick = self.clone();
        quick.flags.iter_mut().filter(|f| *f == LEVEL).for_each(|f| *f = QUICK_LEVEL.to_string());
        quick
    }

    /// Compiles C text to an object. The name is for messages only.
    pub fn compile(&self, src: &str, name: &str) -> Result<Vec<u8>> {
        self.compile_within(src, name, LIMIT, disk_cache::global())
    }

    /// Returns the cache key of the object that this text gives: compiler, flags, CPU and text.
    pub fn key(&self, src: &str) -> CacheKey {
        let flags = [&self.flags[..], &self.cpu_flags].concat().join("\0");
        let path = self.path.as_os_str().as_encoded_bytes();
        CacheKey::of(&[
            b"c object 1",
            path,
            self.version.as_bytes(),
            flags.as_bytes(),
            cpu_features().as_bytes(),
            src.as_bytes(),
        ])
    }

    fn compile_within(
        &self,
        src: &str,
        name: &str,
        limit: Duration,
        cache: &DiskCache,
    ) -> Result<Vec<u8>> {
        self.attempt(src, limit).map_err(|why| {
            rejected(cache, name, src, ".c", &format!("{} {why}", self.path.display()))
        })
    }

    fn attempt(&self, src: &str, limit: Duration) -> std::result::Result<Vec<u8>, String> {
        let mut command = Command::new(&self.path);
        command.args(&self.flags).args(&self.cpu_flags).arg("-o");
        let scratch = match self.kind {
            CompilerKind::Clang => {
                command.args(["-", "-"]);
                None
            }
            CompilerKind::Gcc => {
                let dir = ScratchDir::new()
                    .map_err(|e| format!("cannot create a folder for its output: {e}"))?;
                command.arg(dir.0.join("out.o")).arg("-").env("TMPDIR", &dir.0);
                Some(dir)
            }
        };
        // These variables add search folders or output files, which a kernel does not need.
        // Messages are in English, so that users can search for them.
        for name in [
            "CPATH",
            "C_INCLUDE_PATH",
            "DEPENDENCIES_OUTPUT",
            "SUNPRO_DEPENDENCIES",
            "GCC_COMPARE_DEBUG",
        ] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C");
        match run(&mut command, src, limit) {
            Ok(Some(done)) if done.status.success() => {
                let object = match &scratch {
                    Some(dir) => fs::read(dir.0.join("out.o"))
                        .map_err(|e| format!("produced no object: {e}"))?,
                    None => done.out,
                };
                if object.is_empty() { Err("produced an empty object".into()) } else { Ok(object) }
            }
            Ok(Some(done)) => {
                Err(format!("failed ({})\n{}", os::exit_text(done.status), first_lines(&done.err)))
            }
            Ok(None) => Err(format!("took longer than the limit of {} s", limit.as_secs_f32())),
            Err(e) => Err(format!("cannot be run: {e}")),
        }
    }
}

/// Runs the compiler for its version.
fn run_version(path: &Path, flags: &[String]) -> std::result::Result<Vec<u8>, String> {
    match run(Command::new(path).args(flags).arg("--version"), "", VERSION_LIMIT) {
        Ok(Some(done)) if done.status.success() => Ok(done.out),
        Ok(Some(done)) => Err(format!(
            "`--version` failed ({})\n{}",
            os::exit_text(done.status),
            first_lines(&done.err)
        )),
        Ok(None) => Err(format!("`--version` took longer than {} s", VERSION_LIMIT.as_secs())),
        Err(e) => Err(format!("cannot be run: {e}")),
    }
}

/// Returns the cache key of a program's version output: the file behind its name, with size and
/// time.
fn program_key(path: &Path, flags: &[String]) -> Option<CacheKey> {
    let real = fs::canonicalize(path).ok()?;
    let meta = fs::metadata(&real).ok()?;
    let state = os::file_identity(&meta);
    let (path, real) = (path.as_os_str().as_encoded_bytes(), real.as_os_str().as_encoded_bytes());
    Some(CacheKey::of(&[
        b"c compiler 1",
        path,
        real,
        state.as_bytes(),
        flags.join("\0").as_bytes(),
    ]))
}

/// Returns the flags that determine the meaning and the shape of the code, without those of the
/// CPU.
fn flags_of(kind: CompilerKind) -> Vec<&'static str> {
    let mut flags = vec!["-x", "c", "-std=c11", "-c", LEVEL, "-w"];
    // Equal bits on all CPU backends: a multiplication and an addition are two roundings unless the
    // text says `fma`. Nothing reads errno, and without it `sqrtf` is one instruction. Not used,
    // because they may change values: -ffast-math and, by gcc's manual, -fno-trapping-math (which
    // vectorized nothing more in our measurements).
    flags.extend(["-ffp-contract=off", "-fno-math-errno"]);
    // Integers wrap, and a buffer may be read as another dtype than it was written as.
    flags.extend(["-fwrapv", "-fno-strict-aliasing"]);
    // Required by the loader: calls through stubs, relative addresses, no unused tables.
    flags.extend([
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-common",
        "-fno-ident",
        "-fno-asynchronous-unwind-tables",
        "-fno-stack-protector",
    ]);
    // Not -ffreestanding: it hides from the compiler what `memset` and `sqrtf` are.
    if kind == CompilerKind::Gcc {
        // gcc 12 and later vectorize at -O2 only if it never costs a byte, which is rare; this is
        // the cost model of -O3.
        flags.extend(["-ftree-vectorize", "-fvect-cost-model=dynamic"]);
    }
    flags
}

/// Returns the features of this CPU, exact enough that code made for one string runs on every CPU
/// with the same string.
pub fn cpu_features() -> &'static str {
    static FEATURES: OnceLock<String> = OnceLock::new();
    FEATURES.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{__cpuid, __cpuid_count};
            let mut words = vec![__cpuid(0).ebx, __cpuid(0).ecx, __cpuid(0).edx];
            let model = __cpuid(1);
            // ebx is excluded: it contains the number of the current core.
            words.extend([model.eax, model.ecx, model.edx]);
            for sub in 0..=1 {
                let l = __cpuid_count(7, sub);
                words.extend([l.eax, l.ebx, l.ecx, l.edx]);
            }
            let extended = __cpuid(0x8000_0001);
            words.extend([extended.ecx, extended.edx]);
            // The registers that the system saves at a context switch: AVX-512 may be in the CPU
            // and still be off.
            let state = __cpuid_count(0xd, 0);
            words.extend([
                state.eax,
                state.edx,
                u32::from(std::arch::is_x86_feature_detected!("avx512f")),
            ]);
            words.iter().fold("x86_64".to_string(), |s, w| s + &format!(" {w:08x}"))
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let telling = |l: &&str| {
                ["Features", "CPU part", "CPU implementer", "CPU variant", "isa"]
                    .iter()
                    .any(|p| l.starts_with(p))
            };
            let mut lines: Vec<&str> = info.lines().filter(telling).collect();
            lines.sort_unstable();
            lines.dedup();
            format!("{}-{} {}", std::env::consts::ARCH, std::env::consts::OS, lines.join(";"))
        }
    })
}

fn advice() -> &'static str {
    if cfg!(target_os = "macos") {
        "install one with `xcode-select --install`, or name one in CC; DEV=INTERP works without"
    } else {
        "install one with `apt install clang` (or gcc; `dnf install clang`, `pacman -S clang`), or \
         name one in CC; DEV=INTERP works without"
    }
}

/// Returns the program of this name: a path if it has a slash, else the first executable file on
/// the search path.
fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    let runs = |p: &Path| fs::metadata(p).is_ok_and(|m| os::is_program(&m));
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|p| runs(p));
    }
    // An empty part means the current folder, from which no program is run.
    std::env::split_paths(path).filter(|d| d.is_absolute()).map(|d| d.join(name)).find(|p| runs(p))
}

/// A private folder, removed with its content. Only its owner can enter it, so that nobody can
/// replace the file that gcc writes.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> std::io::Result<ScratchDir> {
        let create = |base: &Path| {
            let dir = base.join(format!("picograd-cc-{}", unique()));
            os::create_private_folder(&dir).map(|()| ScratchDir(dir))
        };
        create(Path::new("/dev/shm")).or_else(|_| create(&std::env::temp_dir()))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Creates an anonymous file: in memory if the system supports it, else in the temporary folder.
fn anonymous_file() -> std::io::Result<File> {
    if let Some(file) = os::memory_file() {
        return Ok(file);
    }
    let (file, path) = create_unique(&std::env::temp_dir(), "picograd", "")?;
    fs::remove_file(path)?;
    Ok(file)
}

struct Finished {
    status: ExitStatus,
    out: Vec<u8>,
    err: String,
}

/// Runs a program with this text as its input; `None` if it exceeded the time limit and was killed
/// with its child processes.
///
/// Input and output are files and not pipes: nothing can block or raise SIGPIPE in us, however the
/// child behaves.
fn run(command: &mut Command, input: &str, limit: Duration) -> std::io::Result<Option<Finished>> {
    let (mut stdin, mut out, mut err) = (anonymous_file()?, anonymous_file()?, anonymous_file()?);
    stdin.write_all(input.as_bytes())?;
    stdin.rewind()?;
    // A process group of its own, so that killing it also kills the compiler behind the driver, and
    // nothing else.
    command.stdin(stdin).stdout(out.try_clone()?).stderr(err.try_clone()?);
    os::own_group(command);
    let mut attempts = 0;
    let mut child = loop {
        match command.spawn() {
            // Another process has the program open for writing, such as a package manager or a fork
            // before its exec.
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy && attempts < 20 => {
                attempts += 1
            }
            other => break other?,
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            os::kill_group(&mut child);
            child.wait()?;
            return Ok(None);
        }
        // Half a percent of the time that a compilation takes.
        std::thread::sleep(Duration::from_micros(200));
    };
    let read = |file: &mut File, most: u64| {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.take(most).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let err = String::from_utf8_lossy(&read(&mut err, 1 << 16)?).into_owned();
    Ok(Some(Finished { status, out: read(&mut out, MAX_OUTPUT)?, err }))
}

// The tests write programs as shell scripts.
#[cfg(all(test, unix))]
mod tests;

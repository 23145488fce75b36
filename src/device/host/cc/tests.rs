//! Tests of the C compiler as a child process: the search, its arguments, and rejected sources,
//! missing compilers and timeouts.

use super::*;
use crate::device::host::elf::Code;
use crate::device::testing::TempDir;
use crate::disk_cache::CompiledObject;
use crate::disk_cache::failed::MAX_FAILED;
use std::os::unix::fs::PermissionsExt;

const VADD: &str = "void k(float* restrict o, const float* restrict a, const float* restrict b, \
                    long n)
{ for (long i = 0; i < n; i++) o[i] = a[i] + b[i]; }\n";

fn none() -> DiskCache {
    DiskCache::from_env(&|_| None)
}

fn built(cc: &CCompiler, src: &str) -> Code {
    Code::load(&cc.compile(src, "k").unwrap()).unwrap()
}

fn compiler() -> &'static CCompiler {
    CCompiler::find().expect("a C compiler for the tests")
}

/// Returns a shell script under this name, which can be run.
fn script(dir: &Path, name: &str, body: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Returns a program as a compiler without flags, which is not asked for its version.
fn without_flags(path: PathBuf, kind: CompilerKind) -> CCompiler {
    let version = String::new();
    CCompiler { path, kind, version, flags: Vec::new(), cpu: NATIVE, cpu_flags: Vec::new() }
}

fn message(e: Error) -> (String, Option<PathBuf>) {
    match e {
        Error::Compile { msg, source_at } => (msg, source_at),
        other => panic!("another kind of error: {other}"),
    }
}

fn scratch_dirs() -> usize {
    let mine = format!("picograd-cc-{}-", std::process::id());
    let list = |d: &Path| {
        fs::read_dir(d).map_or(0, |l| {
            l.flatten().filter(|f| f.file_name().to_string_lossy().starts_with(&mine)).count()
        })
    };
    list(Path::new("/dev/shm")) + list(&std::env::temp_dir())
}

#[test]
fn quick_compiler_has_another_cache_key() {
    let cc = CCompiler::find().unwrap();
    assert_ne!(cc.quick().key(VADD), cc.key(VADD));
    assert!(Code::load(&cc.quick().compile(VADD, "vadd").unwrap()).is_ok());
}

#[test]
fn the_same_text_gives_the_same_object() {
    let cc = compiler();
    let object = cc.compile(VADD, "vadd").unwrap();
    assert_eq!(object, cc.compile(VADD, "another name").unwrap());
    assert!(
        cc.flags.iter().any(|f| f == "-ffp-contract=off")
            && !cc.flags.iter().any(|f| f.contains("fast"))
    );
    assert!(!cc.version.is_empty());
    // A source longer than any pipe.
    let long = format!("{VADD}/*{}*/\n", "x".repeat(300_000));
    assert_eq!(cc.compile(&long, "long").unwrap(), object);
}

#[test]
fn loops_become_vector_code_and_products_are_rounded() {
    let code = built(compiler(), VADD);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // 0x62 begins an instruction on 512-bit registers (EVEX); `vaddps` is opcode 0x58.
        assert!(
            code.text().windows(6).any(|w| w[0] == 0x62 && w[4] == 0x58),
            "no 512-bit addition"
        );
    }
    let src = "float k(float a, float b, float c) { return a * b + c; }\n";
    let code = built(compiler(), src);
    // SAFETY: the C text defines the function with this type.
    let k: extern "C" fn(f32, f32, f32) -> f32 =
        unsafe { std::mem::transmute(code.symbol("k").unwrap()) };
    let (a, b) = (1.0 + f32::EPSILON, 1.0 - f32::EPSILON);
    assert_eq!(k(a, b, -1.0), a * b - 1.0);
    assert_ne!(k(a, b, -1.0), a.mul_add(b, -1.0));
}

#[test]
fn rejected_source_is_saved_with_the_message_of_the_compiler() {
    let tmp = TempDir::new("refused");
    let cache = DiskCache::at(tmp.path());
    let src = "void k(void) { undeclared_thing = 1; }\n";
    let (msg, at) =
        message(compiler().compile_within(src, "bad/../kernel", LIMIT, &cache).unwrap_err());
    assert!(
        msg.contains("undeclared_thing")
            && msg.contains("bad/../kernel")
            && msg.lines().count() < 20,
        "{msg}"
    );
    let at = at.unwrap();
    assert!(
        at.starts_with(tmp.path().join("failed"))
            && at.file_name().unwrap().to_str().unwrap().starts_with("bad____kernel-")
    );
    assert_eq!(fs::read_to_string(at).unwrap(), src);
    // Without a cache folder it goes to the temporary one.
    let (_, at) = message(compiler().compile_within(src, "bad", LIMIT, &none()).unwrap_err());
    let at = at.unwrap();
    assert_eq!(fs::read_to_string(&at).unwrap(), src);
    fs::remove_file(at).unwrap();
    // Their number is limited.
    for i in 0..MAX_FAILED + 20 {
        disk_cache::save_failed_source(&format!("{i}"), "k", ".c", Some(tmp.path())).unwrap();
    }
    assert_eq!(fs::read_dir(tmp.path().join("failed")).unwrap().count(), MAX_FAILED);
}

#[test]
fn a_missing_compiler_says_what_to_do() {
    let tmp = TempDir::new("missing");
    let nowhere = tmp.path().to_str().unwrap();
    let (msg, _) = message(CCompiler::find_with(&|_| None, nowhere).unwrap_err());
    assert!(
        msg.contains("no C compiler") && msg.contains("install") && msg.contains("DEV=INTERP"),
        "{msg}"
    );
    let env = |name: &str| (name == "CC").then(|| "no-such-compiler -O1".to_string());
    let (msg, _) =
        message(CCompiler::find_with(&env, &std::env::var("PATH").unwrap()).unwrap_err());
    assert!(msg.contains("CC=no-such-compiler") && msg.contains("DEV=INTERP"), "{msg}");
    let broken = script(tmp.path(), "gcc", "echo broken >&2; exit 3");
    let (msg, _) = message(CCompiler::find_with(&|_| None, nowhere).unwrap_err());
    assert!(msg.contains("exit code 3") && msg.contains("broken"), "{msg}");
    let env = |name: &str| (name == "CC").then(|| broken.to_str().unwrap().to_string());
    assert!(CCompiler::find_with(&env, "").is_err());
    // CC set to nothing is as good as not set, and relative folders of the path are not searched.
    let env = |name: &str| (name == "CC").then(String::new);
    assert!(CCompiler::find_with(&env, "::.").is_err());
}

#[test]
fn compilers_are_searched_in_order() {
    let tmp = TempDir::new("order");
    let path = tmp.path().to_str().unwrap();
    let find = || CCompiler::find_with(&|_| None, path).unwrap();
    script(tmp.path(), "gcc", "echo 'gcc (Test) 1.0'");
    assert_eq!((find().kind, find().version.as_str()), (CompilerKind::Gcc, "gcc (Test) 1.0"));
    script(tmp.path(), "clang-15", "echo 'Test clang version 15'");
    assert_eq!((find().kind, find().path), (CompilerKind::Clang, tmp.path().join("clang-15")));
    script(tmp.path(), "clang-19", "echo 'Test clang version 19'");
    assert_eq!(find().path, tmp.path().join("clang-19"));
    script(tmp.path(), "clang", "exit 1");
    assert_eq!(find().path, tmp.path().join("clang-19"), "one that does not run is passed over");
    let env = |name: &str| (name == "CC").then(|| "gcc -m64".to_string());
    let named = CCompiler::find_with(&env, path).unwrap();
    assert_eq!((named.path, named.flags[0].as_str()), (tmp.path().join("gcc"), "-m64"));
}

#[test]
fn another_cpu_has_flags_and_a_key_of_its_own() {
    let tmp = TempDir::new("cpu");
    script(tmp.path(), "gcc", "echo 'gcc (Test) 1.0'");
    let native = CCompiler::find_with(&|_| None, tmp.path().to_str().unwrap()).unwrap();
    let other = native.for_cpu("x86-64-v2");
    assert_eq!(
        (native.for_cpu("native"), other.for_cpu("native")),
        (native.clone(), native.clone())
    );
    if cfg!(target_arch = "x86_64") {
        assert_eq!(other.cpu_flags, ["-march=x86-64-v2"]);
        assert_ne!(native.key("int x;"), other.key("int x;"));
    }
}

#[test]
fn an_unchanged_compiler_is_asked_once() {
    let tmp = TempDir::new("asked");
    let cache = DiskCache::at(&tmp.path().join("cache"));
    let path = tmp.path().to_str().unwrap();
    let asked = tmp.path().join("asked");
    let find = || CCompiler::search(&|_| None, path, Some(&cache)).unwrap().version;
    let times = || fs::read_to_string(&asked).unwrap().lines().count();
    script(tmp.path(), "gcc", &format!("echo >> {}; echo 'gcc 1'", asked.display()));
    assert_eq!((find(), find(), times()), ("gcc 1".into(), "gcc 1".into(), 1));
    script(tmp.path(), "gcc", &format!("echo >> {}; echo 'gcc 22'", asked.display()));
    assert_eq!((find(), find(), times()), ("gcc 22".into(), "gcc 22".into(), 2));
}

/// The way of clang, in by standard input and out by standard output, through a script that has the
/// machine's compiler do the work.
#[test]
fn objects_are_read_from_standard_output() {
    let tmp = TempDir::new("stdout");
    let real = compiler().path.to_str().unwrap();
    let out = tmp.path().join("o");
    let out = out.to_str().unwrap();
    let body = format!(
        "case \"$*\" in --version) echo 'Test clang version 19'; exit;; *' -o - -') ;; *) exit \
         9;; esac\n{real} -x c -O2 -fPIC -c -o {out} - && cat {out}"
    );
    script(tmp.path(), "clang", &body);
    let cc = CCompiler::find_with(&|_| None, &format!("{}:/usr/bin:/bin", tmp.path().display()))
        .unwrap();
    assert_eq!(cc.kind, CompilerKind::Clang);
    assert!(built(&cc, VADD).symbol("k").is_some());
}

#[test]
fn a_compiler_that_hangs_is_stopped_with_all_it_started() {
    let tmp = TempDir::new("hang");
    let cache = DiskCache::at(&tmp.path().join("cache"));
    let pid = tmp.path().join("pid");
    let body = format!(
        "case \"$*\" in --version) echo gcc; exit;; esac\nsleep 1000 & echo $! > {}; wait",
        pid.display()
    );
    let path = script(tmp.path(), "gcc", &body);
    let cc = without_flags(path, CompilerKind::Gcc);
    let start = Instant::now();
    let (msg, at) =
        message(cc.compile_within(VADD, "vadd", Duration::from_millis(300), &cache).unwrap_err());
    assert!(
        start.elapsed() < Duration::from_secs(20) && msg.contains("longer than the limit of 0.3 s"),
        "{msg}"
    );
    assert_eq!(fs::read_to_string(at.unwrap()).unwrap(), VADD);
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let gone =
        || fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |s| s.contains(") Z "));
    assert!(
        (0..100).any(|_| gone() || {
            std::thread::sleep(Duration::from_millis(20));
            false
        }),
        "the grandchild still runs"
    );
}

#[test]
fn failed_compilers_are_errors() {
    let tmp = TempDir::new("dies");
    let cache = DiskCache::at(&tmp.path().join("cache"));
    for (body, says) in [
        ("kill -SEGV $$", "signal 11"),
        ("exit 0", "produced no object"),
        ("echo bad; exit 1", "exit code 1"),
    ] {
        let path = script(tmp.path(), "gcc", body);
        let cc = without_flags(path, CompilerKind::Gcc);
        let (msg, _) = message(cc.compile_within(VADD, "vadd", LIMIT, &cache).unwrap_err());
        assert!(msg.contains(says), "{msg}");
    }
    let path = script(tmp.path(), "clang", "printf '\\033[31mred\\033[0m' >&2; exit 1");
    let cc = without_flags(path, CompilerKind::Clang);
    let (msg, _) = message(cc.compile_within(VADD, "vadd", LIMIT, &cache).unwrap_err());
    assert!(!msg.contains('\x1b') && msg.contains("red"));
    let cc = CCompiler { path: tmp.path().join("gone"), ..cc };
    assert!(
        message(cc.compile_within(VADD, "vadd", LIMIT, &cache).unwrap_err())
            .0
            .contains("cannot be run")
    );
}

#[test]
fn key_depends_on_everything_that_determines_the_object() {
    let cc = compiler();
    let other = CCompiler { flags: vec!["-O1".into()], ..cc.clone() };
    let newer = CCompiler { version: "next".into(), ..cc.clone() };
    assert!(
        cc.key(VADD) != other.key(VADD)
            && cc.key(VADD) != newer.key(VADD)
            && cc.key(VADD) != cc.key("")
    );
    assert!(cpu_features().len() > 10);
}

#[test]
fn scratch_folders_are_removed() {
    let folder = ScratchDir::new().unwrap();
    let mode = fs::metadata(&folder.0).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    assert!(scratch_dirs() > 0);
    fs::write(folder.0.join("out.o"), "x").unwrap();
    let path = folder.0.clone();
    drop(folder);
    assert!(!path.exists());
}

/// Prints the time of a compilation: `cargo test --release --lib compile_time_is_printed --
/// --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn compile_time_is_printed() {
    let cc = compiler();
    let tmp = TempDir::new("time");
    let cache = DiskCache::at(tmp.path());
    let report = |what: &str, each: &mut dyn FnMut(usize)| {
        let mut times: Vec<f64> = (0..21)
            .map(|i| {
                let start = Instant::now();
                each(i);
                start.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{what}: min {:.3} ms, median {:.3} ms", times[0], times[10]);
    };
    println!("{}", cc.version);
    report("find", &mut |_| {
        drop(CCompiler::find_with(&|_| None, &std::env::var("PATH").unwrap()).unwrap())
    });
    report("find, known", &mut |_| {
        drop(CCompiler::search(&|_| None, &std::env::var("PATH").unwrap(), Some(&cache)).unwrap())
    });
    report("compile + load", &mut |_| {
        drop(Code::load(&cc.compile(VADD, "vadd").unwrap()).unwrap())
    });
    let object = cc.compile(VADD, "vadd").unwrap();
    report("load", &mut |_| drop(Code::load(&object).unwrap()));
    // A plan of 40 kernels, each an object of its own.
    let made = |i: usize, n: u128| CompiledObject {
        object: [&object[..], &n.to_le_bytes()].concat(),
        kernels: vec![(CacheKey(n + 1000 * i as u128), "k".into())],
    };
    let keys = |i: usize| (0..40).map(|n| CacheKey(n + 1000 * i as u128)).collect::<Vec<_>>();
    report("cache: write 40", &mut |i| {
        cache.put_programs("CPU:CLANG", &(0..40).map(|n| made(i, n)).collect::<Vec<_>>())
    });
    report("cache: write 1", &mut |i| cache.put_programs("CPU:CLANG", &[made(i + 100, 1)]));
    report("cache: look up 40", &mut |i| {
        assert!(cache.programs(&keys(i)).iter().all(Option::is_some))
    });
    report("cache: look up 40 that are not there", &mut |i| {
        assert!(cache.programs(&keys(i + 50)).iter().all(Option::is_none))
    });
}

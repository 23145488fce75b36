//! Tests of the object loader: objects of the machine's own compiler, called and compared, and
//! objects that were damaged.

use super::*;
use crate::device::host::cc::CCompiler;
use crate::device::testing::Random;

fn compile(src: &str) -> Vec<u8> {
    CCompiler::find()
        .expect("a C compiler for the tests")
        .compile(src, "test")
        .expect("the test's C compiles")
}

fn load_c(src: &str) -> Code {
    Code::load(&compile(src)).expect("the test's object loads")
}

/// Converts a symbol to a function; the caller guarantees its type.
macro_rules! function {
    ($code:expr, $name:literal, $type:ty) => {{
        let address = $code.symbol($name).expect($name);
        // SAFETY: the C text of the test defines the function with this type.
        unsafe { std::mem::transmute::<*const u8, $type>(address) }
    }};
}

const VADD: &str = "void k(float* restrict o, const float* restrict a, const float* restrict b, \
                    long n)
{ for (long i = 0; i < n; i++) o[i] = a[i] + b[i]; }\n";

/// Uses every kind of section and relocation that the compiler makes.
const RICH: &str = "
float expf(float); double sin(double); void* memset(void*, int, unsigned long); extern int optind;
static const double table[4] = {1.5, 2.5, 3.5, 4.5};
static const char* const names[3] = {\"zero\", \"one\", \"two\"};
static int counter = 40; static float scratch[1000]; int visible = 7;
float k_exp(float x) { return expf(x) + expf(x + 1); }
double k_sin(double x, int i) { return sin(x) * table[i & 3]; }
void k_memset(char* p, long n) { memset(p, 0x5a, n); }
int k_count(void) { return ++counter; }
float k_scratch(int i) { scratch[i] += 1.0f; return scratch[i]; }
int k_name(int i) { return names[i][0]; }
int* k_outside(void) { return &optind; }
double (*k_pointer(void))(double) { return sin; }
__attribute__((noinline)) static int helper(int x) { return x * 3; }
int k_switch(int i, int x) { switch (i) { case 0: return x + 1; case 1: return x * x; case 2: \
                    return helper(x); case 3: return -x;
case 4: return x ^ 21; case 5: return x << 3; case 6: return x / 3; case 7: return x % 5; case 8: \
                    return helper(x + 9); default: return 0; } }
double k_constants(double x) { return x * 3.25 + 1e-3 - x / 7.125; }
";

#[test]
fn a_vector_kernel_runs() {
    let code = load_c(VADD);
    let k = function!(code, "k", extern "C" fn(*mut f32, *const f32, *const f32, i64));
    let a: Vec<f32> = (0..1003).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..1003).map(|i| i as f32 * 0.5).collect();
    let mut o = vec![0f32; 1003];
    k(o.as_mut_ptr(), a.as_ptr(), b.as_ptr(), 1003);
    assert!(o.iter().enumerate().all(|(i, &x)| x == i as f32 * 1.5));
    assert!(code.text().len() > 20);
    assert_eq!(code.symbol("nothing"), None);
}

#[test]
fn relocations_of_every_kind_are_applied() {
    let code = load_c(RICH);
    let exp = function!(code, "k_exp", extern "C" fn(f32) -> f32);
    assert!((exp(1.0) - 1f32.exp() - 2f32.exp()).abs() < 1e-5);
    let sin = function!(code, "k_sin", extern "C" fn(f64, i32) -> f64);
    assert_eq!(sin(0.5, 2), 0.5f64.sin() * 3.5);
    let memset = function!(code, "k_memset", extern "C" fn(*mut u8, i64));
    let mut bytes = [0u8; 100];
    memset(bytes.as_mut_ptr(), 99);
    assert!(bytes[..99].iter().all(|&b| b == 0x5a) && bytes[99] == 0);
    let count = function!(code, "k_count", extern "C" fn() -> i32);
    assert_eq!((count(), count()), (41, 42));
    let scratch = function!(code, "k_scratch", extern "C" fn(i32) -> f32);
    assert_eq!((scratch(999), scratch(999), scratch(0)), (1.0, 2.0, 1.0));
    let name = function!(code, "k_name", extern "C" fn(i32) -> i32);
    assert_eq!([0, 1, 2].map(|i| name(i) as u8), *b"zot");
    let pointer = function!(code, "k_pointer", extern "C" fn() -> extern "C" fn(f64) -> f64);
    assert_eq!(pointer()(0.25), 0.25f64.sin());
    let switch = function!(code, "k_switch", extern "C" fn(i32, i32) -> i32);
    let got = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|i| switch(i, 10));
    assert_eq!(got, [11, 100, 30, -10, 10 ^ 21, 80, 3, 0, 57, 0]);
    let constants = function!(code, "k_constants", extern "C" fn(f64) -> f64);
    assert_eq!(constants(2.0), 2.0 * 3.25 + 1e-3 - 2.0 / 7.125);
    let outside = function!(code, "k_outside", extern "C" fn() -> *const i32);
    // SAFETY: asks the C library for the address of its own variable.
    let optind = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"optind".as_ptr()) };
    assert_eq!(outside().cast(), optind.cast_const());
    assert!(
        code.symbol("visible").is_some()
            && code.symbol("helper").is_none()
            && code.symbol("sin").is_none()
    );
}

/// Returns the protection of the page that holds an address, as the system tells it.
fn protection(address: *const u8) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let (from, to) =
            (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
        (from..to).contains(&(address as usize)).then(|| rest[..4].to_string())
    })
}

#[test]
fn no_page_is_writable_and_executable() {
    let code = load_c(RICH);
    assert_eq!(protection(code.symbol("k_exp").unwrap()).as_deref(), Some("r-xp"));
    assert_eq!(protection(code.symbol("visible").unwrap()).as_deref(), Some("rw-p"));
    let constant = load_c("const int table[3] = {1, 2, 3};\n");
    assert_eq!(protection(constant.symbol("table").unwrap()).as_deref(), Some("r--p"));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bad: Vec<&str> = maps
        .lines()
        .filter(|l| l.split(' ').nth(1).is_some_and(|p| p.contains('w') && p.contains('x')))
        .collect();
    assert_eq!(bad, Vec::<&str>::new());
}

#[test]
fn loading_and_dropping_leaks_nothing() {
    let object = compile(RICH);
    let lines = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let before = lines();
    (0..2000).for_each(|_| drop(Code::load(&object).unwrap()));
    // Other tests map and unmap memory concurrently; two thousand leaks exceed that noise.
    assert!(lines() < before + 500);
}

#[test]
fn damaged_objects_never_crash() {
    for src in [VADD, RICH] {
        let good = compile(src);
        let mut random = Random(2024);
        let mut refused = 0;
        for round in 0..2000 {
            let mut bad = good.clone();
            for _ in 0..=round % 3 {
                // Every second damage hits a table, where the loader looks: the head, or the
                // section headers at the end.
                let near = [64, good.len().min(1500)][round % 2];
                let at = match random.below(3) {
                    0 => random.below(near.min(64)),
                    1 => good.len() - 1 - random.below(near),
                    _ => random.below(good.len()),
                };
                bad[at] = match random.below(4) {
                    0 => bad[at] ^ 1 << random.below(8),
                    1 => 0xff,
                    2 => 0x7f,
                    _ => random.next() as u8,
                };
            }
            refused += usize::from(Code::load(&bad).is_err());
        }
        assert!(refused > 300, "only {refused} of 2000 were refused");
        for len in 0..good.len() {
            assert!(Code::load(&good[..len]).is_err(), "{len} bytes of {}", good.len());
        }
    }
}

#[test]
fn extreme_table_bytes_never_crash() {
    let good = compile(VADD);
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            let _ = Code::load(&bad);
            bad[at..].iter_mut().take(8).for_each(|b| *b = value);
            let _ = Code::load(&bad);
        }
    }
}

#[test]
fn unsupported_objects_are_errors() {
    let refused = |bytes: &[u8]| Code::load(bytes).expect_err("must be refused").to_string();
    assert!(refused(b"").contains("0 bytes are not an object file"));
    assert!(refused(&[b"\xcf\xfa\xed\xfe".as_slice(), &[0; 100]].concat()).contains("ELF"));
    let mut other = compile(VADD);
    let name = if cfg!(target_arch = "aarch64") { "x86_64" } else { "aarch64" };
    other[0x12] = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    assert!(refused(&other).contains(&format!("compiled for {name}")));
    other[0x12] = 243;
    assert!(refused(&other).contains("unsupported machine 243"));
    let c = |src: &str| refused(&compile(src));
    assert!(
        c("void not_in_any_library(void); void k(void) { not_in_any_library(); }")
            .contains("`not_in_any_library`")
    );
    assert!(c("_Thread_local int t; int k(void) { return t++; }").contains("thread-local"));
    assert!(
        c("volatile int x; __attribute__((constructor)) void k(void) { x++; }")
            .contains("constructors")
    );
    let weak = load_c(
        "__attribute__((weak)) int maybe_absent(void); int k(void) { return maybe_absent ? 1 : 2; \
         }",
    );
    assert_eq!(function!(weak, "k", extern "C" fn() -> i32)(), 2);
}

#[test]
fn threads_share_code() {
    let code = load_c(VADD);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let k = function!(code, "k", extern "C" fn(*mut f32, *const f32, *const f32, i64));
                for _ in 0..100 {
                    let (a, mut o) = ([1f32; 100], [0f32; 100]);
                    k(o.as_mut_ptr(), a.as_ptr(), a.as_ptr(), 100);
                    assert_eq!(o, [2f32; 100]);
                }
            });
        }
    });
}

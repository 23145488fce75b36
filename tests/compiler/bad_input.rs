//! Errors of users, environments and machines, with their messages. Tests that depend on the
//! environment run this binary again with other variables.

use crate::common::{TempDir, child_test};
use picograd::compile::pipeline;
use picograd::env::Config;
use picograd::{DType, Device, Result, Tensor};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

/// Asserts that the result is an error whose message contains each part.
#[track_caller]
fn says<T>(result: Result<T>, parts: &[&str]) {
    match result {
        Ok(_) => panic!("no error; expected one with {parts:?}"),
        Err(e) => has(&e.to_string(), parts),
    }
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_vec((0..n).map(|i| i as f32).collect(), shape)
}

#[test]
fn errors_name_op_and_arguments() {
    let (x, y) = (ramp(&[2, 3]), ramp(&[4, 5]));
    says(x.try_add(&y), &["add", "[2, 3]", "[4, 5]", "broadcast"]);
    says(x.try_sum(2), &["sum", "axis 2", "[2, 3]", "-2..=1"]);
    says(x.try_sum(-3), &["sum", "axis -3"]);
    says(x.try_bitwise_and(1), &["bitwise_and", "integers", "f32"]);
    says(x.to_vec::<i32>(), &["to_vec", "f32", "i32", ".cast(DType::I32)"]);
    says(x.try_cast(DType::VOID), &["cast", "void"]);
    says(x.try_reshape([4, 2]), &["reshape", "[2, 3] has 6", "[4, 2] has 8"]);
    says(x.try_i((0, 3)), &["index 3", "axis 1", "[2, 3]", "size 3"]);
    says(x.try_matmul(&x), &["matmul", "[2, 3] and [2, 3]", "3 and 2"]);
}

#[test]
fn unknown_devices_are_errors() {
    says(Device::get("abacus").map(|_| ()), &["abacus", "CPU", "INTERP", "NULL"]);
    says(
        Device::get("cpu:fortran").map(|_| ()),
        &["CPU", "fortran", "X86, LLVM, CLANG", "ARCHs are native"],
    );
    says(Device::get("cpu:llvm:z80").map(|_| ()), &["CPU has no ARCH \"z80\"", "ARCHs are native"]);
    says(
        Device::get("cuda:fermi").map(|_| ()),
        &["no renderer \"fermi\"; it has none", "native and sm_NN"],
    );
    says(
        Device::get("interp::native").map(|_| ()),
        &["INTERP has no renderer \"native\"", "it has no ARCH"],
    );
    says(Device::get("cpu:llvm:clang").map(|_| ()), &["CPU has no ARCH \"clang\""]);
    says(
        Device::get("cpu:native:llvm").map(|_| ()),
        &["unexpected part \"llvm\"", "DEVICE[:RENDERER][:ARCH][:NUMBER]"],
    );
    says(Device::get("cpu:1:2").map(|_| ()), &["\"1\""]);
    says(Device::get("cpu:").map(|_| ()), &["CPU has no renderer \"\""]);
    says(Device::get("").map(|_| ()), &["unknown device \"\"; expected "]);
    says(ramp(&[2]).try_to("abacus"), &["abacus", "CPU"]);
    let (x, y) = (ramp(&[2]), ramp(&[2]).to("INTERP"));
    if x.device() != y.device() {
        says(x.try_add(&y), &["add", "INTERP", x.device().as_str()]);
    }
}

#[test]
fn settings_errors_list_allowed_values() {
    let read = |name: &'static str, value: &'static str| {
        Config::read(&move |n| (n == name).then(|| value.to_string()))
    };
    for bad in ["8", "-1", "two", "1e3", "99999999999999999999", "💥"] {
        says(read("DEBUG", bad), &[&format!("DEBUG={bad}"), "0 to 7"]);
    }
    for name in ["NOOPT", "SPEC", "GUARD"] {
        says(read(name, "yes"), &[&format!("{name}=yes"), "0 or 1"]);
    }
    for bad in ["0", "-2", "many", "1000000"] {
        says(read("THREADS", bad), &[&format!("THREADS={bad}"), "1 to 1024"]);
    }
    let print_after = read("PRINT_AFTER", "lunch").and_then(|c| pipeline::check_print_after(&c));
    says(print_after, &["PRINT_AFTER=lunch", "plan_memory", "linearize"]);
    assert!(read("UNKNOWN", "anything").is_ok());
}

/// A request of ten terabytes is an error, and leaves no allocation behind.
#[test]
fn oversized_allocations_are_errors() {
    for device in ["INTERP", "CPU:X86", "CPU:LLVM", "CPU:CLANG"] {
        if Device::get(device).is_err() {
            continue;
        }
        let small = ramp(&[4]).to(device);
        let huge = small.i(0).reshape([1]).expand([2_500_000_000_000usize]).contiguous();
        says(huge.realize(), &["out of memory", "10000000000000 bytes"]);
        assert_eq!(
            (&small + 1.0).to_vec::<f32>().unwrap(),
            [1.0, 2.0, 3.0, 4.0],
            "on {device}, after the error"
        );
    }
    says(
        Tensor::try_zeros([1i64 << 40, 1 << 40]),
        &["zeros", "more elements than an index can count"],
    );
}

/// The output of a child process with only these variables of picograd.
fn child<K: AsRef<OsStr>>(variables: &[(K, &OsStr)]) -> String {
    outputs(variables).0
}

/// The output of such a process, and what it wrote to standard error.
fn outputs<K: AsRef<OsStr>>(variables: &[(K, &OsStr)]) -> (String, String) {
    let mut command = child_test("bad_input::child_process");
    command.env("BAD_INPUT_CHILD", "1").envs(variables.iter().map(|(k, v)| (k, v)));
    let out = command.output().unwrap();
    let (text, errors) = (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    );
    assert!(out.status.success(), "the process exited with {}:\n{text}{errors}", out.status);
    assert!(!errors.contains("panicked"), "{errors}");
    (text, errors)
}

fn text(s: &str) -> &OsStr {
    OsStr::new(s)
}

/// The body of the child processes of the other tests.
#[test]
#[ignore = "run by the tests of this file"]
fn child_process() {
    if std::env::var_os("BAD_INPUT_CHILD").is_none() {
        return;
    }
    let x = ramp(&[3]) * 2.0 + 1.0;
    match x.to_vec::<f32>() {
        Ok(v) => println!("on {}: {v:?}", x.device()),
        Err(e) => println!("error: {e}"),
    }
}

/// The compiler refuses everything. The error has its output and the path of the source.
#[test]
fn a_failing_compiler_is_reported_with_its_output() {
    let folder = TempDir::new();
    let cc = folder.0.join("cc");
    std::fs::write(
        &cc,
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'cardboard cc 1.0' && exit 0\necho 'the glue \
         is wet' >&2\nexit 1\n",
    )
    .unwrap();
    std::fs::set_permissions(&cc, std::fs::Permissions::from_mode(0o755)).unwrap();
    let cache = folder.0.join("cache");
    let said = child(&[
        ("CC", cc.as_os_str()),
        ("DEV", text("CPU:CLANG")),
        ("PICO_CACHE", cache.as_os_str()),
    ]);
    has(&said, &["error: compile", "the glue is wet", "exit code 1", "the source is kept at "]);
    let place = said.split("the source is kept at ").nth(1).and_then(|s| s.lines().next()).unwrap();
    has(&std::fs::read_to_string(place).unwrap(), &["_entry"]);
}

#[test]
fn a_missing_compiler_is_reported() {
    let folder = TempDir::new();
    let empty = folder.0.as_os_str();
    let said = child(&[("PATH", empty), ("DEV", text("CPU:CLANG"))]);
    has(&said, &["error: compile: no C compiler found", "install", "CC", "DEV=INTERP"]);
    let said = child(&[("CC", text("/no/such/compiler")), ("DEV", text("CPU:CLANG"))]);
    has(&said, &["error: compile: CC=/no/such/compiler", "there is no program", "install"]);
    let said = child(&[("PICO_LLVM", text("/no/such/library")), ("DEV", text("CPU:LLVM"))]);
    has(&said, &["error: device: PICO_LLVM=/no/such/library: ", "install", "DEV=INTERP"]);
    // A named library is never replaced by another compiler: a missing file, and files that are not
    // LLVM.
    let other = folder.0.join("not-a-library");
    std::fs::write(&other, "text").unwrap();
    for library in [text("/no/such/library"), other.as_os_str(), text("libc.so.6")] {
        for device in [None, Some("CPU")] {
            let said = child(
                &[("PICO_LLVM", library), ("DEV", text(device.unwrap_or("")))]
                    [..if device.is_some() { 2 } else { 1 }],
            );
            has(&said, &["error: device: PICO_LLVM=", "install"]);
        }
    }
    let neither = [("PATH", empty), ("PICO_LLVM", text("off"))];
    // Without both, kernels are assembled.
    has(&child(&[neither[0], neither[1], ("DEV", text("CPU"))]), &["on CPU: [1.0, 3.0, 5.0]"]);
    has(&child(&neither), &["on CPU: [1.0, 3.0, 5.0]"]);
}

/// Makes the system refuse executable pages to the process of a command, as hardened systems do: a
/// filter of system calls that fails `mprotect` with `PROT_EXEC`.
#[cfg(target_os = "linux")]
fn forbid_execution(command: &mut std::process::Command) {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};
    use libc::{SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter, sock_fprog};
    use std::os::unix::process::CommandExt;
    // The number of the system call, and the low half of its third argument.
    let (number, access) = (0, 32);
    let step = |code: u32, k, jt, jf| sock_filter { code: code as u16, jt, jf, k };
    let load = |at| step(BPF_LD | BPF_W | BPF_ABS, at, 0, 0);
    let jump = |op, k, yes, no| step(BPF_JMP | op | BPF_K, k, yes, no);
    let end = |k| step(BPF_RET | BPF_K, k, 0, 0);
    let mut filter: [sock_filter; 6] = [
        load(number),
        jump(BPF_JEQ, libc::SYS_mprotect as u32, 0, 3),
        load(access),
        jump(BPF_JSET, libc::PROT_EXEC as u32, 0, 1),
        end(SECCOMP_RET_ERRNO | libc::EACCES as u32),
        end(SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the pointers are those of a valid filter, and prctl is safe after a fork.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure calls prctl only.
    unsafe { command.pre_exec(install) };
}

#[cfg(target_os = "linux")]
#[test]
fn a_system_without_executable_pages_falls_back_to_the_interpreter() {
    let run = |device: Option<&str>| {
        let mut command = child_test("bad_input::child_process");
        command.env("BAD_INPUT_CHILD", "1").envs(device.map(|d| ("DEV", d)));
        forbid_execution(&mut command);
        let out = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&out.stdout), text(&out.stderr))
    };
    let refused = "the system does not let this process run code that it generates: ";
    let (out, errors) = run(None);
    has(&out, &["on INTERP: [1.0, 3.0, 5.0]"]);
    has(&errors, &["the default device is INTERP, which is slow: ", refused]);
    for device in ["CPU", "CPU:LLVM", "CPU:CLANG", "CPU:X86"] {
        has(&run(Some(device)).0, &["error: device: ", refused, "DEV=INTERP works"]);
    }
}

#[test]
fn invalid_environment_variables_are_reported() {
    let cases: [(&str, &str, &[&str]); 9] = [
        ("DEBUG", "9", &["environment: DEBUG=9", "0 to 7"]),
        ("NOOPT", "perhaps", &["environment: NOOPT=perhaps", "0 or 1"]),
        ("PRINT_AFTER", "lunch", &["environment: PRINT_AFTER=lunch"]),
        ("THREADS", "-1", &["environment: THREADS=-1"]),
        ("GUARD", "2", &["environment: GUARD=2"]),
        ("DEV", "ABACUS", &["device", "ABACUS", "CUDA, METAL, CPU, CL, WEBGPU, INTERP, NULL"]),
        ("DEV", ":::", &["device", "CUDA, METAL, CPU, CL, WEBGPU, INTERP, NULL"]),
        ("DEV", "CPU:FORTRAN", &["device", "FORTRAN"]),
        ("DEV", "../../etc", &["device"]),
    ];
    for (name, value, parts) in cases {
        let said = child(&[(name, text(value))]);
        has(&said, &["error: "]);
        has(&said, parts);
    }
}

/// Passes of the scheduler, the optimizer, lowering and the renderer are printed by one runner.
#[test]
fn print_after_prints_any_pass() {
    let after =
        |pass: &str, device: &str| outputs(&[("PRINT_AFTER", text(pass)), ("DEV", text(device))]).1;
    for pass in ["build_kernels", "choose_opts", "linearize"] {
        has(&after(pass, "INTERP"), &[&format!("; after {pass}\n"), "Store"]);
    }
    if Device::get("CPU:CLANG").is_ok() {
        has(&after("render", "CPU:CLANG"), &["; after render\n", "void"]);
    }
}

#[test]
fn malformed_environment_values_are_errors() {
    let long = "x".repeat(100_000);
    let noise = OsStr::from_bytes(b"\xff\xfe\x80");
    let works = |name: &str, value: &OsStr| {
        has(&child(&[(name, value), ("DEV", text("INTERP"))][..]), &["on INTERP: [1.0, 3.0, 5.0]"])
    };
    works("PICO_CACHE", text("/dev/null/below"));
    works("PICO_CACHE", text(&long));
    works("NO_COLOR", noise);
    works("CC", text("rm -rf"));
    // Each of these is an error or has no effect, never a panic or an abort.
    for name in ["DEBUG", "DEV", "NOOPT", "PRINT_AFTER", "THREADS", "GUARD", "PICO_CACHE"] {
        child(&[(name, noise)]);
    }
    child(&[("DEV", text(&long))]);
    child(&[("DEV", text("CPU:99999999999999999999999999"))]);
}

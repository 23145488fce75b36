//! A process that measures workloads on request: a reference kernel or a peer.
//!
//! A request is a line `NAME SECONDS`. The answer is a line of JSON with the milliseconds of the
//! fastest repetition, `{"name":"sum_16M","ms":1.5}`, or with an error. The first line of a Python
//! worker says what it is: `{"peer":"torch 2.15.0"}`.
//!
//! **Invariant:** a worker runs only between a request and its answer. In between its process is
//! stopped, because threads of some libraries spin for a while after their work.

use picograd::compiler::target::Target;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The peers that `benches/peers/peers.py serve` measures.
pub const PEERS: [&str; 4] = ["torch", "jax", "onnxruntime", "numpy"];

/// A worker and its two pipes.
pub struct Worker {
    pub name: String,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    pub fn start(name: &str, mut command: Command) -> Result<Worker, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let requests = requests.expect("stdin is piped");
        let answers = BufReader::new(answers.expect("stdout is piped"));
        Ok(Worker { name: name.to_string(), child, requests, answers })
    }
    /// Returns the time of the fastest repetition of a workload within this time.
    pub fn seconds(&mut self, workload: &str, time: Duration) -> Result<f64, String> {
        self.signal(libc::SIGCONT);
        let result = self.ask(workload, time);
        self.signal(libc::SIGSTOP);
        result
    }
    fn ask(&mut self, workload: &str, time: Duration) -> Result<f64, String> {
        writeln!(self.requests, "{workload} {}", time.as_secs_f64())
            .and_then(|()| self.requests.flush())
            .map_err(|_| "the worker has ended".to_string())?;
        let answer = self.answer()?;
        match field(&answer, "ms").and_then(|ms| ms.parse::<f64>().ok()) {
            Some(ms) => Ok(ms / 1e3),
            None => Err(field(&answer, "error").unwrap_or(answer)),
        }
    }
    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the call has no memory operands, and the child has not been waited for, so that
        // its number is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }
    /// Reads the next line of JSON; libraries may print other lines.
    fn answer(&mut self) -> Result<String, String> {
        loop {
            let mut line = String::new();
            match self.answers.read_line(&mut line) {
                Ok(0) | Err(_) => return Err("the worker has ended".into()),
                Ok(_) if line.starts_with('{') => return Ok(line.trim_end().to_string()),
                Ok(_) => {}
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a peer in a Python, with the threads of a target and held to its vectors.
pub fn peer(python: Option<&str>, name: &str, target: &Target) -> Result<Worker, String> {
    let python = python.ok_or("no Python is given (--peer PYTHON)")?;
    let avx2 = target.vector_bytes < 64;
    if avx2 && name == "onnxruntime" {
        return Err("it cannot be held to AVX2".into());
    }
    let mut command = Command::new(python);
    command.args([
        "benches/peers/peers.py",
        "serve",
        name,
        &picograd::device::host::pool::threads().to_string(),
    ]);
    command.envs(if avx2 { AVX2 } else { &[] }.iter().copied());
    let mut worker = Worker::start(name, command)?;
    let hello = worker.answer()?;
    match field(&hello, "peer") {
        Some(version) => worker.name = version,
        None => return Err(field(&hello, "error").unwrap_or(hello)),
    }
    worker.signal(libc::SIGSTOP);
    Ok(worker)
}

/// Variables that hold PyTorch (ATen, oneDNN, MKL), NumPy (its loops, OpenBLAS) and JAX (XLA) to
/// AVX2.
const AVX2: &[(&str, &str)] = &[
    ("ATEN_CPU_CAPABILITY", "avx2"),
    ("ONEDNN_MAX_CPU_ISA", "AVX2"),
    ("MKL_ENABLE_INSTRUCTIONS", "AVX2"),
    ("OPENBLAS_CORETYPE", "Haswell"),
    ("NPY_DISABLE_CPU_FEATURES", "X86_V4 AVX512_ICL AVX512_SPR"),
    ("XLA_FLAGS", "--xla_cpu_max_isa=AVX2"),
];

/// Returns the reason why llama.cpp has no column.
pub fn llama() -> String {
    let installed = Command::new("llama-bench").arg("--version").output().is_ok();
    let reason = if installed {
        "no workload has the dtypes of its files yet"
    } else {
        "llama-bench is not installed"
    };
    reason.to_string()
}

/// Returns the value of a field of one line of flat JSON, without quotes.
fn field(line: &str, name: &str) -> Option<String> {
    let rest = line.split_once(&format!("\"{name}\":"))?.1.trim_start();
    Some(match rest.strip_prefix('"') {
        Some(text) => text.split('"').next()?.to_string(),
        None => rest.split([',', '}']).next()?.trim().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_numbers_or_texts() {
        let line = r#"{"name": "sum_16M", "ms": 1.25, "peer":"torch 2.15"}"#;
        assert_eq!(field(line, "ms").as_deref(), Some("1.25"));
        assert_eq!(field(line, "name").as_deref(), Some("sum_16M"));
        assert_eq!(field(line, "peer").as_deref(), Some("torch 2.15"));
        assert_eq!(field(line, "error"), None);
        assert_eq!(field(r#"{"ms":2}"#, "ms").as_deref(), Some("2"));
    }

    #[cfg(unix)]
    #[test]
    fn workers_answer_and_their_errors_are_reported() {
        let script =
            r#"read a; echo noise; echo '{"name":"x","ms":4}'; read a; echo '{"error":"no"}'"#;
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut worker = Worker::start("sh", command).unwrap();
        worker.signal(libc::SIGSTOP);
        assert_eq!(worker.seconds("x", Duration::ZERO), Ok(0.004));
        assert_eq!(worker.seconds("x", Duration::ZERO), Err("no".to_string()));
        assert_eq!(worker.seconds("x", Duration::ZERO), Err("the worker has ended".to_string()));
    }
}

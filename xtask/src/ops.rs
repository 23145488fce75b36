//! `cargo xtask bench ops`: latency of single ops and their gradients, from building the graph to
//! the result in memory, at three sizes each. With `--peer PYTHON` a second process measures
//! PyTorch (`benches/peers/peers.py ops`) on the same inputs, alternating by case, so that other
//! load affects both. Prints one line of JSON per case, then a summary: the median ratio, the
//! worst, and every case above [`LIMIT`].

use crate::bench::Figure;
use crate::op_cases::{self, Case, Input};
use picograd::{Device, Result, Tensor};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The ratio to the peer above which a case is listed by name.
const LIMIT: f64 = 2.0;

/// Alternations of picograd and the peer per case. The best of each counts.
const ROUNDS: usize = 2;

/// The options of the command line.
pub struct Options<'a> {
    /// Measures each case for a shorter time.
    pub quick: bool,
    /// Prints the cases as the peer reads them, and measures nothing.
    pub list: bool,
    /// Runs only the fixed sample of 40 cases at their largest size.
    pub sample: bool,
    /// The Python that has PyTorch.
    pub peer: Option<&'a str>,
    /// Parts of names; all cases if there are none.
    pub wanted: Vec<&'a str>,
}

impl<'a> Options<'a> {
    /// Reads the words after `bench ops`. `None` if one of them is not known.
    pub fn parse(words: &[&'a str]) -> Option<Options<'a>> {
        let mut options =
            Options { quick: false, list: false, sample: false, peer: None, wanted: vec![] };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--quick" => options.quick = true,
                "--list" => options.list = true,
                "--sample" => options.sample = true,
                "--peer" => options.peer = Some(words.next()?),
                _ if word.starts_with('-') => return None,
                _ => options.wanted.push(word),
            }
        }
        Some(options)
    }
}

/// One measurement: a case at a size, with or without its gradient.
struct Job<'a> {
    case: &'a Case,
    size: usize,
    gradient: bool,
}

impl Job<'_> {
    fn name(&self) -> String {
        let gradient = if self.gradient { ".grad" } else { "" };
        format!("{}{gradient}@{}", self.case.name, self.size)
    }
    /// Returns the request to the peer.
    fn request(&self, seconds: f64) -> String {
        let inputs: Vec<String> =
            (self.case.inputs)(self.size).iter().map(Input::as_json).collect();
        format!(
            "{{\"name\":\"{}\",\"op\":\"{}\",\"size\":{},\"gradient\":{},\"seconds\":{seconds},\"\
             inputs\":[{}]}}",
            self.name(),
            self.case.name,
            self.size,
            self.gradient,
            inputs.join(",")
        )
    }
}

/// Runs the cases that the options ask for.
pub fn figures(options: &Options) -> Result<()> {
    let all = op_cases::all();
    let jobs = jobs(&all, options);
    let time = Duration::from_millis(if options.quick { 30 } else { 150 });
    if options.list {
        jobs.iter().for_each(|j| println!("{}", j.request(time.as_secs_f64())));
        return Ok(());
    }
    let device = Device::default()?;
    eprintln!("{}: {}; {} cases", device.name(), device.describe(), jobs.len());
    let mut peer = match options.peer.map(Peer::start).transpose() {
        Ok(peer) => peer,
        Err(e) => {
            eprintln!("xtask: failed to start the peer: {e}");
            None
        }
    };
    let mut ratios: Vec<(f64, String)> = Vec::new();
    for job in &jobs {
        let name = job.name();
        let mut work = match prepare(job.case, job.size, job.gradient) {
            Ok(work) => work,
            Err(e) => {
                println!("{{\"suite\":\"ops\",\"name\":\"{name}\",\"error\":\"{e}\"}}");
                continue;
            }
        };
        let start = Instant::now();
        if let Err(e) = work() {
            println!("{{\"suite\":\"ops\",\"name\":\"{name}\",\"error\":\"{e}\"}}");
            continue;
        }
        device.synchronize()?;
        let first = start.elapsed();
        let (mut ours, mut theirs) = (Duration::MAX, f64::INFINITY);
        for _ in 0..ROUNDS {
            ours = ours.min(best(&device, time, &mut work)?);
            if let Some(peer) = &mut peer {
                theirs = theirs.min(peer.ask(&job.request(time.as_secs_f64())));
            }
        }
        let us = ours.as_secs_f64() * 1e6;
        let figure =
            Figure::in_suite("ops", &name, us, "us").with("first_ms", first.as_secs_f64() * 1e3);
        if theirs.is_finite() {
            ratios.push((us / theirs, name));
            figure.peer("torch", theirs).print();
        } else {
            figure.print();
        }
    }
    summarize(ratios);
    Ok(())
}

fn jobs<'a>(all: &'a [Case], options: &Options) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for case in all.iter().filter(|c| !options.sample || c.sampled) {
        let sizes = if options.sample { &case.sizes[2..] } else { &case.sizes[..] };
        for gradient in [false, true] {
            if gradient && !case.gradient {
                continue;
            }
            jobs.extend(sizes.iter().map(|&size| Job { case, size, gradient }));
        }
    }
    let wanted = &options.wanted;
    jobs.retain(|j| wanted.is_empty() || wanted.iter().any(|w| j.name().contains(w)));
    jobs
}

/// Creates the inputs of a case at a size and returns a function that runs it once.
pub fn prepare(
    case: &Case,
    size: usize,
    gradient: bool,
) -> Result<impl FnMut() -> Result<()> + use<>> {
    let run = case.run;
    let parameters = (case.parameters)();
    let mut inputs =
        (case.inputs)(size).iter().map(Input::tensor).collect::<Result<Vec<Tensor>>>()?;
    if gradient {
        inputs = inputs
            .into_iter()
            .map(|t| if t.is_floating_point() { t.as_param() } else { t })
            .collect();
    }
    Ok(move || {
        let outputs = run(&inputs)?;
        if !gradient {
            return Tensor::realize_many(&outputs.iter().collect::<Vec<_>>());
        }
        let mut loss: Option<Tensor> = None;
        for out in outputs.iter().filter(|t| t.is_floating_point()) {
            let sum = out.try_sum(..)?;
            loss = Some(loss.map_or(sum.clone(), |l| l + sum));
        }
        let targets: Vec<&Tensor> =
            inputs.iter().filter(|t| t.is_param()).chain(&parameters).collect();
        let loss = loss.expect("a case with a gradient has an output of floats");
        let gradients = loss.try_gradient(&targets)?;
        Tensor::realize_many(&gradients.iter().collect::<Vec<_>>())
    })
}

fn best(device: &Device, time: Duration, f: &mut impl FnMut() -> Result<()>) -> Result<Duration> {
    let (begin, mut best, mut runs) = (Instant::now(), Duration::MAX, 0);
    while runs < 2 || (begin.elapsed() < time && runs < 1000) {
        let start = Instant::now();
        f()?;
        device.synchronize()?;
        best = best.min(start.elapsed());
        runs += 1;
    }
    Ok(best)
}

fn summarize(mut ratios: Vec<(f64, String)>) {
    if ratios.is_empty() {
        return;
    }
    ratios.sort_by(|a, b| b.0.total_cmp(&a.0));
    let median = ratios[ratios.len() / 2].0;
    println!(
        "cases {}, median ratio {median:.2}, worst {:.1} ({})",
        ratios.len(),
        ratios[0].0,
        ratios[0].1
    );
    let over = ratios.iter().take_while(|r| r.0 > LIMIT).count();
    println!("{over} above {LIMIT}:");
    ratios[..over].iter().for_each(|(ratio, name)| println!("{ratio:8.1}  {name}"));
}

/// The process that measures PyTorch, and its two pipes.
struct Peer {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn start(python: &str) -> std::io::Result<Peer> {
        let mut child = Command::new(python)
            .args(["benches/peers/peers.py", "ops"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let requests = requests.expect("stdin is piped");
        let answers = BufReader::new(answers.expect("stdout is piped"));
        Ok(Peer { child, requests, answers })
    }
    /// Microseconds of the peer; infinite if it does not have the op.
    fn ask(&mut self, request: &str) -> f64 {
        let mut answer = String::new();
        let asked = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        if asked.and_then(|()| self.answers.read_line(&mut answer)).is_err() {
            return f64::INFINITY;
        }
        let value = answer.split("\"value\":").nth(1).and_then(|rest| rest.split(',').next());
        value.and_then(|v| v.trim().parse().ok()).unwrap_or(f64::INFINITY)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

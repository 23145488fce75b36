//! `PROFILE`: processes that train briefly, and their traces.

use crate::common::TempDir;
use picograd::nn::optim::{Adam, Optimizer};
use picograd::nn::{Layer, Linear, Module, ReLU};
use picograd::tensor::Reduction;
use picograd::{Device, Jit, Result, Tensor, profile, seq};
use std::path::Path;
use std::process::{Command, Output};

/// JSON as a tree.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Null,
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    fn parse(text: &str) -> Json {
        let mut rest = text;
        let value = Json::value(&mut rest);
        assert!(rest.trim().is_empty(), "more after the end: {rest:.40}");
        value
    }

    /// Consumes a letter if it is next.
    fn take(rest: &mut &str, letter: char) -> bool {
        let next = rest.trim_start().strip_prefix(letter);
        *rest = next.unwrap_or(rest.trim_start());
        next.is_some()
    }

    fn value(rest: &mut &str) -> Json {
        if Json::take(rest, '{') {
            let mut pairs = Vec::new();
            while !Json::take(rest, '}') {
                assert!(pairs.is_empty() || Json::take(rest, ','), "a comma before {rest:.40}");
                let Json::Text(name) = Json::value(rest) else {
                    panic!("a name before {rest:.40}")
                };
                assert!(Json::take(rest, ':'), "a colon before {rest:.40}");
                pairs.push((name, Json::value(rest)));
            }
            return Json::Object(pairs);
        }
        if Json::take(rest, '[') {
            let mut list = Vec::new();
            while !Json::take(rest, ']') {
                assert!(list.is_empty() || Json::take(rest, ','), "a comma before {rest:.40}");
                list.push(Json::value(rest));
            }
            return Json::List(list);
        }
        if Json::take(rest, '"') {
            let end = rest.find('"').expect("the end of a text");
            let text = rest[..end].to_string();
            assert!(!text.contains('\\'), "the names here need no escapes: {text}");
            *rest = &rest[end + 1..];
            return Json::Text(text);
        }
        let end = rest.find([',', '}', ']']).expect("the end of a value");
        let word = rest[..end].trim();
        *rest = &rest[end..];
        if word == "null" {
            Json::Null
        } else {
            Json::Number(word.parse().unwrap_or_else(|_| panic!("{word} is not a number")))
        }
    }

    fn get(&self, name: &str) -> &Json {
        let Json::Object(pairs) = self else { panic!("{self:?} is not an object") };
        pairs.iter().find(|p| p.0 == name).map_or(&Json::Null, |p| &p.1)
    }
    fn number(&self, name: &str) -> f64 {
        let Json::Number(n) = self.get(name) else { panic!("{name} of {self:?} is not a number") };
        *n
    }
    fn text(&self, name: &str) -> &str {
        let Json::Text(text) = self.get(name) else { panic!("{name} of {self:?} is not a string") };
        text
    }
}

/// The events of a trace file.
struct Trace(Vec<Json>);

impl Trace {
    fn read(path: &Path) -> Trace {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let Json::List(events) = Json::parse(&text).get("traceEvents").clone() else {
            panic!("no events in {text:.200}")
        };
        Trace(events)
    }
    /// The process id of a track.
    fn process(&self, name: &str) -> f64 {
        let is_it = |e: &&Json| {
            e.text("ph") == "M"
                && e.text("name") == "process_name"
                && e.get("args").text("name") == name
        };
        self.0.iter().find(is_it).unwrap_or_else(|| panic!("no process {name}")).number("pid")
    }
    /// The spans of one kind in a process, in order.
    fn spans(&self, process: &str, kind: &str) -> Vec<&Json> {
        let pid = self.process(process);
        self.0
            .iter()
            .filter(|e| e.text("ph") == "X" && e.number("pid") == pid && e.text("cat") == kind)
            .collect()
    }
}

/// Trains for a few captured steps, and copies to another device and back.
fn train() -> Result<()> {
    let net = seq![Linear::new(4, 16), ReLU, Linear::new(16, 2)];
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(0.01))?;
    let mut step = Jit::new(|(x, y): (Tensor, Tensor)| {
        let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
        loss.backward();
        optimizer.step()?;
        Ok(loss)
    });
    for i in 0..6 {
        let x =
            Tensor::from_vec((0..32).map(|k| ((i + k) as f32).sin()).collect::<Vec<_>>(), [8, 4]);
        let loss = step.call((x, Tensor::zeros([8, 2])))?;
        assert!(loss.item::<f32>()?.is_finite());
    }
    let other = std::thread::Builder::new()
        .name("a worker".into())
        .spawn(|| Tensor::arange(0, 5, 1).to_vec::<i32>())
        .unwrap();
    assert_eq!(other.join().unwrap()?, [0, 1, 2, 3, 4]);
    let there = net.parameters()[0].to("interp").realize()?;
    assert!((&there * 2.0).to_vec::<f32>()?.iter().all(|x| x.is_finite()));
    Ok(())
}

/// The body of the child processes of the tests below.
#[test]
fn child_process() {
    let Ok(kind) = std::env::var("PICO_TEST_KIND") else { return };
    match kind.as_str() {
        "beam" => {
            let x = Tensor::full([32, 32], 0.5f32).contiguous().realize().unwrap();
            assert_eq!(x.matmul(&x).to_vec::<f32>().unwrap()[0], 8.0);
        }
        _ => train().unwrap(),
    }
    for device in Device::opened() {
        let c = device.counters();
        println!(
            "device {} kernels {} copies {} nanos {} peak {}",
            device.name(),
            c.kernels,
            c.copies,
            c.time.as_nanos(),
            device.memory().peak
        );
    }
    println!(
        "plans {} hits {}",
        picograd::device::counters().schedules,
        picograd::device::counters().schedule_hits
    );
    match kind.as_str() {
        "exit" => std::process::exit(3),
        "panic" => panic!("the program panics"),
        "write" => profile::write("written.json").unwrap(),
        "elsewhere" => std::env::set_current_dir(std::env::temp_dir()).unwrap(),
        _ => {}
    }
}

fn process(folder: &TempDir, kind: &str, profile: &str) -> (Output, String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for v in picograd::env::VARIABLES {
        command.env_remove(v.name);
    }
    let args = ["--exact", "profile::child_process", "--nocapture", "--test-threads=1"];
    command
        .args(args)
        .current_dir(&folder.0)
        .envs([("PICO_TEST_KIND", kind), ("PROFILE", profile)])
        .env("PICO_CACHE", folder.file("cache"));
    if kind == "beam" {
        command.envs([("BEAM", "2"), ("BEAM_SECONDS", "1")]);
    }
    let out = command.output().unwrap();
    let (text, errors) = (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    );
    (out, text, errors)
}

/// The numbers of the line with this start.
fn numbers(text: &str, start: &str) -> Vec<f64> {
    let line = text
        .lines()
        .find_map(|l| l.split_once(start))
        .unwrap_or_else(|| panic!("no {start} in {text}"))
        .1;
    line.split(' ').filter_map(|w| w.parse().ok()).collect()
}

#[test]
fn a_trace_has_all_kernels_and_copies() {
    let folder = TempDir::new();
    let (out, text, errors) = process(&folder, "", "a trace.json");
    assert!(out.status.success(), "{text}{errors}");
    assert!(
        errors.contains("picograd: PROFILE: wrote ")
            && errors.contains("a trace.json; open it at https://ui.perfetto.dev"),
        "{errors}"
    );
    let trace = Trace::read(&folder.file("a trace.json"));
    let device = Device::default_name();
    let mut ends: Vec<(String, f64, f64)> = Vec::new();
    for name in [device.as_str(), "INTERP"] {
        let [kernels, copies, nanos, peak] = numbers(&text, &format!("device {name} "))[..] else {
            panic!("{text}")
        };
        let list = trace.spans(name, "kernel");
        assert!(
            kernels >= 1.0 && list.len() as f64 == kernels,
            "{} of {kernels} kernels on {name}",
            list.len()
        );
        assert_eq!(trace.spans(name, "copy").len() as f64, copies, "copies to {name}");
        // They do not overlap, and their total equals the counters, up to the digits of the file.
        let mut end = 0.0;
        for k in &list {
            assert!(k.number("ts") >= end - 1e-3, "{k:?} begins before {end}");
            end = k.number("ts") + k.number("dur");
            let args = k.get("args");
            assert!(
                args.number("bytes") > 0.0
                    && args.number("flops") >= 0.0
                    && args.number("chunks") >= 1.0
                    && args.number("GB/s") >= 0.0
            );
            assert!(
                ["grid", "local"].iter().all(|size| args
                    .text(size)
                    .split(" × ")
                    .filter_map(|n| n.parse::<u32>().ok())
                    .count()
                    == 3),
                "{k:?}"
            );
        }
        let took: f64 = list.iter().map(|k| k.number("dur")).sum();
        assert!(
            (took - nanos / 1e3).abs() <= 1e-3 * kernels + nanos * 1e-6,
            "{took} us, but the counters have {nanos} ns"
        );
        // Memory rises to the peak and falls again.
        let pid = trace.process(name);
        let memory: Vec<f64> = trace
            .0
            .iter()
            .filter(|e| e.text("ph") == "C" && e.number("pid") == pid)
            .map(|e| e.get("args").number("live"))
            .collect();
        assert_eq!(memory.iter().copied().fold(0.0, f64::max), peak, "the peak of {name}");
        assert!(memory.last().is_some_and(|last| *last < peak), "{memory:?}");
        ends.extend(list.iter().map(|k| (k.text("name").to_string(), k.number("ts"), end)));
    }
    // A kernel is lowered and compiled before its first launch.
    let host = trace.spans("host", "host");
    let said = |e: &Json, part: &str| e.text("name") == part;
    for (name, start, _) in &ends {
        let ready = |e: &&&Json| {
            let kernels = if let Json::Text(names) = e.get("args").get("kernels") {
                names.as_str()
            } else {
                ""
            };
            e.text("name") == format!("compile {name}") || kernels.split(", ").any(|n| n == name)
        };
        let ready = host.iter().find(ready).unwrap_or_else(|| panic!("{name} was compiled"));
        assert!(
            ready.number("ts") + ready.number("dur") <= *start,
            "{name} ran before it was compiled"
        );
        let lowered = host
            .iter()
            .find(|e| said(e, &format!("lower {name}")))
            .unwrap_or_else(|| panic!("{name} was lowered"));
        assert!(lowered.number("ts") + lowered.number("dur") <= ready.number("ts") + 1e-3);
    }
    // The captured step: a call, a capture and four replays, each with kernels of the device.
    let count = |name: &str| host.iter().filter(|e| said(e, name)).count();
    assert_eq!((count("call"), count("capture"), count("replay")), (1, 1, 4));
    let kernels = trace.spans(device.as_str(), "kernel");
    for replay in host.iter().filter(|e| said(e, "replay")) {
        let (from, to) = (replay.number("ts"), replay.number("ts") + replay.number("dur"));
        let inside = kernels
            .iter()
            .filter(|k| k.number("ts") >= from && k.number("ts") + k.number("dur") <= to + 1e-3)
            .count();
        assert!(
            inside as f64 >= replay.get("args").number("steps") && inside > 1,
            "{inside} kernels inside of {replay:?}"
        );
    }
    let [plans, hits] = numbers(&text, "plans ")[..] else { panic!("{text}") };
    let schedules: Vec<&&Json> = host.iter().filter(|e| said(e, "schedule")).collect();
    let hit = schedules.iter().filter(|e| e.get("args").text("cache") == "hit").count();
    assert_eq!((schedules.len() as f64, hit as f64), (plans, hits));
    assert!(
        count("realize") > 0
            && count("run") > 0
            && count("read") >= 6
            && count("copy") >= 1
            && count("open INTERP") == 1
    );
    // Each thread has a track under its name.
    let names: Vec<&str> = trace
        .0
        .iter()
        .filter(|e| e.text("name") == "thread_name")
        .map(|e| e.get("args").text("name"))
        .collect();
    assert!(
        names.contains(&"kernels")
            && names.contains(&"copies")
            && names.contains(&"a worker")
            && names.len() >= 4,
        "{names:?}"
    );
}

/// The timed kernels of a beam search are not kernels of the program.
#[test]
fn a_search_is_one_span() {
    let folder = TempDir::new();
    let (out, text, errors) = process(&folder, "beam", "1");
    assert!(out.status.success(), "{text}{errors}");
    let (trace, device) =
        (Trace::read(&folder.file("picograd.trace.json")), Device::default_name());
    let [kernels, ..] = numbers(&text, &format!("device {device} "))[..] else { panic!("{text}") };
    assert_eq!(trace.spans(device.as_str(), "kernel").len() as f64, kernels);
    let host = trace.spans("host", "host");
    let searches: Vec<&&Json> =
        host.iter().filter(|e| e.text("name").starts_with("search r_")).collect();
    assert!(
        searches.len() == 1 && searches[0].get("args").number("programs") > 1.0,
        "{searches:?}"
    );
}

/// A process that ends without a signal writes its trace, and `profile::write` writes one earlier.
#[test]
fn every_exit_writes_the_trace() {
    let folder = TempDir::new();
    for (kind, code, file) in [
        ("exit", 3, "picograd.trace.json"),
        ("panic", 101, "picograd.trace.json"),
        ("elsewhere", 0, "picograd.trace.json"),
    ] {
        let (out, text, errors) = process(&folder, kind, "1");
        assert_eq!(out.status.code(), Some(code), "{text}{errors}");
        assert!(!Trace::read(&folder.file(file)).spans("host", "host").is_empty());
        std::fs::remove_file(folder.file(file)).unwrap();
    }
    let (out, text, errors) = process(&folder, "write", "at_the_end.json");
    assert!(out.status.success(), "{text}{errors}");
    let [first, second] =
        ["written.json", "at_the_end.json"].map(|file| Trace::read(&folder.file(file)).0.len());
    assert!(first > 0 && second >= first, "{first} events on request, {second} at the end");
    // Without `PROFILE` nothing is recorded, and there is no file.
    let (out, _, errors) = process(&folder, "write", "0");
    assert!(!out.status.success() && errors.contains("run the program with PROFILE=1"), "{errors}");
    assert!(!folder.file("picograd.trace.json").exists());
}

/// An unwritable path is reported at the start, and the program continues.
#[test]
fn unwritable_paths_fail_early() {
    let folder = TempDir::new();
    std::fs::create_dir(folder.file("folder.json")).unwrap();
    for (place, why) in
        [("no/such/folder/trace.json", "No such file"), ("folder.json", "it is a folder")]
    {
        let (out, text, errors) = process(&folder, "", place);
        assert!(out.status.success() && text.contains("plans "), "{text}{errors}");
        let line = errors
            .lines()
            .find(|l| l.contains("PROFILE"))
            .unwrap_or_else(|| panic!("no message: {errors}"));
        assert!(
            line.contains(place) && line.contains("cannot be written: ") && line.contains(why),
            "{line}"
        );
        assert!(line.ends_with("nothing is recorded") && !errors.contains("events"), "{errors}");
    }
    let (out, _, errors) = process(&folder, "", "yes");
    assert!(
        !out.status.success()
            && errors.contains("PROFILE=yes: expected 0, 1 or a file that ends in .json"),
        "{errors}"
    );
}

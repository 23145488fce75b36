//! Runs cases: schedules, optimises, compiles and runs each in several setups, and compares with
//! what is expected.
//!
//! What the C compiler makes is also compared with the interpreter on the very same program, bit by
//! bit. Many cases are run together, so that one start of the C compiler serves a hundred kernels.

use super::bounds::{Bound, Traced};
use super::case::Case;
use super::devices::{beside, devices, is_slow};
use super::rng::Rng;
use crate::compile::{Compiled, compile_programs};
use crate::device::interp::{Interp, Options};
use crate::device::{Buffer, Device, Memory, Purpose, interp};
use crate::dtype::Const;
use crate::error::Error;
use crate::exec::{BufferArg, ExecItem, ScheduleItem, Scheduled};
use crate::heuristic;
use crate::ir::{Arg, AxisKind, Op, StorageRef, UOp, toposort};
use crate::kernel::extent;
use crate::lower::Program;
use crate::opt::{Kernel, Opt, OptOp};
use crate::reference::Value;
use crate::schedule::Request;
use crate::target::Target;
use crate::{compile, exec, verify};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::{Arc, Once};

/// How the kernels of a case are optimised.
#[derive(Clone, Debug, PartialEq)]
pub enum Choose {
    /// By the heuristic.
    Default,
    /// Not at all.
    Nothing,
    /// By chance: up to six that apply, from this seed.
    Random(u64),
    /// These, kernel by kernel.
    Given(Vec<Vec<Opt>>),
}

/// Where and how a case is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The device.
    pub device: &'static str,
    /// The optimisations.
    pub choose: Choose,
    /// May outputs take over the memory of inputs, as an assignment lets them?
    pub in_place: bool,
    /// Is the C compiler told to take less time over it?
    pub quick: bool,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.device)?;
        if self.in_place {
            f.write_str("in place ")?;
        }
        if self.quick {
            f.write_str("compiled quickly ")?;
        }
        match &self.choose {
            Choose::Default => f.write_str("with the heuristic"),
            Choose::Nothing => f.write_str("without optimisations"),
            Choose::Random(seed) => write!(f, "with random optimisations of seed {seed}"),
            Choose::Given(kernels) => {
                f.write_str("with")?;
                for (i, opts) in kernels.iter().enumerate() {
                    let opts: Vec<String> = opts.iter().map(|o| o.to_string()).collect();
                    write!(f, " kernel {i}: [{}]", opts.join(" "))?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Setup {
    type Err = Error;
    /// What `Display` prints, with whatever stands before the name of the device.
    fn from_str(text: &str) -> Result<Setup, Error> {
        let bad = || Error::Parse {
            line: 1,
            msg: format!("{text:?} is not a setup, as in `CPU with kernel 0: [UPCAST:0:4]`"),
        };
        let named = |d: &&&str| text.split_whitespace().any(|w| w == **d);
        let device = *["INTERP", "CPU", "CPU:CLANG", "CPU:LLVM"]
            .iter()
            .chain(devices())
            .find(named)
            .ok_or_else(bad)?;
        let choose = if text.contains("with the heuristic") {
            Choose::Default
        } else if text.contains("without optimisations") {
            Choose::Nothing
        } else if let Some((_, seed)) = text.split_once("of seed ") {
            Choose::Random(seed.trim().parse().map_err(|_| bad())?)
        } else {
            let kernels = text.split("kernel ").skip(1).map(|k| {
                let list =
                    k.split_once('[').and_then(|(_, rest)| rest.split_once(']')).ok_or_else(bad)?.0;
                list.split_whitespace().map(str::parse).collect()
            });
            Choose::Given(kernels.collect::<Result<_, Error>>()?)
        };
        Ok(Setup {
            device,
            choose,
            in_place: text.contains("in place"),
            quick: text.contains("compiled quickly"),
        })
    }
}

/// The setups that every case is run in; a slow device gets one of them, by turns.
pub fn setups(seed: u64) -> Vec<Setup> {
    let mut list = Vec::new();
    for &device in devices() {
        // The C compiler takes most of the time, so where LLVM is it gets every fourth case, unless
        // it is asked for.
        if device == "CPU:CLANG" && devices().contains(&"CPU:LLVM") && seed % 8 > 1 {
            continue;
        }
        let all = [Choose::Default, Choose::Nothing, Choose::Random(seed)];
        let turn = (seed / 2 % 3) as usize;
        for choose in if is_slow(device) { &all[turn..=turn] } else { &all[..] } {
            let choose = choose.clone();
            // Half of the random ones may write over their inputs.
            let in_place = seed % 2 == 1 && matches!(choose, Choose::Random(_));
            // What a C compiler makes of every fourth pair of cases is what users run; of the
            // others it is made in less time.
            let quick = !(seed / 2).is_multiple_of(4) && matches!(device, "CPU" | "CPU:CLANG");
            list.push(Setup { device, choose, in_place, quick });
        }
    }
    list
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The compiler panicked, or something returned an error.
    Broke(String),
    /// An answer is not among the right ones: which output and element, and what was expected and
    /// came.
    Wrong {
        /// The output.
        output: usize,
        /// The element.
        element: usize,
        /// What was expected and what came.
        what: String,
    },
    /// The interpreter and the compiled code have different answers for the same programs.
    Differs {
        /// The output.
        output: usize,
        /// The element.
        element: usize,
        /// The two answers.
        what: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Broke(message) => f.write_str(message),
            Failure::Wrong { output, element, what } => {
                write!(f, "output {output}, element {element}: {what}")
            }
            Failure::Differs { output, element, what } => {
                write!(f, "output {output}, element {element}: {what}")
            }
        }
    }
}

impl Failure {
    /// Failures of one kind likely have one cause.
    pub fn kind(&self) -> String {
        match self {
            // Numbers and nodes differ from case to case.
            Failure::Broke(m) => m
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .filter(|c| !c.is_ascii_digit())
                .take(60)
                .collect(),
            Failure::Wrong { .. } => "wrong".into(),
            Failure::Differs { .. } => "differs".into(),
        }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Broke(e.to_string())
    }
}

type Outcome<T> = Result<T, Failure>;

thread_local! {
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs `f`; a panic becomes a failure and prints nothing.
fn guarded<T>(f: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.with_borrow(|q| *q) {
                return before(info);
            }
            let place =
                info.location().map_or(String::new(), |l| format!("{}:{}: ", l.file(), l.line()));
            let payload = info.payload();
            let message = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()));
            CAUGHT.set(Some(place + &message.unwrap_or_default()));
        }));
    });
    let before = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(before);
    result
        .unwrap_or_else(|_| Err(Failure::Broke(CAUGHT.take().unwrap_or_else(|| "a panic".into()))))
}

/// A case that is ready to be compiled.
struct Prepared {
    scheduled: Scheduled,
    /// The program of each item; nothing for a copy.
    programs: Vec<Option<(Vec<Opt>, Program)>>,
}

/// Checks that a case is a tensor graph without kernels of the user's, over parameters that have
/// their bytes.
fn verified(case: &Case) -> Outcome<()> {
    let nodes = toposort(&case.outputs);
    let broke = |why: String| Err(Failure::Broke(format!("not a case that can be run: {why}")));
    if let Some(u) = nodes.iter().find(|u| {
        matches!(u.op(), Op::Kernel | Op::Loop | Op::Output | Op::Source | Op::Buffer | Op::Shards)
    }) {
        return broke(format!("{:?} has no place in a case", u.op()));
    }
    for u in &nodes {
        let Arg::Param { slot, .. } = u.arg() else { continue };
        let bytes = u.numel().checked_mul(u.dtype().itemsize());
        if bytes.is_none() || case.inputs.get(*slot).map(Vec::len) != bytes {
            return broke(format!("input {slot} has not the bytes of {u:?}"));
        }
    }
    case.outputs.iter().try_for_each(|o| verify::tensor(o).or_else(broke))
}

/// The case on new buffers, as requests.
fn requests(case: &Case, setup: &Setup, device: &Device) -> Outcome<Vec<Request>> {
    verified(case)?;
    let placed = case.place(device.name(), &beside(device.name()))?;
    let inputs: Vec<StorageRef> = toposort(&placed)
        .iter()
        .filter_map(|u| match u.arg() {
            Arg::Storage(s) => Some(s.clone()),
            _ => None,
        })
        .collect();
    let request = |(i, node): (usize, &UOp)| {
        // The executor sees to it that dtype and length agree; two outputs never want the same
        // memory.
        let reuse = if setup.in_place { vec![inputs.get(i).cloned()] } else { vec![] };
        Request { node: node.clone(), device: device.name().clone(), reuse }
    };
    Ok(placed.iter().enumerate().map(request).collect())
}

fn scheduled(case: &Case, setup: &Setup, device: &Device) -> Outcome<Scheduled> {
    Ok(exec::schedule(&requests(case, setup, device)?)?)
}

fn realized(case: &Case, setup: &Setup) -> Outcome<Vec<Value>> {
    let (buffers, _) = exec::realize(&requests(case, setup, &Device::get(setup.device)?)?)?;
    read_outputs(case, &buffers)
}

/// The device whose programs an item runs: devices of one kind share theirs.
fn runs_on<'a>(item: &'a ScheduleItem, setup: &Setup) -> &'a str {
    match item {
        ScheduleItem::Kernel { device, .. } if device.as_str() == "INTERP" => "INTERP",
        _ => setup.device,
    }
}

fn prepare(case: &Case, setup: &Setup) -> Outcome<Prepared> {
    prepare_for(case, setup, &|item| Ok(Device::get(runs_on(item, setup))?.target().clone()))
}

fn prepare_for(
    case: &Case,
    setup: &Setup,
    target: &dyn Fn(&ScheduleItem) -> Outcome<Target>,
) -> Outcome<Prepared> {
    let scheduled = scheduled(case, setup, &Device::get(setup.device)?)?;
    let mut programs = Vec::new();
    for (i, item) in scheduled.items.iter().enumerate() {
        programs.push(match item {
            ScheduleItem::Kernel { ast, .. } => {
                let target = target(item)?;
                let kernel = optimized(&Kernel::new(ast.clone()), i, &setup.choose, &target)?;
                Some((kernel.opts.clone(), compile::lowered(&kernel, &target)?))
            }
            ScheduleItem::Copy { .. } => None,
        });
    }
    Ok(Prepared { scheduled, programs })
}

/// The optimisations of each kernel of a case in a setup.
pub(super) fn chosen(case: &Case, setup: &Setup) -> Outcome<Vec<Vec<Opt>>> {
    guarded(|| {
        let device = Device::get(setup.device)?;
        let scheduled = scheduled(case, setup, &device)?;
        let of = |(i, item): (usize, &ScheduleItem)| match item {
            ScheduleItem::Kernel { ast, .. } => {
                let device = Device::get(runs_on(item, setup))?;
                Ok(optimized(&Kernel::new(ast.clone()), i, &setup.choose, device.target())?.opts)
            }
            ScheduleItem::Copy { .. } => Ok(Vec::new()),
        };
        scheduled.items.iter().enumerate().map(of).collect()
    })
}

fn optimized(kernel: &Kernel, number: usize, choose: &Choose, target: &Target) -> Outcome<Kernel> {
    Ok(match choose {
        Choose::Default => heuristic::choose(kernel, target),
        Choose::Nothing => kernel.clone(),
        Choose::Given(list) => {
            kernel.apply_all(list.get(number).map_or(&[], |l| l.as_slice()), target)?
        }
        Choose::Random(seed) => random_opts(
            kernel,
            &mut Rng::new(seed.wrapping_mul(31).wrapping_add(number as u64)),
            target,
        ),
    })
}

/// Copies of a value that random optimisations make, at most: larger kernels say nothing more and
/// take long to compile.
const MOST_COPIES: usize = 48;

fn random_opts(kernel: &Kernel, rng: &mut Rng, target: &Target) -> Kernel {
    let mut k = kernel.clone();
    let wanted = rng.below(7);
    for _ in 0..24 {
        let axes = k.axes();
        if k.opts.len() >= wanted || axes.is_empty() {
            break;
        }
        let axis = rng.below(axes.len());
        let size = extent(&axes[axis]);
        let op = if rng.once_in(12) { OptOp::NoLocals } else { rng.pick(&OptOp::ALL[..10]) };
        let divisors: Vec<usize> = (2..=size.min(64)).filter(|d| size.is_multiple_of(*d)).collect();
        let amount = match op {
            OptOp::Swap => rng.below(axes.len()),
            OptOp::Stage => rng.below(4),
            OptOp::PadTo => rng.pick(&[2, 3, 4, 5, 8, 16, 32]),
            _ if divisors.is_empty() || rng.once_in(8) => 0,
            _ => rng.pick(&divisors),
        };
        if let Ok(next) = k.apply(&Opt::new(op, axis, amount), target) {
            let copies = |a: &UOp| matches!(a.range_kind(), AxisKind::Upcast | AxisKind::Unroll);
            if next.axes().iter().filter(|a| copies(a)).map(extent).product::<usize>()
                <= MOST_COPIES
            {
                k = next;
            }
        }
    }
    k
}

/// The content of the outputs.
fn read_outputs(case: &Case, outputs: &[Option<Buffer>]) -> Outcome<Vec<Value>> {
    let read = |(o, b): (&UOp, &Option<Buffer>)| {
        let bytes = b.as_ref().map_or(Ok(Vec::new()), |b| b.read())?;
        let mut value = Value::from_bytes(&bytes, o.dtype());
        if value.data.len() != o.numel() {
            return Err(Failure::Broke(format!(
                "an output of {} elements came back with {}",
                o.numel(),
                value.data.len()
            )));
        }
        value.shape = o.shape().clone();
        Ok(value)
    };
    case.outputs.iter().zip(outputs).map(read).collect()
}

fn run_compiled(
    case: &Case,
    p: &Prepared,
    executables: &[Option<Arc<dyn crate::device::Executable>>],
) -> Outcome<Vec<Value>> {
    for ((item, program), executable) in p.scheduled.items.iter().zip(&p.programs).zip(executables)
    {
        let compiled =
            program.as_ref().zip(executable.as_ref()).map(|((opts, program), executable)| {
                Arc::new(Compiled {
                    opts: opts.clone(),
                    program: program.clone(),
                    executable: executable.clone(),
                    rendered: None,
                    from_cache: false,
                    times: Default::default(),
                })
            });
        ExecItem::with(item.clone(), compiled).run()?;
    }
    read_outputs(case, &p.scheduled.outputs)
}

/// The programs of another device, interpreted, on memory of their own.
fn run_interpreted(case: &Case, setup: &Setup, p: &Prepared) -> Outcome<Vec<Value>> {
    let again = scheduled(case, setup, &Device::get(setup.device)?)?;
    for (item, program) in again.items.iter().zip(&p.programs) {
        match (item, program) {
            (ScheduleItem::Kernel { buffers, .. }, Some((_, program))) => {
                let memory: Vec<interp::Memory> =
                    buffers.iter().map(memory).collect::<Outcome<_>>()?;
                let interp =
                    Interp::compile(&program.uops).map_err(|e| Failure::Broke(e.to_string()))?;
                let options = Options { races: true, vars: &[] };
                interp
                    .run_with(&memory, interp.launch(), &options)
                    .map_err(|e| Failure::Broke(e.to_string()))?;
            }
            _ => drop(ExecItem::with(item.clone(), None).run()?),
        }
    }
    read_outputs(case, &again.outputs)
}

fn memory(b: &BufferArg) -> Outcome<interp::Memory<'_>> {
    let place = b.buffer.place();
    match place.memory {
        // SAFETY: the buffers were made for this run, and it is the only one that has them.
        Memory::Host(h) => Ok(unsafe {
            interp::Memory::from_raw(h.ptr().wrapping_add(place.offset), h.len() - place.offset)
        }),
        Memory::Remote(_) | Memory::Disk(_) | Memory::Null => {
            Err(Failure::Broke("a buffer without memory of the host".into()))
        }
    }
}

fn compare(expected: &[Traced], got: &[Value]) -> Outcome<()> {
    for (output, (e, g)) in expected.iter().zip(got).enumerate() {
        for (element, answer) in g.data.iter().enumerate() {
            if !e.admits(element, *answer) {
                let limits = match e.bounds[element] {
                    Bound::Within(lo, hi) => format!(" (between {lo} and {hi})"),
                    _ => String::new(),
                };
                let what = format!("expected {}{limits}, got {answer}", e.value.data[element]);
                return Err(Failure::Wrong { output, element, what });
            }
        }
    }
    Ok(())
}

fn compare_bits(expected: &[Traced], compiled: &[Value], interpreted: &[Value]) -> Outcome<()> {
    for (output, (c, i)) in compiled.iter().zip(interpreted).enumerate() {
        for (element, (a, b)) in c.data.iter().zip(&i.data).enumerate() {
            // What follows from the bits of a NaN is nobody's promise.
            if a != b && expected[output].bounds[element] != Bound::Unknown {
                return Err(Failure::Differs {
                    output,
                    element,
                    what: format!("compiled {a}, interpreted {b}"),
                });
            }
        }
    }
    Ok(())
}

/// Does a program call functions that the target has and this crate does not define?
fn calls_functions(program: &Program, target: &Target) -> bool {
    program.uops.iter().any(|u| target.has(u.op(), u.dtype()))
}

/// Lowers a case for a target that need not be here, interprets the programs, compares, and returns
/// them.
pub fn check_for(
    case: &Case,
    expected: &[Traced],
    choose: Choose,
    target: &Target,
) -> Outcome<Vec<Program>> {
    guarded(|| {
        let setup = Setup { device: "INTERP", choose, in_place: false, quick: false };
        let p = prepare_for(case, &setup, &|_| Ok(target.clone()))?;
        compare(expected, &run_interpreted(case, &setup, &p)?)?;
        Ok(p.programs.into_iter().flatten().map(|(_, program)| program).collect())
    })
}

/// Runs one case in one setup.
pub fn check(case: &Case, expected: &[Traced], setup: &Setup) -> Outcome<()> {
    let mut results = check_all(&[(case, expected, setup)], &mut BTreeMap::new());
    results.pop().expect("one in, one out")
}

/// Runs many cases, each in its setup, with one start of each device's compiler.
pub fn check_all(
    work: &[(&Case, &[Traced], &Setup)],
    opts: &mut BTreeMap<&'static str, usize>,
) -> Vec<Outcome<()>> {
    let prepared: Vec<Outcome<Prepared>> =
        work.iter().map(|(case, _, setup)| guarded(|| prepare(case, setup))).collect();
    for o in prepared
        .iter()
        .flatten()
        .flat_map(|p| p.programs.iter().flatten())
        .flat_map(|(opts, _)| opts)
    {
        *opts.entry(o.op.name()).or_default() += 1;
    }
    let mut by_device: BTreeMap<(&str, bool), Vec<(usize, usize)>> = BTreeMap::new();
    for (w, p) in prepared.iter().enumerate() {
        if let Ok(p) = p {
            for i in (0..p.programs.len()).filter(|&i| p.programs[i].is_some()) {
                by_device
                    .entry((runs_on(&p.scheduled.items[i], work[w].2), work[w].2.quick))
                    .or_default()
                    .push((w, i));
            }
        }
    }
    let mut executables: BTreeMap<(usize, usize), Arc<dyn crate::device::Executable>> =
        BTreeMap::new();
    let mut refused: BTreeMap<usize, Failure> = BTreeMap::new();
    for ((name, quick), places) in &by_device {
        let purpose = if *quick { Purpose::Once } else { Purpose::Measure };
        let program = |&(w, i): &(usize, usize)| match &prepared[w] {
            Ok(p) => p.programs[i].as_ref().map(|p| &p.1).expect("only kernels are listed"),
            Err(_) => unreachable!("only what was prepared is listed"),
        };
        let device = match Device::get(name) {
            Ok(d) => d,
            Err(e) => {
                refused.extend(places.iter().map(|(w, _)| (*w, Failure::from(e.clone()))));
                continue;
            }
        };
        let programs: Vec<&Program> = places.iter().map(program).collect();
        let compile = |programs: &[&Program]| -> Outcome<Vec<Arc<dyn crate::device::Executable>>> {
            guarded(|| {
                let kernels = compile_programs(&device, programs, purpose)?;
                Ok(kernels.into_iter().map(|k| k.executable).collect())
            })
        };
        match compile(&programs) {
            Ok(list) => executables.extend(places.iter().copied().zip(list)),
            // Whose fault it is shows one by one.
            Err(_) => {
                for (place, program) in places.iter().zip(programs) {
                    match compile(&[program]) {
                        Ok(list) => executables.extend(std::iter::once(*place).zip(list)),
                        Err(e) => drop(refused.insert(place.0, e)),
                    }
                }
            }
        }
    }
    let finish = |(w, p): (usize, Outcome<Prepared>)| -> Outcome<()> {
        let (case, expected, setup) = work[w];
        let p = p?;
        if let Some(failure) = refused.get(&w) {
            return Err(failure.clone());
        }
        let own: Vec<_> =
            (0..p.programs.len()).map(|i| executables.get(&(w, i)).cloned()).collect();
        guarded(|| {
            // What can be told without running machine code comes first: a wrong program may do
            // anything.
            let interpreted = if setup.device.starts_with("CPU") {
                Some(run_interpreted(case, setup, &p)?)
            } else {
                None
            };
            if let Some(i) = &interpreted {
                compare(expected, i)?;
            }
            if setup.device == "INTERP" && setup.choose == Choose::Default {
                // The way that a user's tensors go, with its caches.
                compare(expected, &realized(case, setup)?)?;
            }
            let got = run_compiled(case, &p, &own)?;
            // The interpreter takes functions of doubles from the host, where other devices have
            // their own.
            let own = setup.device != "CPU"
                && p.programs.iter().flatten().any(|(_, p)| calls_functions(p, &Target::cuda()));
            if let Some(i) = interpreted.as_ref().filter(|_| !own) {
                compare_bits(expected, &got, i)?;
            }
            compare(expected, &got)
        })
    };
    prepared.into_iter().enumerate().map(finish).collect()
}

/// What a run of many cases has covered.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Cases.
    pub cases: usize,
    /// Cases whose outputs are all finite, and not all constant.
    pub useful: usize,
    /// Elements of outputs, and how many of them are compared bit by bit, by limits, and not.
    pub elements: [usize; 3],
    /// How often each op was there at each dtype (of its first operand).
    pub covered: BTreeMap<(Op, crate::dtype::DType), usize>,
    /// Nodes in all.
    pub nodes: usize,
    /// How often each optimisation was applied, by name.
    pub opts: BTreeMap<&'static str, usize>,
    /// Runs that were left out because the device does not compute in a dtype of the case, by
    /// device.
    pub left_out: BTreeMap<&'static str, usize>,
}

impl Tally {
    /// Counts a case.
    pub fn add(&mut self, case: &Case, expected: &[Traced]) {
        self.cases += 1;
        let finite = |t: &Traced| {
            t.value.data.iter().all(|c| !matches!(c, Const::Float(v) if !v.is_finite()))
                && !t.bounds.contains(&Bound::Unknown)
        };
        let varied = |t: &Traced| t.value.data.iter().any(|c| *c != t.value.data[0]);
        self.useful += (expected.iter().all(finite) && expected.iter().any(varied)) as usize;
        for b in expected.iter().flat_map(|t| &t.bounds) {
            self.elements[match b {
                Bound::Exact => 0,
                Bound::Within(..) => 1,
                Bound::Unknown => 2,
            }] += 1;
        }
        for u in toposort(&case.outputs) {
            self.nodes += 1;
            // That of what is read, not of the indices.
            let read = if u.op() == Op::Gather { u.src().first() } else { u.src().last() };
            let dtype = read.map_or(u.dtype(), |s| s.dtype());
            *self.covered.entry((u.op(), dtype)).or_default() += 1;
        }
    }
    /// Adds what another run has counted.
    pub fn join(&mut self, other: &Tally) {
        self.cases += other.cases;
        self.useful += other.useful;
        self.nodes += other.nodes;
        for (a, b) in self.elements.iter_mut().zip(other.elements) {
            *a += b;
        }
        for (k, n) in &other.covered {
            *self.covered.entry(*k).or_default() += n;
        }
        for (mine, others) in [(&mut self.opts, &other.opts), (&mut self.left_out, &other.left_out)]
        {
            for (k, n) in others {
                *mine.entry(k).or_default() += n;
            }
        }
    }
    /// The share of cases whose outputs are finite and vary.
    pub fn share(&self) -> f64 {
        self.useful as f64 / self.cases.max(1) as f64
    }
}

//! Runs cases: schedules, lowers, compiles and runs each in its setup, and compares the outputs
//! with the bounds of the reference evaluator.
//!
//! Compiled code is also compared with the interpreter on the same program, bit by bit. Many cases
//! are compiled together, so that one start of the C compiler serves a hundred kernels.

use super::bounds::{Bound, BoundedValue};
use super::case::Case;
use super::devices::{is_cpu, is_interpreter, second_device};
use super::rng::Rng;
use super::setup::{Setup, SetupOpts};
use crate::compile::{Compiled, compile_programs};
use crate::device::interp::{Interp, Options};
use crate::device::{Buffer, Device, Executable, Memory, Purpose, interp};
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
use std::sync::{Arc, Once};

/// The failure of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// A panic or an error.
    Broke(String),
    /// An element is outside its bounds.
    Wrong {
        /// The output.
        output: usize,
        /// The element.
        element: usize,
        /// The expected and the computed value.
        what: String,
    },
    /// The interpreter and the compiled code compute different bits from the same program.
    Differs {
        /// The output.
        output: usize,
        /// The element.
        element: usize,
        /// Both values.
        what: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Broke(message) => f.write_str(message),
            Failure::Wrong { output, element, what }
            | Failure::Differs { output, element, what } => {
                write!(f, "output {output}, element {element}: {what}")
            }
        }
    }
}

impl Failure {
    /// Returns the kind of the failure. Failures of one kind likely have the same cause.
    pub fn kind(&self) -> String {
        match self {
            // Without digits, because numbers and nodes differ between cases.
            Failure::Broke(m) => {
                let first = m.lines().next().unwrap_or_default();
                first.chars().filter(|c| !c.is_ascii_digit()).take(60).collect()
            }
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

/// Runs `f` and returns a panic as a failure, without printing it.
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

/// A case that is scheduled and lowered.
struct Prepared {
    scheduled: Scheduled,
    /// The Opts and the program of each item; none for a copy.
    programs: Vec<Option<(Vec<Opt>, Program)>>,
}

/// Checks that a case is a tensor graph without custom kernels whose inputs have the right sizes.
fn verified(case: &Case) -> Outcome<()> {
    let nodes = toposort(&case.outputs);
    let broke = |why: String| Err(Failure::Broke(format!("the case cannot be run: {why}")));
    if let Some(u) = nodes.iter().find(|u| {
        matches!(u.op(), Op::Kernel | Op::Loop | Op::Output | Op::Source | Op::Buffer | Op::Shards)
    }) {
        return broke(format!("{:?} is not allowed in a case", u.op()));
    }
    for u in &nodes {
        let Arg::Param { slot, .. } = u.arg() else { continue };
        let bytes = u.numel().checked_mul(u.dtype().itemsize());
        if bytes.is_none() || case.inputs.get(*slot).map(Vec::len) != bytes {
            return broke(format!("the bytes of input {slot} are not those of {u:?}"));
        }
    }
    case.outputs.iter().try_for_each(|o| verify::tensor(o).or_else(broke))
}

/// Returns the requests of a case on new buffers.
fn requests(case: &Case, setup: &Setup, device: &Device) -> Outcome<Vec<Request>> {
    verified(case)?;
    let placed = case.place(device.name(), &second_device(device.name()))?;
    let inputs: Vec<StorageRef> = toposort(&placed)
        .iter()
        .filter_map(|u| match u.arg() {
            Arg::Storage(s) => Some(s.clone()),
            _ => None,
        })
        .collect();
    let request = |(i, node): (usize, &UOp)| {
        // The executor checks dtype and length. No two outputs share an input.
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

/// Runs a case with the Opts that the heuristic chooses for a target. Returns the bytes of the
/// outputs, and the number of kernels that are split into chunks.
pub fn run_for(case: &Case, device: &Device, target: &Target) -> crate::Result<(Vec<u8>, usize)> {
    let placed = case.place(device.name(), device.name())?;
    let request = |node| Request { node, device: device.name().clone(), reuse: Vec::new() };
    let scheduled = exec::schedule(&placed.into_iter().map(request).collect::<Vec<_>>())?;
    let (mut chunked, mut bytes) = (0, Vec::new());
    for item in &scheduled.items {
        let opts = match item {
            ScheduleItem::Kernel { ast, .. } => {
                heuristic::choose(&Kernel::new(ast.clone()), target).opts
            }
            ScheduleItem::Copy { .. } => Vec::new(),
        };
        chunked += usize::from(opts.iter().any(|o| o.op == OptOp::Thread));
        item.compile_with(&opts)?.run()?;
    }
    for buffer in scheduled.outputs.iter().flatten() {
        bytes.extend(buffer.read()?);
    }
    Ok((bytes, chunked))
}

/// Returns the device for which an item is compiled: devices of one kind share programs.
fn runs_on<'a>(item: &'a ScheduleItem, setup: &Setup) -> &'a str {
    match item {
        ScheduleItem::Kernel { device, .. } if is_interpreter(device.as_str()) => device.as_str(),
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

/// Returns the Opts of each kernel of a case in a setup.
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

fn optimized(
    kernel: &Kernel,
    number: usize,
    choose: &SetupOpts,
    target: &Target,
) -> Outcome<Kernel> {
    Ok(match choose {
        SetupOpts::Default => heuristic::choose(kernel, target),
        SetupOpts::Nothing => kernel.clone(),
        SetupOpts::Given(list) => {
            kernel.apply_all(list.get(number).map_or(&[], |l| l.as_slice()), target)?
        }
        SetupOpts::Random(seed) => random_opts(
            kernel,
            &mut Rng::new(seed.wrapping_mul(31).wrapping_add(number as u64)),
            target,
        ),
    })
}

/// The largest product of upcast and unrolled axes of random Opts. Larger kernels take long to
/// compile and test nothing more.
const MAX_COPIES: usize = 48;

/// Returns true for Opts that are drawn often: `NOLOCALS` forbids others, tensor cores have tests
/// of their own, and the last Opts complete a list.
fn is_drawn(op: &OptOp) -> bool {
    !matches!(op, OptOp::NoLocals | OptOp::Tc) && !op.is_last()
}

fn random_opts(kernel: &Kernel, rng: &mut Rng, target: &Target) -> Kernel {
    let mut k = kernel.clone();
    let drawn: Vec<OptOp> = OptOp::ALL.iter().copied().filter(is_drawn).collect();
    let wanted = rng.below(7);
    for _ in 0..24 {
        let axes = k.axes();
        if k.opts.len() >= wanted || axes.is_empty() {
            break;
        }
        let axis = rng.below(axes.len());
        let size = extent(&axes[axis]);
        let op = if rng.once_in(12) { OptOp::NoLocals } else { rng.pick(&drawn) };
        let divisors: Vec<usize> = (2..=size.min(64)).filter(|d| size.is_multiple_of(*d)).collect();
        let amount = match op {
            OptOp::Swap | OptOp::ReduceOuter => rng.below(axes.len()),
            OptOp::Stage => rng.below(4),
            OptOp::Thread => 1 + rng.below(size.min(64)),
            OptOp::PadTo => rng.pick(&[2, 3, 4, 5, 8, 16, 32]),
            OptOp::Overlap => 2 + rng.below(size.min(16)),
            _ if divisors.is_empty() || rng.once_in(8) => 0,
            _ => rng.pick(&divisors),
        };
        if let Ok(next) = k.apply(&Opt::new(op, axis, amount), target) {
            let copies = |a: &UOp| matches!(a.range_kind(), AxisKind::Upcast | AxisKind::Unroll);
            if next.axes().iter().filter(|a| copies(a)).map(extent).product::<usize>() <= MAX_COPIES
            {
                k = next;
            }
        }
    }
    // Some of the kernels without lanes, and in the order of their axes.
    if rng.once_in(4) { k } else { heuristic::completed(&k, target) }
}

/// Reads the outputs.
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
    executables: &[Option<Arc<dyn Executable>>],
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
                    compile_time: Default::default(),
                })
            });
        ExecItem::with(item.clone(), compiled)?.run()?;
    }
    read_outputs(case, &p.scheduled.outputs)
}

/// Interprets the programs of another device, on new buffers.
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
            _ => drop(ExecItem::with(item.clone(), None)?.run()?),
        }
    }
    read_outputs(case, &again.outputs)
}

fn memory(b: &BufferArg) -> Outcome<interp::Memory<'_>> {
    let place = b.buffer.place();
    match place.memory {
        // SAFETY: the buffers are new, and this run alone uses them.
        Memory::Host(h) => Ok(unsafe {
            interp::Memory::from_raw(h.ptr().wrapping_add(place.offset), h.len() - place.offset)
        }),
        Memory::Remote(_) | Memory::Disk(_) | Memory::Null => {
            Err(Failure::Broke("a buffer is not in host memory".into()))
        }
    }
}

fn compare(expected: &[BoundedValue], got: &[Value]) -> Outcome<()> {
    for (output, (e, g)) in expected.iter().zip(got).enumerate() {
        for (element, answer) in g.data.iter().enumerate() {
            if !e.accepts(element, *answer) {
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

fn compare_bits(
    expected: &[BoundedValue],
    compiled: &[Value],
    interpreted: &[Value],
) -> Outcome<()> {
    for (output, (c, i)) in compiled.iter().zip(interpreted).enumerate() {
        for (element, (a, b)) in c.data.iter().zip(&i.data).enumerate() {
            // The bits of a NaN are not defined.
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

/// Lowers a case for a target, interprets the programs, compares, and returns them. The device need
/// not be available.
pub fn check_for(
    case: &Case,
    expected: &[BoundedValue],
    choose: SetupOpts,
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
pub fn check(case: &Case, expected: &[BoundedValue], setup: &Setup) -> Outcome<()> {
    let mut results = check_all(&[(case, expected, setup)], &mut BTreeMap::new());
    results.pop().expect("one in, one out")
}

/// Runs many cases, each in its setup, with one call of each device's compiler.
pub fn check_all(
    work: &[(&Case, &[BoundedValue], &Setup)],
    opts: &mut BTreeMap<&'static str, usize>,
) -> Vec<Outcome<()>> {
    let prepared: Vec<Outcome<Prepared>> =
        work.iter().map(|(case, _, setup)| guarded(|| prepare(case, setup))).collect();
    let programs = prepared.iter().flatten().flat_map(|p| p.programs.iter().flatten());
    for o in programs.flat_map(|(opts, _)| opts) {
        *opts.entry(o.op.name()).or_default() += 1;
    }
    let built = Built::of(work, &prepared);
    let finish = |(w, p): (usize, Outcome<Prepared>)| -> Outcome<()> {
        let (case, expected, setup) = work[w];
        let p = p?;
        if let Some(failure) = built.refused.get(&w) {
            return Err(failure.clone());
        }
        let executables: Vec<_> =
            (0..p.programs.len()).map(|i| built.executables.get(&(w, i)).cloned()).collect();
        guarded(|| check_prepared(case, expected, setup, &p, &executables))
    };
    prepared.into_iter().enumerate().map(finish).collect()
}

/// The compiled programs of many cases.
#[derive(Default)]
struct Built {
    /// By case and item.
    executables: BTreeMap<(usize, usize), Arc<dyn Executable>>,
    /// The failures of cases that did not compile.
    refused: BTreeMap<usize, Failure>,
}

impl Built {
    fn of(work: &[(&Case, &[BoundedValue], &Setup)], prepared: &[Outcome<Prepared>]) -> Built {
        let mut by_device: BTreeMap<(&str, bool), Vec<Place<'_>>> = BTreeMap::new();
        for (w, p) in prepared.iter().enumerate().filter_map(|(w, p)| Some((w, p.as_ref().ok()?))) {
            let setup = work[w].2;
            for (i, program) in p.programs.iter().enumerate() {
                let Some((_, program)) = program else { continue };
                let device = runs_on(&p.scheduled.items[i], setup);
                by_device.entry((device, setup.quick)).or_default().push(((w, i), program));
            }
        }
        let mut built = Built::default();
        for ((name, quick), places) in &by_device {
            let purpose = if *quick { Purpose::Once } else { Purpose::Measure };
            match Device::get(name) {
                Ok(device) => built.compile(&device, places, purpose),
                Err(e) => {
                    let refused = |((w, _), _): &Place<'_>| (*w, Failure::from(e.clone()));
                    built.refused.extend(places.iter().map(refused));
                }
            }
        }
        built
    }

    /// Compiles programs together; if that fails, one by one, to find the ones that fail.
    fn compile(&mut self, device: &Device, places: &[Place<'_>], purpose: Purpose) {
        let programs: Vec<&Program> = places.iter().map(|p| p.1).collect();
        let kernels = guarded(|| Ok(compile_programs(device, &programs, purpose)?));
        match kernels {
            Ok(list) => {
                let list = list.into_iter().map(|k| k.executable);
                self.executables.extend(places.iter().map(|p| p.0).zip(list));
            }
            Err(_) if places.len() > 1 => {
                places.chunks(1).for_each(|one| self.compile(device, one, purpose));
            }
            Err(e) => drop(self.refused.insert(places[0].0.0, e)),
        }
    }
}

/// A program, with the number of its case and of its item.
type Place<'a> = ((usize, usize), &'a Program);

/// Runs a case whose programs are compiled, and compares its outputs.
fn check_prepared(
    case: &Case,
    expected: &[BoundedValue],
    setup: &Setup,
    p: &Prepared,
    executables: &[Option<Arc<dyn Executable>>],
) -> Outcome<()> {
    // The interpreter first, because wrong machine code may do anything.
    let interpreted = is_cpu(setup.device).then(|| run_interpreted(case, setup, p)).transpose()?;
    if let Some(i) = &interpreted {
        compare(expected, i)?;
    }
    if is_interpreter(setup.device) && setup.choose == SetupOpts::Default {
        // Also through the caches, as for users.
        compare(expected, &realized(case, setup)?)?;
    }
    let got = run_compiled(case, p, executables)?;
    if let Some(i) = &interpreted {
        compare_bits(expected, &got, i)?;
    }
    compare(expected, &got)
}

//! Lowering: a kernel and its optimisations in, a linear program out. The pipeline is a list of
//! named passes; each is timed, can be printed (`PRINT_AFTER=<pass>`) and is followed by a
//! verifier.

mod ahead;
mod decompose;
mod expand;
mod gates;
mod guard;
mod linearize;
mod loads;
mod locals;
mod proven;
mod remainder;
mod specials;
mod stage;
mod tensor_core;
mod transcendental;
mod variables;

pub use decompose::DECOMPOSE;
pub(crate) use proven::{proven, unoptimised};
pub use specials::Launch;
pub use variables::{Variables, names};

use crate::ir::{Arg, Op, UOp};
use crate::opt::{Kernel, OptOp};
use crate::target::Target;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};

/// The names of the passes, in order. The optimizer comes before them, the renderer after.
pub const PASSES: [&str; 7] =
    ["stage", "expand", "share_reduces", "name_positions", "guard", "decompose", "linearize"];

/// A linear program, ready to be rendered.
#[derive(Clone, Debug)]
pub struct Program {
    /// The kernel's name: a C identifier.
    pub name: String,
    /// The name in colours.
    pub colored: String,
    /// The list.
    pub uops: Vec<UOp>,
    /// The shape of the launch, for the greatest values of variables.
    pub launch: Launch,
    /// What of it depends on variables.
    pub variables: Variables,
    /// Elements of each argument, by slot.
    pub args: Vec<UOp>,
    /// Slots of the arguments that it writes.
    pub writes: Vec<usize>,
    /// What it costs.
    pub estimate: Estimate,
    /// The time that each pass took.
    pub times: [Duration; 7],
}

/// What one run of a kernel does, by its program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Arithmetic operations on floats.
    pub flops: f64,
    /// Everything that is computed, loaded and stored, indices and integers too: what its time
    /// without optimisations goes by.
    pub steps: f64,
    /// Bytes that it touches, each counted once: of a buffer as many as there are accesses, and no
    /// more than it has.
    pub bytes: f64,
}

/// Something to do after each pass, with its name and what it made.
pub type After<'a> = &'a mut dyn FnMut(&str, &[UOp]);

/// Lowers a kernel.
pub fn lower(kernel: &Kernel, target: &Target, after: After) -> Program {
    let mut times = [Duration::ZERO; 7];
    let mut clock = Instant::now();
    let mut lap = |i: usize, list: &[UOp], after: &mut dyn FnMut(&str, &[UOp])| {
        times[i] = clock.elapsed();
        if !list.is_empty() {
            after(PASSES[i], list);
        }
        clock = Instant::now();
    };
    let names = names(&kernel.ast);
    let spread = if names.is_empty() { None } else { variables::spread(&kernel.ast, target) };
    let wide = spread.as_ref().unwrap_or(&kernel.ast);
    let mut args = arguments(wide);
    // Few kernels have staged loads, so the others do without the pass.
    let staged = kernel.opts.iter().any(|o| o.op == OptOp::Stage);
    let (ast, threads) =
        if staged { stage::stage(wide, target) } else { (wide.clone(), Vec::new()) };
    lap(0, if staged { std::slice::from_ref(&ast) } else { &[] }, after);
    let ast = expand::expand(&ast, kernel.opts.iter().any(|o| o.op == OptOp::Tc), target);
    lap(1, std::slice::from_ref(&ast), after);
    // Threads of a workgroup are where there are workgroups.
    let (ast, threads) =
        if target.grid { locals::share_reduces(&ast, threads, target) } else { (ast, threads) };
    lap(2, std::slice::from_ref(&ast), after);
    let (mut ast, launch, grid) = specials::name_positions(&ast, &threads, target);
    if !names.is_empty() {
        let values = variables::argument(&names, args.len());
        ast = variables::loaded(&ast, &names, &values);
        args.push(values);
    }
    lap(3, std::slice::from_ref(&ast), after);
    let ast = guard::guard(&ast);
    lap(4, std::slice::from_ref(&ast), after);
    let ast = decompose::decompose(&ast, target);
    lap(5, std::slice::from_ref(&ast), after);
    let uops = linearize::linearize(&ast, &args, target);
    let uops = if kernel.opts.iter().any(|o| o.op == OptOp::Prefetch) {
        ahead::load_ahead(uops)
    } else {
        uops
    };
    lap(6, &uops, after);
    let estimate = estimate(&uops, &args);
    Program {
        name: kernel.name(),
        colored: kernel.colored_name(),
        uops,
        launch,
        variables: Variables { names, grid },
        writes: writes(&args, wide),
        args,
        estimate,
        times,
    }
}

/// The slots of the arguments that a kernel stores to.
fn writes(args: &[UOp], ast: &UOp) -> Vec<usize> {
    let stored = |arg: &UOp| ast.src().iter().any(|s| s.src()[0].src()[0] == *arg);
    (0..args.len()).filter(|slot| stored(&args[*slot])).collect()
}

/// The arguments that the kernel is called with, by slot: also those that simplification found to
/// make no difference.
fn arguments(ast: &UOp) -> Vec<UOp> {
    let slot = |u: &UOp| match u.arg() {
        Arg::Global { slot, .. } => *slot,
        _ => usize::MAX,
    };
    let mut args: Vec<UOp> =
        ast.toposort().into_iter().filter(|u| u.op() == Op::DefineGlobal).collect();
    args.sort_by_key(slot);
    args
}

/// Counts operations by walking the loops of the program.
fn estimate(uops: &[UOp], args: &[UOp]) -> Estimate {
    let mut times = vec![1.0f64];
    let (mut flops, mut steps) = (0.0, 0.0);
    let mut launches = 1.0;
    let mut accesses: FxHashMap<u64, f64> = FxHashMap::default();
    for u in uops {
        let now = *times.last().expect("the program itself");
        if u.op().is_alu() || matches!(u.op(), Op::Load | Op::Store) {
            steps += now;
        }
        if let (Op::Load | Op::Store, Some(index)) = (u.op(), u.src().first())
            && let Some(buffer) = index.src().first()
        {
            let lanes = if u.op() == Op::Load { u.dtype().lanes } else { u.src()[1].dtype().lanes };
            *accesses.entry(buffer.id()).or_default() += now * lanes as f64;
        }
        match u.op() {
            Op::Range => times.push(now * u.src()[0].vmax() as f64),
            Op::EndRange => drop(times.pop()),
            Op::Special => {
                if let Arg::Special { extent, .. } = u.arg() {
                    launches *= *extent as f64;
                }
            }
            Op::Wmma => {
                if let Arg::Wmma { core, .. } = u.arg() {
                    flops += now * 2.0 * core.dims.iter().product::<usize>() as f64
                        / core.threads() as f64;
                }
            }
            op if op.is_alu() && u.dtype().is_float() => {
                flops += now * u.dtype().lanes as f64 * if op == Op::Fma { 2.0 } else { 1.0 };
            }
            _ => {}
        }
    }
    let bytes = args
        .iter()
        .map(|a| match a.arg() {
            Arg::Global { len, .. } => {
                let most = accesses.get(&a.id()).map_or(f64::INFINITY, |n| n * launches);
                most.min(*len as f64) * a.dtype().itemsize() as f64
            }
            _ => 0.0,
        })
        .sum();
    Estimate { flops: flops * launches, steps: steps * launches, bytes }
}

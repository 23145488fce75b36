//! Prints `(a * b).sum(0)` at every stage of the compiler: `cargo run --release --example tour`.
//!
//! `NOOPT=1` shows the unoptimized loop nest, `DEV=INTERP` the program of a device with workgroups;
//! `DEBUG=2` and `DEBUG=4` add their usual output. `docs/debug.md` explains kernel names and their
//! colours.

use picograd::compiler::opt::Kernel;
use picograd::compiler::schedule::ScheduleItem;
use picograd::compiler::{env, ir};
use picograd::{Device, Result, Tensor, device};

fn main() -> Result<()> {
    let color = env::config()?.color && std::io::IsTerminal::is_terminal(&std::io::stdout());
    let mut stage = 0;
    let mut show = |title: &str, why: &str, text: &str| {
        stage += 1;
        let (bold, plain) = if color { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        println!("{bold}{stage}. {title}{plain}: {why}");
        text.lines().for_each(|l| println!("     {}", cut(l)));
        println!();
    };

    let a = Tensor::from_vec((0..32).map(|i| i as f32).collect(), [4, 8]);
    let b = Tensor::from_vec((0..32).map(|i| (i % 3) as f32).collect(), [4, 8]);
    let c = (&a * &b).sum(0);
    show(
        "lazy graph",
        "the computation. One node per line, operands before their users; nothing has run.",
        &ir::print(&c.uop()),
    );

    let items = c.schedule()?;
    let ScheduleItem::Kernel { ast, device, .. } = &items[0] else { return Ok(()) };
    let text = schedule_text(&items);
    show("schedule", "multiply and sum fuse into one kernel; these are its buffers.", &text);
    show(
        "kernel",
        "the same as loads, a reduce and a store over explicit ranges.",
        &ir::print(ast),
    );

    let lowered = items[0].compile()?;
    let compiled = lowered.compiled().expect("a kernel was compiled");
    let program = &compiled.program;
    let opts: Vec<String> = compiled.opts.iter().map(|o| o.to_string()).collect();
    let opts = if opts.is_empty() { "none".to_string() } else { opts.join(" ") };
    let name = if color { &program.colored } else { &program.name };
    show(
        "Opts",
        "NAME:axis:amount, chosen for this target; the kernel's name lists the new axes.",
        &format!("{opts} -> {name}"),
    );
    show(
        "linear program",
        "vectorized and unrolled, with 32- or 64-bit indices, in execution order.",
        &ir::print_program(&program.uops),
    );
    let source = compiled.rendered.as_ref().map_or("this device runs the program", |r| &r.body);
    show(
        "source",
        "the input of the device's compiler, without the types and helpers before the kernel.",
        source,
    );

    c.realize()?;
    let time = device::counters().time.as_secs_f64() * 1e6;
    let about =
        format!("{c}\ntook {time:.1} µs on {device}: {}", Device::named(device)?.describe());
    show("result", "c[j] is the sum over i of a[i][j] * b[i][j].", &about);
    Ok(())
}

/// Returns the first item of a schedule, with its buffers.
fn schedule_text(items: &[ScheduleItem]) -> String {
    let ScheduleItem::Kernel { ast, buffers, device, .. } = &items[0] else { return String::new() };
    let name = Kernel::new(ast.clone()).name();
    let mut text = format!("{} item: kernel {name} on {device}\n", items.len());
    for (i, b) in buffers.iter().enumerate() {
        text += &format!("data{i}: {} × {}, {:?}\n", b.len, b.dtype, b.role);
    }
    text
}

/// Truncates a line to the 100 columns of a terminal.
fn cut(line: &str) -> String {
    const MAX_COLUMNS: usize = 94;
    if line.chars().count() <= MAX_COLUMNS || line.contains('\x1b') {
        return line.to_string();
    }
    line.chars().take(MAX_COLUMNS - 1).chain(['…']).collect()
}

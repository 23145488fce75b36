//! `cargo xtask bench cpu --counts`: what the innermost loops of the generated code execute. The
//! counts are those of the machine code of any backend, so they do not depend on other load; they
//! are equal in every process.
//!
//! `--save` writes them to `benches/results/MACHINE.counts.json`, one loop per line, so that two
//! versions can be compared with `diff`.

mod loops;

use crate::cpu::wants;
use crate::cpu_workloads;
use loops::LoopCounts;
use picograd::compile::{Compiled, clear_programs, compiled_programs};
use picograd::{Device, Result};
use std::sync::Arc;

/// Prints a line for every innermost loop of the kernels of the chosen workloads.
pub fn figures(wanted: &[&str]) -> Result<()> {
    let device = Device::default()?;
    eprintln!("{}: {}", device.name(), device.describe());
    if cfg!(not(target_arch = "x86_64")) {
        eprintln!("xtask: loops are counted in code for x86-64 only");
        return Ok(());
    }
    for workload in cpu_workloads::all() {
        if !wants(wanted, workload.name) {
            continue;
        }
        let mut run = (workload.prepare)()?;
        run()?;
        for kernel in kernels() {
            print(workload.name, &kernel);
        }
        clear_programs();
    }
    Ok(())
}

/// Returns the kernels of the workload in the order of their names. Inputs are computed before:
/// their kernels are not in the cache any more.
fn kernels() -> Vec<Arc<Compiled>> {
    let mut all = compiled_programs();
    all.sort_by(|a, b| a.program.name.cmp(&b.program.name));
    all
}

fn print(workload: &str, kernel: &Compiled) {
    let Some(code) = kernel.executable.machine_code() else { return };
    for (i, counts) in loops::innermost(code).iter().enumerate() {
        let name = format!("{workload}/{}/{i}", kernel.program.name);
        println!("{{\"suite\":\"counts\",\"name\":\"{name}\",{}}}", fields(counts));
        crate::saved::record_counts(name, fields(counts));
    }
}

/// Returns the fields of a line of JSON.
fn fields(c: &LoopCounts) -> String {
    format!(
        "\"instructions\":{},\"loads\":{},\"stores\":{},\"spills\":{},\"trips\":{},\
         \"iterations\":{}",
        c.instructions, c.loads, c.stores, c.spills, c.trips, c.iterations
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_the_order_of_the_documentation() {
        let counts = LoopCounts { instructions: 7, loads: 2, trips: 128, ..LoopCounts::default() };
        let want = "\"instructions\":7,\"loads\":2,\"stores\":0,\"spills\":0,\"trips\":128,\
                    \"iterations\":0";
        assert_eq!(fields(&counts), want);
    }
}

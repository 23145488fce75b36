//! The kernels of the cases, compiled for CUDA without a GPU.

use crate::{check, common, elementwise, folds, losses, movement, pools, products};
use picograd::exec::ScheduleItem;
use picograd::heuristic;
use picograd::ir::UOp;
use picograd::lower::Program;
use picograd::opt::Kernel;
use picograd::target::Target;
use picograd::{Tensor, compile};
use std::collections::HashSet;

#[test]
fn every_kernel_compiles_for_cuda() {
    if common::nvrtc().is_none() {
        return;
    }
    let groups = [
        (elementwise::CASES, true),
        (folds::CASES, false),
        (movement::CASES, false),
        (products::CASES, false),
        (losses::CASES, false),
        (pools::CASES, false),
    ];
    let mut seen: HashSet<UOp> = HashSet::new();
    let mut programs: Vec<Program> = Vec::new();
    for (cases, every_dtype) in groups {
        for part in check::tensors(cases, every_dtype).chunks(100) {
            for item in Tensor::schedule_many(&part.iter().collect::<Vec<_>>()).unwrap() {
                if let ScheduleItem::Kernel { ast, .. } = item
                    && seen.insert(ast.clone())
                {
                    programs.push(
                        compile::lowered(
                            &heuristic::choose(&Kernel::new(ast), &Target::cuda()),
                            &Target::cuda(),
                        )
                        .unwrap(),
                    );
                }
            }
        }
    }
    common::compile_for_cuda(&programs);
}

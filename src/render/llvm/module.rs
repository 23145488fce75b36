//! The text around the instructions of a kernel: its function, the entry that calls it, and
//! declarations. A kernel with stores past the caches has a second function without them, which the
//! entry calls if a buffer with such stores does not start at a cache line.

use super::{Llvm, LlvmWriter};
use crate::ir::UOp;
use crate::ir::typed::Index;
use crate::kernel::SCRATCH_ALIGN;
use crate::render::Rendered;
use crate::render::facts::Writer;

/// The intrinsic that completes stores past the caches.
const FENCE: &str = "void @llvm.x86.sse.sfence()";

impl LlvmWriter<'_> {
    /// Returns the instructions of a program without stores past the caches. A program that cannot
    /// be rendered has none; the other writer returns the error.
    pub(super) fn plain_lines(&self, renderer: &Llvm, uops: &[UOp]) -> Vec<String> {
        let mut writer = LlvmWriter { aligned: false, ..LlvmWriter::new(renderer, uops) };
        let done = uops.iter().all(|u| writer.item(u).is_ok());
        if done { writer.lines } else { Vec::new() }
    }

    /// Writes a store past the caches, of whole cache lines.
    pub(super) fn store_lines(&mut self, to: Index<'_>, held: String, value: &str, place: &str) {
        self.streamed.extend(to.buffer.as_define_global().map(|b| b.slot));
        self.declared.insert(FENCE.to_string());
        self.line(format!("store {held} {value}, ptr {place}, align 64, !nontemporal !{{i32 1}}"));
    }

    /// Returns the module of the kernel.
    pub(super) fn module(mut self, name: &str) -> Rendered {
        self.args.sort_unstable();
        let mut params: Vec<String> =
            self.args.iter().map(|slot| format!("ptr noalias %data{slot}")).collect();
        let mut given: Vec<String> =
            self.args.iter().map(|slot| format!("ptr %data{slot}")).collect();
        if !self.threads.is_empty() {
            params.push("i64 %chunk".to_string());
            given.push("i64 %chunk".to_string());
        }
        if self.scratch_used {
            params.push(format!("ptr noalias align {SCRATCH_ALIGN} %scratch"));
            given.push("ptr %scratch".to_string());
        }
        let (params, given) = (params.join(", "), given.join(", "));
        let function = |lines: &[String], end: &str| {
            let body = lines.join("\n");
            let newline = if body.is_empty() { "" } else { "\n" };
            format!("({params}) #0 {{\nentry:\n{body}{newline}{end}  ret void\n}}\n")
        };
        let fence = format!("  call {FENCE}\n");
        let kernel = function(&self.lines, if self.streamed.is_empty() { "" } else { &fence });
        let mut wrapper = "_entry(ptr %bufs, i64 %chunk, ptr %scratch) #0 {\n".to_string();
        for slot in &self.args {
            wrapper += &format!(
                "  %slot{slot} = getelementptr ptr, ptr %bufs, i64 {slot}\n  %data{slot} = load \
                 ptr, ptr %slot{slot}, align 8\n"
            );
        }
        let mut end = format!("({given})\n  ret void\n}}\n");
        for line in &self.declared {
            end += &format!("declare {line}\n");
        }
        // LLVM prefers 256 bits on some CPUs that have 512.
        let width = self.target.vector_bytes * 8;
        let width =
            if width > 0 { format!(" \"prefer-vector-width\"=\"{width}\"") } else { String::new() };
        end += &format!("attributes #0 = {{ nounwind{width} }}\n");
        let internal = "define internal void @";
        let Some(plain) = &self.plain else {
            let parts = [internal, &(kernel + "define void @"), &(wrapper + "  call void @"), &end];
            return Rendered::new(Vec::new(), name, &parts);
        };
        let plain = format!("_plain{}define void @", function(plain, ""));
        let choice = wrapper + &self.alignment_branch() + "aligned:\n  call void @";
        let aligned = format!("({given})\n  ret void\nunaligned:\n  call void @");
        let parts =
            [internal, &(kernel + internal), &plain, &choice, &aligned, &format!("_plain{end}")];
        Rendered::new(Vec::new(), name, &parts)
    }

    /// Returns the branch to `aligned` if the buffers with stores past the caches start at lines.
    fn alignment_branch(&self) -> String {
        let (mut text, mut before) = (String::new(), "0".to_string());
        for slot in &self.streamed {
            text += &format!(
                "  %start{slot} = ptrtoint ptr %data{slot} to i64\n  %bits{slot} = or i64 \
                 {before}, %start{slot}\n"
            );
            before = format!("%bits{slot}");
        }
        text + &format!(
            "  %low = and i64 {before}, 63\n  %fits = icmp eq i64 %low, 0\n  br i1 %fits, label \
             %aligned, label %unaligned\n"
        )
    }
}

//! The CPU device: machine code from LLVM, or from C through clang or cc, loaded into memory, run on a pool of threads.

use super::buffer::{Memory, Place};
use super::build::joined;
use super::cc::CCompiler;
use super::device::{Backend, Executable};
use super::elf::Code;
use super::llvm::Llvm;
use super::memory::HostBuffer;
use super::pool;
use crate::error::{Error, Result};
use crate::lower::{Launch, Program};
use crate::render::{self, Clang, Renderer};
use crate::target::Target;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The device.
pub struct Cpu {
    compiler: Compiler,
    renderer: Box<dyn Renderer>,
}

/// What makes machine code of a text.
enum Compiler {
    C(&'static CCompiler),
    Llvm(&'static Llvm),
}

impl Cpu {
    /// Through C, where there is a compiler.
    pub fn clang() -> Result<Cpu> {
        let compiler = Compiler::C(CCompiler::find()?);
        Ok(Cpu { compiler, renderer: Box::new(Clang::new(Target { fma: has_fma(), ..Target::c(pool::threads(), vector_bytes()) })) })
    }

    /// Through LLVM, where there is a library.
    pub fn llvm() -> Result<Cpu> {
        let compiler = Compiler::Llvm(Llvm::find()?);
        Ok(Cpu {
            compiler,
            renderer: Box::new(render::Llvm::new(Target { fma: has_fma(), ..Target::llvm(pool::threads(), vector_bytes()) })),
        })
    }
}

/// Bytes of the widest vector register of this machine.
fn vector_bytes() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return 64;
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return 32;
        }
    }
    16
}

/// Has this machine an instruction that multiplies and adds? Without it the C library does, slowly.
fn has_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

impl Backend for Cpu {
    fn target(&self) -> &Target {
        self.renderer.target()
    }
    fn describe(&self) -> String {
        let target = self.target();
        let compiler = match self.compiler {
            Compiler::C(c) => c.version.clone(),
            Compiler::Llvm(l) => format!("LLVM {} for {}", l.version, l.cpu),
        };
        format!("{compiler} with {} threads, vectors of {} bytes", target.threads, target.vector_bytes)
    }
    fn allocate(&self, bytes: usize) -> Result<Memory> {
        HostBuffer::new(bytes).map(Memory::Host)
    }
    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        Ok(self.compile_together(&[program], true)?.swap_remove(0))
    }
    fn compile_many(&self, programs: &[&Program], keep: bool) -> Result<Vec<Arc<dyn Executable>>> {
        let threads = self.target().threads.max(1);
        // Starting a C compiler costs several times what a small kernel does; LLVM is here already.
        let at_once = match self.compiler {
            Compiler::C(_) => programs.len().div_ceil(threads).clamp(1, MOST_TOGETHER),
            Compiler::Llvm(_) => 1,
        };
        let parts: Vec<&[&Program]> = programs.chunks(at_once).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mine = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < parts.len()));
            mine.map(|i| (i, self.compile_together(parts[i], keep))).collect::<Vec<_>>()
        };
        let mut done: Vec<(usize, Result<Vec<_>>)> = std::thread::scope(|s| {
            // Where the system has no more threads, those that there are do it all.
            let spawn = |_| std::thread::Builder::new().spawn_scoped(s, work).ok();
            let others: Vec<_> = (1..threads.min(parts.len())).map_while(spawn).collect();
            let mine = work();
            mine.into_iter().chain(others.into_iter().flat_map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))).collect()
        });
        done.sort_by_key(|d| d.0);
        Ok(done.into_iter().map(|d| d.1).collect::<Result<Vec<_>>>()?.concat())
    }
    /// C gets an entry that calls the function with the buffers and the number of the share; a text for LLVM has its own.
    fn compile_source(&self, program: &Program, text: &str) -> Result<Arc<dyn Executable>> {
        let name = &program.name;
        let code = match self.compiler {
            Compiler::C(c) => {
                let args: String = (0..program.args.len()).map(|i| format!("bufs[{i}], ")).collect();
                c.build(&format!("{text}\nvoid {name}_entry(void* const* bufs, long tidx) {{ {name}({args}tidx); }}\n"), name)?
            }
            Compiler::Llvm(l) => l.build(text, name)?,
        };
        Ok(Arc::new(kernel(text.to_string(), name, &Arc::new(code))?))
    }
}

/// More kernels than this are not given to one C compiler.
const MOST_TOGETHER: usize = 32;

impl Cpu {
    /// The kernels of one text.
    fn compile_together(&self, programs: &[&Program], keep: bool) -> Result<Vec<Arc<dyn Executable>>> {
        let (text, names) = match programs {
            [one] => {
                let source = self.renderer.render(&one.name, &one.uops)?;
                (source.clone(), vec![(one.name.clone(), source)])
            }
            _ => joined(&*self.renderer, "static void ", programs)?,
        };
        let name = if names.len() == 1 { &names[0].0 } else { "many" };
        let code = match self.compiler {
            Compiler::C(c) if keep => c.build(&text, name)?,
            Compiler::C(c) => Code::load(&c.compile(&text, name)?)?,
            Compiler::Llvm(l) if keep => l.build(&text, name)?,
            Compiler::Llvm(l) => Code::load(&l.compile(&text, name)?)?,
        };
        let code = Arc::new(code);
        names.into_iter().map(|(name, source)| Ok(Arc::new(kernel(source, &name, &code)?) as Arc<dyn Executable>)).collect()
    }
}

/// The kernel of a name in an object.
fn kernel(source: String, name: &str, code: &Arc<Code>) -> Result<Kernel> {
    let entry = format!("{name}_entry");
    let address = code
        .symbol(&entry)
        .ok_or_else(|| Error::Compile { msg: format!("the compiler's object has no function {entry}"), source_at: None })?;
    // SAFETY: the renderer gives every kernel an entry of this type, and `code` keeps it mapped as long as the function pointer lives.
    let run = unsafe { std::mem::transmute::<*const u8, Entry>(address) };
    Ok(Kernel { source, run, code: code.clone() })
}

/// What the renderer calls `<name>_entry`: the buffers, and the share of the work.
type Entry = unsafe extern "C" fn(*const *mut u8, libc::c_long);

struct Kernel {
    source: String,
    run: Entry,
    /// Keeps the machine code mapped.
    code: Arc<Code>,
}

/// Buffer addresses that the threads of one launch share.
struct Addresses(Vec<*mut u8>);
// SAFETY: the addresses are only read here; what is behind them is divided between the threads by the kernel itself.
unsafe impl Sync for Addresses {}

impl Executable for Kernel {
    fn run(&self, args: &[Place], launch: &Launch) -> Result<Duration> {
        let addresses = args.iter().map(|p| match p.memory {
            Memory::Host(h) => Ok(h.ptr().wrapping_add(p.offset)),
            Memory::Remote(_) | Memory::Disk(_) | Memory::Null => {
                Err(Error::Device("a CPU kernel was given memory of another device".into()))
            }
        });
        let addresses = Addresses(addresses.collect::<Result<Vec<_>>>()?);
        let start = Instant::now();
        let share = |i: usize| {
            let addresses = &addresses;
            // SAFETY: every index of the kernel was proven inside the argument of its slot, whose length the executor has checked, or is
            // guarded; different shares write different elements.
            unsafe { (self.run)(addresses.0.as_ptr(), i as libc::c_long) }
        };
        pool::run(launch.threads, &share);
        Ok(start.elapsed())
    }
    fn source(&self) -> Option<&str> {
        Some(&self.source)
    }
    fn machine_code(&self) -> Option<&[u8]> {
        Some(self.code.text())
    }
}

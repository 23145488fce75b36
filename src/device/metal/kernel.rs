//! Compiled kernels: pipelines, and how they are started.

use super::memory::MetalMemory;
use super::{MetalContext, Pending};
use crate::device::buffer::{Memory, MemoryRef};
use crate::device::build::{first_lines, keep_source, short};
use crate::device::disk_cache;
use crate::device::registry::Executable;
use crate::env;
use crate::error::{Error, Result};
use crate::lower::{Launch, Program};
use crate::target::Target;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLBuffer, MTLCommandBuffer, MTLCommandEncoder, MTLCommandQueue, MTLCompileOptions,
    MTLComputeCommandEncoder, MTLComputePipelineDescriptor, MTLComputePipelineState, MTLDevice,
    MTLLibrary, MTLPipelineOption, MTLSize,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What vectors in memory have to start at.
const ALIGN: usize = 16;
type Pipeline = Retained<ProtocolObject<dyn MTLComputePipelineState>>;

/// A kernel.
pub(super) struct MetalKernel {
    shared: Arc<MetalContext>,
    name: Arc<str>,
    source: String,
    /// Threads of a workgroup.
    threads: usize,
    pipeline: Pipeline,
    /// The text without vectors in memory, where it is another.
    plain: Option<String>,
    /// Compiled when a buffer first does not start where vectors have to: as a part of another
    /// may.
    unaligned: OnceLock<Result<Pipeline>>,
}

impl MetalKernel {
    /// Compiles the kernel of a program.
    pub fn new(
        shared: &Arc<MetalContext>,
        program: &Program,
        source: String,
        plain: String,
    ) -> Result<MetalKernel> {
        let most = Target::metal().max_buffers;
        if program.args.len() > most {
            let msg = format!(
                "kernel {} has {} buffers, and Metal takes {most} at most",
                program.name,
                program.args.len()
            );
            return Err(Error::Device(msg));
        }
        let threads = program.launch.local.iter().product();
        let pipeline = compile(shared, &source, &program.name, threads)?;
        let plain = (plain != source).then_some(plain);
        Ok(MetalKernel {
            shared: shared.clone(),
            name: program.name.as_str().into(),
            source,
            threads,
            pipeline,
            plain,
            unaligned: OnceLock::new(),
        })
    }

    /// Hands the kernel over to the GPU.
    fn start(&self, args: &[MemoryRef], launch: &Launch) -> Result<Pending> {
        let device = &self.shared.name;
        let memory = |p: &MemoryRef| match p.memory {
            Memory::Remote(r) => r
                .as_any()
                .downcast_ref::<MetalMemory>()
                .and_then(|m| m.block(&self.shared))
                .map(|b| b as *const _),
            _ => None,
        };
        let blocks: Option<Vec<*const ProtocolObject<dyn MTLBuffer>>> =
            args.iter().map(memory).collect();
        let blocks = blocks.ok_or_else(|| {
            Error::Device(format!("a kernel of {device} was given memory of another device"))
        })?;
        let pipeline = match &self.plain {
            Some(plain) if args.iter().any(|p| !p.offset.is_multiple_of(ALIGN)) => {
                let build = || compile(&self.shared, plain, &self.name, self.threads);
                self.unaligned.get_or_init(build).as_ref().map_err(Clone::clone)?
            }
            _ => &self.pipeline,
        };
        let most = pipeline.maxTotalThreadsPerThreadgroup();
        if self.threads > most {
            let msg = format!(
                "{device}: kernel {} has workgroups of {} threads, and runs with {most} at most",
                self.name, self.threads
            );
            return Err(Error::Device(msg));
        }
        let refused = || Error::Device(format!("{device}: kernel {} is not started", self.name));
        autoreleasepool(|_| {
            let commands = self.shared.queue.commandBuffer().ok_or_else(refused)?;
            let encoder = commands.computeCommandEncoder().ok_or_else(refused)?;
            encoder.setComputePipelineState(pipeline);
            for (slot, (block, place)) in blocks.iter().zip(args).enumerate() {
                // SAFETY: the block is alive for as long as its place is lent, and the commands
                // keep it afterwards; the offset is inside, as the executor has checked.
                unsafe { encoder.setBuffer_offset_atIndex(Some(&**block), place.offset, slot) };
            }
            let size = |[width, height, depth]: [usize; 3]| MTLSize { width, height, depth };
            encoder
                .dispatchThreadgroups_threadsPerThreadgroup(size(launch.grid), size(launch.local));
            encoder.endEncoding();
            commands.commit();
            Ok(Pending { commands, kernel: self.name.clone() })
        })
    }
}

/// Compiles a text, and makes its kernel ready for workgroups of so many threads.
fn compile(shared: &MetalContext, source: &str, name: &str, threads: usize) -> Result<Pipeline> {
    let refused = |why: String| {
        let msg = format!("kernel {name}: Metal: {}", first_lines(&why));
        Error::Compile {
            msg,
            source_at: keep_source(source, name, ".metal", disk_cache::global().dir()),
        }
    };
    let said = |e: Retained<NSError>| refused(e.localizedDescription().to_string());
    autoreleasepool(|_| {
        let options = MTLCompileOptions::new();
        // Newer systems call it another way, and still take this one.
        #[allow(deprecated)]
        options.setFastMathEnabled(false);
        let library = shared
            .device
            .newLibraryWithSource_options_error(&NSString::from_str(source), Some(&options))
            .map_err(said)?;
        let function = library.newFunctionWithName(&NSString::from_str(short(name)));
        let function =
            function.ok_or_else(|| refused("the text has no kernel of that name".to_string()))?;
        let wanted = MTLComputePipelineDescriptor::new();
        wanted.setComputeFunction(Some(&function));
        wanted.setMaxTotalThreadsPerThreadgroup(threads);
        let none = MTLPipelineOption::None;
        shared
            .device
            .newComputePipelineStateWithDescriptor_options_reflection_error(&wanted, none, None)
            .map_err(said)
    })
}

impl Executable for MetalKernel {
    /// Does not wait, and so has no time to tell, unless times are wanted.
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        if env::config()?.times_kernels() {
            // SAFETY: the caller's promise.
            return unsafe { self.timed(args, launch) };
        }
        self.shared.note(self.start(args, launch)?).map(|()| Duration::ZERO)
    }
    unsafe fn timed(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        let launched = self.start(args, launch)?;
        launched.finish(&self.shared.name)?;
        let seconds = launched.commands.GPUEndTime() - launched.commands.GPUStartTime();
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }
    fn source(&self) -> Option<&str> {
        Some(&self.source)
    }
}

//! Compiled kernels: pipelines, and their launches.

use super::memory::MetalMemory;
use super::{MetalContext, Pending};
use crate::device::backend::Executable;
use crate::device::buffer::MemoryRef;
use crate::device::module::{CompileVariant, KernelInfo, LoadedModule, first_lines, rejected};
use crate::disk_cache;
use crate::env;
use crate::error::{Error, Result};
use crate::lower::Launch;
use crate::target::Target;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLBuffer, MTLCommandBuffer, MTLCommandEncoder, MTLCommandQueue, MTLCompileOptions,
    MTLComputeCommandEncoder, MTLComputePipelineDescriptor, MTLComputePipelineState, MTLDevice,
    MTLLibrary, MTLPipelineOption, MTLSize,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The alignment of vector accesses, in bytes.
const ALIGN: usize = 16;
type Pipeline = Retained<ProtocolObject<dyn MTLComputePipelineState>>;

/// A compiled library.
pub(super) struct MetalModule {
    shared: Arc<MetalContext>,
    library: Retained<ProtocolObject<dyn MTLLibrary>>,
}
// SAFETY: a library does not change after it was made, and Metal lets every thread use it.
unsafe impl Send for MetalModule {}
// SAFETY: as above.
unsafe impl Sync for MetalModule {}

/// A kernel.
struct MetalKernel {
    shared: Arc<MetalContext>,
    name: Arc<str>,
    /// Threads of a workgroup.
    threads: usize,
    pipeline: Pipeline,
    /// Compiles the variant for buffers that do not start at a multiple of [`ALIGN`].
    compile_unaligned: Option<CompileVariant>,
    /// That variant, compiled at the first launch that needs it.
    unaligned: OnceLock<Result<Arc<dyn Executable>>>,
}

impl MetalModule {
    /// Compiles source text.
    pub fn new(shared: &Arc<MetalContext>, source: &str, name: &str) -> Result<MetalModule> {
        let library = autoreleasepool(|_| {
            let options = MTLCompileOptions::new();
            // Newer systems have another name for it, and still accept this one.
            #[allow(deprecated)]
            options.setFastMathEnabled(false);
            shared
                .device
                .newLibraryWithSource_options_error(&NSString::from_str(source), Some(&options))
                .map_err(|e| refused(source, name, &e.localizedDescription().to_string()))
        })?;
        Ok(MetalModule { shared: shared.clone(), library })
    }
}

/// Returns the error of a text that Metal rejects.
fn refused(source: &str, name: &str, why: &str) -> Error {
    let why = format!("Metal: {}", first_lines(why));
    rejected(disk_cache::global(), name, source, ".metal", &why)
}

impl LoadedModule for MetalModule {
    fn kernel(self: Arc<Self>, kernel: KernelInfo) -> Result<Arc<dyn Executable>> {
        let KernelInfo { symbol, program, source, unaligned } = kernel;
        let most = Target::metal().max_buffers;
        if program.args.len() > most {
            let msg = format!(
                "kernel {} has {} buffers, and Metal allows at most {most}",
                program.name,
                program.args.len()
            );
            return Err(Error::Device(msg));
        }
        let threads = program.launch.local.iter().product();
        let pipeline = autoreleasepool(|_| {
            let function = self.library.newFunctionWithName(&NSString::from_str(symbol));
            let function = function.ok_or_else(|| {
                refused(source, &program.name, "the text has no kernel of that name")
            })?;
            let wanted = MTLComputePipelineDescriptor::new();
            wanted.setComputeFunction(Some(&function));
            wanted.setMaxTotalThreadsPerThreadgroup(threads);
            let none = MTLPipelineOption::None;
            self.shared
                .device
                .newComputePipelineStateWithDescriptor_options_reflection_error(&wanted, none, None)
                .map_err(|e| refused(source, &program.name, &e.localizedDescription().to_string()))
        })?;
        Ok(Arc::new(MetalKernel {
            shared: self.shared.clone(),
            name: program.name.as_str().into(),
            threads,
            pipeline,
            compile_unaligned: unaligned,
            unaligned: OnceLock::new(),
        }))
    }
}

impl MetalKernel {
    /// Submits the kernel to the GPU.
    fn start(&self, args: &[MemoryRef], launch: &Launch) -> Result<Pending> {
        let device = &self.shared.name;
        let memory = |p: &MemoryRef| {
            let block = p.remote::<MetalMemory>().and_then(|m| m.block(&self.shared));
            block.map(|b| b as *const _)
        };
        let blocks: Option<Vec<*const ProtocolObject<dyn MTLBuffer>>> =
            args.iter().map(memory).collect();
        let blocks = blocks.ok_or_else(|| {
            Error::Device(format!("a kernel of {device} was given memory of another device"))
        })?;
        let pipeline = match &self.compile_unaligned {
            Some(compile) if args.iter().any(|p| !p.offset.is_multiple_of(ALIGN)) => {
                let variant = self.unaligned.get_or_init(compile).as_ref().map_err(Clone::clone)?;
                let kernel = variant.downcast::<MetalKernel>();
                &kernel.expect("a variant is compiled by the same backend").pipeline
            }
            _ => &self.pipeline,
        };
        let most = pipeline.maxTotalThreadsPerThreadgroup();
        if self.threads > most {
            let msg = format!(
                "{device}: kernel {} has workgroups of {} threads, and its pipeline allows {most}",
                self.name, self.threads
            );
            return Err(Error::Device(msg));
        }
        let refused = || Error::Device(format!("{device}: failed to launch kernel {}", self.name));
        autoreleasepool(|_| {
            let commands = self.shared.queue.commandBuffer().ok_or_else(refused)?;
            let encoder = commands.computeCommandEncoder().ok_or_else(refused)?;
            encoder.setComputePipelineState(pipeline);
            for (slot, (block, place)) in blocks.iter().zip(args).enumerate() {
                // SAFETY: the block lives as long as its reference, and the commands retain it
                // afterwards; the executor has checked that the offset is inside.
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

impl Executable for MetalKernel {
    /// Does not wait, and returns zero, unless kernels are timed.
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        if env::config()?.times_kernels() {
            // SAFETY: the caller upholds the contract of `run`.
            return unsafe { self.timed(args, launch) };
        }
        self.shared.add_pending(self.start(args, launch)?).map(|()| Duration::ZERO)
    }
    unsafe fn timed(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        let launched = self.start(args, launch)?;
        launched.finish(&self.shared.name)?;
        let seconds = launched.commands.GPUEndTime() - launched.commands.GPUStartTime();
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }
}

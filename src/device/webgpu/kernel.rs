//! Kernels of a WebGPU device: compiled from WGSL, and launched.

use super::memory::{WebGpuMemory, allocate};
use super::{Starts, WebGpuContext};
use crate::device::backend::{Executable, lock};
use crate::device::buffer::{Memory, MemoryRef, Remote};
use crate::device::module::{KernelInfo, first_lines, rejected};
use crate::disk_cache;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Arg, UOp};
use crate::lower::{Launch, Program};
use crate::render::{Renderer, Wgsl};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindGroupLayout, BindGroupLayoutDescriptor,
    BindGroupLayoutEntry, BindingResource, BindingType, BufferBinding, BufferBindingType,
    BufferDescriptor, BufferUsages, ComputePassDescriptor, ComputePassTimestampWrites,
    ComputePipeline, ComputePipelineDescriptor, MapMode, PipelineLayoutDescriptor, QuerySet,
    QuerySetDescriptor, QueryType, ShaderModuleDescriptor, ShaderRuntimeChecks, ShaderSource,
    ShaderStages,
};

/// Maximum number of cached uniforms; when it is reached, the cache is cleared.
const MAX_CACHED_UNIFORMS: usize = 256;
/// A binding begins at a multiple of this on every device.
pub(super) const ALIGN: usize = 256;

/// A compiled kernel.
pub(super) struct WebGpuKernel {
    shared: Arc<WebGpuContext>,
    name: String,
    /// Of each argument: bytes of an element, and of each of its pieces but the last.
    args: Vec<(usize, usize)>,
    piece: usize,
    groups: [u32; 3],
    layout: BindGroupLayout,
    pipeline: ComputePipeline,
}

impl WebGpuKernel {
    /// Compiles a source.
    pub fn new(
        shared: &Arc<WebGpuContext>,
        wgsl: &Wgsl,
        kernel: &KernelInfo,
    ) -> Result<WebGpuKernel> {
        let KernelInfo { symbol, program, source, .. } = kernel;
        let refused = |what: &str| {
            let why = format!("{}: {what}", shared.label);
            rejected(disk_cache::global(), &program.name, source, ".wgsl", &why)
        };
        let args: Vec<(usize, usize)> = program
            .args
            .iter()
            .map(|a| {
                let Arg::Global { len, .. } = a.arg() else { return (1, 1) };
                (a.dtype().itemsize(), wgsl.pieces(len * a.dtype().itemsize()))
            })
            .collect();
        let bound: usize = args.iter().map(|(_, pieces)| pieces).sum();
        let most = shared.device.limits().max_storage_buffers_per_shader_stage as usize;
        if bound > most {
            return Err(refused(&format!(
                "it has {bound} bindings, and the device allows {most}; realize some of its inputs \
                 before, or use another device"
            )));
        }
        let made = shared.caught(|| shared.pipeline(symbol, source, bound));
        let (layout, pipeline) = made.map_err(|e| refused(&first_lines(&e.to_string())))?;
        let groups = wgsl.groups(&program.uops).map(|n| n as u32);
        Ok(WebGpuKernel {
            shared: shared.clone(),
            name: program.name.clone(),
            args,
            piece: wgsl.piece(),
            groups,
            layout,
            pipeline,
        })
    }

    fn error(&self, what: &str) -> Error {
        Error::Device(format!("kernel {} on {}: {what}", self.name, self.shared.name))
    }

    /// Returns the memory of all arguments, as the text expects it.
    fn bound(&self, args: &[MemoryRef]) -> Result<BindGroup> {
        if args.len() != self.args.len() {
            return Err(self.error(&format!("{} arguments for {}", args.len(), self.args.len())));
        }
        let mut resources = Vec::new();
        let mut starts: Starts = vec![0; (args.len() / 4 + 1) * 4];
        for (slot, (place, (width, pieces))) in args.iter().zip(&self.args).enumerate() {
            let memory = place.remote::<WebGpuMemory>().and_then(|m| m.block(&self.shared));
            let buffer =
                memory.ok_or_else(|| self.error("an argument is memory of another device"))?;
            if place.offset % width != 0 {
                let inside = format!(
                    "argument {slot} begins at byte {}, which is inside an element of {width}",
                    place.offset
                );
                return Err(self.error(&inside));
            }
            let base = place.offset / ALIGN * ALIGN;
            starts[slot] = ((place.offset - base) / width) as i32;
            for piece in 0..*pieces {
                // The last piece may exist only for the bytes that an offset adds; no kernel reads
                // it then.
                let offset = Some((base + piece * self.piece) as u64)
                    .filter(|o| *o < buffer.size())
                    .unwrap_or(0);
                let most = if *pieces == 1 { u64::MAX } else { self.piece as u64 };
                let limit = self.shared.device.limits().max_storage_buffer_binding_size;
                let size = (buffer.size() - offset).min(most).min(limit / 4 * 4);
                resources.push(BindingResource::Buffer(BufferBinding {
                    buffer,
                    offset,
                    size: size.try_into().ok(),
                }));
            }
        }
        let at = self.shared.starts(starts)?;
        resources.push(at.as_entire_binding());
        let entries: Vec<BindGroupEntry> = resources
            .into_iter()
            .enumerate()
            .map(|(i, resource)| BindGroupEntry { binding: i as u32, resource })
            .collect();
        let what = || format!("kernel {}", self.name);
        self.shared.checked(&what, || {
            self.shared.device.create_bind_group(&BindGroupDescriptor {
                label: None,
                layout: &self.layout,
                entries: &entries,
            })
        })
    }
}

impl WebGpuContext {
    /// Compiles a source to a pipeline with `bound` storage buffers and the uniform of offsets.
    fn pipeline(
        &self,
        symbol: &str,
        source: &str,
        bound: usize,
    ) -> (BindGroupLayout, ComputePipeline) {
        let entry = |binding: usize, ty: BufferBindingType| BindGroupLayoutEntry {
            binding: binding as u32,
            visibility: ShaderStages::COMPUTE,
            ty: BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let mut entries: Vec<BindGroupLayoutEntry> = (0..bound)
            .map(|binding| entry(binding, BufferBindingType::Storage { read_only: false }))
            .collect();
        entries.push(entry(bound, BufferBindingType::Uniform));
        let text = ShaderModuleDescriptor {
            label: None,
            source: ShaderSource::Wgsl(Cow::Borrowed(source)),
        };
        // SAFETY: every index of a program is masked or proven in bounds of the argument of its
        // slot, whose length the executor checks; every loop ends; a divisor is neither zero
        // nor minus one for the smallest dividend.
        let module = unsafe {
            self.device.create_shader_module_trusted(text, ShaderRuntimeChecks::unchecked())
        };
        let layout = self.device.create_bind_group_layout(&BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        });
        let pipeline_layout = self.device.create_pipeline_layout(&PipelineLayoutDescriptor {
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        });
        let pipeline = self.device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: None,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(symbol),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        (layout, pipeline)
    }

    /// Returns the uniform with the start offsets of buffers.
    fn starts(&self, starts: Starts) -> Result<wgpu::Buffer> {
        let mut kept = lock(&self.starts);
        if let Some((_, buffer)) = kept.iter().find(|(s, _)| *s == starts) {
            return Ok(buffer.clone());
        }
        let bytes: Vec<u8> = starts.iter().flat_map(|s| s.to_le_bytes()).collect();
        let buffer = self.checked(&|| "creating a uniform buffer".to_string(), || {
            let usage = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
            let buffer = self.device.create_buffer(&BufferDescriptor {
                label: None,
                size: bytes.len() as u64,
                usage,
                mapped_at_creation: false,
            });
            self.queue.write_buffer(&buffer, 0, &bytes);
            buffer
        })?;
        if kept.len() >= MAX_CACHED_UNIFORMS {
            kept.clear();
        }
        kept.push((starts, buffer.clone()));
        Ok(buffer)
    }
}

impl Executable for WebGpuKernel {
    unsafe fn run(&self, args: &[MemoryRef], _: &Launch) -> Result<Duration> {
        let shared = &self.shared;
        let group = self.bound(args)?;
        let begun = Instant::now();
        let what = || format!("kernel {}", self.name);
        shared.checked(&what, || {
            let mut encoder = shared.device.create_command_encoder(&Default::default());
            let timestamp_writes = shared.clock.as_ref().map(Clock::writes);
            let mut pass = encoder
                .begin_compute_pass(&ComputePassDescriptor { label: None, timestamp_writes });
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &group, &[]);
            let [x, y, z] = self.groups;
            pass.dispatch_workgroups(x, y, z);
            drop(pass);
            if let Some(clock) = &shared.clock {
                clock.resolve(&mut encoder);
            }
            shared.queue.submit([encoder.finish()]);
        })?;
        if !shared.timed {
            return Ok(Duration::ZERO);
        }
        shared.finish(&what)?;
        match &shared.clock {
            Some(clock) => clock.read(shared),
            None => Ok(begun.elapsed()),
        }
    }
    unsafe fn timed(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        if self.shared.timed {
            // SAFETY: the same contract as this function's.
            return unsafe { self.run(args, launch) };
        }
        // The queue measures no times, so this is wall-clock time on an empty queue.
        let what = || format!("kernel {}", self.name);
        self.shared.finish(&what)?;
        let start = Instant::now();
        // SAFETY: the same contract as this function's.
        unsafe { self.run(args, launch)? };
        self.shared.finish(&what)?;
        Ok(start.elapsed())
    }
}

/// Returns true if the language's `fma` rounds once on this device. A kernel that tests it is run:
/// WGSL does not require it, and lavapipe's does not.
pub(super) fn has_fused_fma(shared: &Arc<WebGpuContext>, wgsl: &Wgsl) -> Result<bool> {
    let program = fma_program();
    let rendered = wgsl.render(&program.name, &program.uops)?;
    let source = &rendered.text();
    let info = KernelInfo { symbol: &rendered.entry, program: &program, source, unaligned: None };
    let kernel = WebGpuKernel::new(shared, wgsl, &info)?;
    let [out, given] = [4, 12].map(|bytes| allocate(shared, bytes));
    let (out, given) = (out?, given?);
    let (x, y) = (0.1f32, -0.01f32);
    given.write(0, &[x, x, y].map(f32::to_le_bytes).concat())?;
    let (out, given) = (Memory::Remote(Box::new(out)), Memory::Remote(Box::new(given)));
    // SAFETY: the program reads three elements of its second argument and writes one of its first,
    // as long as they are.
    unsafe {
        kernel.run(
            &[MemoryRef { memory: &out, offset: 0 }, MemoryRef { memory: &given, offset: 0 }],
            &program.launch,
        )?
    };
    let mut bits = [0; 4];
    let Memory::Remote(out) = &out else { return Ok(false) };
    out.read(0, &mut bits)?;
    Ok(f32::from_le_bytes(bits) == x.mul_add(x, y))
}

/// Returns a program that writes `fma(x[0], x[1], x[2])` of its second argument to its first.
fn fma_program() -> Program {
    let buffer = |slot: usize, len: usize| UOp::define_global(slot, len, DType::F32);
    let place = |buffer: &UOp, at: i64| buffer.at(UOp::constant(at, DType::I32));
    let args = vec![buffer(0, 1), buffer(1, 3)];
    let loads = [0, 1, 2].map(|at| place(&args[1], at).load());
    let [x, y, z] = &loads;
    let fma = x.fma(y, z);
    let store = place(&args[0], 0).store(&fma, &[]);
    let uops: Vec<UOp> = args.iter().cloned().chain(loads).chain([fma, store]).collect();
    let (name, launch) = ("fuses".to_string(), Launch::default());
    Program {
        colored: name.clone(),
        name,
        uops,
        launch,
        variables: Default::default(),
        args,
        writes: vec![0],
        estimate: Default::default(),
        times: Default::default(),
    }
}

/// The device's own clock, read before and after a launch.
pub(super) struct Clock {
    times: QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
    /// Nanoseconds of a tick.
    period: f32,
}

impl Clock {
    /// Creates the clock of a device that supports timestamp queries.
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Clock {
        let buffer = |usage| {
            device.create_buffer(&BufferDescriptor {
                label: None,
                size: 16,
                usage,
                mapped_at_creation: false,
            })
        };
        Clock {
            times: device.create_query_set(&QuerySetDescriptor {
                label: None,
                ty: QueryType::Timestamp,
                count: 2,
            }),
            resolved: buffer(BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC),
            staging: buffer(BufferUsages::MAP_READ | BufferUsages::COPY_DST),
            period: queue.get_timestamp_period(),
        }
    }
    fn writes(&self) -> ComputePassTimestampWrites<'_> {
        ComputePassTimestampWrites {
            query_set: &self.times,
            beginning_of_pass_write_index: Some(0),
            end_of_pass_write_index: Some(1),
        }
    }
    fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.resolve_query_set(&self.times, 0..2, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, 16);
    }
    /// Returns the time between the two readings. Launches that are timed are waited for, and
    /// kernels run one at a time, so there is one pair of readings.
    fn read(&self, shared: &WebGpuContext) -> Result<Duration> {
        let what = || "timing a kernel".to_string();
        shared.checked(&what, || self.staging.map_async(MapMode::Read, .., |_| ()))?;
        shared.finish(&what)?;
        let mapped = self
            .staging
            .get_mapped_range(..)
            .map_err(|e| Error::Device(format!("{}: {}: {e}", shared.name, what())))?;
        let tick = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| mapped[8 * i + k]));
        let ticks = tick(1).saturating_sub(tick(0));
        drop(mapped);
        self.staging.unmap();
        Ok(Duration::from_nanos((ticks as f64 * f64::from(self.period)) as u64))
    }
}

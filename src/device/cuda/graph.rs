//! Graph launches: kernels that the driver launches as one unit. Kernels that do not depend on each
//! other may run concurrently.

use super::driver::{Address, Handle, KernelNode};
use super::gpu::Gpu;
use super::kernel::{CudaKernel, addresses};
use crate::device::backend::{Executable, Graph, GraphKernel};
use crate::device::buffer::MemoryRef;
use crate::error::{Error, Result};
use crate::lower::Launch;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

/// A kernel of a graph.
struct Node {
    executable: Arc<dyn Executable>,
    launch: Launch,
    args: Range<usize>,
    /// The kernels that it depends on.
    after: Vec<usize>,
    /// The driver's node.
    handle: Handle,
}

/// A graph. The driver's graph is created at the first launch, with its addresses.
pub(super) struct CudaGraph {
    gpu: Arc<Gpu>,
    nodes: Vec<Node>,
    graph: Handle,
    ready: Handle,
    /// The addresses of all arguments, as the driver's graph has them.
    addresses: Vec<Address>,
    name: Arc<str>,
}

// SAFETY: the handles are the driver's, which lets every thread use them.
unsafe impl Send for CudaGraph {}

impl CudaGraph {
    /// Builds a graph of kernels; `None` if one of them is not a kernel of this GPU.
    pub fn new(
        gpu: &Arc<Gpu>,
        kernels: &[GraphKernel],
        meet: &dyn Fn(usize, usize) -> bool,
    ) -> Option<CudaGraph> {
        let mut nodes: Vec<Node> = Vec::new();
        // For each kernel its transitive dependencies, as bits.
        let mut before: Vec<Vec<u64>> = Vec::new();
        for (i, kernel) in kernels.iter().enumerate() {
            kernel_of(&**kernel.executable)?;
            let mut bits = vec![0u64; kernels.len().div_ceil(64)];
            let mut after = Vec::new();
            for j in (0..i).rev() {
                if bits[j / 64] >> (j % 64) & 1 == 0 && depends(kernel, &kernels[j], meet) {
                    after.push(j);
                    bits[j / 64] |= 1 << (j % 64);
                    bits.iter_mut().zip(&before[j]).for_each(|(b, c)| *b |= c);
                }
            }
            before.push(bits);
            nodes.push(Node {
                executable: kernel.executable.clone(),
                launch: Launch::default(),
                args: kernel.args.clone(),
                after,
                handle: null_mut(),
            });
        }
        let name =
            format!("one of a graph of {} kernels; JIT=2 starts them one by one", nodes.len())
                .into();
        Some(CudaGraph {
            gpu: gpu.clone(),
            nodes,
            graph: null_mut(),
            ready: null_mut(),
            addresses: Vec::new(),
            name,
        })
    }

    /// Creates the driver's graph.
    fn make(&mut self, addresses: &[Address], launch: &dyn Fn(usize) -> Launch) -> Result<()> {
        let gpu = self.gpu.clone();
        let mut graph = null_mut();
        // SAFETY: writes one handle; the flags have to be 0.
        gpu.call("creating a graph", |d| unsafe { (d.cuGraphCreate)(&mut graph, 0) })?;
        self.graph = graph;
        for i in 0..self.nodes.len() {
            let after: Vec<Handle> =
                self.nodes[i].after.iter().map(|&j| self.nodes[j].handle).collect();
            let node = &mut self.nodes[i];
            node.launch = launch(i);
            let own_addresses = &addresses[node.args.clone()];
            let function = own(&*node.executable)?.function_for(own_addresses)?;
            let mut handle = null_mut();
            with_node(function, own_addresses, &node.launch, |node| {
                // SAFETY: the graph is owned, and the passed data is copied before the call
                // returns.
                let add = |d: &super::driver::Driver| unsafe {
                    (d.cuGraphAddKernelNode)(&mut handle, graph, after.as_ptr(), after.len(), node)
                };
                gpu.call("adding a kernel to a graph", add)
            })?;
            node.handle = handle;
        }
        let mut ready = null_mut();
        // SAFETY: writes one handle; no flag is set.
        gpu.call("instantiating a graph", |d| unsafe {
            (d.cuGraphInstantiateWithFlags)(&mut ready, graph, 0)
        })?;
        (self.ready, self.addresses) = (ready, addresses.to_vec());
        Ok(())
    }
}

/// Returns true if a kernel must run after another: one of them writes memory that the other reads
/// or writes.
fn depends(kernel: &GraphKernel, other: &GraphKernel, meet: &dyn Fn(usize, usize) -> bool) -> bool {
    let writes = |c: &GraphKernel, d: &GraphKernel| {
        c.writes.iter().any(|w| d.args.clone().any(|a| meet(c.args.start + w, a)))
    };
    writes(kernel, other) || writes(other, kernel)
}

fn kernel_of(executable: &dyn Executable) -> Option<&CudaKernel> {
    executable.downcast()
}

fn own(executable: &dyn Executable) -> Result<&CudaKernel> {
    kernel_of(executable)
        .ok_or_else(|| Error::Device("a graph was given a kernel of another device".into()))
}

/// Calls a function with the driver's description of a kernel.
fn with_node<T>(
    function: Handle,
    addresses: &[Address],
    launch: &Launch,
    f: impl FnOnce(&KernelNode) -> T,
) -> T {
    let mut addresses = addresses.to_vec();
    let mut params: Vec<*mut c_void> = addresses.iter_mut().map(|a| (&raw mut *a).cast()).collect();
    let [grid, block] =
        [launch.grid, launch.local].map(|s| s.map(|n| u32::try_from(n).unwrap_or(u32::MAX)));
    f(&KernelNode {
        function,
        grid,
        block,
        shared: 0,
        params: params.as_mut_ptr(),
        extra: null_mut(),
    })
}

impl Graph for CudaGraph {
    unsafe fn launch(
        &mut self,
        args: &[MemoryRef],
        launch: &dyn Fn(usize) -> Launch,
    ) -> Result<()> {
        let gpu = self.gpu.clone();
        let addresses = addresses(&gpu, args)?;
        if self.ready.is_null() {
            self.make(&addresses, launch)?;
        }
        // A partially updated graph is in an unknown state.
        let before = std::mem::replace(&mut self.addresses, vec![0; addresses.len()]);
        for (i, node) in self.nodes.iter_mut().enumerate() {
            let (now, own_addresses) = (launch(i), &addresses[node.args.clone()]);
            if now == node.launch && before[node.args.clone()] == *own_addresses {
                continue;
            }
            let function = own(&*node.executable)?.function_for(own_addresses)?;
            with_node(function, own_addresses, &now, |params| {
                // SAFETY: both are owned, and the passed data is copied before the call returns.
                let set = |d: &super::driver::Driver| unsafe {
                    (d.cuGraphExecKernelNodeSetParams)(self.ready, node.handle, params)
                };
                gpu.call("updating a graph", set)
            })?;
            node.launch = now;
        }
        self.addresses = addresses;
        gpu.note(&self.name);
        // SAFETY: both are alive; the caller of the launch keeps the buffers, and frees are ordered
        // by the stream.
        gpu.call("launching a graph", |d| unsafe { (d.cuGraphLaunch)(self.ready, gpu.stream) })
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // It may still run. The objects of a lost GPU are freed already.
        if self.graph.is_null() || self.gpu.synchronize().is_err() {
            return;
        }
        // SAFETY: both are owned and not used again.
        let _ = self.gpu.ask(|d| unsafe {
            if !self.ready.is_null() {
                (d.cuGraphExecDestroy)(self.ready);
            }
            (d.cuGraphDestroy)(self.graph)
        });
    }
}

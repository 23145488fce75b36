//! Custom kernels, as nodes that every device compiles, or as source text for one device. Their
//! outputs are lazy tensors in one graph with all others.

use super::Tensor;
use super::broadcast::device_of;
use crate::device::registry::{canonical, language};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::typed::{self, Index, Range, Reduce, Store};
use crate::ir::{Arg, AxisKind, Custom, DeviceName, Op, Source, Src, UOp};
use crate::kernel::extent;
use crate::lower;
use crate::shape::{Dims, checked_numel};
use crate::symbolic::{Linear, simplify};
use std::sync::Arc;

const OP: &str = "custom_kernel";

/// Builds the stores from the buffers of outputs and inputs.
type BuildFn<'a> = dyn FnOnce(&[UOp], &[UOp]) -> Vec<UOp> + 'a;
/// Returns a gradient per input from the gradients of the outputs and the inputs.
type GradFn = dyn Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;

/// Kernel for [`Tensor::custom_kernel`].
pub struct CustomKernel<'a> {
    body: Body<'a>,
    grad: Option<Arc<GradFn>>,
}

enum Body<'a> {
    Nodes(Box<BuildFn<'a>>),
    Text(Source),
}

impl<'a> CustomKernel<'a> {
    /// Kernel of nodes. The function takes the buffers of outputs and inputs, one-dimensional and
    /// row-major, and returns [stores](UOp::store): values of [loads](UOp::load),
    /// [reductions](UOp::fold) and elementwise ops, at indices over [ranges](UOp::range). All
    /// stores close the same ranges, of the kind `Global`. Elements that no store writes are
    /// undefined.
    ///
    /// It is optimized and compiled like all kernels. An access that is not proven inside its
    /// buffer is an error.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// use picograd::compiler::ir::{AxisKind, Fold, UOp};
    /// use picograd::tensor::CustomKernel;
    /// // The sum of each row.
    /// let rows = CustomKernel::new(|outputs, inputs| {
    ///     let (row, column) =
    ///         (UOp::range(2, 0, AxisKind::Global), UOp::range(3, 1, AxisKind::Reduce));
    ///     let sum = inputs[0].at(&row * 3 + &column).load().fold(Fold::Add, &[column]);
    ///     vec![outputs[0].at(&row).store(sum, &[row])]
    /// });
    /// let x = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// let sums = Tensor::custom_kernel(&[&x], &[(&[2], DType::F32)], rows)?.remove(0);
    /// assert_eq!((sums + 1.0).to_vec::<f32>()?, [7.0, 16.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(nodes: impl FnOnce(&[UOp], &[UOp]) -> Vec<UOp> + 'a) -> CustomKernel<'a> {
        CustomKernel { body: Body::Nodes(Box::new(nodes)), grad: None }
    }

    /// Kernel as source text for a device, which calls `entry` with a pointer to each output and
    /// each input, in order.
    ///
    /// | device | language | signature |
    /// |---|---|---|
    /// | `CPU:CLANG`, `CPU:X86` | C | the pointers, then the index of the call as `long` |
    /// | `CPU:LLVM` | LLVM IR | `entry_entry`: an array of the pointers, the index as `i64`, null |
    /// | `CUDA` | CUDA C | `extern "C" __global__` |
    /// | `CL` | OpenCL C | `__kernel`; pointers, then the index of each first element, `ulong` |
    ///
    /// # Safety
    /// The text is not checked. It has to be correct for the shapes and dtypes that it is used
    /// with: it writes the outputs, reads the inputs, stays inside both, and its calls and threads
    /// do not write what another one accesses.
    ///
    /// ```
    /// use picograd::{DType, Device, Tensor, tensor::CustomKernel};
    /// let text = "void twice(float* out, const float* in, long call) { for (int i = 0; i < \
    ///             3; i++) out[i] = in[i] * 2; }";
    /// # if Device::get("CPU:CLANG").is_err() { return Ok(()); }
    /// let x = Tensor::new([1.0f32, 2.0, 3.0]).to("CPU:CLANG");
    /// // SAFETY: it writes and reads three floats.
    /// let twice = unsafe { CustomKernel::source("CPU:CLANG", "twice", text) };
    /// let y = Tensor::custom_kernel(&[&x], &[(&[3], DType::F32)], twice)?.remove(0);
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub unsafe fn source(device: &str, entry: &str, text: &str) -> CustomKernel<'a> {
        let (grid, local) = ([1; 3], [1; 3]);
        let source = Source {
            device: DeviceName::new(device),
            entry: entry.into(),
            text: text.into(),
            grid,
            local,
            outputs: 0,
        };
        CustomKernel { body: Body::Text(source), grad: None }
    }

    /// Launch size of a text: workgroups per dimension, and threads of each. On a CPU the first
    /// number is that of the shares, which run in parallel. The default is one. A kernel of nodes
    /// is launched by its ranges.
    ///
    /// ```
    /// use picograd::tensor::CustomKernel;
    /// // SAFETY: it is not run.
    /// let kernel =
    ///     unsafe { CustomKernel::source("CUDA", "add", "…") }.launch([16, 1, 1], [256, 1, 1]);
    /// # drop(kernel);
    /// ```
    pub fn launch(mut self, grid: [usize; 3], local: [usize; 3]) -> CustomKernel<'a> {
        if let Body::Text(source) = &mut self.body {
            (source.grid, source.local) = (grid, local);
        }
        self
    }

    /// Gradient: a function of the gradients of the outputs and of the inputs that returns one
    /// gradient per input, of its shape and dtype. It has to be linear in the gradients of the
    /// outputs. A kernel without one is not differentiable.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// use picograd::compiler::ir::{AxisKind, UOp};
    /// use picograd::tensor::CustomKernel;
    /// let square = CustomKernel::new(|outputs, inputs| {
    ///     let i = UOp::range(2, 0, AxisKind::Global);
    ///     let x = inputs[0].at(&i).load();
    ///     vec![outputs[0].at(&i).store(&x * &x, &[i])]
    /// });
    /// let square = square.grad(|upstream, inputs| Ok(vec![&upstream[0] * &inputs[0] * 2.0]));
    /// let x = Tensor::new([3.0f32, 4.0]).as_param();
    /// Tensor::custom_kernel(&[&x], &[(&[2], DType::F32)], square)?[0].sum(..).backward();
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [6.0, 8.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn grad(
        mut self,
        grad: impl Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> CustomKernel<'a> {
        self.grad = Some(Arc::new(grad));
        self
    }
}

impl Tensor {
    /// Applies a custom kernel to the inputs; returns a tensor for each output of the given shapes
    /// and dtypes. When one of them is realized, the inputs are stored in row-major order, and the
    /// kernel writes all outputs. On several devices everything is replicated.
    ///
    /// [`CustomKernel`] describes how a kernel is written, with examples.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// use picograd::compiler::ir::{AxisKind, UOp};
    /// use picograd::tensor::CustomKernel;
    /// let past_the_end = CustomKernel::new(|outputs, inputs| {
    ///     let i = UOp::range(4, 0, AxisKind::Global);
    ///     vec![outputs[0].at(&i).store(inputs[0].at(&i + 1).load(), &[i])]
    /// });
    /// let (x, out): (_, &[usize]) = (Tensor::arange(0, 4, 1), &[4]);
    /// let e = Tensor::custom_kernel(&[&x], &[(out, DType::I32)], past_the_end).unwrap_err();
    /// assert!(e.to_string().starts_with("compile: custom_kernel: "));
    /// ```
    pub fn custom_kernel(
        inputs: &[&Tensor],
        outputs: &[(&[usize], DType)],
        kernel: CustomKernel<'_>,
    ) -> Result<Vec<Tensor>> {
        let (n, m) = (inputs.len(), outputs.len());
        if n == 0 || m == 0 {
            return wrong_shape!(OP, "expected an input and an output at least, got {n} and {m}");
        }
        let device = device_of(OP, inputs.iter().copied())?;
        let outputs: Vec<(DType, Dims)> =
            outputs.iter().map(|(s, d)| (*d, Dims::from(*s))).collect();
        let given: Vec<(DType, Dims)> = inputs.iter().map(|t| (t.dtype(), t.dims())).collect();
        let args = buffers(outputs.iter().chain(&given))?;
        let (written, read) = args.split_at(m);
        let ast = match kernel.body {
            Body::Nodes(nodes) => check_kernel(UOp::sink(nodes(written, read)), written, read)?,
            Body::Text(source) => source_node(source, &args, m, device)?,
        };
        let custom = Arc::new(Custom { ast, outputs });
        let output = |i: usize| {
            let apply = |inputs: &[Tensor]| Ok(apply(&custom, inputs, device)?.swap_remove(i));
            if !custom.outputs[i].0.is_float() {
                return apply(&inputs.iter().map(|t| t.detach()).collect::<Vec<_>>());
            }
            Tensor::call(inputs, apply, output_gradient(&custom, i, kernel.grad.clone()))
        };
        (0..m).map(output).collect()
    }
}

/// Gradient of one output of a kernel, where the upstream gradients of the others are zeros.
fn output_gradient(
    custom: &Custom,
    i: usize,
    grad: Option<Arc<GradFn>>,
) -> impl Fn(&Tensor, &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static {
    let outputs = custom.outputs.clone();
    move |g, inputs| {
        let Some(grad) = &grad else {
            return refuse!(
                Gradient,
                "custom_kernel: the kernel has no gradient; give it one with CustomKernel::grad, \
                 or detach() its inputs"
            );
        };
        let upstream = |(j, (dtype, shape)): (usize, &(DType, Dims))| {
            if j == i { g.clone() } else { Tensor::zeros(&shape[..]).cast(*dtype) }
        };
        grad(&outputs.iter().enumerate().map(upstream).collect::<Vec<_>>(), inputs)
    }
}

/// Buffer nodes of the arguments of a kernel, which must not be empty.
fn buffers<'a>(arguments: impl Iterator<Item = &'a (DType, Dims)>) -> Result<Vec<UOp>> {
    let node = |(slot, (dtype, shape)): (usize, &(DType, Dims))| {
        if !DType::ALL.contains(dtype) {
            return wrong_dtype!(OP, "a tensor cannot hold {dtype}");
        }
        match checked_numel(OP, shape)? {
            0 => wrong_shape!(OP, "a buffer of {dtype} {shape:?} is empty"),
            len => Ok(buffer_node(slot, *dtype, len)),
        }
    };
    arguments.enumerate().map(node).collect()
}

fn buffer_node(slot: usize, dtype: DType, len: usize) -> UOp {
    UOp::define_global(slot, len, dtype)
}

/// Returns the outputs of a kernel on inputs, without gradients.
fn apply(kernel: &Arc<Custom>, inputs: &[Tensor], device: &DeviceName) -> Result<Vec<Tensor>> {
    let src: Src = inputs.iter().map(|t| input_node(t, device)).collect::<Result<_>>()?;
    let node = typed::Kernel::build(DType::VOID, Arg::Kernel(kernel.clone()), src);
    let output = |(i, (dtype, _)): (usize, &(DType, Dims))| {
        let output = typed::Output::build(*dtype, Arg::Output(i), node.clone());
        Tensor::from_uop(output, device.clone())
    };
    Ok(kernel.outputs.iter().enumerate().map(output).collect())
}

/// Kernel of the library, which is correct by construction: it may run sequentially and read what
/// it wrote. Inputs are given by dtype and length; no buffer is empty.
pub(super) fn library_kernel(
    inputs: &[(DType, usize)],
    outputs: &[(&[usize], DType)],
    sink: impl FnOnce(&[UOp], &[UOp]) -> UOp,
) -> Arc<Custom> {
    let outputs: Vec<(DType, Dims)> =
        outputs.iter().map(|(shape, dtype)| (*dtype, Dims::from_slice(shape))).collect();
    let sizes = outputs.iter().map(|(dtype, shape)| (*dtype, shape.iter().product()));
    let args = sizes.chain(inputs.iter().copied()).enumerate();
    let args: Vec<UOp> = args.map(|(slot, (dtype, len))| buffer_node(slot, dtype, len)).collect();
    let (written, read) = args.split_at(outputs.len());
    let ast = simplify(&sink(written, read));
    Arc::new(Custom { ast, outputs })
}

/// Returns the outputs of a library kernel on inputs of one device, without gradients.
pub(super) fn apply_library_kernel(
    kernel: &Arc<Custom>,
    inputs: &[&Tensor],
) -> Result<Vec<Tensor>> {
    let detached: Vec<Tensor> = inputs.iter().map(|t| t.detach()).collect();
    apply(kernel, &detached, inputs[0].device())
}

/// Returns the node of an input, stored on the device if it reads no storage.
fn input_node(t: &Tensor, device: &DeviceName) -> Result<UOp> {
    let uop = t.uop();
    t.require_static(OP, 0..t.ndim())?;
    if uop.has_data() {
        return Ok(uop);
    }
    if device.is_multi_device() {
        return Ok(Tensor::from_uop(uop, super::realize::default_device())
            .try_to(device.as_str())?
            .uop());
    }
    Ok(uop.contiguous_on(device))
}

fn invalid<T>(msg: String) -> Result<T> {
    Err(Error::Compile { msg: format!("{OP}: {msg}"), source_at: None })
}

/// Checks a kernel of nodes: valid ops on the given buffers, with every access inside them.
fn check_kernel(ast: UOp, written: &[UOp], read: &[UOp]) -> Result<UOp> {
    if let Err(e) = lower::check_unoptimized(&ast) {
        return invalid(e);
    }
    // Opts apply to the simplified form, so that inputs which it does not read are reported here.
    let ast = simplify(&ast);
    let nodes = ast.toposort();
    let stores: Vec<Store<'_>> = ast.src().iter().map(UOp::expect_store).collect();
    check_nodes(&nodes, &stores, written, read)?;
    check_stores(&nodes, &stores, written, read)?;
    lower::proven(&ast)
        .or_else(|e| invalid(format!("cannot prove that the kernel stays inside its buffers: {e}")))
}

/// Checks ranges, reductions and accesses of a kernel.
fn check_nodes(nodes: &[UOp], stores: &[Store<'_>], written: &[UOp], read: &[UOp]) -> Result<()> {
    for u in nodes {
        if let Some(Range { extent, .. }) = u.as_range() {
            let closed_by_store = stores.iter().any(|s| s.ranges.contains(u));
            let kind = if closed_by_store { AxisKind::Global } else { AxisKind::Reduce };
            let literal = extent.op() == Op::Const && extent.vmin() >= 1;
            if u.range_kind() != kind || !literal || u.dtype() != DType::INDEX {
                return invalid(format!(
                    "expected a range of the kind {kind:?} with a constant extent of 1 or more, \
                     because {} closes it: {u:?}",
                    if closed_by_store { "a store" } else { "a reduction" }
                ));
            }
        }
        if let Some(Reduce { body, ranges, .. }) = u.as_reduce() {
            let inner = body.toposort();
            let reduces = inner.iter().filter_map(UOp::as_reduce);
            if let Some(r) = ranges.iter().find(|r| reduces.clone().any(|i| i.ranges.contains(r))) {
                return invalid(format!(
                    "nested reductions share the range {r:?}; give each its own range"
                ));
            }
        }
        if matches!(u.op(), Op::Var | Op::Scan) {
            return invalid(format!("{:?} is not allowed in a custom kernel: {u:?}", u.op()));
        }
        if u.op() == Op::DefineGlobal && !written.contains(u) && !read.contains(u) {
            return invalid(format!("the kernel was not given this buffer: {u:?}"));
        }
        if u.as_load().is_some_and(|l| !read.contains(l.place.buffer)) {
            return invalid(format!("reads an output, which is undefined: {u:?}"));
        }
    }
    Ok(())
}

/// Checks that stores write every output, close the same ranges and do not overlap.
fn check_stores(nodes: &[UOp], stores: &[Store<'_>], written: &[UOp], read: &[UOp]) -> Result<()> {
    let stored: Vec<&UOp> = stores.iter().map(|s| s.place.buffer).collect();
    if let Some(i) = written.iter().position(|w| !stored.contains(&w)) {
        return invalid(format!("nothing is stored to output {i}"));
    }
    if let Some(s) = stored.iter().find(|s| !written.contains(s)) {
        return invalid(format!("stores to an input: {s:?}"));
    }
    if let Some(i) = read.iter().position(|r| !nodes.contains(r)) {
        return invalid(format!("input {i} is not read; leave it out"));
    }
    let first = stores[0].ranges;
    if stores.iter().any(|s| s.ranges != first) {
        return invalid(
            "all stores have to close the same ranges in one order; use several kernels".into(),
        );
    }
    if let Some(r) =
        first.iter().find(|r| r.op() != Op::Range || r.range_kind() != AxisKind::Global)
    {
        return invalid(format!("expected ranges of the kind Global at a store, got {r:?}"));
    }
    if let Some(s) = stores.iter().find(|s| !stores_are_distinct(s.place.index, first)) {
        return invalid(format!(
            "cannot prove that iterations of the ranges store to distinct elements: {:?}",
            s.place.node
        ));
    }
    for (i, a) in stores.iter().enumerate() {
        if let Some(b) = stores[..i].iter().find(|b| may_overlap(a.place, b.place)) {
            let (a, b) = (a.place.node, b.place.node);
            return invalid(format!(
                "cannot prove that two stores write distinct elements: {b:?} and {a:?}"
            ));
        }
    }
    if let Some(i) = written.iter().position(|w| w.dtype().is_bool() && !covered(w, stores, first))
    {
        return invalid(format!(
            "not every element of output {i} is stored, as bools require: their memory may hold \
             only 0 and 1"
        ));
    }
    Ok(())
}

/// Returns true if each iteration of the ranges stores to another element: the index is a sum of
/// ranges with constant strides, each larger than the reach of the smaller ones.
fn stores_are_distinct(place: &UOp, ranges: &[UOp]) -> bool {
    let long = |r: &&UOp| r.op() == Op::Range && extent(r) > 1;
    let Some(linear) = Linear::of(place) else { return ranges.iter().find(long).is_none() };
    let mut strides: Vec<(i128, i128)> = ranges
        .iter()
        .filter(long)
        .map(|r| (i128::from(linear.coefficient(r)).abs(), extent(r) as i128))
        .collect();
    strides.sort_unstable();
    let mut reach = 0;
    linear.terms.iter().all(|(t, _)| ranges.contains(t))
        && strides.into_iter().all(|(stride, extent)| {
            let apart = stride > reach;
            reach += stride * (extent - 1);
            apart
        })
}

/// Returns true if two stores may write one element. They do not if the difference of their indices
/// is never zero: for a stride `g`, terms that are multiples of `g` add a multiple of it, and the
/// others and the constants stay between two multiples.
fn may_overlap(a: Index<'_>, b: Index<'_>) -> bool {
    if a.buffer != b.buffer {
        return false;
    }
    let (Some(x), Some(y)) = (Linear::of(a.index), Linear::of(b.index)) else {
        return true;
    };
    let terms = || {
        x.terms
            .iter()
            .map(|(t, c)| (t, i128::from(*c)))
            .chain(y.terms.iter().map(|(t, c)| (t, -i128::from(*c))))
    };
    let apart = |g: i128| {
        let (mut least, mut greatest) = (
            i128::from(x.constant) - i128::from(y.constant),
            i128::from(x.constant) - i128::from(y.constant),
        );
        for (t, c) in terms().filter(|(_, c)| g == 0 || c % g != 0) {
            let ends = [t.vmin().saturating_mul(c), t.vmax().saturating_mul(c)];
            least = least.saturating_add(ends[0].min(ends[1]));
            greatest = greatest.saturating_add(ends[0].max(ends[1]));
        }
        if g == 0 {
            least > 0 || greatest < 0
        } else {
            least.rem_euclid(g) != 0 && least.div_euclid(g) == greatest.div_euclid(g)
        }
    };
    !(apart(0) || terms().any(|(_, c)| apart(c.abs())))
}

/// Returns true if disjoint stores write every element of an output: there are as many iterations
/// as elements.
fn covered(output: &UOp, stores: &[Store<'_>], ranges: &[UOp]) -> bool {
    let Arg::Global { len, .. } = output.arg() else { return false };
    let steps = ranges.iter().try_fold(1usize, |n, r| n.checked_mul(extent(r)));
    let to_it = || stores.iter().filter(|s| s.place.buffer == output);
    to_it().all(|s| s.place.mask.is_none())
        && steps.and_then(|n| n.checked_mul(to_it().count())) == Some(*len)
}

/// Source node for the device of the tensors.
fn source_node(source: Source, args: &[UOp], outputs: usize, device: &DeviceName) -> Result<UOp> {
    let name = language(&canonical(source.device.as_str())?);
    if let Some(other) = device.each().iter().find(|d| language(d) != name) {
        return refuse!(
            Device,
            "{OP}: the source is for {}, but the tensors are on {other}; move them with .to(…)",
            source.device
        );
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if source.entry.is_empty()
        || !source.entry.chars().all(word)
        || source.entry.starts_with(|c: char| c.is_ascii_digit())
    {
        return invalid(format!("{:?} is not a function name", source.entry));
    }
    if source.grid.iter().chain(&source.local).any(|n| *n == 0) {
        return invalid(format!(
            "a launch of {:?} workgroups of {:?} threads is empty",
            source.grid, source.local
        ));
    }
    let source = Source { device: name, outputs, ..source };
    Ok(UOp::new(
        Op::Source,
        DType::VOID,
        args.iter().cloned().collect::<Src>(),
        Arg::Source(Arc::new(source)),
    ))
}

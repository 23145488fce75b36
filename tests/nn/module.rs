//! The derive, parameters and buffers by name, state dicts, and training and evaluation modes.

use picograd::io::StateDict;
use picograd::nn::{BatchNorm, Dropout, Embedding, Layer, Linear, Mode, Module, Sequential};
use picograd::{DType, Result, Tensor, seq};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

fn names(list: Vec<(String, Tensor)>) -> Vec<String> {
    list.into_iter().map(|(name, _)| name).collect()
}

fn param(n: usize) -> Tensor {
    Tensor::zeros([n]).as_param()
}

/// A type that is not a module; the macro is told to skip it.
struct Cache;

#[derive(Module)]
struct Everything<A, B: Layer, const N: usize, T = ()>
where
    A: Clone,
{
    weight: Tensor,
    mean: Tensor,
    part: A,
    list: Vec<B>,
    none: Option<Tensor>,
    some: Option<Linear>,
    array: [Tensor; N],
    boxed: Box<dyn Layer>,
    shared: Arc<Linear>,
    pair: (Tensor, usize),
    by_name: BTreeMap<String, Tensor>,
    nested: Vec<Vec<Option<Tensor>>>,
    r#type: Tensor,
    size: usize,
    scale: f32,
    on: bool,
    name: String,
    label: &'static str,
    dtype: DType,
    act: fn(&Tensor) -> Tensor,
    mode: Mode,
    _kind: PhantomData<T>,
    #[module(skip)]
    _cache: Cache,
    #[module(skip)]
    _table: Tensor,
}

#[derive(Module)]
struct Pair(Linear, Tensor, u8);

#[derive(Module)]
struct Nothing;

#[derive(Module)]
struct Borrowed<'a, M> {
    inner: &'a M,
}

fn everything() -> Everything<Tensor, Linear, 2> {
    Everything {
        weight: param(1),
        mean: Tensor::zeros([1]),
        part: param(2),
        list: vec![Linear::new(1, 1).bias(false), Linear::new(1, 1)],
        none: None,
        some: Some(Linear::new(1, 1)),
        array: [param(1), Tensor::zeros([1])],
        boxed: Box::new(Linear::new(1, 1)),
        shared: Arc::new(Linear::new(1, 1)),
        pair: (param(1), 3),
        by_name: [("left".to_string(), param(1))].into(),
        nested: vec![vec![None, Some(param(1))]],
        r#type: param(1),
        size: 3,
        scale: 0.5,
        on: true,
        name: "net".into(),
        label: "x",
        dtype: DType::F32,
        act: Tensor::relu,
        mode: Mode::default(),
        _kind: PhantomData,
        _cache: Cache,
        _table: Tensor::zeros([1]),
    }
}

#[test]
fn every_field_kind_is_visited() {
    let m = everything();
    let expected = [
        "weight",
        "part",
        "list.0.weight",
        "list.1.weight",
        "list.1.bias",
        "some.weight",
        "some.bias",
        "array.0",
        "boxed.weight",
        "boxed.bias",
        "shared.weight",
        "shared.bias",
        "pair.0",
        "by_name.left",
        "nested.0.1",
        "type",
    ];
    assert_eq!(names(m.named_parameters()), expected);
    assert_eq!(names(m.named_buffers()), ["mean", "array.1"]);
    let settings = (m.size, m.scale, m.on, m.name.as_str(), m.label, m.dtype);
    assert_eq!(settings, (3, 0.5, true, "net", "x", DType::F32));
    assert_eq!((m.act)(&Tensor::new([-1.0f32])).item::<f32>().unwrap(), 0.0);
    m.eval();
    assert!(!m.mode.is_training());
    m.train();
    assert!(m.mode.is_training());
}

#[test]
fn tuple_unit_and_borrowing_structs_are_modules() {
    let pair = Pair(Linear::new(2, 3), Tensor::zeros([4]), 7);
    assert_eq!(pair.2, 7);
    assert_eq!(names(pair.named_parameters()), ["0.weight", "0.bias"]);
    assert_eq!(names(pair.named_buffers()), ["1"]);
    assert_eq!(Borrowed { inner: &pair }.num_parameters(), 9);
    assert!(Nothing.parameters().is_empty());
}

#[test]
fn a_shared_parameter_is_updated_once() {
    #[derive(Module)]
    struct Tied {
        table: Embedding,
        head: Linear,
    }
    let table = Embedding::new(5, 3);
    let head = Linear { weight: table.weight.clone(), bias: None };
    let tied = Tied { table, head };
    assert_eq!(tied.parameters().len(), 1);
    assert_eq!(names(tied.named_parameters()), ["table.weight", "head.weight"]);
    assert_eq!(tied.state_dict().len(), 2);
}

fn net() -> Sequential {
    seq![
        Linear::new(3, 4),
        BatchNorm::new(4),
        Tensor::relu,
        Dropout::new(0.5),
        |x: &Tensor| x * 2.0,
        Linear::new(4, 2).bias(false)
    ]
}

#[test]
fn sequential_layers_are_named_by_position() {
    let net = net();
    assert_eq!((net.len(), net.is_empty()), (6, false));
    let expected = [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
        "5.weight",
    ];
    assert_eq!(net.state_dict().iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!(net.num_parameters(), 12 + 4 + 8 + 8);
}

#[test]
fn state_dicts_round_trip() {
    let (a, b) = (net(), net());
    let x = Tensor::randn([6, 3]).realize().unwrap();
    a.forward(&x).realize().unwrap();
    let saved = a.state_dict();
    b.load_state_dict(&saved, true).unwrap();
    a.eval();
    b.eval();
    assert_eq!(a.forward(&x).to_vec::<f32>().unwrap(), b.forward(&x).to_vec::<f32>().unwrap());
    assert_eq!(saved.require("1.num_batches_tracked").unwrap().item::<i64>().unwrap(), 1);
    assert!(b.parameters().iter().all(Tensor::is_param), "a parameter stays one");
}

#[test]
fn a_state_dict_is_a_snapshot() {
    let layer = Linear::new(1, 1).bias(false);
    layer.weight.assign(1.0).unwrap();
    let saved = layer.state_dict();
    layer.weight.assign(2.0).unwrap();
    assert_eq!(saved.require("weight").unwrap().item::<f32>().unwrap(), 1.0);
    layer.load_state_dict(&saved, true).unwrap();
    assert_eq!(layer.weight.item::<f32>().unwrap(), 1.0);
    assert!(!saved.require("weight").unwrap().requires_grad());
}

#[test]
fn mismatched_state_reports_all_errors() {
    let layer = Linear::new(3, 2);
    let before = layer.weight.to_vec::<f32>().unwrap();
    let state =
        StateDict::from_iter([("weight", Tensor::zeros([2, 4])), ("offset", Tensor::zeros([2]))]);
    let e = layer.load_state_dict(&state, true).unwrap_err().to_string();
    for part in ["1 missing: bias", "1 extra: offset", "weight is [2, 4], expected [2, 3]"] {
        assert!(e.contains(part), "{e:?} does not say {part:?}");
    }
    assert_eq!(layer.weight.to_vec::<f32>().unwrap(), before);
    // Without `strict`, matching names are loaded, but a wrong shape is still an error.
    assert!(layer.load_state_dict(&state, false).is_err());
    let some = StateDict::from_iter([("bias", Tensor::ones([2])), ("offset", Tensor::zeros([2]))]);
    layer.load_state_dict(&some, false).unwrap();
    assert_eq!(layer.bias.as_ref().unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
}

#[test]
fn train_and_eval_modes_differ() {
    let net = seq![Dropout::new(0.5), BatchNorm::new(2)];
    let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
    net.eval();
    let y = net.forward(&x).to_vec::<f32>().unwrap();
    assert!(y.iter().zip([1.0, 2.0, 3.0, 4.0]).all(|(y, x)| (y - x).abs() < 1e-4), "{y:?}");
    let state = net.state_dict();
    assert_eq!(state.require("1.num_batches_tracked").unwrap().item::<i64>().unwrap(), 0);
    net.train();
    assert_ne!(net.forward(&x).to_vec::<f32>().unwrap(), y);
    assert_eq!(
        net.state_dict().require("1.num_batches_tracked").unwrap().item::<i64>().unwrap(),
        1
    );
}

#[test]
fn custom_layers_work_in_sequential() {
    #[derive(Module)]
    struct Residual<L> {
        inner: L,
    }
    impl<L: Layer> Layer for Residual<L> {
        fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
            self.inner.try_forward(x)?.try_add(x)
        }
    }
    let net = seq![
        Residual { inner: Linear::new(2, 2) },
        Residual { inner: seq![Linear::new(2, 2), Tensor::tanh] }
    ];
    assert_eq!(
        names(net.named_parameters()),
        ["0.inner.weight", "0.inner.bias", "1.inner.0.weight", "1.inner.0.bias"]
    );
    let chain: Sequential = (0..3).map(|_| Linear::new(2, 2).bias(false)).collect();
    assert_eq!(names(chain.named_parameters()), ["0.weight", "1.weight", "2.weight"]);
    assert_eq!(net.forward(&Tensor::zeros([1, 2])).shape(), [1, 2]);
    let wrong = net.try_forward(&Tensor::zeros([1, 3])).unwrap_err().to_string();
    assert_eq!(wrong, "Linear: expected […, 2], got [1, 3]");
}

/// The first forward pass computes and stores fresh weights; the second reads them.
#[test]
fn fresh_weights_are_computed_once() {
    for grad in [true, false] {
        let layer = Linear::new(8, 4);
        let x = Tensor::new(vec![1.0f32; 16]).reshape([2, 8]);
        let forward =
            || if grad { layer.forward(&x) } else { picograd::no_grad(|| layer.forward(&x)) };
        let first = forward().to_vec::<f32>().unwrap();
        assert!(layer.weight.schedule().unwrap().is_empty(), "the weight is stored");
        assert!(layer.weight.is_param() && layer.weight.requires_grad());
        assert_eq!(forward().schedule().unwrap().len(), 1);
        assert_eq!(forward().to_vec::<f32>().unwrap(), first);
    }
}

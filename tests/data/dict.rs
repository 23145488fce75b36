//! State dicts: order, prefixes, and loading into existing tensors.

use picograd::io::StateDict;
use picograd::{DType, Tensor};

fn targets(pairs: &[(&str, &Tensor)]) -> Vec<(String, Tensor)> {
    pairs.iter().map(|(n, t)| (n.to_string(), (*t).clone())).collect()
}

#[test]
fn names_keep_insertion_order() {
    let mut s = StateDict::new();
    for name in ["z", "a", "m"] {
        assert!(s.insert(name, Tensor::zeros([1])).is_none());
    }
    assert_eq!(s.insert("a", Tensor::zeros([2])).unwrap().shape(), [1]);
    assert_eq!(s.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["z", "a", "m"]);
    assert_eq!(s.get("a").unwrap().shape(), [2]);
    let mut outer = StateDict::new();
    outer.extend_prefixed("layers.0", &s);
    outer.extend_prefixed("", &s);
    assert_eq!(
        outer.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(),
        ["layers.0.z", "layers.0.a", "layers.0.m", "z", "a", "m"]
    );
    assert_eq!(
        outer.under("layers").iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(),
        ["0.z", "0.a", "0.m"]
    );
    let e = s.require("q").unwrap_err().to_string();
    assert!(e.contains("\"q\"") && e.contains("z, a, m"), "{e}");
    assert_eq!(
        format!("{s:?}").lines().nth(1),
        Some(format!("a: f32 [2] on {}", Tensor::zeros([1]).device()).as_str())
    );
}

#[test]
fn strict_load_reports_all_errors_and_changes_nothing() {
    let fine = Tensor::new([1.0f32, 2.0]);
    let (shape, dtype, gone) = (Tensor::zeros([2, 2]), Tensor::zeros([2]), Tensor::zeros([1]));
    let state = StateDict::from_iter([
        ("fine", Tensor::new([8.0f32, 9.0])),
        ("shape", Tensor::zeros([4])),
        ("dtype", Tensor::new([1i32, 2])),
        ("more", Tensor::zeros([1])),
        ("even.more", Tensor::zeros([1])),
    ]);
    let to = targets(&[("fine", &fine), ("shape", &shape), ("dtype", &dtype), ("gone", &gone)]);
    let e = state.load_into(&to, true).unwrap_err().to_string();
    assert_eq!(
        e,
        "state: 1 missing: gone; 2 extra: more, even.more; 1 with another shape: shape is [4], \
         expected [2, 2]; 1 with another dtype: dtype is i32, expected f32"
    );
    assert_eq!(fine.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    // Without `strict`, names may differ and dtypes are cast; shapes must be equal.
    let e = state.load_into(&to, false).unwrap_err().to_string();
    assert_eq!(e, "state: 1 with another shape: shape is [4], expected [2, 2]");
    assert_eq!(fine.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    state
        .load_into(&targets(&[("fine", &fine), ("dtype", &dtype), ("gone", &gone)]), false)
        .unwrap();
    assert_eq!(fine.to_vec::<f32>().unwrap(), [8.0, 9.0]);
    assert_eq!((dtype.to_vec::<f32>().unwrap(), dtype.dtype()), (vec![1.0, 2.0], DType::F32));
    assert_eq!(gone.to_vec::<f32>().unwrap(), [0.0]);
}

#[test]
fn loaded_values_move_to_the_target_device() {
    let source = Tensor::new([1.0f32, 2.0]);
    let state = StateDict::from_iter([("w", source.clone())]);
    let other = if source.device().as_str() == "INTERP" { "NULL" } else { "INTERP" };
    let target = Tensor::zeros([2]).to(other);
    state.load_into(&targets(&[("w", &target)]), true).unwrap();
    assert_eq!(target.device().as_str(), other);
    // On the same device, the two share memory until an assignment.
    let near = Tensor::zeros([2]);
    state.load_into(&targets(&[("w", &near)]), true).unwrap();
    near.assign(&near + 10.0).unwrap();
    near.realize().unwrap();
    assert_eq!(near.to_vec::<f32>().unwrap(), [11.0, 12.0]);
    assert_eq!(source.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    // A model can load its own state.
    StateDict::from_iter([("w", near.clone())]).load_into(&targets(&[("w", &near)]), true).unwrap();
    assert_eq!(near.to_vec::<f32>().unwrap(), [11.0, 12.0]);
}

#[test]
fn loaded_state_is_detached() {
    let source = Tensor::new([1.0f32, 2.0]).as_param();
    let (param, buffer) = (Tensor::zeros([2]).as_param(), Tensor::zeros([2]));
    let state = StateDict::from_iter([("p", source.clone()), ("b", source.clone())]);
    state.load_into(&targets(&[("p", &param), ("b", &buffer)]), true).unwrap();
    assert!(param.is_param() && !buffer.requires_grad());
    (&param * &buffer).sum(..).backward();
    assert_eq!(param.grad().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert!(source.grad().is_none());
}

#[test]
fn snapshot_keeps_values() {
    let w = Tensor::new([1.0f32, 2.0]).as_param();
    let state = StateDict::from_iter([("w", w.clone())]);
    let best = state.snapshot();
    for _ in 0..3 {
        w.assign(&w * 10.0).unwrap();
        w.realize().unwrap();
    }
    assert_eq!(state.get("w").unwrap().to_vec::<f32>().unwrap(), [1000.0, 2000.0]);
    assert_eq!(best.get("w").unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    best.load_into(&targets(&[("w", &w)]), true).unwrap();
    w.assign(&w + 1.0).unwrap();
    assert_eq!((w.to_vec::<f32>().unwrap(), w.is_param()), (vec![2.0, 3.0], true));
    assert_eq!(best.get("w").unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

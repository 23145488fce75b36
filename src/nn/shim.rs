//! Stands in for the gradient's marks until they are there.
use crate::tensor::Tensor;
use std::sync::Mutex;

static PARAMS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

pub(crate) trait Shim {
    fn as_param(&self) -> Tensor;
    fn is_param(&self) -> bool;
    fn grad(&self) -> Option<Tensor>;
    fn set_grad(&self, g: Option<Tensor>);
}
impl Shim for Tensor {
    fn as_param(&self) -> Tensor {
        let t = Tensor::from_uop(self.uop(), self.device().clone());
        PARAMS.lock().unwrap().push(t.id());
        t
    }
    fn is_param(&self) -> bool {
        PARAMS.lock().unwrap().contains(&self.id())
    }
    fn grad(&self) -> Option<Tensor> {
        None
    }
    fn set_grad(&self, _: Option<Tensor>) {}
}
pub(crate) fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    f()
}
pub(crate) fn realize_with_step(_: &Tensor) {}
pub(crate) fn take_step_list() -> Vec<Tensor> {
    Vec::new()
}

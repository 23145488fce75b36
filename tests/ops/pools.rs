//! Cases of pooling over one, two and three axes, and adaptive pooling.

use crate::cases::How::{Exact, Wide};
use crate::cases::{Case, cases};
use picograd::tensor::Pool;

pub const CASES: &[Case] = cases! {
    Exact, "max_pool2d.one", |x| x[0].max_pool2d([3], Pool::new().stride(2).padding(1).ceil_mode());
    Exact, "max_pool2d.two", |x| x[0].max_pool2d([3, 2], Pool::new().stride(2).ceil_mode());
    Exact, "max_pool2d.three", |x|
        x[0].max_pool2d([2, 2, 2], Pool::new().stride([1, 2, 2]).padding([1, 0, 1]));
    Wide(4.0), "avg_pool2d.one", |x|
        x[0].avg_pool2d([3], Pool::new().stride(2).padding(1).ceil_mode());
    Wide(4.0), "avg_pool2d.three", |x|
        x[0].avg_pool2d([2, 2, 2], Pool::new().stride(2).padding(1).exclude_padding());
    Wide(4.0), "adaptive_avg_pool2d", |x| x[0].adaptive_avg_pool2d([2, 3]);
    Wide(4.0), "adaptive_avg_pool2d.one", |x| x[0].adaptive_avg_pool2d([5]);
    Wide(8.0), "adaptive_avg_pool2d.three", |x| x[0].adaptive_avg_pool2d([2, 2, 2]);
    Exact, "adaptive_max_pool2d", |x| x[0].adaptive_max_pool2d([2, 3]);
    Exact, "adaptive_max_pool2d.one", |x| x[0].adaptive_max_pool2d([5]);
    Exact, "adaptive_max_pool2d.three", |x| x[0].adaptive_max_pool2d([2, 2, 2]);
};

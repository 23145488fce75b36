//! Error messages: the operation, its arguments, and what it expects.

use super::ramp;
use picograd::tensor::{Attention, Conv, Pool, step};
use picograd::{DType, Result, Tensor};

#[track_caller]
fn says<T>(result: Result<T>, message: &str) {
    match result {
        Ok(_) => panic!("expected: {message}"),
        Err(e) => assert_eq!(e.to_string(), message),
    }
}

#[test]
fn shape_errors_name_the_shapes() {
    let (x, y) = (ramp(&[2, 3]), ramp(&[4, 5]));
    says(
        x.try_add(&y),
        "add: shapes [2, 3] and [4, 5] do not broadcast: axis -2 has sizes 2 and 4",
    );
    says(x.try_lt(&y), "lt: shapes [2, 3] and [4, 5] do not broadcast: axis -2 has sizes 2 and 4");
    says(x.try_reshape([4, 2]), "reshape: [2, 3] has 6 elements and [4, 2] has 8");
    says(
        x.try_reshape([-1, 4]),
        "reshape: [2, 3] has 6 elements, which do not divide into [-1, 4]",
    );
    says(x.try_reshape([-1, -1]), "reshape: [-1, -1] leaves 2 sizes open; one -1 can be inferred");
    says(x.try_reshape([-2, 3]), "reshape: [-2, 3] has a negative size");
    says(x.try_expand([4, 3]), "expand: [2, 3] does not broadcast to [4, 3]");
    says(Tensor::try_zeros([2, -1]), "zeros: [2, -1] has a negative size");
    says(
        Tensor::try_zeros([1i64 << 40, 1 << 40]),
        "zeros: [1099511627776, 1099511627776] has more elements than an index can count",
    );
    says(
        Tensor::try_cat(&[x.clone(), y.clone()], 0),
        "cat: [2, 3] and [4, 5] differ outside axis 0",
    );
    says(Tensor::try_cat(&[], 0), "cat: expected one tensor or more, got none");
    says(Tensor::try_stack(&[x.clone(), y.clone()], 0), "stack: shapes [2, 3] and [4, 5] differ");
    says(x.try_split([1, 1], 1), "split: [1, 1] does not add up to the 3 of axis 1 of [2, 3]");
    says(x.try_unflatten(1, [2, 2]), "unflatten: axis 1 of [2, 3] has size 3, which is not [2, 2]");
    says(
        ramp(&[2, 2, 2]).try_t(),
        "t: expected two axes at most, got [2, 2, 2]; use transpose(a, b)",
    );
    says(Tensor::zeros([0, 2]).try_max(0), "max: axis 0 of [0, 2] has no element to choose");
    says(
        Tensor::try_new(vec![vec![1, 2], vec![3]]),
        "new: uneven nesting: item 0 has shape [2] and item 1 has [1]",
    );
}

#[test]
fn axis_and_index_errors_name_the_axis() {
    let x = ramp(&[2, 3]);
    says(x.try_sum(2), "sum: axis 2 is outside [2, 3], whose axes are -2..=1");
    says(x.try_sum([0, -2]), "sum: axis -2 is repeated in [0, -2] for [2, 3]");
    says(
        Tensor::from(1).try_sum(1),
        "sum: axis 1 is out of range: a tensor of shape [] has no axes",
    );
    says(x.try_permute([0]), "permute: 1 axes given for [2, 3], which has 2");
    says(x.try_permute([0, 0]), "permute: axis 0 is repeated in [0, 0] for [2, 3]");
    says(x.try_transpose(0, 5), "transpose: axis 5 is outside [2, 3], whose axes are -2..=1");
    says(
        x.try_unsqueeze(4),
        "unsqueeze: axis 4 is outside the result of [2, 3], whose axes are -3..=2",
    );
    says(x.try_shrink(&[(0, 2), (1, 4)]), "shrink: 1..4 is not within axis 1 of [2, 3]");
    says(x.try_i((0, 3)), "i: index 3 is outside axis 1 of [2, 3], which has size 3");
    says(x.try_i(-3), "i: index -3 is outside axis 0 of [2, 3], which has size 2");
    says(x.try_i((0, 1..5)), "i: 1..5 is not within axis 1 of [2, 3], which has size 3");
    assert!(x.try_i((0, ..=isize::MAX)).is_err());
    let (start, end) = (2, 1);
    says(x.try_i((0, start..end)), "i: 2..1 is not within axis 1 of [2, 3], which has size 3");
    says(x.try_i((0, step(4.., -1))), "i: 4.. is not within axis 1 of [2, 3], which has size 3");
    says(x.try_i((0, 0, 0)), "i: 3 indices for [2, 3], which has 2 axes");
    says(x.try_i((.., ..)), "i: `..` appears 2 times in an index of [2, 3]; expected at most once");
    says(x.try_i(step(.., 0)), "i: a step of 0 on axis 0 of [2, 3], which has size 2");
    says(x.try_argmax([0, 1, 1]), "argmax: axis 1 is repeated in [0, 1, 1] for [2, 3]");
    says(
        ramp(&[1, 1, 1]).try_argmax([0, 1]),
        "argmax: expected one axis or `..`, got [0, 1] of [1, 1, 1]",
    );
}

#[test]
fn dtype_errors_name_the_dtype() {
    let x = ramp(&[2]);
    says(x.try_bitwise_and(1), "bitwise_and: expected integers or bools, got f32");
    says(x.try_lshift(1), "lshift: expected integers, got f32");
    says(x.try_bitwise_not(), "bitwise_not: expected integers or bools, got f32");
    says(
        Tensor::from(true).try_sub(true),
        "sub: expected numbers (bools differ with `^` or `ne`), got bool",
    );
    says(Tensor::from(true).try_neg(), "neg: expected numbers, got bool; `!x` negates a bool");
    says(
        ramp(&[2, 3]).try_bitcast(DType::I64),
        "bitcast: f32 to i64 requires a multiple of 2 as the last size, got [2, 3]",
    );
    says(
        Tensor::from(1.0f32).try_bitcast(DType::I64),
        "bitcast: f32 to i64 changes the size of the last axis, but the shape is []; reshape to \
         [1]",
    );
    says(
        Tensor::from(1u8).try_bitcast(DType::BOOL),
        "bitcast: u8 to bool: the bits of a bool are not defined; use cast",
    );
    says(x.try_cast(DType::INDEX), "cast: a tensor cannot hold index");
    says(
        x.to_vec::<i32>(),
        "to_vec: a tensor of f32 read as i32; cast it first: .cast(DType::I32)",
    );
    says(x.item::<f32>(), "item: a tensor of shape [2] has 2 elements, not 1");
    says(x.try_one_hot(3), "one_hot: expected integers, got f32");
    says(
        Tensor::try_arange(0, 5, 0),
        "arange: from 0 to 5 by 0: the step must not be zero, and all must be finite",
    );
}

#[test]
fn product_and_window_errors_name_the_shapes() {
    let x = ramp(&[2, 3]);
    says(x.try_matmul(&x), "matmul: inner sizes of [2, 3] and [2, 3] differ: 3 and 2");
    says(
        x.try_matmul(&Tensor::from(1)),
        "matmul: [2, 3] and []: a scalar is not a matrix; multiply with `*`",
    );
    says(
        ramp(&[2, 1, 3]).try_matmul(&ramp(&[4, 3, 1])),
        "matmul: [2, 1, 3] and [4, 3, 1]: shapes [2] and [4] do not broadcast: axis -1 has sizes \
         2 and 4",
    );
    says(
        x.try_linear(&x.t(), None),
        "linear: a weight of [3, 2] does not apply to [2, 3]; expected [out, in] with `in` equal \
         to the last size",
    );
    let image = ramp(&[1, 2, 3, 3]);
    says(
        image.try_conv2d(&ramp(&[1, 3, 2, 2]), Conv::new()),
        "conv2d: input [1, 2, 3, 3] has 2 channels, and weight [1, 3, 2, 2] in 1 groups takes 3",
    );
    says(
        image.try_conv2d(&ramp(&[1, 2, 4, 1]), Conv::new()),
        "conv2d: a window of 4 does not fit in an axis of 3, padding included",
    );
    says(
        image.try_conv2d(&ramp(&[1, 2, 1, 1]), Conv::new().stride(0)),
        "conv2d: stride [0, 0] has a zero",
    );
    says(
        image.try_conv2d(&ramp(&[1, 2, 1, 1]), Conv::new().stride([1, 1, 1])),
        "conv2d: stride [1, 1, 1] has 3 values for 2 spatial axes",
    );
    says(
        image.try_max_pool2d(4, Pool::new()),
        "max_pool2d: a window of 4 does not fit in an axis of 3, padding included",
    );
    says(
        x.try_scaled_dot_product_attention(&ramp(&[2, 4]), &x, Attention::new()),
        "scaled_dot_product_attention: expected query, key and value of […, L, E], […, S, E] and \
         […, S, V], got [2, 3], [2, 4] and [2, 3]",
    );
}

/// The panic has the message of the error and the line of the caller.
#[test]
fn panics_have_the_line_of_the_caller() {
    let caught = |f: fn()| {
        let place = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let seen = place.clone();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            *seen.lock().unwrap() = format!(
                "{} @ {}",
                info.payload_as_str().unwrap_or(""),
                info.location().map(|l| l.file()).unwrap_or("")
            );
        }));
        let result = std::panic::catch_unwind(f);
        std::panic::set_hook(before);
        assert!(result.is_err());
        place.lock().unwrap().clone()
    };
    let end = |s: &str| s.replace('\\', "/");
    assert_eq!(
        end(&caught(|| drop(ramp(&[2]).reshape([3])))),
        "reshape: [2] has 2 elements and [3] has 3 @ tests/tensor/errors.rs"
    );
    let sum = caught(|| drop(ramp(&[2]) + ramp(&[3])));
    assert_eq!(
        end(&sum),
        "add: shapes [2] and [3] do not broadcast: axis -1 has sizes 2 and 3 @ \
         tests/tensor/errors.rs"
    );
}

/// Sizes beyond the index type are errors of the method that creates them.
#[test]
fn sizes_beyond_an_index_are_errors() {
    let huge = Tensor::ones([1usize << 31, 1 << 31]);
    says(
        Tensor::try_cat(&[huge.clone(), huge.clone()], 1),
        "cat: [2147483648, 4294967296] has more elements than an index can count",
    );
    says(
        huge.try_inverse(),
        "inverse: [2147483648, 4294967296] has more elements than an index can count",
    );
    let image = ramp(&[1, 1, 3, 3]);
    let weight = ramp(&[1, 1, 2, 2]);
    says(
        image.try_conv2d(&weight, Conv::new().groups(usize::MAX)),
        "conv2d: input [1, 1, 3, 3] has 1 channels, and weight [1, 1, 2, 2] in \
         18446744073709551615 groups takes 18446744073709551615",
    );
    says(
        image.try_conv_transpose2d(&weight, Conv::new().stride(isize::MAX as usize)),
        "conv_transpose2d: windows of 2 with stride 9223372036854775807 and dilation 1 over [1, \
         1, 3, 3] have more elements than an index can count",
    );
    says(
        image.try_max_pool2d(2, Pool::new().padding(usize::MAX)),
        "max_pool2d: [18446744073709551615] has more elements than an index can count",
    );
    // A stride beyond the axis leaves one window.
    let one = image.max_pool2d(2, Pool::new().stride(isize::MAX as usize));
    assert_eq!(one.to_vec::<f32>().unwrap(), [4.0]);
}

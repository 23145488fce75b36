//! Minimal graphs that were once miscompiled. `tests/random_graphs.rs` found them.

use picograd::Tensor;
use picograd::opt::Opt;
use picograd::testing::{Case, Setup, SetupOpts, check, setups};

/// Runs the graph in every setup, and on the given devices with these Opts per kernel.
#[track_caller]
fn agrees(text: &str, given: &[(&'static str, &[&[&str]])]) {
    let case = Case::parse(text).unwrap();
    let expected = case.expected();
    let mut list = setups(1);
    for (device, kernels) in given {
        let opts = |k: &&[&str]| k.iter().map(|o| o.parse::<Opt>().unwrap()).collect();
        list.push(Setup {
            device,
            choose: SetupOpts::Given(kernels.iter().map(opts).collect()),
            in_place: false,
            quick: false,
        });
    }
    for setup in &list {
        check(&case, &expected, setup)
            .unwrap_or_else(|failure| panic!("on {setup}: {failure}\n{text}"));
    }
}

/// A cast between two narrow floats goes through f32; simplification must not merge the two casts.
#[test]
fn casts_between_narrow_floats_round_through_f32() {
    let text = "
        ; input 0: bf16 803f0040c03f
        %0 = Param bf16 {slot=0 len=3 device=HERE}
        %1 = Cast f16 %0
        %2 = Cast f64 %0
        %3 = Cast i8 %0
        %4 = Cast f8e4m3 %3
        %5 = Sink void %1, %2, %4";
    agrees(text, &[]);
}

/// A value that was copied to another device and back is not the value inside its own kernel.
#[test]
fn a_copy_of_a_copy_keeps_values() {
    let text = "
        ; input 0: f32 0000803f00000040
        %0 = Param f32 {slot=0 len=2 device=HERE}
        %1 = Add f32 %0, 1.0:f32
        %2 = Copy f32 %1 {device=THERE}
        %3 = Copy f32 %2 {device=HERE}
        %4 = Mul f32 %3, %3
        %5 = Sink void %4";
    agrees(text, &[]);
}

/// Narrow floats are summed in f32, also if the sum is split into lanes or threads.
#[test]
fn narrow_sums_in_lanes_accumulate_in_f32() {
    let text = "
        ; input 0: f8e5m2 44c23cc23cc2c0bcc400c440c23cc04444c4c040c042003c
        %0 = Param f8e5m2 {slot=0 len=24 device=HERE}
        %1 = Reduce f8e5m2 %0 {fold=Add axes=[0]}
        %2 = Sink void %1";
    agrees(
        text,
        &[
            ("CPU", &[&["UNROLL:0:8"]]),
            ("INTERP", &[&["GROUP:0:8"]]),
            ("INTERP", &[&["UNROLL:0:3", "GROUPTOP:0:4"]]),
        ],
    );
}

/// The maximum of no elements is the least value, which for f8e4m3 is finite.
#[test]
fn maximum_of_an_empty_axis_is_the_least_value() {
    let text = "
        ; input 0: f8e4m3
        %0 = Param f8e4m3 {slot=0 len=0 device=HERE}
        %1 = Reshape f8e4m3 %0 {reshape [3,0]}
        %2 = Reduce f8e4m3 %1 {fold=Max axes=[1]}
        %3 = Sink void %2";
    agrees(text, &[]);
}

/// Iterations of a padded axis that are all inside or all outside have no mask; those at the edge
/// may share one.
#[test]
fn an_unrolled_padded_axis_keeps_its_masks() {
    let text = "
        ; input 0: u32 0100000002000000030000000400000005000000
        %0 = Param u32 {slot=0 len=5 device=HERE}
        %1 = Mul u32 %0, %0
        %2 = Sink void %0, %1";
    agrees(
        text,
        &[("INTERP", &[&["PADTO:0:2", "UPCAST:0:0"]]), ("CPU", &[&["PADTO:0:4", "UPCAST:0:4"]])],
    );
}

/// The thread index of a group reduce stays a launch dimension to the end of the kernel.
#[test]
fn a_group_reduce_keeps_its_launch_dims() {
    let text = "
        ; input 0: f32 0000803f0000004000004040000080400000a0400000c040
        %0 = Param f32 {slot=0 len=6 device=HERE}
        %1 = Reshape f32 %0 {reshape [1,6]}
        %2 = Reduce f32 %1 {fold=Max axes=[1]}
        %3 = Expand f32 %2 {expand [1,6]}
        %4 = Add f32 %1, %3
        %5 = Sink void %4";
    agrees(text, &[("INTERP", &[&["GROUPTOP:1:3"]]), ("INTERP", &[&["GROUP:1:2", "LOCAL:0:2"]])]);
}

/// The remainder of an index that can be negative is proven inside the buffer.
#[test]
fn a_negative_index_modulo_is_in_bounds() {
    let text = "
        ; input 0: i32 010000000200000003000000
        %0 = Param i32 {slot=0 len=3 device=HERE}
        %1 = Reshape i32 %0 {reshape [1,3]}
        %2 = Expand i32 %1 {expand [4,3]}
        %3 = Reshape i32 %2 {reshape [12]}
        %4 = Shrink i32 %3 {shrink [(5,9)]}
        %5 = Flip i32 %4 {flip [true]}
        %6 = Sink void %5";
    agrees(text, &[]);
}

/// A reduce of a literal has no operand inside its loop.
#[test]
fn a_reduce_of_a_literal_compiles() {
    let text = "
        %0 = Reshape bool true:bool {reshape [1,1]}
        %1 = Expand bool %0 {expand [2,2]}
        %2 = Reduce bool %1 {fold=Min axes=[0]}
        %3 = Sink void %2";
    agrees(text, &[]);
}

/// A temporary that was fused into its only reader needs no memory.
#[test]
fn an_unread_temporary_takes_no_memory() {
    let text = "
        %0 = Contiguous f16 1.0:f16
        %1 = Cast bool %0
        %2 = Sink void %1";
    agrees(text, &[]);
}

/// Signed integers wrap, although C compilers may assume that they do not overflow.
#[test]
fn signed_overflow_wraps() {
    let text = "
        ; input 0: i32 ffffff7f0000008001000000
        %0 = Param i32 {slot=0 len=3 device=HERE}
        %1 = Add i32 %0, 1:i32
        %2 = Lt bool %1, %0
        %3 = Mul i32 %0, %0
        %4 = Sink void %2, %3";
    agrees(text, &[]);
}

/// An input that lowering finds unused is still an argument.
#[test]
fn an_unused_argument_stays_an_argument() {
    let text = "
        ; input 0: f32 0000803f00000040
        %0 = Param f32 {slot=0 len=2 device=HERE}
        %1 = Pow f32 %0, 0.0:f32
        %2 = Sink void %1";
    agrees(text, &[]);
}

/// Readers of a new value run after the kernel that writes it in place; readers of the old value
/// run before it.
#[test]
fn readers_are_ordered_around_in_place_writes() {
    let text = "
        ; input 0: i32 010000000200000003000000
        %0 = Param i32 {slot=0 len=3 device=HERE}
        %1 = Add i32 %0, 1:i32
        %2 = Contiguous i32 %1
        %3 = Reduce i32 %2 {fold=Add axes=[0]}
        %4 = Reduce i32 %0 {fold=Max axes=[0]}
        %5 = Sink void %2, %3, %4";
    let case = Case::parse(text).unwrap();
    for device in ["INTERP", "CPU", "CPU:CLANG"] {
        check(
            &case,
            &case.expected(),
            &Setup { device, choose: SetupOpts::Default, in_place: true, quick: false },
        )
        .unwrap();
    }
}

/// In a group reduce that writes over its input, only the writing thread reads the old value.
#[test]
fn an_in_place_group_reduce_reads_in_one_thread() {
    let text = "
        ; input 0: f32 0000803f0000004000004040
        ; input 1: f32 0000803f0000004000004040000080400000a0400000c040
        %0 = Param f32 {slot=0 len=3 device=HERE}
        %1 = Param f32 {slot=1 len=6 device=HERE}
        %2 = Reshape f32 %1 {reshape [3,2]}
        %3 = Reduce f32 %2 {fold=Max axes=[1]}
        %4 = Reshape f32 %3 {reshape [3]}
        %5 = Add f32 %0, %4
        %6 = Sink void %5";
    let case = Case::parse(text).unwrap();
    let group = SetupOpts::Given(vec![vec!["GROUP:1:2".parse().unwrap()]]);
    let in_place = Setup { device: "INTERP", choose: group, in_place: true, quick: false };
    check(&case, &case.expected(), &in_place).unwrap();
    check(&case, &case.expected(), &Setup { choose: SetupOpts::Nothing, ..in_place.clone() })
        .unwrap();
    check(&case, &case.expected(), &Setup { in_place: false, ..in_place }).unwrap();
}

/// One clause of a mask bounds a remainder by what another clause says of the dividend.
#[test]
fn a_reshaped_pad_keeps_its_mask() {
    let text = "
        ; input 0: i8 0102030405060708090a0b0c0d0e0f
        %0 = Param i8 {slot=0 len=15 device=HERE}
        %1 = Reshape i8 %0 {reshape [3,5]}
        %2 = Shrink i8 %1 {shrink [(0,3),(2,4)]}
        %3 = Pad i8 %2 {pad [(4,4),(0,0)]}
        %4 = Shrink i8 %3 {shrink [(6,9),(0,2)]}
        %5 = Pad i8 %4 {pad [(0,0),(2,1)]}
        %6 = Reshape i8 %5 {reshape [15]}
        %7 = Sink void %6";
    agrees(text, &[]);
}

/// A bound that a mask implies before an axis is split may not be provable afterwards.
#[test]
fn a_split_axis_keeps_its_mask() {
    let text = "
        ; input 0: i32 010000000200000003000000
        %0 = Param i32 {slot=0 len=3 device=HERE}
        %1 = Reshape i32 %0 {reshape [3,1]}
        %2 = Expand i32 %1 {expand [3,2]}
        %3 = Pad i32 %2 {pad [(0,2),(0,0)]}
        %4 = Reshape i32 %3 {reshape [10]}
        %5 = Shrink i32 %4 {shrink [(3,7)]}
        %6 = Sink void %5";
    agrees(
        text,
        &[
            ("CPU", &[&["THREAD:0:2"]]),
            ("INTERP", &[&["LOCAL:0:2"]]),
            ("INTERP", &[&["THREAD:0:2"]]),
        ],
    );
}

/// A literal is copied to another device and also used on this one.
#[test]
fn a_copied_literal_stays_usable() {
    let text = "
        ; input 0: f32 0000803f00000040
        %0 = Param f32 {slot=0 len=2 device=HERE}
        %1 = Copy f32 2.0:f32 {device=THERE}
        %2 = Copy f32 %1 {device=HERE}
        %3 = Mul f32 %0, 2.0:f32
        %4 = Add f32 %3, %2
        %5 = Sink void %4, 2.0:f32";
    agrees(text, &[]);
}

/// A constant tensor is realized on two devices: each has its own buffer.
#[test]
fn ones_on_two_devices_are_two_buffers() {
    let (here, there) = (Tensor::ones([6]), Tensor::ones([6]).to("INTERP:1"));
    let x = Tensor::from_vec(vec![1.0f32, 2., 3., 4., 5., 6.], [6]).to("INTERP").realize().unwrap();
    let here = here.to("INTERP");
    let y = (&x * &Tensor::ones([6]).to("INTERP")).contiguous();
    Tensor::realize_many(&[&here, &there, &y]).unwrap();
    assert_eq!(here.to_vec::<f32>().unwrap(), [1.0; 6]);
    assert_eq!(there.to_vec::<f32>().unwrap(), [1.0; 6]);
    assert_eq!(there.device().as_str(), "INTERP:1");
    assert_eq!(y.to_vec::<f32>().unwrap(), [1., 2., 3., 4., 5., 6.]);
}

/// Integers of the user may wrap on the way to an index, unlike the compiler's own index
/// arithmetic.
#[test]
fn indices_from_wrapping_integers_are_exact() {
    let places = (Tensor::arange(0, 100_000, 1) * 100_003).bitwise_and(511);
    let table = Tensor::arange(0, 512, 1) * 3;
    let got = table.gather(0, &places).to_vec::<i32>().unwrap();
    let expected = |i: i32| (i.wrapping_mul(100_003) & 511) * 3;
    assert!(got.iter().enumerate().all(|(i, v)| *v == expected(i as i32)));
}

/// A select inside the opposite of its own condition.
#[test]
fn nested_opposite_conditions_select_correctly() {
    let text = "
        ; input 0: f32 0000000000000000
        ; input 1: f32 0000c0be000000be
        %0 = Param f32 {slot=0 len=2 device=HERE}
        %1 = Param f32 {slot=1 len=2 device=HERE}
        %2 = Lt bool %0, %1
        %3 = Lt bool %1, %0
        %4 = Where f32 %3, %0, %1
        %5 = Where f32 %2, %4, %1
        %6 = Sink void %5, %5";
    agrees(text, &[]);
}

//! Tests of the printer: graphs, parts of graphs, programs, and invalid programs.

use super::random::{Rng, graph, nodes};
use crate::dtype::{Const, DType};
use crate::ir::{
    Arg, AxisKind, DeviceName, Fold, Op, Src, Storage, StorageRef, UOp, parse, parse_program,
    print, print_part, print_program,
};
use crate::shape::Movement;
use std::sync::Arc;

fn param(slot: usize, len: usize) -> UOp {
    UOp::new(
        Op::Param,
        DType::F32,
        Src::new(),
        Arg::Param { slot, len, device: DeviceName::new("CPU") },
    )
}

#[test]
fn a_graph_prints_one_node_per_line() {
    let x = param(0, 6).moved(Movement::reshape([2, 3]));
    let r = ((&x + 0.1f32) * &x).reduced(Fold::Add, [0, 1]);
    let expected = "\
%0 = Param f32 {slot=0 len=6 device=CPU}
%1 = Reshape f32 %0 {reshape [2,3]}
%2 = Add f32 %1, 0.1:f32
%3 = Mul f32 %2, %1
%4 = Reduce f32 %3 {fold=Add axes=[0,1]}
";
    assert_eq!(print(&r), expected);
    assert_eq!(parse(expected), Ok(r));
}

#[test]
fn literals_print_in_the_fewest_digits_of_their_dtype() {
    let text = |value: Const, dtype| print(&UOp::constant(value, dtype));
    assert_eq!(text(Const::Float(1.0), DType::F32), "%0 = Const f32 1.0\n");
    assert_eq!(text(Const::Float(0.1), DType::F32), "%0 = Const f32 0.1\n");
    assert_eq!(text(Const::Float(0.1), DType::F64), "%0 = Const f64 0.1\n");
    assert_eq!(text(Const::Float(-0.0), DType::F16.vec(4)), "%0 = Const f16x4 -0.0\n");
    assert_eq!(text(Const::Float(f64::NAN), DType::BF16), "%0 = Const bf16 nan\n");
    assert_eq!(text(Const::Float(f64::NEG_INFINITY), DType::F32), "%0 = Const f32 -inf\n");
    assert_eq!(text(Const::Int(-1), DType::U64), "%0 = Const u64 18446744073709551615\n");
    assert_eq!(text(Const::Int(3), DType::INDEX), "%0 = Const index 3\n");
    assert_eq!(text(Const::Bool(true), DType::BOOL), "%0 = Const bool true\n");
}

#[test]
fn every_float_of_16_bits_reads_back() {
    for bits in 0..=u16::MAX {
        for dtype in [DType::F16, DType::BF16] {
            let u = UOp::literal(Const::from_bits(bits as u64, dtype), dtype);
            assert_eq!(parse(&print(&u)), Ok(u));
        }
    }
}

struct Nothing(DeviceName);
impl crate::ir::arg::sealed::Sealed for Nothing {}

impl Storage for Nothing {
    fn id(&self) -> u64 {
        7
    }
    fn device(&self) -> &DeviceName {
        &self.0
    }
    fn len(&self) -> usize {
        12
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn a_buffer_prints_but_does_not_parse() {
    let storage = StorageRef::new(Arc::new(Nothing(DeviceName::new("CPU"))));
    let u = UOp::new(Op::Buffer, DType::F32, Src::new(), Arg::Storage(storage));
    assert_eq!(print(&u), "%0 = Buffer f32 {buffer id=7 len=12 device=CPU}\n");
    assert!(parse(&print(&u)).unwrap_err().to_string().contains("write a Param"));
}

#[test]
fn a_program_keeps_its_order_and_indents_its_loops() {
    let out = UOp::define_global(0, 4, DType::F32);
    let i = UOp::range(4usize, 0, AxisKind::Loop);
    let at = out.at(&i);
    let store = at.store(1.0, &[]);
    let list = [UOp::int(4), i.clone(), out.clone(), at.clone(), store, i.end_range()];
    let expected = "\
%0 = Const index 4
%1 = Range index 4:index {id=0 kind=Loop}
  %2 = DefineGlobal f32 {slot=0 len=4}
  %3 = Index f32 %2, %1
  %4 = Store void %3, 1.0:f32
%5 = EndRange void %1
";
    assert_eq!(print_program(&list), expected);
    assert_eq!(parse_program(expected).unwrap(), list);
    // Invalid programs are printed too: with late or missing operands, and repeated nodes.
    let list = [at.clone(), out.clone(), at];
    let expected = "\
~%0 = DefineGlobal f32 {slot=0 len=4}
~%1 = Range index 4:index {id=0 kind=Loop}
%2 = Index f32 %0, %1
%0
%2
";
    assert_eq!(print_program(&list), expected);
    assert_eq!(parse_program(expected).unwrap(), list);
}

#[test]
fn a_part_shows_what_is_nearest_to_the_root() {
    let deep = (0..50).fold(param(1, 4), |x, _| x.unary(Op::Sqrt));
    let root = param(0, 4).unary(Op::Exp) + &deep + 2.0f32;
    assert_eq!(
        print_part(&root, 4),
        "\
… 51 more nodes
%1 = Exp f32 %0
%52 = Sqrt f32 %51
%53 = Add f32 %1, %52
%54 = Add f32 %53, 2.0:f32
"
    );
    assert_eq!(print_part(&root, 0), "… 55 more nodes\n");
    assert_eq!(print_part(&root, 1000), print(&root));
    assert_eq!(print_part(&UOp::int(3), 1), print(&UOp::int(3)));
}

#[test]
fn debug_is_one_bounded_line() {
    let x = param(0, 4);
    assert_eq!(
        format!("{:?}", (&x * 2.0f32) + 1.0f32),
        "Add f32 (Mul f32 (Param f32 {slot=0 len=4 device=CPU}, 2.0), 1.0)"
    );
    assert_eq!(format!("{:?}", UOp::int(3)), "Const index 3");
    let deep = (0..1000).fold(x.clone(), |x, _| x.unary(Op::Sin));
    assert_eq!(format!("{deep:?}"), "Sin f32 (Sin f32 (Sin f32 (Sin f32 (…))))");
    let wide = UOp::sink(vec![deep; 100_000]);
    let text = format!("{wide:?}");
    assert!(text.len() <= 210 && text.ends_with('…'), "{text}");
    let arg = Arg::Var { name: "é".repeat(10_000).into(), min: 0, max: 1 };
    let name = UOp::new(Op::Var, DType::I32, Src::new(), arg);
    assert!(format!("{name:?}").len() <= 210);
}

#[test]
fn random_graphs_read_back_as_themselves() {
    for seed in 0..4000 {
        let g = graph(&mut Rng::new(seed));
        let text = print(&g);
        match parse(&text) {
            Ok(back) => {
                assert!(back == g && print(&back) == text, "seed {seed}\n{text}{}", print(&back))
            }
            Err(e) => panic!("seed {seed}: {e}\n{text}"),
        }
    }
}

#[test]
fn random_programs_read_back_as_themselves() {
    for seed in 0..2000 {
        let rng = &mut Rng::new(seed);
        let mut list = nodes(rng, 30);
        // Some lists are sound, the others have nodes missing, repeated and out of order.
        for _ in 0..(seed % 4) * 5 {
            let (i, j) = (rng.below(list.len()), rng.below(list.len()));
            match rng.below(3) {
                0 => list.swap(i, j),
                1 => drop(list.remove(i)),
                _ => list.insert(i, list[j].clone()),
            }
        }
        let text = print_program(&list);
        assert_eq!(
            parse_program(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}")),
            list,
            "seed {seed}\n{text}"
        );
    }
}

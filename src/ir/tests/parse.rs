//! Tests of the parser: printed graphs parse to the same graph, and errors have a line number.

use super::random::{Rng, graph, nodes};
use crate::dtype::DType;
use crate::error::Error;
use crate::ir::{Op, UOp, parse, parse_program, print, print_program};

/// Asserts that the parser rejects the line with a message that has these words.
#[track_caller]
fn refused(text: &str, at: usize, words: &str) {
    match parse(text) {
        Err(Error::Parse { line, msg }) => {
            assert!(line == at && msg.contains(words), "line {line}: {msg}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn comments_and_gaps_in_numbers_are_accepted() {
    let text = "\n ; a head\n\t%7=Const f32 1 ; as an integer\n\n%3 = Add  f32 %7 ,2.5:f32;tail\n";
    assert_eq!(parse(text), Ok(UOp::constant(1.0, DType::F32) + 2.5f32));
    assert_eq!(
        parse("%0 = Var index {name=\"a;b\" min=0 max=2} ; c").unwrap(),
        parse("%9 = Var index {name=\"a\\u{3b}b\" min=0 max=2}").unwrap()
    );
    assert_eq!(parse_program("; nothing\n"), Ok(vec![]));
}

#[test]
fn mistakes_are_named_with_their_line() {
    refused("", 1, "there is no node");
    refused("%0 = Const f32 1.0\n%1 = Plus f32 %0, %0", 2, "there is no op \"Plus\"");
    refused("%0 = Const f33 1.0", 1, "unknown dtype \"f33\"");
    refused("%0 = Const f32x0 1.0", 1, "unknown dtype");
    refused("%0 = Const f32x65536 1.0", 1, "unknown dtype");
    refused("%0 = Exp f32 %1\n%1 = Const f32 1.0", 1, "%1 is not defined above");
    refused("%0 = Exp f32 %0", 1, "%0 is not defined above");
    refused("%0 = Const f32 1.0\n\n%0 = Const f32 2.0", 3, "%0 is defined a second time");
    refused("%0 = Add f32 1.0:f32", 1, "Add takes 2 operands (x, y), not 1");
    refused(
        "%0 = Special index 1:index {kind=Group dim=0 extent=2}",
        1,
        "Special takes 0 operands, not 1",
    );
    refused("%0 = Store void 1:index", 1, "at least 2 operands");
    refused("%0 = Exp f32 1.0", 1, "value:dtype");
    refused("%0 = Exp f32 1.0:f32,", 1, "expected an operand");
    refused("%0 = Exp f32 1.0:f32 2.0:f32", 1, "the line should end");
    refused("%0 = Exp f32 1.0:f32 {len=1}", 1, "Exp carries no payload");
    refused("%0 = Range index 4:index", 1, "needs a payload such as {id=0 kind=Reduce}");
    refused("%0 = Range index 4:index {id=0 kind=Outer}", 1, "kind: expected one of [Global, ");
    refused("%0 = Range index 4:index {id=4000000000 kind=Loop}", 1, "above 65535");
    refused("%0 = Range index 4:index {kind=Loop id=0}", 1, "expected id=");
    refused("%0 = Range index 4:index {id=0 kind=Loop", 1, "expected '}'");
    refused(
        "%0 = Special index {kind=Group dim=256 extent=2}",
        1,
        "\"256\" is not a number that fits",
    );
    refused("%0 = Iota i32 {len=99999999999999999999}", 1, "not a number that fits");
    refused("%0 = Iota i32 {len=-1}", 1, "not a number that fits");
    refused("%0 = Var index {name=\"n\" min=3 max=2}", 1, "min=3 is above max=2");
    refused(
        "%0 = Iota i32 {len=6}\n%1 = Reshape i32 %0 {reshape [4]}",
        2,
        "reshape: [6] has 6 elements and [4] has 4",
    );
    refused("%0 = Iota i32 {len=6}\n%1 = Flip i32 %0 {reshape [6]}", 2, "expected flip");
    refused("%0 = Iota i32 {len=6}\n%1 = Reduce i32 %0 {fold=Add axes=[1]}", 2, "axes [1]");
    refused(
        "%0 = Iota i32 {len=6}\n%1 = Reduce i32 %0 {fold=Avg}",
        2,
        "fold: expected one of [Add, Mul, Max, Min]",
    );
    refused("%0 = Gep f32 1.0:f32x4 {lanes [4]}", 1, "lane 4 is out of range for 4 lanes");
    refused("%0 = Var index {name=\"a}", 1, "quotes are not closed");
    refused("%0 = Var index {name=\"\\q\"}", 1, "an escape is one of");
    refused("%0 = Var index {name=\"\\u{d800}\"}", 1, "no character");
    refused("%0 = Buffer f32 {buffer id=7 len=12 device=CPU}", 1, "write a Param");
    refused("%0 = Const f32 1.0\n%1 = Sink void", 1, "no later line uses this node");
    refused("%18446744073709551616 = Sink void", 1, "not a number");
    refused("% 0 = Sink void", 1, "expected a number after %");
    refused("~%0 = Sink void", 1, "expected '%'");
    refused("é", 1, "expected '%'");
    assert!(matches!(parse_program("%0 = Sink void\n%1"), Err(Error::Parse { line: 2, .. })));
}

#[test]
fn literals_are_values_of_their_dtype() {
    for bad in [
        "300:u8",
        "-1:u8",
        "-129:i8",
        "1.5:i32",
        "1:bool",
        "2:bool",
        "1:void",
        "1e39:f32",
        "1e5:f16",
        "500.0:f8e4m3",
        "inf:f8e4m3",
        "infinity:f32",
        "NaN:f32",
        "+1:i32",
        "+1.0:f32",
        "18446744073709551616:u64",
        "9223372036854775808:index",
        ".5:f32",
        "x:f32",
        ":f32",
        "-:f32",
        "-nan:f32",
    ] {
        assert!(parse(&format!("%0 = Sink void {bad}")).is_err(), "{bad}");
    }
    for good in [
        "255:u8",
        "-128:i8",
        "1e38:f32",
        "0.1:f16",
        "448.0:f8e4m3",
        "nan:f8e4m3",
        "-inf:f64",
        "18446744073709551615:u64",
        "true:boolx4",
    ] {
        let g = parse(&format!("%0 = Sink void {good}")).unwrap_or_else(|e| panic!("{good}: {e}"));
        assert_eq!(parse(&print(&g)), Ok(g));
    }
}

#[test]
fn every_sample_payload_is_one() {
    for &op in
        Op::ALL.iter().filter(|op| !matches!(op, Op::Buffer | Op::Kernel | Op::Loop | Op::Source))
    {
        let sample = crate::ir::doc::sample(op);
        let operands = vec!["%1"; op.arity()].join(", ");
        let text = format!(
            "%0 = Iota f32x4 {{len=12}}\n%1 = Reshape f32x4 %0 {{reshape [3,4]}}\n%2 = {op:?} f32 \
             {operands} {sample}"
        );
        let list = parse_program(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert!(print_program(&list).trim_end().ends_with(sample), "{}", print_program(&list));
    }
}

/// Asserts that the parser does not panic, and that an accepted graph has its derived facts and can
/// be printed and parsed.
fn accepts_or_refuses(text: &str) -> bool {
    let graph = parse(text);
    let accepted = graph.is_ok();
    if let Ok(g) = graph {
        for u in g.toposort() {
            let _ = (u.shape(), u.ranges());
        }
        assert_eq!(parse(&print(&g)), Ok(g), "{text}");
    }
    if let Ok(list) = parse_program(text) {
        assert_eq!(parse_program(&print_program(&list)), Ok(list), "{text}");
    }
    accepted
}

#[test]
fn mutated_text_never_panics() {
    let palette: Vec<&str> = "%|=|,|{|}|[|]|(|)|\"|\\|;|:|~|x|-|+|.\
                              |0|1|9|99999999999|18446744073709551615|65535|\n|\\
         r| |é|\0|Const|Add|Sink|Range|Reshape|f32|index|void|%0|%1|axes=|nan|inf|\\u{"
        .split('|')
        .collect();
    let mut accepted = 0;
    for seed in 0..3000 {
        let rng = &mut Rng::new(seed ^ 0x5EED);
        let text =
            if rng.below(2) == 0 { print(&graph(rng)) } else { print_program(&nodes(rng, 12)) };
        for _ in 0..6 {
            let mut chars: Vec<char> = text.chars().collect();
            for _ in 0..1 + rng.below(4) {
                let (i, j) = (rng.below(chars.len().max(1)), rng.below(chars.len().max(1)));
                let (i, j) = (i.min(j), i.max(j).min(chars.len()));
                match rng.below(5) {
                    0 => drop(chars.splice(i..i, rng.pick(&palette).chars())),
                    1 => drop(chars.splice(i..j.min(i + 3), [])),
                    2 => drop(chars.splice(i..j.min(i + 1), rng.pick(&palette).chars())),
                    3 => drop(chars.splice(i..i, chars[i..j.min(i + 20)].to_vec())),
                    _ => chars.truncate(j),
                }
            }
            accepted += accepts_or_refuses(&chars.into_iter().collect::<String>()) as usize;
        }
    }
    // Mutations that are all rejected would test little.
    assert!((100..17_000).contains(&accepted), "{accepted} of 18000 texts were accepted");
}

#[test]
fn huge_sizes_take_time_linear_in_the_text() {
    let n = 200_000;
    accepts_or_refuses(&"{".repeat(n));
    accepts_or_refuses(&format!("%0 = Sink void {}", "(".repeat(n)));
    accepts_or_refuses(&format!(
        "%0 = Iota f32 {{len=1}}\n%1 = Reshape f32 %0 {{reshape [{}1]}}",
        "1,".repeat(n)
    ));
    accepts_or_refuses(&format!("%0 = Sink void {}1:f32x65535", "1:f32x65535, ".repeat(n)));
    accepts_or_refuses(&format!("%0 = {} f32", "A".repeat(n)));
    accepts_or_refuses(
        &"%0 = Iota f32 {len=18446744073709551615}\n%1 = Pad f32 %0 {pad [(1,1)]}".repeat(2),
    );
    let chain: String = (1..n).map(|i| format!("%{i} = Exp f32 %{}\n", i - 1)).collect();
    accepts_or_refuses(&format!("%0 = Iota f32 {{len=1}}\n{chain}"));
    refused(
        &format!("%0 = {} f32", "A".repeat(n)),
        1,
        "there is no op \"AAAAAAAAAAAAAAAAAAAAAAAA…\"",
    );
}

//! The table of `docs/ir.md`, which is generated from the table of ops, and sample payloads.

#[cfg(feature = "testing")]
use super::DTypes;
use super::Op;

/// Returns the Markdown table of ops with operands, payload, groups and meaning. A test compares
/// `docs/ir.md` with it.
#[cfg(feature = "testing")]
pub fn doc_table() -> String {
    let mut out = String::from(
        "| op | operands | dtypes | payload | groups | meaning |\n|---|---|---|---|---|---|\n",
    );
    for &op in Op::ALL {
        let payload =
            if sample(op).is_empty() { String::new() } else { format!("`{}`", sample(op)) };
        let groups = op.groups().iter().map(|g| format!("{g:?}")).collect::<Vec<_>>().join(", ");
        let dtypes = if op.on() == DTypes::Any && !op.is_alu() { "" } else { op.on().name() };
        let meaning = op.doc().split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        out.push_str(&format!(
            "| `{}` | {} | {dtypes} | {payload} | {groups} | {meaning} |\n",
            op.name(),
            op.operands().join(", ")
        ));
    }
    out
}

/// Returns a sample payload of an op, for messages and the document; empty for ops without payload.
pub(super) fn sample(op: Op) -> &'static str {
    match op {
        Op::Const => "1.0",
        Op::Buffer => "{buffer id=7 len=12 device=CPU}",
        Op::Param => "{slot=0 len=12 device=CPU}",
        Op::Var => "{name=\"n\" min=1 max=64}",
        Op::Iota => "{len=12}",
        Op::Slice => "{axis=0 start=\"0\" len=\"n[1..3]\"}",
        Op::Reshape => "{reshape [3,4]}",
        Op::Expand => "{expand [3,4]}",
        Op::Permute => "{permute [1,0]}",
        Op::Pad => "{pad [(1,0),(0,2)]}",
        Op::Shrink => "{shrink [(0,2),(1,3)]}",
        Op::Flip => "{flip [true,false]}",
        Op::Reduce => "{fold=Add axes=[0,1]}",
        Op::Scan => "{fold=Add axes=[0]}",
        Op::Gather | Op::Cat => "{axis=0}",
        Op::Scatter => "{combine=Add axis=0}",
        Op::Contiguous => "{device=CPU}",
        Op::Leaf => "{leaf=3}",
        Op::Call => "{gradient=3}",
        Op::Copy => "{device=CUDA:1}",
        Op::Shards => "{devices=CPU+CPU:1 axis=0}",
        Op::Kernel => "{kernel=00c0ffee00c0ffee outputs=[f32[3x4]]}",
        Op::Loop => "{body=00c0ffee00c0ffee count=8 reverse=false carries=1 elements=1}",
        Op::Output => "{output=0}",
        Op::Source => "{device=CPU:CLANG entry=twice text=\"…\"}",
        Op::DefineGlobal => "{slot=0 len=12}",
        Op::DefineShared => "{id=0 len=64}",
        Op::DefineAcc => "{acc=0}",
        Op::Range => "{id=0 kind=Reduce}",
        Op::Special => "{kind=Group dim=0 extent=16}",
        Op::Load => "{prefetch_in=0}",
        Op::Store => "{nontemporal}",
        Op::Gep => "{lanes [0,2]}",
        Op::Wmma => "{core=m16n8k16_f16_f32 lanes=[4,5]}",
        Op::Shuffle => "{xor=16}",
        Op::Sink => "{threads [5,3]}",
        _ => "",
    }
}

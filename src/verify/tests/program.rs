//! Tests of the verifier of programs: good programs, and one that breaks each rule.

use super::*;
use crate::ir::LoadHint;
use crate::verify::program;

fn acc(id: u32, init: &UOp) -> UOp {
    node(Op::DefineAcc, init.dtype(), [init.clone()].to_src(), Arg::Acc(id))
}
fn assign(acc: &UOp, value: &UOp) -> UOp {
    node(Op::Assign, acc.dtype(), [acc.clone(), value.clone()].to_src(), Arg::None)
}
fn loops(id: u32) -> UOp {
    range(id, i32c(4), AxisKind::Loop)
}
/// Returns the nodes under the last one in topological order, for programs without regions.
fn flat(u: &UOp) -> Vec<UOp> {
    u.toposort()
}

/// Returns the program of a sum. Tests remove or exchange instructions.
fn sum() -> Vec<UOp> {
    let (out, x) = (UOp::define_global(0, 1, DType::F32), UOp::define_global(1, 4, DType::F32));
    let (a, r) = (acc(0, &f32c(0.0)), range(0, i32c(4), AxisKind::Reduce));
    let at = x.at(&r);
    let v = at.load();
    let add = &a + &v;
    let set = assign(&a, &add);
    let to = out.at(i32c(0));
    let put = to.store(&set, &[]);
    vec![out, x, a, r.clone(), at, v, add, set, r.end_range(), to, put]
}

#[test]
fn valid_programs_pass() {
    program(&sum()).unwrap();
    program(&[]).unwrap();
    // Literals may be listed or not; a conditional store; a masked load; f16 that is only
    // converted.
    let (x, y) = (UOp::define_global(0, 4, DType::F16), UOp::define_global(1, 4, DType::F32));
    let l = special(SpecialKind::Local, 0, 8);
    let (c, four) = (l.lt(4i32), i32c(4));
    let from = masked(&x, &l, &c);
    let v = node(
        Op::Load,
        DType::F16,
        [from.clone(), UOp::constant(0.0, DType::F16)].to_src(),
        Arg::None,
    );
    let wide = v.cast(DType::F32);
    let at = y.at(&l);
    let open = open_if(&c);
    let list = vec![
        x,
        y,
        l,
        four,
        c,
        from,
        v,
        wide.clone(),
        at.clone(),
        open.clone(),
        at.store(&wide, &[]),
        end_if(&open),
    ];
    program(&list).unwrap();
}

#[test]
fn regions_nest_in_order() {
    let mut p = sum();
    p.swap(4, 5);
    refused(program(&p), "operands are listed before their users");
    let mut p = sum();
    p.remove(8);
    refused(program(&p), "every region is closed");
    let mut p = sum();
    p.push(p[0].clone());
    refused(program(&p), "a node is listed once");
    let (a, b) = (loops(0), loops(1));
    refused(
        program(&[a.clone(), b.clone(), a.end_range(), b.end_range()]),
        "closes the innermost open one",
    );
    let open = open_if(&UOp::truth(true));
    refused(
        program(&[a.clone(), open.clone(), a.end_range(), end_if(&open)]),
        "closes the innermost open one",
    );
    refused(
        program(&[a.clone(), node(Op::EndRange, DType::I32, [a.clone()].to_src(), Arg::None)]),
        "an effect has no value",
    );
    refused(program(&[a.end_range()]), "operands are listed before their users");
    refused(program(&[a.clone(), a.end_range(), &a + 1i32]), "not used outside the region");
    refused(
        program(&[a.clone(), node(Op::EndIf, DType::VOID, [a.clone()].to_src(), Arg::None)]),
        "of the kind that its user takes",
    );
    refused(program(&[open_if(&i32c(1))]), "the condition of an if is a bool");
}

#[test]
fn accumulators_are_assigned_in_their_loop() {
    // A sum that is read after the loop without the accumulator.
    let mut p = sum();
    let add = p[6].clone();
    p[10] = p[9].store(&add, &[]);
    refused(program(&p), "not used outside the region");
    // An accumulator that was defined inside the loop is gone after it.
    let mut p = sum();
    p.swap(2, 3);
    refused(program(&p), "not used outside the region");
    refused(
        program(&[assign(&acc(0, &f32c(0.0)), &f32c(1.0))]),
        "operands are listed before their users",
    );
    let v = &f32c(1.0) + &f32c(2.0);
    refused(program(&[v.clone(), assign(&v, &f32c(1.0))]), "an assignment is to an accumulator");
    let a = acc(0, &f32c(0.0));
    refused(
        program(&[
            a.clone(),
            node(Op::Assign, DType::F32, [a.clone(), i32c(1)].to_src(), Arg::None),
        ]),
        "the dtype of its accumulator",
    );
    refused(program(&[a, acc(0, &f32c(1.0))]), "a number belongs to one accumulator");
    refused(
        program(&[node(Op::DefineAcc, DType::F64, [f32c(0.0)].to_src(), Arg::Acc(0))]),
        "the dtype of its initial value",
    );
}

#[test]
fn numbers_are_unique() {
    refused(program(&[UOp::define_global(1, 4, DType::F32)]), "slots are numbered from 0");
    refused(
        program(&[UOp::define_global(0, 4, DType::F32), UOp::define_global(0, 5, DType::F32)]),
        "slots are numbered from 0",
    );
    refused(
        program(&[UOp::define_shared(0, 4, DType::F32), UOp::define_shared(0, 5, DType::F32)]),
        "a number belongs to one accumulator, one shared memory",
    );
    let (a, b) = (loops(0), range(0, i32c(5), AxisKind::Loop));
    refused(program(&[a.clone(), a.end_range(), b.clone(), b.end_range()]), "one range");
    let specials = [special(SpecialKind::Local, 0, 4), special(SpecialKind::Local, 0, 5)];
    refused(program(&specials), "or one launch dimension");
    refused(program(&[special(SpecialKind::Group, 3, 4)]), "dimension 0 to 2");
    refused(
        program(&[special(SpecialKind::Thread, 1, 4)]),
        "the grid of CPU threads has one dimension",
    );
}

#[test]
fn accesses_and_lanes_are_checked() {
    let x = UOp::define_global(0, 4, DType::F32);
    let at = x.at(i32c(0));
    let c = special(SpecialKind::Local, 0, 4);
    let valid = c.lt(2i32);
    let place = masked(&x, &c, &valid);
    refused(program(&flat(&place.store(f32c(0.0), &[]))), "a masked store is inside an if");
    refused(program(&flat(&place.load())), "a masked load has an alternative value of its dtype");
    refused(program(&flat(&at.store(i32c(0), &[]))), "a stored value has the dtype of its buffer");
    refused(
        program(&flat(&node(Op::Load, DType::I32, [at.clone()].to_src(), Arg::None))),
        "a load has the dtype of its buffer",
    );
    refused(program(&flat(&at.store(&at, &[]))), "of the kind that its user takes");
    refused(program(&flat(&x.at(UOp::constant(0, DType::U8)))), "an index is an integer scalar");
    refused(
        program(&flat(&node(Op::Index, DType::F64, [x.clone(), i32c(0)].to_src(), Arg::None))),
        "the dtype of its buffer",
    );
    let v = node(Op::Load, DType::F32.vec(4), [at].to_src(), Arg::None);
    let pick = |dtype, i: u16| {
        node(Op::Gep, dtype, [v.clone()].to_src(), Arg::Lanes([i].as_slice().into()))
    };
    program(&flat(&pick(DType::F32, 3))).unwrap();
    refused(program(&flat(&pick(DType::F32, 4))), "selected lanes are lanes of the vector");
    refused(program(&flat(&pick(DType::I32, 0))), "selected lanes have the dtype");
    let other = |dtype, arg| node(Op::Shuffle, dtype, [v.clone()].to_src(), arg);
    program(&flat(&other(v.dtype(), Arg::Shuffle(16)))).unwrap();
    refused(program(&flat(&other(v.dtype(), Arg::Shuffle(0)))), "another thread of the same warp");
    refused(program(&flat(&other(v.dtype(), Arg::Shuffle(64)))), "another thread of the same warp");
    refused(program(&flat(&other(DType::F32, Arg::Shuffle(1)))), "a shuffle keeps the dtype");
    refused(program(&flat(&other(v.dtype(), Arg::None))), "payload that the table of ops declares");
    let short = node(Op::Vectorize, DType::F32.vec(4), [f32c(0.0)].to_src(), Arg::None);
    refused(program(&flat(&short)), "has the lanes of its operands");
    let mixed = node(Op::Vectorize, DType::F32.vec(2), [f32c(0.0), i32c(0)].to_src(), Arg::None);
    refused(program(&flat(&mixed)), "operands of a vector have its dtype");
    let uneven = node(Op::Add, DType::F32.vec(4), [v.clone(), f32c(0.0)].to_src(), Arg::None);
    refused(program(&flat(&uneven)), "the number of lanes of the result");
}

#[test]
fn lowering_removes_ops_and_dtypes() {
    let l = special(SpecialKind::Group, 0, 9);
    refused(program(&flat(&(&l / 2i32))), "floor division");
    refused(program(&flat(&(&l % 2i32))), "floor division");
    program(&flat(&l.binary(Op::CDiv, 2i32))).unwrap();
    let r = range(0, UOp::int(4), AxisKind::Loop);
    refused(program(&[r.clone(), r.end_range()]), "lowered to machine integers");
    for kind in [AxisKind::Upcast, AxisKind::Unroll, AxisKind::Global, AxisKind::Group] {
        let r = range(0, i32c(4), kind);
        refused(program(&[r.clone(), r.end_range()]), "a kind that lowering keeps");
    }
    let x = UOp::define_global(0, 4, DType::F16);
    let h = x.at(i32c(0)).load();
    refused(program(&flat(&(&h + &h))), "floats of 16 and 8 bits are computed in f32");
    refused(program(&flat(&h.lt(&h))), "floats of 16 and 8 bits are computed in f32");
    refused(program(&flat(&h.cast(DType::F64))), "to and from f32");
    refused(program(&flat(&i32c(1).cast(DType::BF16))), "to and from f32");
    refused(program(&flat(&acc(0, &UOp::constant(0.0, DType::F16)))), "not accumulated");
    // A loaded value may be accumulated.
    program(&flat(&acc(0, &h))).unwrap();
    let hinted = |hint: LoadHint| h.with_arg(Arg::LoadHint(hint));
    let staged = hinted(LoadHint { stage_at: Some(0), ..LoadHint::default() });
    refused(program(&flat(&staged)), "has replaced loads of tiles");
    let prefetched = flat(&hinted(LoadHint { prefetch_in: Some(0), ..LoadHint::default() }));
    refused(program(&prefetched), "removed the hints of loads");
    // The pass behind `linearize` removes the mark.
    crate::verify::linear(&prefetched).unwrap();
    refused(program(&[UOp::sink([].to_src())]), "not allowed in this stage");
    refused(program(&flat(&f32c(1.0).unary(Op::Detach))), "not allowed in this stage");
}

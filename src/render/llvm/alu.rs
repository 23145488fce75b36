//! Elementwise ops as instructions. Scalars and vectors are alike.

use super::text::{literal, suffix, ty};
use super::{LlvmWriter, Text};
use crate::dtype::{Const, DType, Scalar};
use crate::ir::{Group, Op, UOp};

impl LlvmWriter<'_> {
    /// Writes an instruction with two operands of one type.
    pub(super) fn binary(&mut self, instruction: &str, dtype: DType, x: &str, y: &str) -> String {
        self.define("alu", &format!("{instruction} {} {x}, {y}", ty(dtype)))
    }

    /// Selects each lane of `x` or `y` by the condition, which has as many lanes.
    pub(super) fn select(
        &mut self,
        kind: &'static str,
        dtype: DType,
        condition: &str,
        x: &str,
        y: &str,
    ) -> String {
        let bools = ty(DType::BOOL.vec(dtype.lanes));
        if self.arm64 && matches!(dtype.scalar, Scalar::F32 | Scalar::F64) {
            let scalar = if dtype.scalar == Scalar::F32 { Scalar::U32 } else { Scalar::U64 };
            let bits = DType { scalar, lanes: dtype.lanes };
            let (x, y) = (self.reinterpret(dtype, x, bits), self.reinterpret(dtype, y, bits));
            let chosen = self.select(kind, bits, condition, &x, &y);
            return self.reinterpret(bits, &chosen, dtype);
        }
        let ty = ty(dtype);
        self.define(kind, &format!("select {bools} {condition}, {ty} {x}, {ty} {y}"))
    }

    /// Calls an intrinsic of LLVM, whose arguments are all of one type.
    pub(super) fn intrinsic(&mut self, name: &str, dtype: DType, args: &[String]) -> String {
        let ty = ty(dtype);
        self.call(
            &format!("llvm.{name}.{}", suffix(dtype)),
            &ty,
            args.iter().map(|a| (ty.clone(), a.clone())).collect(),
        )
    }

    /// Calls a function, which is declared at the end.
    pub(super) fn call(&mut self, name: &str, result: &str, args: Vec<(String, String)>) -> String {
        let types: Vec<&str> = args.iter().map(|(ty, _)| ty.as_str()).collect();
        self.declared.insert(format!("{result} @{name}({})", types.join(", ")));
        let args: Vec<String> = args.iter().map(|(ty, x)| format!("{ty} {x}")).collect();
        self.define("alu", &format!("call {result} @{name}({})", args.join(", ")))
    }

    pub(super) fn alu(&mut self, u: &UOp) -> Text {
        let (op, dtype, src) = (u.op(), u.dtype(), u.src());
        let from = u.operand_dtype();
        let x = src.iter().map(|s| self.text(s)).collect::<Result<Vec<_>, _>>()?;
        match op {
            Op::Detach => return Ok(x[0].clone()),
            Op::Cast => return self.cast(from, dtype, &x[0]),
            Op::Bitcast => return self.bitcast(from, dtype, &x[0]),
            Op::Where => return Ok(self.select("alu", dtype, &x[0], &x[1], &x[2])),
            _ => {}
        }
        if op.is(Group::Comparison) {
            return Ok(self.compare(op, from, &x[0], &x[1]));
        }
        if dtype.is_bool() {
            let instruction = match op {
                Op::Add | Op::Or | Op::Max => "or",
                Op::Mul | Op::And | Op::Min => "and",
                Op::Xor => "xor",
                _ => return Err(format!("{op:?} is not an op on bools")),
            };
            return Ok(self.binary(instruction, dtype, &x[0], &x[1]));
        }
        if dtype.is_float() { self.float(u, &x) } else { self.integer(u, &x) }
    }

    fn compare(&mut self, op: Op, from: DType, x: &str, y: &str) -> String {
        let signed = from.is_signed_int();
        let instruction = match op {
            Op::Lt if from.is_float() => "fcmp olt",
            Op::Eq if from.is_float() => "fcmp oeq",
            Op::Ne if from.is_float() => "fcmp une",
            Op::Lt if signed => "icmp slt",
            Op::Lt => "icmp ult",
            Op::Eq => "icmp eq",
            _ => "icmp ne",
        };
        self.binary(instruction, from, x, y)
    }

    fn float(&mut self, u: &UOp, x: &[String]) -> Text {
        let (op, dtype) = (u.op(), u.dtype());
        let minus_one = |s: &UOp| s.as_const() == Some(Const::Float(-1.0));
        Ok(match op {
            Op::Mul if u.src().iter().any(minus_one) => {
                let other = minus_one(u.operand()) as usize;
                self.define("alu", &format!("fneg {} {}", ty(dtype), x[other]))
            }
            Op::Add => self.binary("fadd", dtype, &x[0], &x[1]),
            Op::Mul => self.binary("fmul", dtype, &x[0], &x[1]),
            Op::Div => self.binary("fdiv", dtype, &x[0], &x[1]),
            Op::Max | Op::Min if self.arm64 => {
                // One instruction, also for NaN. Adding +0 makes a zero result +0.
                let name = if op == Op::Max { "maximum" } else { "minimum" };
                let chosen = self.intrinsic(name, dtype, x);
                self.binary("fadd", dtype, &chosen, &literal(Const::Float(0.0), dtype))
            }
            Op::Max | Op::Min => {
                // A literal comes first: it is not NaN, or both are, so that the NaN test is
                // dropped.
                let last = u.expect_binary().1.as_const();
                let literal_last = last.is_some();
                let (x, y) = if literal_last { (&x[1], &x[0]) } else { (&x[0], &x[1]) };
                let better =
                    self.binary(if op == Op::Max { "fcmp ogt" } else { "fcmp olt" }, dtype, x, y);
                let mut chosen = self.select("alu", dtype, &better, x, y);
                if !literal_last || matches!(last, Some(Const::Float(v)) if v.is_nan()) {
                    let nan = self.binary("fcmp uno", dtype, x, x);
                    chosen = self.select("alu", dtype, &nan, x, &chosen);
                }
                // Adding +0 makes a zero result +0.
                self.binary("fadd", dtype, &chosen, &literal(Const::Float(0.0), dtype))
            }
            Op::Fma | Op::Sqrt | Op::Trunc => self.intrinsic(&op.name().to_lowercase(), dtype, x),
            Op::Ldexp => self.ldexp(dtype, x),
            _ => self.library(op, dtype, x),
        })
    }

    /// Calls the intrinsics of `vscalefps` on registers of 64 bytes, and of `vscalefss`: they need
    /// AVX512F alone.
    fn ldexp(&mut self, dtype: DType, x: &[String]) -> String {
        let double = dtype.scalar == Scalar::F64;
        if dtype.lanes == 1 {
            let part = DType { lanes: if double { 2 } else { 4 }, ..dtype };
            let name = if double { "sd" } else { "ss" };
            let place =
                |x: &String| format!("insertelement {} poison, {} {x}, i32 0", ty(part), ty(dtype));
            let (a, b) = (self.define("vec", &place(&x[0])), self.define("vec", &place(&x[1])));
            let all = self.scalef(name, "i8", part, [&a, &b]);
            return self.define("lane", &format!("extractelement {} {all}, i32 0", ty(part)));
        }
        let (name, mask, lanes) = if double { ("pd.512", "i8", 8) } else { ("ps.512", "i16", 16) };
        let part = DType { lanes, ..dtype };
        if dtype.lanes == lanes {
            return self.scalef(name, mask, part, [&x[0], &x[1]]);
        }
        // The results of whole registers, with their lanes before them.
        let mut result: Option<(String, u16)> = None;
        for start in (0..dtype.lanes).step_by(lanes as usize) {
            // Lanes past the end repeat the last one.
            let picked = |lane: u16| (start + lane).min(dtype.lanes - 1);
            let [a, b] =
                [&x[0], &x[1]].map(|x| self.shuffle(dtype, [x, "poison"], (0..lanes).map(picked)));
            let value = self.scalef(name, mask, part, [&a, &b]);
            let Some((before, n)) = result else {
                result = Some((value, lanes));
                continue;
            };
            let widened = (0..n).map(|lane| lane.min(lanes - 1));
            let value = self.shuffle(part, [&value, "poison"], widened);
            let joined = DType { lanes: n, ..dtype };
            result = Some((self.shuffle(joined, [&before, &value], 0..n + lanes), n + lanes));
        }
        let (value, n) = result.expect("a vector has lanes");
        self.shuffle(DType { lanes: n, ..dtype }, [&value, "poison"], 0..dtype.lanes)
    }

    /// Calls an intrinsic on a register. The operands are followed by the value of lanes that the
    /// mask excludes, the mask, and the code of the current rounding mode.
    fn scalef(&mut self, name: &str, mask: &str, part: DType, x: [&String; 2]) -> String {
        let whole = ty(part);
        let mut args: Vec<_> = [x[0], x[1], x[0]].map(|v| (whole.clone(), v.clone())).into();
        args.extend([(mask, "-1"), ("i32", "4")].map(|(ty, v)| (ty.to_string(), v.to_string())));
        self.call(&format!("llvm.x86.avx512.mask.scalef.{name}"), &whole, args)
    }

    /// Picks lanes of two vectors.
    fn shuffle(&mut self, from: DType, x: [&str; 2], picked: impl Iterator<Item = u16>) -> String {
        let picked: Vec<String> = picked.map(|lane| format!("i32 {lane}")).collect();
        let (from, n, [x, y]) = (ty(from), picked.len(), x);
        let picked = picked.join(", ");
        self.define("vec", &format!("shufflevector {from} {x}, {from} {y}, <{n} x i32> <{picked}>"))
    }

    /// Calls a function of the C library on each lane. They are native for f64 alone.
    fn library(&mut self, op: Op, dtype: DType, x: &[String]) -> String {
        let (name, one, whole) = (op.name().to_lowercase(), ty(dtype.scalar()), ty(dtype));
        if dtype.lanes == 1 {
            return self.call(&name, &one, x.iter().map(|x| (one.clone(), x.clone())).collect());
        }
        let mut result = "poison".to_string();
        for lane in 0..dtype.lanes {
            let args = x.iter().map(|x| {
                (
                    one.clone(),
                    self.define("lane", &format!("extractelement {whole} {x}, i32 {lane}")),
                )
            });
            let args = args.collect();
            let value = self.call(&name, &one, args);
            result = self.define(
                "vec",
                &format!("insertelement {whole} {result}, {one} {value}, i32 {lane}"),
            );
        }
        result
    }

    fn integer(&mut self, u: &UOp, x: &[String]) -> Text {
        let (op, dtype) = (u.op(), u.dtype());
        let unsigned = dtype.is_unsigned();
        let choose =
            |signed: &'static str, other: &'static str| if unsigned { other } else { signed };
        let wrap = if self.address_integers.contains(&u.id()) && !unsigned { " nsw" } else { "" };
        let instruction = match op {
            Op::Add => format!("add{wrap}"),
            Op::Mul => format!("mul{wrap}"),
            Op::CDiv => choose("sdiv", "udiv").to_string(),
            Op::CMod => choose("srem", "urem").to_string(),
            Op::And | Op::Or | Op::Xor => op.name().to_lowercase(),
            Op::Shl | Op::Shr => {
                // A count past the width is poison, even if the result is not used, so that only
                // its low bits are used.
                let mask = i64::from(dtype.bits()) - 1;
                let count = match u.expect_binary().1.as_const() {
                    Some(Const::Int(v)) => literal(Const::Int(v & mask), dtype),
                    _ => self.binary("and", dtype, &x[1], &literal(Const::Int(mask), dtype)),
                };
                let instruction = if op == Op::Shl { "shl" } else { choose("ashr", "lshr") };
                return Ok(self.binary(instruction, dtype, &x[0], &count));
            }
            Op::Max | Op::Min => {
                let test = if op == Op::Max {
                    choose("icmp sgt", "icmp ugt")
                } else {
                    choose("icmp slt", "icmp ult")
                };
                let better = self.binary(test, dtype, &x[0], &x[1]);
                return Ok(self.select("alu", dtype, &better, &x[0], &x[1]));
            }
            _ => return Err(format!("LLVM has no {op:?} on integers")),
        };
        Ok(self.binary(&instruction, dtype, &x[0], &x[1]))
    }
}

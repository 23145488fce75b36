//! Arithmetic on f32 that stays exact. Compilers of WGSL may replace `x+0` by `x`, `x-x` and `x*0`
//! by 0, `(x+y)-y` by `x`, `x != x` by false, and contract a product and a sum. They match
//! expressions, so operands are hidden from them: `hidden` is an exclusive or with a zero that is
//! passed at run time.
//!
//! * Literals, negations and products are hidden: no remaining expression of sums and products
//!   has a form that a compiler could shorten.
//! * Operands of comparisons are hidden, and an inequality is the negation of an equality.
//! * Integers that are extended to 64 bits are hidden.
//! * Max and Min are computed by integers; conversions to integers test the bits first.
//! * A fused multiply-add is that of the language if the adapter rounds it once, and else computed
//!   in doubles or integers.

use super::{Fma, WgslWriter};
use crate::ir::Op;

/// Helper functions: name, the helpers that it needs, and the text.
const HELPERS: &[(&str, &[&str], &str)] = &[
    ("hidden", &[], "fn hidden(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x)^zero()); }"),
    ("number", &[], "fn number(bits: u32) -> f32 { return bitcast<f32>(bits^zero()); }"),
    ("is_nan", &[], "fn is_nan(u: u32) -> bool { return (u&0x7fffffffu) > 0x7f800000u; }"),
    // In the order of the floats.
    ("key", &[], "fn key(u: u32) -> u32 { return select(u|0x80000000u, ~u, (u>>31u) == 1u); }"),
    (
        "max_f32",
        &["is_nan", "key"],
        "fn max_f32(a: f32, b: f32) -> f32 { let x = bitcast<u32>(a); let y = bitcast<u32>(b); if \
         (is_nan(x)) { return a; } if (is_nan(y)) { return b; } let r = select(y, x, key(x) > \
         key(y)); return bitcast<f32>(select(r, 0u, (r<<1u) == 0u)); }",
    ),
    (
        "min_f32",
        &["is_nan", "key"],
        "fn min_f32(a: f32, b: f32) -> f32 { let x = bitcast<u32>(a); let y = bitcast<u32>(b); if \
         (is_nan(x)) { return a; } if (is_nan(y)) { return b; } let r = select(y, x, key(x) < \
         key(y)); return bitcast<f32>(select(r, 0u, (r<<1u) == 0u)); }",
    ),
    (
        "f32_to_i32",
        &["is_nan"],
        "fn f32_to_i32(x: f32) -> i32 { let u = bitcast<u32>(x); if (is_nan(u)) { return 0i; } if \
         ((u&0x7fffffffu) >= 0x4f000000u) { return bitcast<i32>(0x7fffffffu+(u>>31u)); } return \
         i32(x)^bitcast<i32>(zero()); }",
    ),
    (
        "f32_to_u32",
        &["is_nan"],
        "fn f32_to_u32(x: f32) -> u32 { let u = bitcast<u32>(x); if (is_nan(u) || (u>>31u) == 1u) \
         { return 0u; } if (u >= 0x4f800000u) { return 0xffffffffu; } return u32(x)^zero(); }",
    ),
    // Mesa 22.3 compares an integer that was extended to 64 bits with a literal as if it had 32
    // bits.
    ("to_i64", &[], "fn to_i64(x: i32) -> i64 { return i64(x)^i64(zero()); }"),
    ("to_u64", &[], "fn to_u64(x: u32) -> u64 { return u64(x)^u64(zero()); }"),
    // The significand, shifted to its place value.
    (
        "whole",
        &["to_u64"],
        "fn whole(m: u32) -> u64 { let e = m>>23u; let f = (m&0x7fffffu)|0x800000u; if (e < 127u) \
         { return 0lu; } if (e < 150u) { return to_u64(f>>(150u-e)); } return u64(f)<<(e-150u); }",
    ),
    (
        "f32_to_i64",
        &["is_nan", "whole"],
        "fn f32_to_i64(x: f32) -> i64 { let u = bitcast<u32>(x); let m = u&0x7fffffffu; let \
         negative = (u>>31u) == 1u; if (is_nan(u)) { return 0li; } if (m >= 0x5f000000u) { return \
         select(9223372036854775807li, -9223372036854775807li-1li, negative); } let r = \
         i64(whole(m)); return select(r, -r, negative); }",
    ),
    (
        "f32_to_u64",
        &["is_nan", "whole"],
        "fn f32_to_u64(x: f32) -> u64 { let u = bitcast<u32>(x); if (is_nan(u) || (u>>31u) == 1u) \
         { return 0lu; } if (u >= 0x5f800000u) { return 18446744073709551615lu; } return \
         whole(u); }",
    ),
    // Rounding the upper 32 bits is enough if their last bit is set for a nonzero rest (sticky
    // bit).
    (
        "u64_to_f32",
        &[],
        "fn u64_to_f32(x: u64) -> f32 { let high = u32(x>>32u); if (high == 0u) { return \
         f32(u32(x&0xfffffffflu)); } let n = countLeadingZeros(high); let y = x<<n; let top = \
         u32(y>>32u)|select(0u, 1u, (y&0xfffffffflu) != 0lu); return \
         f32(top)*bitcast<f32>((159u-n)<<23u); }",
    ),
    (
        "i64_to_f32",
        &["u64_to_f32"],
        "fn i64_to_f32(x: i64) -> f32 { if (x < 0li) { return -u64_to_f32(u64(0li-x)); } return \
         u64_to_f32(u64(x)); }",
    ),
    // Numbers of 64 bits as two of 32, the upper one first.
    (
        "up64",
        &[],
        "fn up64(v: vec2<u32>, n: u32) -> vec2<u32> { if (n == 0u) { return v; } if (n >= 32u) { \
         return vec2<u32>(v.y<<(n-32u), 0u); } return vec2<u32>((v.x<<n)|(v.y>>(32u-n)), v.y<<n); \
         }",
    ),
    // Bits that are shifted out set the last place (sticky bit).
    (
        "down64",
        &[],
        "fn down64(v: vec2<u32>, n: u32) -> vec2<u32> { if (n == 0u) { return v; } if (n >= 64u) \
         { return vec2<u32>(0u, select(0u, 1u, (v.x|v.y) != 0u)); } if (n == 32u) { return \
         vec2<u32>(0u, v.x|select(0u, 1u, v.y != 0u)); } if (n > 32u) { let lost = \
         v.y|(v.x<<(64u-n)); return vec2<u32>(0u, (v.x>>(n-32u))|select(0u, 1u, lost != 0u)); } \
         let lost = v.y<<(32u-n); return vec2<u32>(v.x>>n, (v.y>>n)|(v.x<<(32u-n))|select(0u, 1u, \
         lost != 0u)); }",
    ),
    (
        "add64",
        &[],
        "fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { let low = a.y+b.y; return \
         vec2<u32>(a.x+b.x+select(0u, 1u, low < a.y), low); }",
    ),
    (
        "sub64",
        &[],
        "fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x-b.x-select(0u, \
         1u, a.y < b.y), a.y-b.y); }",
    ),
    // 24 digits, the first of them a one unless all are zero, and the exponent of the last.
    (
        "digits",
        &[],
        "fn digits(u: u32) -> vec2<i32> { let e = (u>>23u)&0xffu; let m = u&0x7fffffu; if (e > \
         0u) { return vec2<i32>(i32(m|0x800000u), i32(e)-150); } let n = \
         countLeadingZeros(m|1u)-8u; return vec2<i32>(i32(m<<n), -149-i32(n)); }",
    ),
    (
        "times24",
        &["add64"],
        "fn times24(x: u32, y: u32) -> vec2<u32> { let a = x>>12u; let b = x&0xfffu; let c = \
         y>>12u; let d = y&0xfffu; let mid = a*d+b*c; let high = a*c; return \
         add64(add64(vec2<u32>(mid>>20u, mid<<12u), vec2<u32>(high>>8u, high<<24u)), \
         vec2<u32>(0u, b*d)); }",
    ),
    // The product has 48 bits, the sum 62 with the sticky bit: it is rounded once, at the end.
    (
        "fused",
        &["hidden", "digits", "times24", "add64", "sub64", "up64", "down64"],
        "fn fused(a: f32, b: f32, c: f32) -> f32 { let x = bitcast<u32>(a); let y = \
         bitcast<u32>(b); let z = bitcast<u32>(c); let open = (x&0x7f800000u) == 0x7f800000u || \
         (y&0x7f800000u) == 0x7f800000u; if (!open && (z&0x7f800000u) == 0x7f800000u) { return c; \
         } if (open || (x<<1u) == 0u || (y<<1u) == 0u) { return hidden(a*b)+c; } let p = \
         digits(x); let q = digits(y); let r = digits(z); var product = up64(times24(u32(p.x), \
         u32(q.x)), 14u); var term = up64(vec2<u32>(0u, u32(r.x)), 38u); var e = p.y+q.y-14; let \
         f = r.y-38; if (r.x == 0 || e >= f) { term = down64(term, u32(clamp(e-f, 0, 64))); } \
         else { product = down64(product, u32(min(f-e, 64))); e = f; } var sign = (x^y)>>31u; var \
         sum = add64(product, term); if (sign != (z>>31u)) { let less = product.x < term.x || \
         (product.x == term.x && product.y < term.y); if (less) { sum = sub64(term, product); \
         sign = z>>31u; } else { sum = sub64(product, term); } if ((sum.x|sum.y) == 0u) { return \
         0.0f; } } let n = select(countLeadingZeros(sum.x), 32u+countLeadingZeros(sum.y), sum.x \
         == 0u); sum = up64(sum, n); var top = e-i32(n)+190; if (top >= 255) { return \
         bitcast<f32>(0x7f800000u|(sign<<31u)|zero()); } if (top < 1) { sum = down64(sum, \
         u32(min(1-top, 64))); top = 1; } let kept = sum.x>>8u; let rest = sum.x&0xffu; let up = \
         rest > 0x80u || (rest == 0x80u && (sum.y != 0u || (kept&1u) == 1u)); return \
         bitcast<f32>((u32(top-1)<<23u)+kept+select(0u, 1u, up)+(sign<<31u)); }",
    ),
    // The product is exact in doubles; the sum has a rounding error `e`. If the rounded sum is the
    // midpoint of two floats, `e` decides which of them is nearer.
    (
        "fused_by_f64",
        &["hidden"],
        "fn fused_by_f64(a: f32, b: f32, c: f32) -> f32 { let one = f64(hidden(1.0f)); let p = \
         f64(a)*f64(b); let z = f64(c); let s = (p+z)*one; let t = (s-p)*one; let e = \
         (p-(s-t)*one)+(z-t); let r = hidden(f32(s)); let d = s-f64(r); let w = s+d; let n = \
         hidden(f32(w)); if (abs(s) == 3.4028235677973366e38lf && e*s < 0.0lf) { return \
         bitcast<f32>(bitcast<u32>(r)-1u); } return select(r, n, d*e > 0.0lf && f64(n) == w); }",
    ),
];

impl WgslWriter<'_> {
    /// Adds a helper with all that it needs.
    pub(super) fn exact(&mut self, name: &str) {
        let (_, needs, text) =
            HELPERS.iter().find(|h| h.0 == name).expect("every name is in the table");
        for needed in *needs {
            self.exact(needed);
        }
        self.helper(name, || text.to_string());
    }

    /// Returns a call of a helper.
    pub(super) fn exact_call(&mut self, name: &str, args: &[&str]) -> String {
        self.exact(name);
        format!("{name}({})", args.join(", "))
    }

    /// Hides a value from compilers. Literals are hidden already.
    fn hidden(&mut self, x: &str) -> String {
        let literal = ["hidden(", "number("].iter().any(|start| x.starts_with(start));
        if literal { x.to_string() } else { self.exact_call("hidden", &[x]) }
    }

    /// Returns an op on f32 that the language has an operator or a function for.
    pub(super) fn float(&mut self, op: Op, x: &[&str]) -> super::Text {
        Ok(match op {
            Op::Add => format!("{}+{}", x[0], x[1]),
            Op::Mul => self.exact_call("hidden", &[&format!("{}*{}", x[0], x[1])]),
            Op::Div => {
                let by = self.hidden(x[1]);
                format!("{}/{by}", x[0])
            }
            Op::Max => self.exact_call("max_f32", x),
            Op::Min => self.exact_call("min_f32", x),
            Op::Fma => match self.wgsl.fma {
                Fma::Native => format!("fma({})", x.join(", ")),
                Fma::Doubles => self.exact_call("fused_by_f64", x),
                Fma::Integers => self.exact_call("fused", x),
            },
            Op::Sqrt => format!("sqrt({})", x[0]),
            Op::Trunc => format!("trunc({})", x[0]),
            _ => return Err(format!("WGSL has no {op:?} on f32; it has to be decomposed")),
        })
    }

    /// Returns a comparison of f32.
    pub(super) fn compare(&mut self, op: Op, x: &[&str]) -> String {
        let [x, y] = [0, 1].map(|i| self.hidden(x[i]));
        match op {
            Op::Lt => format!("{x} < {y}"),
            Op::Eq => format!("{x} == {y}"),
            _ => format!("!({x} == {y})"),
        }
    }
}

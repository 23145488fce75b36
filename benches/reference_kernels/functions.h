// exp, 2^z and gelu (tanh form) on vectors of f32.
#pragma once
#include "vector.h"

// exp(x): x = n·ln 2 + r, a polynomial of degree 6 in r, times 2ⁿ; within 1 ulp. Results below the
// normal numbers become 2^-126 with AVX2.
INLINE vec vector_exp(vec x) {
  if (LANES == 8) x = maximum(minimum(x, broadcast(88.37f)), broadcast(-87.33f));
  vec n = round_even(x * broadcast(1.44269504f));
  vec r = multiply_add(n, broadcast(-0x1.62e400p-1f), x);
  r = multiply_add(n, broadcast(-0x1.7f7d1cp-20f), r);
  vec p = broadcast(0x1.6850e4p-10f);
  p = multiply_add(p, r, broadcast(0x1.123bccp-7f));
  p = multiply_add(p, r, broadcast(0x1.555b98p-5f));
  p = multiply_add(p, r, broadcast(0x1.55548ep-3f));
  p = multiply_add(p, r, broadcast(0x1.fffff8p-2f));
  p = multiply_add(p, r, broadcast(1));
  return scale_by_power(multiply_add(p, r, broadcast(1)), n);
}

// 2^z for |z| <= 120, within 1 ulp: where log2 e folds into a constant of the argument, it saves
// the reduction of exp.
INLINE vec vector_exp2(vec z) {
  vec n = round_even(z), f = z - n, p = broadcast(1.535336188e-4f);
  p = multiply_add(p, f, broadcast(1.339887440e-3f));
  p = multiply_add(p, f, broadcast(9.618437357e-3f));
  p = multiply_add(p, f, broadcast(5.550332471e-2f));
  p = multiply_add(p, f, broadcast(2.402264791e-1f));
  p = multiply_add(p, f, broadcast(6.931472028e-1f));
  return scale_by_power(multiply_add(p, f, broadcast(1)), n);
}

// gelu(x) = x·(1 + tanh u)/2 = x/(1 + exp(-2u)) = x/(1 + 2^z): one exponential and one division.
INLINE vec vector_gelu(vec x) {
  const float k = -2 * 0.7978845608f * 1.44269504f;
  vec z = x * multiply_add(x * x, broadcast(k * 0.044715f), broadcast(k));
  z = maximum(minimum(z, broadcast(120)), broadcast(-120));
  return x / (vector_exp2(z) + broadcast(1));
}

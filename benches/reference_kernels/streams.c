// Elementwise kernels and a sum over arrays: one pass over memory.
#include "functions.h"
#include "harness.h"

static const long M = 1 << 20;
static const float *a, *b;
static float *out;
static long count;
static double parts[MAX_THREADS][8];

// ---- relu(a·b + 1.5): 4 vectors per iteration, non-temporal stores

static void setup_fma_relu(void) {
  count = 16 * M;
  a = random_floats(count, 1), b = random_floats(count, 2), out = allocate(count);
}
static void run_fma_relu(int t, int nt) {
  long begin, end;
  split(count, 4 * LANES, t, nt, &begin, &end);
  for (long i = begin; i < end; i += 4 * LANES) {
    vec x[4];
    UNROLL for (int u = 0; u < 4; u++) {
      const long at = i + LANES * u;
      x[u] = maximum(multiply_add(load(a + at), load(b + at), broadcast(1.5f)), zero());
    }
    UNROLL for (int u = 0; u < 4; u++) store_nt(out + i + LANES * u, x[u]);
  }
}
static double error_fma_relu(void) {
  double error = 0;
  for (long i = 0; i < count; i += 3) {
    worse(&error, fabs(MAX(0, (double)a[i] * b[i] + 1.5) - out[i]));
  }
  return error;
}

// ---- gelu, tanh form: non-temporal stores, prefetch of the input

static void setup_gelu(void) {
  count = 4 * M;
  float *x = random_floats(count, 3);
  for (long i = 0; i < count; i++) x[i] *= 6;
  a = x, out = allocate(count);
}
static void run_gelu(int t, int nt) {
  long begin, end;
  split(count, LANES, t, nt, &begin, &end);
  for (long i = begin; i < end; i += LANES) {
    prefetch(a + i + 512);
    store_nt(out + i, vector_gelu(load(a + i)));
  }
}
// Relative to the result and a 64th of the input: the tail of gelu is a difference near 0.
static double error_gelu(void) {
  double error = 0;
  for (long i = 0; i < count; i += 3) {
    const double x = a[i], u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    const double want = 0.5 * x * (1 + tanh(u));
    worse(&error, fabs(out[i] - want) / (fabs(want) + fabs(x) / 64 + 1e-30));
  }
  return error;
}

// ---- sum: each thread reads four distant streams, with two accumulators each

static void setup_sum(void) {
  count = 16 * M;
  a = random_floats(count, 1);
}
static void run_sum(int t, int nt) {
  long begin, end;
  split(count, 8 * LANES, t, nt, &begin, &end);
  const long quarter = (end - begin) / 4;
  vec acc[4][2];
  UNROLL for (int s = 0; s < 4; s++) {
    UNROLL for (int u = 0; u < 2; u++) acc[s][u] = zero();
  }
  for (long i = 0; i < quarter; i += 2 * LANES) {
    UNROLL for (int s = 0; s < 4; s++) {
      UNROLL for (int u = 0; u < 2; u++) {
        acc[s][u] += load(a + begin + s * quarter + i + LANES * u);
      }
    }
  }
  vec sum = zero();
  UNROLL for (int s = 0; s < 4; s++) {
    UNROLL for (int u = 0; u < 2; u++) sum += acc[s][u];
  }
  parts[t][0] = sum_lanes(sum);
}
static double error_sum(void) {
  double want = 0, got = 0;
  for (long i = 0; i < count; i++) want += a[i];
  for (int t = 0; t < threads; t++) got += parts[t][0];
  return fabs(got - want) / sqrt(count);
}

const workload STREAMS[] = {
    {"fma_relu_16M", setup_fma_relu, run_fma_relu, error_fma_relu, 1e-6},
    {"gelu_4M", setup_gelu, run_gelu, error_gelu, 1e-5},
    {"sum_16M", setup_sum, run_sum, error_sum, 1e-3},
    {0},
};

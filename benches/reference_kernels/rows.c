// softmax and layernorm over 4096 rows of 1024: a row is read from memory once and stays in L1 for
// its reductions and its result. The next row is prefetched, since hardware prefetch stops at the
// end of a page, and results are stored past the caches.
#include "functions.h"
#include "harness.h"

enum { NUM_ROWS = 4096, WIDTH = 1024 };
static const float *in, *scale, *shift;
static float *out;

static void setup_softmax(void) {
  // One more row for the prefetch after the last.
  float *x = random_floats((NUM_ROWS + 1) * WIDTH, 3);
  for (long i = 0; i < NUM_ROWS * WIDTH; i++) x[i] *= 4;
  in = x, out = allocate(NUM_ROWS * WIDTH);
}

INLINE vec row_max(const float *row) {
  vec m[4];
  UNROLL for (int u = 0; u < 4; u++) m[u] = load(row + LANES * u);
  for (long k = 4 * LANES; k < WIDTH; k += 4 * LANES) {
    UNROLL for (int u = 0; u < 4; u++) m[u] = maximum(m[u], load(row + k + LANES * u));
  }
  return broadcast(max_lanes(maximum(maximum(m[0], m[1]), maximum(m[2], m[3]))));
}

// The exponentials of a row are stored in `row`, summed, then scaled.
static void run_softmax(int t, int nt) {
  float row[WIDTH] __attribute__((aligned(64)));
  long begin, end;
  split(NUM_ROWS, 1, t, nt, &begin, &end);
  for (long r = begin; r < end; r++) {
    const float *from = in + r * WIDTH;
    const vec largest = row_max(from);
    vec sum[2] = {zero(), zero()};
    for (long k = 0; k < WIDTH; k += 2 * LANES) {
      UNROLL for (int u = 0; u < 2; u++) {
        prefetch(from + WIDTH + k + LANES * u);
        vec e = vector_exp(load(from + k + LANES * u) - largest);
        store(row + k + LANES * u, e);
        sum[u] += e;
      }
    }
    const vec inverse = broadcast(1 / sum_lanes(sum[0] + sum[1]));
    for (long k = 0; k < WIDTH; k += 4 * LANES) {
      UNROLL for (int u = 0; u < 4; u++) {
        store_nt(out + r * WIDTH + k + LANES * u, load(row + k + LANES * u) * inverse);
      }
    }
  }
}

static double error_softmax(void) {
  double error = 0;
  for (long r = 0; r < NUM_ROWS; r += 17) {
    const float *row = in + r * WIDTH;
    double sum = 0, largest = -INFINITY;
    for (int k = 0; k < WIDTH; k++) largest = MAX(largest, row[k]);
    for (int k = 0; k < WIDTH; k++) sum += exp(row[k] - largest);
    for (int k = 0; k < WIDTH; k++) {
      const double want = exp(row[k] - largest) / sum;
      worse(&error, fabs(want - out[r * WIDTH + k]) / want);
    }
  }
  return error;
}

static void setup_layernorm(void) {
  setup_softmax();
  scale = random_floats(WIDTH, 5), shift = random_floats(WIDTH, 6);
}

// Mean, then variance, then the result: three passes over a row in L1.
static void run_layernorm(int t, int nt) {
  long begin, end;
  split(NUM_ROWS, 1, t, nt, &begin, &end);
  for (long r = begin; r < end; r++) {
    const float *from = in + r * WIDTH;
    vec sum[4], squares[4];
    UNROLL for (int u = 0; u < 4; u++) sum[u] = squares[u] = zero();
    for (long k = 0; k < WIDTH; k += 4 * LANES) {
      UNROLL for (int u = 0; u < 4; u++) sum[u] += load(from + k + LANES * u);
    }
    const float mean = sum_lanes(sum[0] + sum[1] + sum[2] + sum[3]) / WIDTH;
    for (long k = 0; k < WIDTH; k += 4 * LANES) {
      UNROLL for (int u = 0; u < 4; u++) {
        vec d = load(from + k + LANES * u) - broadcast(mean);
        squares[u] = multiply_add(d, d, squares[u]);
      }
    }
    const float variance =
        sum_lanes(squares[0] + squares[1] + squares[2] + squares[3]) / WIDTH;
    const vec factor = broadcast(1 / sqrtf(variance + 1e-5f)), offset = broadcast(-mean) * factor;
    for (long k = 0; k < WIDTH; k += 4 * LANES) {
      UNROLL for (int u = 0; u < 4; u++) {
        const long c = k + LANES * u;
        prefetch(from + WIDTH + c);
        vec normal = multiply_add(load(from + c), factor, offset);
        store_nt(out + r * WIDTH + c, multiply_add(normal, load(scale + c), load(shift + c)));
      }
    }
  }
}

static double error_layernorm(void) {
  double error = 0;
  for (long r = 0; r < NUM_ROWS; r += 17) {
    const float *row = in + r * WIDTH;
    double mean = 0, variance = 0;
    for (int k = 0; k < WIDTH; k++) mean += row[k] / (double)WIDTH;
    for (int k = 0; k < WIDTH; k++) variance += (row[k] - mean) * (row[k] - mean) / WIDTH;
    for (int k = 0; k < WIDTH; k++) {
      const double want = (row[k] - mean) / sqrt(variance + 1e-5) * scale[k] + shift[k];
      worse(&error, fabs(want - out[r * WIDTH + k]));
    }
  }
  return error;
}

const workload ROWS[] = {
    {"softmax_4096x1024", setup_softmax, run_softmax, error_softmax, 1e-5},
    {"layernorm_4096x1024", setup_layernorm, run_layernorm, error_layernorm, 1e-5},
    {0},
};

// Batch norm followed by 2×2 max pooling, forward and backward, on NCHW images of C×W×W. Rows are
// read in pairs; even and odd columns are separated in registers. Threads split the images.
#pragma once
#include "harness.h"

typedef struct {
  const float *x, *upstream, *weight, *bias;
  float *y, *gradient;  // of the pooled output, and of the input
  long images;
  float mean[64], inverse[64], scale[64], shift[64];  // normalized = x·scale + shift
  float sums[64], products[64];  // of the upstream gradient, and of it times the normalized input
  float parts[MAX_THREADS][64][2][LANES] __attribute__((aligned(64)));
} norm_pool_operands;

// Adds the parts of all threads.
INLINE void norm_totals(norm_pool_operands *p, int nt, int c, float *sum, float *other) {
  vec s = zero(), q = zero();
  for (int u = 0; u < nt; u++) s += load(p->parts[u][c][0]), q += load(p->parts[u][c][1]);
  *sum = sum_lanes(s), *other = sum_lanes(q);
}

// Mean and variance. The images are the outer loop, so that memory is read in order; each channel
// has its accumulators in L1.
INLINE void norm_statistics(norm_pool_operands *p, int t, int nt, const int channels,
                            const int width) {
  const int pixels = width * width;
  long begin, end;
  split(p->images, 1, t, nt, &begin, &end);
  memset(p->parts[t], 0, sizeof p->parts[t]);
  for (long n = begin; n < end; n++) {
    for (int c = 0; c < channels; c++) {
      const float *x = p->x + (n * channels + c) * pixels;
      vec sum[2] = {zero(), zero()}, squares[2] = {zero(), zero()};
      UNROLL for (int k = 0; k < pixels; k += LANES) {
        const int u = k / LANES % 2;
        vec v = pixels - k >= LANES ? load(x + k) : load_masked(x + k, first(pixels - k));
        sum[u] += v, squares[u] = multiply_add(v, v, squares[u]);
      }
      float *part = p->parts[t][c][0], *other = p->parts[t][c][1];
      store(part, load(part) + sum[0] + sum[1]);
      store(other, load(other) + squares[0] + squares[1]);
    }
  }
  barrier(nt);
  if (t == 0) {
    const float count = (float)p->images * pixels;
    for (int c = 0; c < channels; c++) {
      float sum, squares;
      norm_totals(p, nt, c, &sum, &squares);
      p->mean[c] = sum / count;
      p->inverse[c] = 1 / sqrtf(squares / count - p->mean[c] * p->mean[c] + 1e-5f);
      p->scale[c] = p->weight[c] * p->inverse[c];
      p->shift[c] = p->bias[c] - p->mean[c] * p->scale[c];
    }
  }
  barrier(nt);
}

// The even and the odd columns of 2·LANES elements of a row, of which `left` exist.
INLINE void columns(const float *row, long left, vec *even, vec *odd) {
  vec a = load_masked(row, first(left)), b = load_masked(row + LANES, first(left - LANES));
  *even = even_lanes(a, b), *odd = odd_lanes(a, b);
}
INLINE void store_columns(float *row, long left, vec even, vec odd) {
  store_masked(row, first(left), interleave_low(even, odd));
  if (left > LANES) store_masked(row + LANES, first(left - LANES), interleave_high(even, odd));
}

// The four elements of each window and their normalized values.
typedef struct {
  vec x[4], normalized[4], largest;
} windows;
INLINE windows read_windows(const float *x, const int width, int column, vec scale, vec shift) {
  windows w;
  columns(x + column, width - column, &w.x[0], &w.x[1]);
  columns(x + width + column, width - column, &w.x[2], &w.x[3]);
  UNROLL for (int i = 0; i < 4; i++) w.normalized[i] = multiply_add(w.x[i], scale, shift);
  w.largest = maximum(maximum(w.normalized[0], w.normalized[1]), maximum(w.normalized[2], w.normalized[3]));
  return w;
}

INLINE void norm_pool(norm_pool_operands *p, int t, int nt, const int channels, const int width) {
  const int half = width / 2;
  long begin, end;
  split(p->images, 1, t, nt, &begin, &end);
  for (long n = begin * channels; n < end * channels; n++) {
    const int c = n % channels;
    const vec scale = broadcast(p->scale[c]), shift = broadcast(p->shift[c]);
    for (int h = 0; h < half; h++) {
      for (int column = 0; column < width; column += 2 * LANES) {
        windows w = read_windows(p->x + (n * width + 2 * h) * width, width, column, scale, shift);
        const int at = column / 2;
        store_masked(p->y + (n * half + h) * half + at, first(half - at), w.largest);
      }
    }
  }
}

// The first element of each window that is the largest.
INLINE void select_first(const windows *w, mask chosen[4]) {
  mask taken = first(0);
  UNROLL for (int i = 0; i < 4; i++) {
    chosen[i] = and_not(taken, equal(w->normalized[i], w->largest));
    taken = either(taken, chosen[i]);
  }
}

// Backward, first pass: the two sums that the gradient of a batch norm needs.
INLINE void norm_pool_sums(norm_pool_operands *p, int t, int nt, const int channels,
                           const int width) {
  const int half = width / 2;
  long begin, end;
  split(p->images, 1, t, nt, &begin, &end);
  memset(p->parts[t], 0, sizeof p->parts[t]);
  for (long n = begin * channels; n < end * channels; n++) {
    const int c = n % channels;
    const vec scale = broadcast(p->scale[c]), shift = broadcast(p->shift[c]);
    float *part = p->parts[t][c][0], *other = p->parts[t][c][1];
    vec sum = load(part), product = load(other);
    for (int h = 0; h < half; h++) {
      for (int column = 0; column < width; column += 2 * LANES) {
        windows w = read_windows(p->x + (n * width + 2 * h) * width, width, column, scale, shift);
        const int at = column / 2;
        vec g = load_masked(p->upstream + (n * half + h) * half + at, first(half - at));
        mask chosen[4];
        select_first(&w, chosen);
        vec x = w.x[3];
        UNROLL for (int i = 2; i >= 0; i--) x = blend(chosen[i], w.x[i], x);
        sum += g;
        product = multiply_add(g, (x - broadcast(p->mean[c])) * broadcast(p->inverse[c]), product);
      }
    }
    store(part, sum), store(other, product);
  }
  barrier(nt);
  if (t == 0) {
    for (int c = 0; c < channels; c++) norm_totals(p, nt, c, &p->sums[c], &p->products[c]);
  }
  barrier(nt);
}

// Backward, second pass: the gradient of the input, 0 where the input is (its relu's mask).
INLINE void norm_pool_gradient(norm_pool_operands *p, int t, int nt, const int channels,
                               const int width) {
  const int half = width / 2;
  const float inverse_count = 1.0f / (p->images * width * width);
  long begin, end;
  split(p->images, 1, t, nt, &begin, &end);
  for (long n = begin * channels; n < end * channels; n++) {
    const int c = n % channels;
    const vec scale = broadcast(p->scale[c]), shift = broadcast(p->shift[c]);
    const vec slope = broadcast(-p->products[c] * inverse_count * p->inverse[c]);
    const vec offset = broadcast(-p->sums[c] * inverse_count) - slope * broadcast(p->mean[c]);
    for (int h = 0; h < half; h++) {
      for (int column = 0; column < width; column += 2 * LANES) {
        const long row = (n * width + 2 * h) * width;
        windows w = read_windows(p->x + row, width, column, scale, shift);
        const int at = column / 2;
        vec g = load_masked(p->upstream + (n * half + h) * half + at, first(half - at)), d[4];
        mask chosen[4];
        select_first(&w, chosen);
        UNROLL for (int i = 0; i < 4; i++) {
          d[i] = scale * (multiply_add(w.x[i], slope, offset) + blend(chosen[i], g, zero()));
          d[i] = blend(greater(w.x[i], zero()), d[i], zero());
        }
        store_columns(p->gradient + row + column, width - column, d[0], d[1]);
        store_columns(p->gradient + row + width + column, width - column, d[2], d[3]);
      }
    }
  }
}

// The largest absolute error of statistics, pooled outputs and gradients.
INLINE double norm_pool_error(const norm_pool_operands *p, int channels, int width) {
  const int half = width / 2, pixels = width * width;
  const double count = (double)p->images * pixels;
  double error = 0;
  for (int c = 0; c < channels; c++) {
    double sum = 0, squares = 0, upstream = 0, product = 0;
    for (long n = 0; n < p->images; n++) {
      const float *x = p->x + (n * channels + c) * pixels;
      for (int i = 0; i < pixels; i++) sum += x[i], squares += (double)x[i] * x[i];
    }
    const double mean = sum / count, inverse = 1 / sqrt(squares / count - mean * mean + 1e-5);
    worse(&error, fabs(mean - p->mean[c]));
    worse(&error, fabs(inverse / p->inverse[c] - 1));
    for (int pass = 0; pass < 2; pass++) {
      for (long n = 0; n < p->images; n++) {
        const long image = n * channels + c;
        for (int i = 0; i < half * half; i++) {
          const int corner = i / half * 2 * width + i % half * 2;
          const float *x = p->x + image * pixels + corner;
          int best = 0;
          float values[4];
          for (int k = 0; k < 4; k++) {
            values[k] = fmaf(x[k / 2 * width + k % 2], p->scale[c], p->shift[c]);
            if (values[k] > values[best]) best = k;
          }
          const double g = p->upstream[image * half * half + i];
          if (pass == 0) {
            worse(&error, fabs(values[best] - p->y[image * half * half + i]));
            upstream += g, product += g * (x[best / 2 * width + best % 2] - mean) * inverse;
            continue;
          }
          for (int k = 0; k < 4; k++) {
            const double v = x[k / 2 * width + k % 2], normal = (v - mean) * inverse;
            const double d = (k == best ? g : 0) - upstream / count - normal * product / count;
            const double want = v > 0 ? p->scale[c] * d : 0;
            const float *got = p->gradient + image * pixels + corner + k / 2 * width + k % 2;
            worse(&error, fabs(want - *got) / (1 + fabs((double)p->scale[c] * g)));
          }
        }
      }
    }
  }
  return error;
}

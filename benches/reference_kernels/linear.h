// y[M,N] = x[M,K]·Wᵀ with W[N,K], as layers of networks store weights.
#pragma once
#include "harness.h"

typedef struct {
  const float *x, *w;
  float *y;
  long m, n, k;
} linear_operands;

enum { PANEL_ROWS = 6, PANEL_VECTORS = VECTORS(4, 2), PANEL_WIDTH = PANEL_VECTORS * LANES };

// A panel of outputs at a time: its weights are transposed in registers into `panel` (K vectors of
// PANEL_WIDTH lanes), then register tiles of 6 rows walk all of K. The last tile of rows starts
// early, so some outputs are computed twice. N is a multiple of PANEL_WIDTH, K one of LANES.
INLINE void linear_panels(const linear_operands *p, float *panel, int t, int nt) {
  const long k = p->k;
  long begin, end;
  split(p->n, PANEL_WIDTH, t, nt, &begin, &end);
  for (long n = begin; n < end; n += PANEL_WIDTH) {
    for (long i = 0; i < k; i += LANES) {
      for (int j = 0; j < PANEL_WIDTH; j += LANES) {
        vec r[LANES];
        UNROLL for (int q = 0; q < LANES; q++) r[q] = load(p->w + (n + j + q) * k + i);
        transpose(r);
        UNROLL for (int q = 0; q < LANES; q++) store(panel + (i + q) * PANEL_WIDTH + j, r[q]);
      }
    }
    for (long m = 0; m < p->m; m += PANEL_ROWS) {
      const long row = MIN(m, p->m - PANEL_ROWS);
      vec acc[PANEL_ROWS][PANEL_VECTORS];
      UNROLL for (int i = 0; i < PANEL_ROWS; i++) {
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++) acc[i][j] = zero();
      }
      for (long q = 0; q < k; q++) {
        vec column[PANEL_VECTORS];
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++) {
          column[j] = load(panel + q * PANEL_WIDTH + LANES * j);
        }
        UNROLL for (int i = 0; i < PANEL_ROWS; i++) {
          vec a = broadcast(p->x[(row + i) * k + q]);
          UNROLL for (int j = 0; j < PANEL_VECTORS; j++) acc[i][j] = multiply_add(a, column[j], acc[i][j]);
        }
      }
      UNROLL for (int i = 0; i < PANEL_ROWS; i++) {
        UNROLL for (int j = 0; j < PANEL_VECTORS; j++) {
          store(p->y + (row + i) * p->n + n + LANES * j, acc[i][j]);
        }
      }
    }
  }
}

// The products of 8 rows of W and one row of x, with k in the lanes: a matrix-vector product that
// reads 8 streams. K is a multiple of LANES.
INLINE void linear_vector(const linear_operands *p, int t, int nt) {
  const long k = p->k;
  long begin, end;
  split(p->n, 8, t, nt, &begin, &end);
  end = MIN(end, p->n);
  long row = begin;
  for (; row + 8 <= end; row += 8) {
    vec acc[8];
    UNROLL for (int i = 0; i < 8; i++) acc[i] = zero();
    for (long q = 0; q < k; q += LANES) {
      vec x = load(p->x + q);
      UNROLL for (int i = 0; i < 8; i++) acc[i] = multiply_add(load(p->w + (row + i) * k + q), x, acc[i]);
    }
    UNROLL for (int i = 0; i < 8; i++) p->y[row + i] = sum_lanes(acc[i]);
  }
  for (; row < end; row++) {
    vec acc = zero();
    for (long q = 0; q < k; q += LANES) acc = multiply_add(load(p->w + row * k + q), load(p->x + q), acc);
    p->y[row] = sum_lanes(acc);
  }
}

// The largest error of a sample of outputs, relative to the sum of the absolute terms.
INLINE double linear_error(const linear_operands *p) {
  double error = 0;
  uint64_t state = 7;
  for (int i = 0; i < 2000; i++) {
    const long at = i == 0 ? p->m * p->n - 1 : next_index(&state, p->m * p->n);
    double sum = 0, size = 1e-30;
    for (long q = 0; q < p->k; q++) {
      double term = (double)p->x[at / p->n * p->k + q] * p->w[at % p->n * p->k + q];
      sum += term, size += fabs(term);
    }
    worse(&error, fabs(sum - p->y[at]) / size);
  }
  return error;
}

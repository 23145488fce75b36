// 64 rows times weights [3072, 768], the product of a layer in prefill, in two forms.
#include "linear.h"

static linear_operands data;
static float *panels[MAX_THREADS];

static void setup(void) {
  data = (linear_operands){random_floats(64 * 768, 1), random_floats(3072 * 768, 2),
                           allocate(64 * 3072),        64, 3072, 768};
  for (int t = 0; t < threads; t++) panels[t] = allocate(768 * PANEL_WIDTH);
}
static void run_panels(int t, int nt) { linear_panels(&data, panels[t], t, nt); }
static double error(void) { return linear_error(&data); }

// Register tiles of 4 rows of x and 6 of W (2 with 16 registers), with k in the lanes:
// nothing is packed.
static void run_dot(int t, int nt) {
  enum { ROWS_X = VECTORS(4, 4), ROWS_W = VECTORS(6, 2) };
  const linear_operands *p = &data;
  long begin, end;
  split(p->n, ROWS_W, t, nt, &begin, &end);
  for (long n = begin; n < end; n += ROWS_W) {
    for (long m = 0; m < p->m; m += ROWS_X) {
      const float *x = p->x + m * p->k, *w = p->w + n * p->k;
      vec acc[ROWS_X][ROWS_W];
      UNROLL for (int i = 0; i < ROWS_X; i++) {
        UNROLL for (int j = 0; j < ROWS_W; j++) acc[i][j] = zero();
      }
      for (long q = 0; q < p->k; q += LANES) {
        vec b[ROWS_W];
        UNROLL for (int j = 0; j < ROWS_W; j++) b[j] = load(w + j * p->k + q);
        UNROLL for (int i = 0; i < ROWS_X; i++) {
          vec a = load(x + i * p->k + q);
          UNROLL for (int j = 0; j < ROWS_W; j++) acc[i][j] = multiply_add(a, b[j], acc[i][j]);
        }
      }
      UNROLL for (int i = 0; i < ROWS_X; i++) {
        UNROLL for (int j = 0; j < ROWS_W; j++) p->y[(m + i) * p->n + n + j] = sum_lanes(acc[i][j]);
      }
    }
  }
}

const workload LINEAR[] = {
    {"linear_64x768x3072", setup, run_panels, error, 1e-6},
    {"linear_64x768x3072_dot", setup, run_dot, error, 1e-6},
    {0},
};

// C[M,N] = A[M,K]·B[K,N], row-major, and batches of it. B is packed into panels of one register
// tile's width; A is read in place, in blocks of MC rows that stay in L2 while K is walked in blocks
// of KC. Threads split the columns, or the rows where there are few columns.
#include "harness.h"

typedef struct {
  const float *a, *b;
  float *c;
  float *panels[MAX_THREADS];
} operands;
static operands data;

// One register tile: acc[rows][vectors] += A[rows, kc]·B[kc, vectors·LANES]. The last vector of C
// has `tail` lanes; `masked` says that B is not padded to whole vectors.
INLINE void tile(const int rows, const int vectors, const int tail, const int masked, long kc,
                 const float *a, const long lda, const float *b, const long ldb, float *c,
                 const long ldc, int add) {
  vec acc[8][4];
  const mask m = first(tail);
  UNROLL for (int i = 0; i < rows; i++) {
    UNROLL for (int j = 0; j < vectors; j++) acc[i][j] = zero();
  }
  UNROLL_2 for (long k = 0; k < kc; k++) {
    vec column[4];
    UNROLL for (int j = 0; j < vectors; j++) {
      const float *from = b + k * ldb + LANES * j;
      column[j] = masked && tail < LANES && j == vectors - 1 ? load_masked(from, m) : load(from);
    }
    UNROLL for (int i = 0; i < rows; i++) {
      vec row = broadcast(a[i * lda + k]);
      UNROLL for (int j = 0; j < vectors; j++) acc[i][j] = multiply_add(row, column[j], acc[i][j]);
    }
  }
  UNROLL for (int i = 0; i < rows; i++) {
    UNROLL for (int j = 0; j < vectors; j++) {
      float *to = c + i * ldc + LANES * j;
      if (tail < LANES && j == vectors - 1) {
        store_masked(to, m, add ? acc[i][j] + load_masked(to, m) : acc[i][j]);
      } else {
        store(to, add ? acc[i][j] + load(to) : acc[i][j]);
      }
    }
  }
}

// Copies kc rows of a panel, with zeros after the n columns that there are.
INLINE void pack(float *to, const float *b, const long ldb, long kc, const int vectors, long n) {
  for (long k = 0; k < kc; k++) {
    UNROLL for (int j = 0; j < vectors; j++) {
      const float *from = b + k * ldb + LANES * j;
      long left = n - LANES * j;
      store(to + (k * vectors + j) * LANES, left >= LANES ? load(from)
                                            : left > 0    ? load_masked(from, first(left))
                                                          : zero());
    }
  }
}

// The tiles of rows [i0, i1) and columns [j0, j1), for terms [k0, k0 + kc).
INLINE void block(const float *a, const float *b, float *c, const long m, const long n,
                  const long k, const int rows, const int vectors, const int packed, long i0,
                  long i1, long j0, long j1, long k0, long kc, const float *panel) {
  const int width = LANES * vectors, rest = n % width, last_rows = m % rows ? m % rows : rows;
  const int last = rest ? CEIL_DIV(rest, LANES) : vectors;
  const int tail = rest % LANES ? rest % LANES : LANES;
  for (long j = j0; j < j1; j += width) {
    const float *from = packed ? panel + (j - j0) * kc : b + k0 * n + j;
    const long ldb = packed ? width : n;
    for (long i = i0; i < i1; i += rows) {
      const float *left = a + i * k + k0;
      float *to = c + i * n + j;
      const int whole_rows = i + rows <= m, whole = j + width <= n, add = k0 > 0;
      if (whole_rows && whole) {
        tile(rows, vectors, LANES, 0, kc, left, k, from, ldb, to, n, add);
      } else if (whole_rows) {
        tile(rows, last, tail, !packed, kc, left, k, from, ldb, to, n, add);
      } else if (whole) {
        tile(last_rows, vectors, LANES, 0, kc, left, k, from, ldb, to, n, add);
      } else {
        tile(last_rows, last, tail, !packed, kc, left, k, from, ldb, to, n, add);
      }
    }
  }
}

enum { KC = 512, MC = 192 };

// The loop nest of one product.
INLINE void nest(const float *a, const float *b, float *c, float *panel, int t, int nt,
                 const long m, const long n, const long k, const int rows, const int vectors,
                 const int packed, const int by_columns) {
  const int width = LANES * vectors;
  long i0 = 0, i1 = m, j0 = 0, j1 = n;
  if (by_columns) split(n, width, t, nt, &j0, &j1);
  else split(m, rows, t, nt, &i0, &i1);
  i1 = MIN(i1, m), j1 = MIN(j1, n);
  for (long k0 = 0; k0 < k; k0 += KC) {
    const long kc = MIN(KC, k - k0);
    if (packed) {
      for (long j = j0; j < j1; j += width) {
        pack(panel + (j - j0) * kc, b + k0 * n + j, n, kc, vectors, n - j);
      }
    }
    for (long i = i0; i < i1; i += MC) {
      block(a, b, c, m, n, k, rows, vectors, packed, i, MIN(i + MC, i1), j0, j1, k0, kc, panel);
    }
  }
}

static void allocate_operands(long batch, long m, long k, long n) {
  data.a = random_floats(batch * m * k, 1);
  data.b = random_floats(batch * k * n, 2);
  data.c = allocate(batch * m * n);
  for (int t = 0; t < threads; t++) data.panels[t] = allocate(KC * (n + 4 * LANES));
}

// Errors relative to the sum of the absolute terms, of a sample of rows if there are many.
static double product_error(long batch, long m, long k, long n) {
  double error = 0;
  for (long b = 0; b < batch; b++) {
    for (long i = 0; i < m; i = i == m - 1 ? m : MIN(i + (m > 300 ? 37 : 1), m - 1)) {
      for (long j = 0; j < n; j++) {
        double sum = 0, size = 1e-30;
        for (long x = 0; x < k; x++) {
          double term = (double)data.a[(b * m + i) * k + x] * data.b[(b * k + x) * n + j];
          sum += term, size += fabs(term);
        }
        worse(&error, fabs(sum - data.c[(b * m + i) * n + j]) / size);
      }
    }
  }
  return error;
}

// A square product: tiles of 6×64 lanes, the lowest number of loads per multiply-add that 32
// registers allow (6×16 with 16 registers).
#define SQUARE(size)                                                                              \
  static void setup_##size(void) { allocate_operands(1, size, size, size); }                      \
  static double error_##size(void) { return product_error(1, size, size, size); }                 \
  static void run_##size(int t, int nt) {                                                         \
    nest(data.a, data.b, data.c, data.panels[t], t, nt, size, size, size, 6, VECTORS(4, 2), 1,    \
         1);                                                                                      \
  }
SQUARE(512)
SQUARE(1000)
SQUARE(1024)
SQUARE(2048)

// A small odd product: packing is worth nothing, and tiles of 8×48 waste less of the last columns.
static void setup_odd(void) { allocate_operands(1, 127, 129, 131); }
static double error_odd(void) { return product_error(1, 127, 129, 131); }
static void run_odd(int t, int nt) {
  nest(data.a, data.b, data.c, 0, t, nt, 127, 131, 129, VECTORS(8, 4), 3, 0, 0);
}

// 8 products: threads split the batch.
static void setup_batch(void) { allocate_operands(8, 512, 64, 512); }
static double error_batch(void) { return product_error(8, 512, 64, 512); }
static void run_batch(int t, int nt) {
  for (long b = 8 * t / nt; b < 8 * (t + 1) / nt; b++) {
    nest(data.a + b * 512 * 64, data.b + b * 64 * 512, data.c + b * 512 * 512, data.panels[t], 0, 1,
         512, 512, 64, 6, VECTORS(4, 2), 1, 0);
  }
}

const workload MATMUL[] = {
    {"matmul_512", setup_512, run_512, error_512, 1e-6},
    {"matmul_1024", setup_1024, run_1024, error_1024, 1e-6},
    {"matmul_2048", setup_2048, run_2048, error_2048, 1e-6},
    {"matmul_1000", setup_1000, run_1000, error_1000, 1e-6},
    {"matmul_127x129x131", setup_odd, run_odd, error_odd, 1e-6},
    {"bmm_8x512x64", setup_batch, run_batch, error_batch, 1e-6},
    {0},
};

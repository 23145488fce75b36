// The products of GPT-2 small: all weights are read once for a decoded token, and used by 64 rows
// in a prefill, whose logits are those of the last row. Attention, norms and gelu are left out:
// below 1 ms for a token.
#include "linear.h"

enum { LAYERS = 12, VOCABULARY = 50257 };
static linear_operands products[4 * LAYERS], logits;
static float *panels[MAX_THREADS];

static void allocate_operands(long rows) {
  static const long SHAPES[4][2] = {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}};
  const float *x = random_floats(rows * 3072, 1);
  float *y = allocate(rows * 3072);
  for (int i = 0; i < 4 * LAYERS; i++) {
    const long n = SHAPES[i % 4][0], k = SHAPES[i % 4][1];
    products[i] = (linear_operands){x, random_floats(n * k, 2 + i), y, rows, n, k};
  }
  logits = (linear_operands){x, random_floats(VOCABULARY * 768L, 99), allocate(VOCABULARY), 1,
                             VOCABULARY, 768};
  for (int t = 0; t < threads; t++) panels[t] = allocate(3072 * PANEL_WIDTH);
}

static void setup_decode(void) { allocate_operands(1); }
static void run_decode(int t, int nt) {
  for (int i = 0; i < 4 * LAYERS; i++) {
    linear_vector(&products[i], t, nt);
    barrier(nt);
  }
  linear_vector(&logits, t, nt);
}

static void setup_prefill(void) { allocate_operands(64); }
static void run_prefill(int t, int nt) {
  for (int i = 0; i < 4 * LAYERS; i++) {
    linear_panels(&products[i], panels[t], t, nt);
    barrier(nt);
  }
  linear_vector(&logits, t, nt);
}

// Of the last product and the logits; the others have the same code and share the output.
static double error(void) {
  double e = linear_error(&logits);
  worse(&e, linear_error(&products[4 * LAYERS - 1]));
  return e;
}

const workload GPT2[] = {
    {"gpt2_decode", setup_decode, run_decode, error, 1e-6},
    {"gpt2_prefill64", setup_prefill, run_prefill, error, 1e-6},
    {0},
};

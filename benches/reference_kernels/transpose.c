// The transpose of a matrix of 4096×4096: squares of LANES×LANES in registers, with the innermost
// loop along the rows of the input, so that it is read in 16 sequential streams. Stores are
// non-temporal and fill whole cache lines, so their order is free.
#include "harness.h"

enum { SIDE = 4096 };
static const float *in;
static float *out;

static void setup(void) {
  in = random_floats((size_t)SIDE * SIDE, 1), out = allocate((size_t)SIDE * SIDE);
}
static void run(int t, int nt) {
  long begin, end;
  split(SIDE, LANES, t, nt, &begin, &end);
  for (long line = 0; line < SIDE; line += 16) {
    for (long j = begin; j < end; j += LANES) {
      for (long i = line; i < line + 16; i += LANES) {
        vec r[LANES];
        UNROLL for (int k = 0; k < LANES; k++) r[k] = load(in + (i + k) * SIDE + j);
        transpose(r);
        UNROLL for (int k = 0; k < LANES; k++) store_nt(out + (j + k) * SIDE + i, r[k]);
      }
    }
  }
}
static double error(void) {
  double wrong = 0;
  for (long i = 0; i < SIDE; i++) {
    for (long j = 0; j < SIDE; j++) wrong += out[j * SIDE + i] != in[i * SIDE + j];
  }
  return wrong;
}

const workload TRANSPOSE[] = {{"transpose_4096", setup, run, error, 0}, {0}};

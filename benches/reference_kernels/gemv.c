// A vector times a matrix of 4096×4096, with weights as [out, in] and as [in, out].
#include "linear.h"

enum { SIZE = 4096 };
static linear_operands data;

static void setup(void) {
  data = (linear_operands){random_floats(SIZE, 2), random_floats((size_t)SIZE * SIZE, 1),
                           allocate(SIZE),         1, SIZE, SIZE};
}
static void run_out_in(int t, int nt) { linear_vector(&data, t, nt); }
static double error_out_in(void) { return linear_error(&data); }

// The rows of the matrix are read in order, each thread its columns; the results stay in L1, and 4
// rows are added to them per sweep.
static void run_in_out(int t, int nt) {
  long begin, end;
  split(SIZE, LANES, t, nt, &begin, &end);
  for (long c = begin; c < end; c += LANES) store(data.y + c, zero());
  for (long k = 0; k < SIZE; k += 4) {
    vec x[4];
    UNROLL for (int i = 0; i < 4; i++) x[i] = broadcast(data.x[k + i]);
    for (long c = begin; c < end; c += LANES) {
      vec sum = load(data.y + c);
      UNROLL for (int i = 0; i < 4; i++) sum = multiply_add(load(data.w + (k + i) * SIZE + c), x[i], sum);
      store(data.y + c, sum);
    }
  }
}

static double error_in_out(void) {
  double error = 0;
  for (long c = 0; c < SIZE; c += 5) {
    double sum = 0, size = 1e-30;
    for (long k = 0; k < SIZE; k++) {
      double term = (double)data.x[k] * data.w[k * SIZE + c];
      sum += term, size += fabs(term);
    }
    worse(&error, fabs(sum - data.y[c]) / size);
  }
  return error;
}

const workload GEMV[] = {
    {"gemv_4096", setup, run_in_out, error_in_out, 1e-6},
    {"gemv_out_in_4096", setup, run_out_in, error_out_in, 1e-6},
    {0},
};

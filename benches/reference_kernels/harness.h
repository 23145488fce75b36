// What kernels share: workloads, memory, the thread pool.
#pragma once
#include "vector.h"
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// The part of a kernel that thread t of nt runs.
typedef void (*job)(int t, int nt);

// A kernel with its data. `setup` allocates and fills the data; `error` is the largest error of the
// outputs against a reference in double precision.
typedef struct {
  const char *name;
  void (*setup)(void);
  job run;
  double (*error)(void);
  double tolerance;
} workload;

enum { MAX_THREADS = 64 };

// Number of threads.
extern int threads;
// Memory for n floats, zeros, at 2 MiB with huge pages. It is freed before the next setup.
float *allocate(size_t n);
// The same with values in [-1, 1).
float *random_floats(size_t n, uint64_t seed);
// Waits until all threads of a job are here.
void barrier(int nt);
// The next pseudo-random index below n, for samples of outputs.
long next_index(uint64_t *state, long n);

// The part of [0, n) of thread t, in units.
INLINE void split(long n, long unit, int t, int nt, long *begin, long *end) {
  long units = CEIL_DIV(n, unit);
  *begin = units * t / nt * unit;
  *end = units * (t + 1) / nt * unit;
}

// Keeps the larger error; one that is not a number counts as infinite.
INLINE void worse(double *error, double e) {
  if (!(e <= *error)) *error = e == e ? e : INFINITY;
}

// The tables of workloads, each ended by an entry without a name.
extern const workload MATMUL[], LINEAR[], GEMV[], STREAMS[], ROWS[], TRANSPOSE[], CONV[], MNIST[], GPT2[];

// A worker: reads requests `NAME SECONDS` and answers each with a line of JSON, the milliseconds of
// the fastest repetition in that time. `reference_kernels THREADS` serves requests, with `check` as
// a second argument it compares every kernel with its reference once.
#define _GNU_SOURCE
#include "harness.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const workload *const TABLES[] = {MATMUL, LINEAR,    GEMV, STREAMS, ROWS,
                                         CONV,   TRANSPOSE, MNIST, GPT2};

// ---- memory

static void *blocks[1024];
static int num_blocks;

float *allocate(size_t n) {
  const size_t page = 2u << 20, bytes = CEIL_DIV(n * 4 + 256, page) * page;
  void *p = aligned_alloc(page, bytes);
  if (!p || num_blocks == 1024) abort();
  madvise(p, bytes, MADV_HUGEPAGE);
  memset(p, 0, bytes);
  return blocks[num_blocks++] = p;
}

static void free_all(void) {
  while (num_blocks) free(blocks[--num_blocks]);
}

static uint64_t step(uint64_t *state) {
  return *state = *state * 6364136223846793005ull + 1442695040888963407ull;
}

float *random_floats(size_t n, uint64_t seed) {
  float *p = allocate(n);
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (size_t i = 0; i < n; i++) p[i] = (int32_t)(step(&state) >> 32) * (1.0f / 2147483648.0f);
  return p;
}

long next_index(uint64_t *state, long n) { return (long)((step(state) >> 20) % (uint64_t)n); }

// ---- threads: the caller is thread 0; the others spin for 50 µs, then sleep

int threads;
static struct {
  _Atomic int generation, left, sleepers, waiting, phase;
  job run;
} pool;

static void *worker(void *number) {
  const int t = (int)(intptr_t)number;
  for (int seen = 0;; seen++) {
    for (int i = 0; i < 20000 && atomic_load(&pool.generation) == seen; i++) _mm_pause();
    while (atomic_load(&pool.generation) == seen) {
      atomic_fetch_add(&pool.sleepers, 1);
      syscall(SYS_futex, &pool.generation, FUTEX_WAIT_PRIVATE, seen, 0, 0, 0);
      atomic_fetch_sub(&pool.sleepers, 1);
    }
    pool.run(t, threads);
    atomic_fetch_sub(&pool.left, 1);
  }
  return 0;
}

static void start_threads(void) {
  for (int t = 1; t < threads; t++) {
    pthread_t handle;
    if (pthread_create(&handle, 0, worker, (void *)(intptr_t)t)) abort();
  }
}

static void run_on_all(job run) {
  pool.run = run;
  atomic_store(&pool.left, threads - 1);
  atomic_fetch_add(&pool.generation, 1);
  if (atomic_load(&pool.sleepers)) {
    syscall(SYS_futex, &pool.generation, FUTEX_WAKE_PRIVATE, threads, 0, 0, 0);
  }
  run(0, threads);
  while (atomic_load(&pool.left)) _mm_pause();
}

void barrier(int nt) {
  int phase = atomic_load(&pool.phase);
  if (atomic_fetch_add(&pool.waiting, 1) == nt - 1) {
    atomic_store(&pool.waiting, 0);
    atomic_fetch_add(&pool.phase, 1);
  } else {
    while (atomic_load(&pool.phase) == phase) _mm_pause();
  }
}

// ---- requests

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static const workload *find(const char *name) {
  for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++) {
    for (const workload *w = TABLES[i]; w->name; w++) {
      if (!strcmp(w->name, name)) return w;
    }
  }
  return 0;
}

// Prepares a workload and checks its outputs. Returns whether they are right.
static int prepare(const workload *w) {
  free_all();
  w->setup();
  run_on_all(w->run);
  double error = w->error();
  if (error <= w->tolerance) return 1;
  printf("{\"name\":\"%s\",\"error\":\"the outputs are off by %.1e\"}\n", w->name, error);
  return 0;
}

static double fastest(const workload *w, double seconds) {
  double begin = now(), best = INFINITY;
  for (int runs = 0; runs < 3 || now() - begin < seconds; runs++) {
    double start = now();
    run_on_all(w->run);
    best = MIN(best, now() - start);
  }
  return best;
}

static int check(void) {
  int wrong = 0;
  for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++) {
    for (const workload *w = TABLES[i]; w->name; w++) {
      if (!prepare(w)) wrong = 1;
      else printf("{\"name\":\"%s\",\"ms\":%.6f}\n", w->name, fastest(w, 0.1) * 1e3);
      fflush(stdout);
    }
  }
  return wrong;
}

static void serve(void) {
  char line[256], name[128];
  double seconds;
  const workload *ready = 0;
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "%127s %lf", name, &seconds) != 2) continue;
    const workload *w = find(name);
    if (!w) {
      printf("{\"name\":\"%s\",\"error\":\"no reference kernel\"}\n", name);
    } else if (w == ready || prepare(w)) {
      ready = w;
      printf("{\"name\":\"%s\",\"ms\":%.6f}\n", name, fastest(w, seconds) * 1e3);
    } else {
      ready = 0;
    }
    fflush(stdout);
  }
}

int main(int count, char **words) {
  threads = count > 1 ? atoi(words[1]) : 1;
  if (threads < 1 || threads > MAX_THREADS) {
    fprintf(stderr, "usage: reference_kernels THREADS [check]\n");
    return 2;
  }
  start_threads();
  if (count > 2 && !strcmp(words[2], "check")) return check();
  serve();
  return 0;
}

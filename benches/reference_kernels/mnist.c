// The kernels of a training step of the network of `mnist_step`, batch 512: four convolutions, two
// batch norms with max pooling, forward and backward. The linear layer, the loss and Adam are left
// out: about 1 ms.
#include "conv_check.h"
#include "norm_pool.h"

enum { IMAGES = 512 };
// Forward, gradient of the input and gradient of the weights of the layers 1 to 4; the first has no
// gradient of its input.
static conv_operands forward[5], input[5], weights[5];
static norm_pool_operands *norm[2];
static float *scratch[MAX_THREADS], *parts[MAX_THREADS];

static conv_operands operands(const float *x, const float *w, float *y) {
  conv_operands p = {.x = x, .w = w, .y = y, .images = IMAGES, .packed = allocate(64 * 64 * 25)};
  p.bias = random_floats(64, 9);
  memcpy(p.scratch, scratch, sizeof scratch);
  memcpy(p.parts, parts, sizeof parts);
  return p;
}

static norm_pool_operands *norm_operands(const float *x, const float *upstream, long channels,
                                         long width) {
  norm_pool_operands *p = (norm_pool_operands *)allocate(sizeof *p / 4 + 1);
  const long images = IMAGES * channels;
  p->x = x, p->upstream = upstream, p->images = IMAGES;
  p->weight = random_floats(64, 3), p->bias = random_floats(64, 4);
  p->y = allocate(images * width * width / 4), p->gradient = allocate(images * width * width);
  return p;
}

static void setup(void) {
  const long n = IMAGES;
  for (int t = 0; t < threads; t++) {
    scratch[t] = allocate(1 << 18), parts[t] = allocate(64 * 64 * 25);
  }
  // Weights of about the size that keeps activations near 1.
  static const long SIZES[5] = {0, 32 * 25, 32 * 32 * 25, 64 * 32 * 9, 64 * 64 * 9};
  float *w[5];
  for (int i = 1; i < 5; i++) {
    w[i] = random_floats(SIZES[i], 10 + i);
    for (long k = 0; k < SIZES[i]; k++) w[i][k] *= i == 1 ? 0.2f : 0.06f;
  }
  float *upstream = allocate(n * 32 * 100);
  forward[1] = operands(random_floats(n * 784, 1), w[1], allocate(n * 32 * 576));
  forward[2] = operands(forward[1].y, w[2], allocate(n * 32 * 400));
  norm[0] = norm_operands(forward[2].y, upstream, 32, 20);
  forward[3] = operands(norm[0]->y, w[3], allocate(n * 64 * 64));
  forward[4] = operands(forward[3].y, w[4], allocate(n * 64 * 36));
  norm[1] = norm_operands(forward[4].y, random_floats(n * 64 * 9, 2), 64, 6);
  weights[4] = operands(forward[4].x, norm[1]->gradient, allocate(SIZES[4]));
  input[4] = operands(norm[1]->gradient, w[4], allocate(n * 64 * 64));
  weights[3] = operands(forward[3].x, input[4].y, allocate(SIZES[3]));
  input[3] = operands(input[4].y, w[3], upstream);
  weights[2] = operands(forward[2].x, norm[0]->gradient, allocate(SIZES[2]));
  input[2] = operands(norm[0]->gradient, w[2], allocate(n * 32 * 576));
  weights[1] = operands(forward[1].x, input[2].y, allocate(SIZES[1]));
  input[4].activation = forward[3].y, input[2].activation = forward[1].y;
  for (int i = 1; i < 5; i++) forward[i].activation = forward[i].y;
  input[3].activation = norm[0]->y;
}

static void run(int t, int nt) {
  conv_pixels(&forward[1], t, nt, 1, 28, 32, 5, 0, RELU_NT);
  barrier(nt);
  conv_channels(&forward[2], t, nt,
                (channels_shape){.ic = 32, .ih = 24, .oc = 32, .ks = 5, .width = VECTORS(8, 5),
                                 .vectors = 2, .reload = VECTORS(0, 1), .how = RELU,
                                 .by_image = 1});
  barrier(nt);
  norm_statistics(norm[0], t, nt, 32, 20);
  norm_pool(norm[0], t, nt, 32, 20);
  barrier(nt);
  conv_channels(&forward[3], t, nt,
                (channels_shape){.ic = 32, .ih = 10, .oc = 64, .ks = 3, .width = VECTORS(8, 4),
                                 .vectors = 2, .how = RELU, .by_image = 1});
  barrier(nt);
  conv_channels(&forward[4], t, nt,
                (channels_shape){.ic = 64, .ih = 8, .oc = 64, .ks = 3, .width = VECTORS(6, 3),
                                 .vectors = VECTORS(4, 2), .reload = VECTORS(1, 0), .how = RELU,
                                 .by_image = 1});
  barrier(nt);
  norm_statistics(norm[1], t, nt, 64, 6);
  norm_pool(norm[1], t, nt, 64, 6);
  norm_pool_sums(norm[1], t, nt, 64, 6);
  norm_pool_gradient(norm[1], t, nt, 64, 6);
  barrier(nt);
  conv_weights(&weights[4], t, nt, 64, 8, 64, 3, VECTORS(1, 2), VECTORS(3, 1), 2, VECTORS(2, 1), 4);
  conv_channels(&input[4], t, nt,
                (channels_shape){.ic = 64, .ih = 6, .oc = 64, .ks = 3, .pad = 2,
                                 .width = VECTORS(8, 4), .vectors = 2, .how = MASKED, .flip = 1,
                                 .by_image = 1});
  barrier(nt);
  conv_weights(&weights[3], t, nt, 32, 10, 64, 3, VECTORS(1, 2), VECTORS(3, 1), 2, VECTORS(2, 1),
               4);
  conv_channels(&input[3], t, nt,
                (channels_shape){.ic = 64, .ih = 8, .oc = 32, .ks = 3, .pad = 2,
                                 .width = VECTORS(10, 5), .vectors = 2, .reload = VECTORS(0, 1),
                                 .how = PLAIN, .flip = 1, .by_image = 1});
  barrier(nt);
  norm_pool_sums(norm[0], t, nt, 32, 20);
  norm_pool_gradient(norm[0], t, nt, 32, 20);
  barrier(nt);
  conv_weights(&weights[2], t, nt, 32, 24, 32, 5, VECTORS(2, 1), 1, 2, 2, 1);
  conv_channels(&input[2], t, nt,
                (channels_shape){.ic = 32, .ih = 20, .oc = 32, .ks = 5, .pad = 4,
                                 .width = VECTORS(8, 6), .vectors = 2, .reload = VECTORS(0, 1),
                                 .how = MASKED, .flip = 1, .by_image = 1});
  barrier(nt);
  conv_weights(&weights[1], t, nt, 1, 28, 32, 5, 1, 1, 2, 2, 1);
}

static double error(void) {
  double e = 0;
  worse(&e, conv_error(&forward[1], 1, 28, 32, 5, 0, RELU));
  worse(&e, conv_error(&forward[2], 32, 24, 32, 5, 0, RELU));
  worse(&e, conv_error(&forward[3], 32, 10, 64, 3, 0, RELU));
  worse(&e, conv_error(&forward[4], 64, 8, 64, 3, 0, RELU));
  worse(&e, norm_pool_error(norm[0], 32, 20));
  worse(&e, norm_pool_error(norm[1], 64, 6));
  worse(&e, input_error(&input[4], 64, 8, 64, 3, MASKED));
  worse(&e, input_error(&input[3], 32, 10, 64, 3, PLAIN));
  worse(&e, input_error(&input[2], 32, 24, 32, 5, MASKED));
  worse(&e, weights_error(&weights[4], 64, 8, 64, 3));
  worse(&e, weights_error(&weights[3], 32, 10, 64, 3));
  worse(&e, weights_error(&weights[2], 32, 24, 32, 5));
  worse(&e, weights_error(&weights[1], 1, 28, 32, 5));
  return e;
}

const workload MNIST[] = {{"mnist_step", setup, run, error, 3e-5}, {0}};

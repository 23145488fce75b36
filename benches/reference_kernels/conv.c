// The convolutions of the benchmark: 64 to 64 channels of 56×56 with a window of 3×3, and 1 to 32
// channels of 32 images of 28×28 with a window of 5×5.
#include "conv_check.h"

static conv_operands data;

static void allocate_operands(long images, long ic, long ih, long oc, long oh, long ks) {
  data = (conv_operands){.x = random_floats(images * ic * ih * ih, 1),
                         .w = random_floats(oc * ic * ks * ks, 2),
                         .y = allocate(images * oc * oh * oh),
                         .packed = allocate(oc * ic * ks * ks),
                         .images = images};
  data.bias = data.activation = random_floats(images * oc * oh * oh, 3);
  for (int t = 0; t < threads; t++) data.scratch[t] = allocate(ic * ks * (oh + ks) * (oh + LANES));
}

// Many terms: channels in the lanes, tiles of 8 pixels and 2 vectors. With 16 registers, 4 pixels.
static void setup_k3(void) { allocate_operands(1, 64, 56, 64, 56, 3); }
static double error_k3(void) { return conv_error(&data, 64, 56, 64, 3, 1, PLAIN); }
static void run_k3(int t, int nt) {
  conv_channels(&data, t, nt,
                (channels_shape){.ic = 64, .ih = 56, .oc = 64, .ks = 3, .pad = 1,
                                 .width = VECTORS(8, 4), .vectors = 2, .how = PLAIN});
}

// Few terms: pixels in the lanes.
static void setup_k5(void) { allocate_operands(32, 1, 28, 32, 24, 5); }
static double error_k5(void) { return conv_error(&data, 1, 28, 32, 5, 0, PLAIN); }
static void run_k5(int t, int nt) { conv_pixels(&data, t, nt, 1, 28, 32, 5, 0, PLAIN); }

const workload CONV[] = {
    {"conv_1x64x56_k3", setup_k3, run_k3, error_k3, 1e-6},
    {"conv_32x1x28_k5", setup_k5, run_k5, error_k5, 1e-6},
    {0},
};

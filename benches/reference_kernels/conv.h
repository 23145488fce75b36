// Direct convolutions of NCHW images, stride 1, square windows of KS×KS, no im2col. Three loop
// nests:
//
// - conv_channels: output channels in the lanes, pixels of an output row are broadcast. The taps of
//   a tile share its broadcasts in registers (a sliding window). Serves the forward pass, and with
//   transposed and rotated weights the gradient of the input.
// - conv_pixels: output pixels in the lanes, weights are broadcast. The input is staged as KS copies
//   shifted by one column, whose rows follow each other without gaps.
// - conv_weights: the gradient of the weights: output channels in the lanes, taps as rows of the
//   tile; the upstream gradient is staged transposed.
#pragma once
#include "harness.h"

typedef struct {
  const float *x, *w, *bias, *activation;
  float *y;
  long images;
  float *packed;                // the weights, in the order of use
  float *scratch[MAX_THREADS];  // staged inputs of a thread
  float *parts[MAX_THREADS];    // the weights' gradient of a thread
} conv_operands;

// What happens to a result before it is stored.
enum epilogue {
  PLAIN,
  RELU,     // relu(result + bias)
  MASKED,   // the result where the activation is positive, otherwise 0
  RELU_NT,  // RELU with non-temporal stores
};

// ---- output channels in the lanes

// Which edges of the image a tile touches: taps that fall outside of it are removed at compile time.
enum edges { INSIDE = 0, AT_LEFT = 1, AT_RIGHT = 2 };

// acc[pixel][vector] of `width` pixels from column `column` of output row `row`.
INLINE void channels_tile(const int ic, const int ih, const int ks, const int pad, const int width,
                          const int vectors, const int reload, const int edges, int column, int row,
                          const float *x, const float *w, vec acc[16][4]) {
  const int first_tap = MAX(0, pad - row), end_tap = MIN(ks, ih + pad - row);
  UNROLL for (int p = 0; p < width; p++) {
    UNROLL for (int v = 0; v < vectors; v++) acc[p][v] = zero();
  }
  for (int c = 0; c < ic; c++) {
    for (int kh = first_tap; kh < end_tap; kh++) {
      const float *from = x + (c * ih + row + kh - pad) * ih + column - pad;
      const float *weights = w + (c * ks + kh) * ks * LANES * vectors;
      UNROLL for (int kw = 0; kw < ks; kw++) {
        // Where the window does not fit in registers, pixels are broadcast again for each tap.
        if (reload) __asm__ volatile("" ::: "memory");
        vec b[4];
        UNROLL for (int v = 0; v < vectors; v++) b[v] = load(weights + (kw * vectors + v) * LANES);
        UNROLL for (int p = 0; p < width; p++) {
          const int at = p + kw - pad;
          const int outside = ((edges & AT_LEFT) && at < 0) ||
                              ((edges & AT_RIGHT) && at >= width + ks - 1 - 2 * pad);
          if (!outside) {
            vec a = broadcast(from[p + kw]);
            UNROLL for (int v = 0; v < vectors; v++) acc[p][v] = multiply_add(a, b[v], acc[p][v]);
          }
        }
      }
    }
  }
}

// Stores a tile to NCHW through a transpose in registers.
INLINE void channels_store(const int width, const int vectors, const long pixels, const int how,
                           float *y, const float *bias, const float *activation,
                           vec acc[16][4]) {
  const mask lanes = first(width);
  UNROLL for (int v = 0; v < vectors; v++) {
    vec r[LANES];
    UNROLL for (int p = 0; p < LANES; p++) {
      r[p] = p >= width ? zero()
             : how == RELU ? maximum(acc[p][v] + load(bias + LANES * v), zero())
                           : acc[p][v];
    }
    transpose(r);
    UNROLL for (int c = 0; c < LANES; c++) {
      const long at = (LANES * v + c) * pixels;
      if (how == MASKED) {
        r[c] = blend(greater(load_masked(activation + at, lanes), zero()), r[c], zero());
      }
      store_masked(y + at, lanes, r[c]);
    }
  }
}

// packed[channel tile][ic][kh][kw][LANES·vectors]. With `flip`, the weights are those of the forward
// pass, [IC][OC], read transposed and rotated.
INLINE void channels_pack(float *to, const float *w, const int oc, const int ic, const int ks,
                          const int vectors, const int flip) {
  const int width = LANES * vectors, taps = ks * ks;
  for (int o = 0; o < oc; o += width) {
    for (int c = 0; c < ic; c++) {
      for (int k = 0; k < taps; k++) {
        for (int l = 0; l < width; l++) {
          *to++ = flip ? w[(c * oc + o + l) * taps + taps - 1 - k] : w[((o + l) * ic + c) * taps + k];
        }
      }
    }
  }
}

// The constants of a layer and its tile.
typedef struct {
  int ic, ih, oc, ks, pad;
  int width, vectors, reload;
  int how, flip;
  int by_image;  // threads split the images, otherwise the output rows
} channels_shape;

INLINE void conv_channels(const conv_operands *p, int t, int nt, const channels_shape s) {
  const int oh = s.ih + 2 * s.pad - s.ks + 1, lanes = LANES * s.vectors;
  const int last = oh % s.width ? oh % s.width : s.width;
  const long pixels = (long)oh * oh;
  long n0 = 0, n1 = p->images, h0 = 0, h1 = oh;
  if (t == 0) channels_pack(p->packed, p->w, s.oc, s.ic, s.ks, s.vectors, s.flip);
  barrier(nt);
  if (s.by_image) split(p->images, 1, t, nt, &n0, &n1);
  else split(oh, 1, t, nt, &h0, &h1);
  for (long n = n0; n < n1; n++) {
    const float *x = p->x + n * s.ic * s.ih * s.ih;
    for (int o = 0; o < s.oc; o += lanes) {
      const float *w = p->packed + (long)o * s.ic * s.ks * s.ks;
      for (long row = h0; row < h1; row++) {
        const long at = (n * s.oc + o) * pixels + row * oh;
        vec acc[16][4];
#define TILE(pixels_of_tile, edges, column)                                                        \
  channels_tile(s.ic, s.ih, s.ks, s.pad, pixels_of_tile, s.vectors, s.reload, edges, column, row,  \
                x, w, acc);                                                                        \
  channels_store(pixels_of_tile, s.vectors, pixels, s.how, p->y + at + (column), p->bias + o,      \
                 p->activation + at + (column), acc)
        if (oh <= s.width) {
          TILE(MIN(oh, s.width), AT_LEFT | AT_RIGHT, 0);
        } else {
          TILE(s.width, AT_LEFT, 0);
          for (int column = s.width; column < oh - last; column += s.width) {
            TILE(s.width, INSIDE, column);
          }
          TILE(last, AT_RIGHT, oh - last);
        }
#undef TILE
      }
    }
  }
}

// ---- output pixels in the lanes

// to[ic][kw][row][column]: the input of tap (kh, kw) of pixel f is to[ic][kw][kh·OW + f].
INLINE void pixels_stage(float *to, const float *x, const int ic, const int ih, const int ks,
                         const int pad, const int ow, long begin, long end) {
  for (int c = 0; c < ic; c++) {
    for (int kw = 0; kw < ks; kw++) {
      for (long row = begin - pad; row < end - pad + ks - 1; row++) {
        for (int column = 0; column < ow; column += LANES) {
          const int left = column + kw - pad, lanes = MIN(LANES, ow - column);
          const mask in = and_not(first(-left), first(MIN(lanes, ih - left)));
          vec v = row >= 0 && row < ih ? load_masked(x + (c * (long)ih + row) * ih + left, in) : zero();
          store_masked(to, first(lanes), v);
          to += lanes;
        }
      }
    }
  }
}

enum { PIXEL_CHANNELS = VECTORS(8, 4), PIXEL_VECTORS = VECTORS(3, 3) };

// A tile of channels and of pixels in the lanes, the last vector with `tail` lanes.
INLINE void pixels_tile(const int ic, const int ks, const int ow, const int vectors, const int tail,
                        const long rows, const float *staged, const float *w, float *y,
                        const long pixels, const float *bias, const int how) {
  vec acc[PIXEL_CHANNELS][PIXEL_VECTORS];
  UNROLL for (int o = 0; o < PIXEL_CHANNELS; o++) {
    UNROLL for (int v = 0; v < vectors; v++) acc[o][v] = zero();
  }
  for (int c = 0; c < ic; c++) {
    for (int kw = 0; kw < ks; kw++) {
      UNROLL for (int kh = 0; kh < ks; kh++) {
        const float *from = staged + (c * ks + kw) * rows * ow + kh * ow;
        const float *weights = w + ((c * ks + kh) * ks + kw) * PIXEL_CHANNELS;
        vec b[PIXEL_VECTORS];
        UNROLL for (int v = 0; v < vectors; v++) b[v] = load(from + LANES * v);
        UNROLL for (int o = 0; o < PIXEL_CHANNELS; o++) {
          vec a = broadcast(weights[o]);
          UNROLL for (int v = 0; v < vectors; v++) acc[o][v] = multiply_add(a, b[v], acc[o][v]);
        }
      }
    }
  }
  UNROLL for (int o = 0; o < PIXEL_CHANNELS; o++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      float *to = y + o * pixels + LANES * v;
      vec r = how == PLAIN ? acc[o][v] : maximum(acc[o][v] + broadcast(bias[o]), zero());
      if (v == vectors - 1 && tail < LANES) store_masked(to, first(tail), r);
      else if (how == RELU_NT) store_nt(to, r);
      else store(to, r);
    }
  }
}

// Threads split the images, which are staged whole.
INLINE void conv_pixels(const conv_operands *p, int t, int nt, const int ic, const int ih,
                        const int oc, const int ks, const int pad, const int how) {
  const int oh = ih + 2 * pad - ks + 1, count = oh * oh, step = LANES * PIXEL_VECTORS;
  const int rest = count % step, last = MAX(1, CEIL_DIV(rest, LANES));
  const int tail = rest % LANES ? rest % LANES : LANES, terms = ic * ks * ks;
  float *staged = p->scratch[t];
  long n0, n1;
  if (t == 0) {
    float *to = p->packed;
    for (int o = 0; o < oc; o += PIXEL_CHANNELS) {
      for (int k = 0; k < terms; k++) {
        for (int l = 0; l < PIXEL_CHANNELS; l++) *to++ = p->w[(o + l) * terms + k];
      }
    }
  }
  barrier(nt);
  split(p->images, 1, t, nt, &n0, &n1);
  for (long n = n0; n < n1; n++) {
    pixels_stage(staged, p->x + n * ic * ih * ih, ic, ih, ks, pad, oh, 0, oh);
    float *y = p->y + n * oc * count;
    int f = 0;
    for (; f + step <= count; f += step) {
      for (int o = 0; o < oc; o += PIXEL_CHANNELS) {
        pixels_tile(ic, ks, oh, PIXEL_VECTORS, LANES, oh + ks - 1, staged + f, p->packed + o * terms,
                    y + o * count + f, count, p->bias + o, how);
      }
    }
    if (rest) {
      for (int o = 0; o < oc; o += PIXEL_CHANNELS) {
        pixels_tile(ic, ks, oh, last, tail, oh + ks - 1, staged + f, p->packed + o * terms,
                    y + o * count + f, count, p->bias + o, how);
      }
    }
  }
}

// ---- the gradient of the weights: x, w = the upstream gradient, y = the result

// Adds `images` images to a tile of `channels` × `rows` × ks taps and LANES·vectors output channels.
INLINE void weights_tile(const int ic, const int ih, const int oh, const int oc, const int ks,
                         const int channels, const int rows, const int vectors, const int columns,
                         const int images, const float *x, const float *upstream, float *to) {
  vec acc[16][4];
  const int taps = rows * ks;
#define PLACE(i, k, v) (to + (((i) * ks * ks + (k)) * vectors + (v)) * LANES)
  UNROLL for (int i = 0; i < channels; i++) {
    UNROLL for (int k = 0; k < taps; k++) {
      UNROLL for (int v = 0; v < vectors; v++) acc[i * taps + k][v] = load(PLACE(i, k, v));
    }
  }
  for (int n = 0; n < images; n++) {
    for (int row = 0; row < oh; row++) {
      const float *from = x + ((long)n * ic * ih + row) * ih;
      const float *gradient = upstream + ((long)n * oh + row) * oh * oc;
      for (int column = 0; column < oh; column += columns) {
        vec b[2][4];
        UNROLL for (int u = 0; u < columns; u++) {
          UNROLL for (int v = 0; v < vectors; v++) {
            b[u][v] = load(gradient + (column + u) * oc + LANES * v);
          }
        }
        UNROLL for (int i = 0; i < channels; i++) {
          UNROLL for (int kh = 0; kh < rows; kh++) {
            // One broadcast serves all pixels of the iteration.
            UNROLL for (int c = 0; c < ks + columns - 1; c++) {
              vec a = broadcast(from[(i * ih + kh) * ih + column + c]);
              UNROLL for (int u = 0; u < columns; u++) {
                if (c - u >= 0 && c - u < ks) {
                  vec *sums = acc[i * taps + kh * ks + c - u];
                  UNROLL for (int v = 0; v < vectors; v++) sums[v] = multiply_add(a, b[u][v], sums[v]);
                }
              }
            }
          }
        }
      }
    }
  }
  UNROLL for (int i = 0; i < channels; i++) {
    UNROLL for (int k = 0; k < taps; k++) {
      UNROLL for (int v = 0; v < vectors; v++) store(PLACE(i, k, v), acc[i * taps + k][v]);
    }
  }
#undef PLACE
}

// Transposes the upstream gradient of an image to [pixel][channel].
INLINE void weights_stage(float *to, const float *from, const int oc, const int pixels) {
  for (int o = 0; o < oc; o += LANES) {
    for (int f = 0; f < pixels; f += LANES) {
      const int lanes = MIN(LANES, pixels - f);
      vec r[LANES];
      UNROLL for (int k = 0; k < LANES; k++) {
        r[k] = load_masked(from + (o + k) * pixels + f, first(lanes));
      }
      transpose(r);
      UNROLL for (int k = 0; k < LANES; k++) {
        if (k < lanes) store(to + (f + k) * oc + o, r[k]);
      }
    }
  }
}

// Threads split the images, in groups; their parts are added at the end.
INLINE void conv_weights(const conv_operands *p, int t, int nt, const int ic, const int ih,
                         const int oc, const int ks, const int channels, const int rows,
                         const int vectors, const int columns, const int group) {
  const int oh = ih - ks + 1, pixels = oh * oh, taps = ks * ks, lanes = LANES * vectors;
  const long size = (long)oc * ic * taps;
  float *staged = p->scratch[t], *part = p->parts[t];
  long begin, end;
  memset(part, 0, size * 4);
  split(p->images, group, t, nt, &begin, &end);
  for (long n = begin; n < end; n += group) {
    for (int g = 0; g < group; g++) {
      weights_stage(staged + (long)g * pixels * oc, p->w + (n + g) * oc * pixels, oc, pixels);
    }
    for (int o = 0; o < oc; o += lanes) {
      for (int c = 0; c < ic; c += channels) {
        for (int kh = 0; kh < ks; kh += rows) {
          weights_tile(ic, ih, oh, oc, ks, channels, rows, vectors, columns, group,
                       p->x + ((n * ic + c) * ih + kh) * (long)ih, staged + o,
                       part + ((long)o * ic + c * (long)lanes) * taps + kh * ks * lanes);
        }
      }
    }
  }
  barrier(nt);
  for (long i = size * t / nt; i < size * (t + 1) / nt; i++) {
    float sum = 0;
    for (int u = 0; u < nt; u++) sum += p->parts[u][i];
    const long l = i % lanes, k = i / lanes % taps, c = i / lanes / taps % ic;
    const long o = i / lanes / taps / ic * lanes;
    p->y[((o + l) * ic + c) * taps + k] = sum;
  }
}

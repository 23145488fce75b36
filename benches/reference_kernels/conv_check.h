// Errors of convolutions against double precision, of samples of the outputs, relative to the sum of
// the absolute terms.
#pragma once
#include "conv.h"

// An output to compare: the first 200, the last 200, then random ones.
INLINE long sample(int q, long all, uint64_t *state) {
  return q < 200 ? q % all : q < 400 ? (all - 1 - (q - 200) % all) : next_index(state, all);
}

INLINE double conv_error(const conv_operands *p, int ic, int ih, int oc, int ks, int pad, int how) {
  const int oh = ih + 2 * pad - ks + 1;
  double error = 0;
  uint64_t state = 3;
  for (int q = 0; q < 3000; q++) {
    const long at = sample(q, p->images * oc * oh * oh, &state);
    const int ow = at % oh, row = at / oh % oh, o = at / oh / oh % oc;
    const long n = at / oh / oh / oc;
    double sum = 0, size = 1e-30;
    for (int c = 0; c < ic; c++) {
      for (int k = 0; k < ks * ks; k++) {
        const int y = row + k / ks - pad, x = ow + k % ks - pad;
        if (y < 0 || y >= ih || x < 0 || x >= ih) continue;
        double a = p->x[((n * ic + c) * ih + y) * ih + x];
        double term = a * p->w[(o * ic + c) * ks * ks + k];
        sum += term, size += fabs(term);
      }
    }
    if (how != PLAIN) sum = MAX(0, sum + p->bias[o]);
    worse(&error, fabs(sum - p->y[at]) / size);
  }
  return error;
}

// The gradient of the input [ic, ih, ih]; p->x is the upstream gradient [oc, oh, oh], p->w the
// weights of the forward pass.
INLINE double input_error(const conv_operands *p, int ic, int ih, int oc, int ks, int how) {
  const int oh = ih - ks + 1;
  double error = 0;
  uint64_t state = 5;
  for (int q = 0; q < 3000; q++) {
    const long at = sample(q, p->images * ic * ih * ih, &state);
    const int x = at % ih, y = at / ih % ih, c = at / ih / ih % ic;
    const long n = at / ih / ih / ic;
    double sum = 0, size = 1e-30;
    for (int o = 0; o < oc; o++) {
      for (int k = 0; k < ks * ks; k++) {
        const int row = y - k / ks, column = x - k % ks;
        if (row < 0 || row >= oh || column < 0 || column >= oh) continue;
        double a = p->x[((n * oc + o) * oh + row) * oh + column];
        double term = a * p->w[(o * ic + c) * ks * ks + k];
        sum += term, size += fabs(term);
      }
    }
    if (how == MASKED && !(p->activation[at] > 0)) sum = 0;
    worse(&error, fabs(sum - p->y[at]) / size);
  }
  return error;
}

// The gradient of the weights; p->w is the upstream gradient.
INLINE double weights_error(const conv_operands *p, int ic, int ih, int oc, int ks) {
  const int oh = ih - ks + 1;
  double error = 0;
  uint64_t state = 7;
  for (int q = 0; q < 30; q++) {
    const long all = (long)oc * ic * ks * ks, at = q ? next_index(&state, all) : all - 1;
    const int kw = at % ks, kh = at / ks % ks, c = at / ks / ks % ic, o = at / ks / ks / ic;
    double sum = 0, size = 1e-30;
    for (long n = 0; n < p->images; n++) {
      for (int i = 0; i < oh * oh; i++) {
        const int y = i / oh + kh, x = i % oh + kw;
        double term = (double)p->w[(n * oc + o) * oh * oh + i] * p->x[((n * ic + c) * ih + y) * ih + x];
        sum += term, size += fabs(term);
      }
    }
    worse(&error, fabs(sum - p->y[at]) / size);
  }
  return error;
}

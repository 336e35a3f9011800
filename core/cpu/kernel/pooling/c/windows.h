// The positions of pooling windows.
#ifndef PLAITK_POOLING_WINDOWS_H
#define PLAITK_POOLING_WINDOWS_H

#include "pooling.h"

// The input positions of a window in one dimension: `count` positions start, start + step, ..., all inside the input.
// Also the dimension's factor in the divisor of an average.
typedef struct {
  int64_t start, count, step, divisor;
} plaitk_pooling_window;

PLAIT_INLINE int64_t plaitk_pooling_min(int64_t a, int64_t b) { return a < b ? a : b; }
PLAIT_INLINE int64_t plaitk_pooling_max_of(int64_t a, int64_t b) { return a > b ? a : b; }

PLAIT_INLINE plaitk_pooling_window plaitk_pooling_window_at(const plaitk_pooling_shape *s, int d, int64_t o) {
  plaitk_pooling_window w = {.step = 1};
  int64_t in = s->in[d];
  if (s->adaptive) {
    int64_t out = s->out[d];
    w.start = o * in / out;
    w.count = ((o + 1) * in + out - 1) / out - w.start;
    w.divisor = w.count;
    return w;
  }
  int64_t first = o * s->stride[d] - s->pad[d], step = s->dilation[d], taps = s->kernel[d];
  int64_t skip = first < 0 ? (-first + step - 1) / step : 0;
  w.step = step;
  w.start = first + skip * step;
  w.count = w.start < in ? plaitk_pooling_min(taps - skip, (in - w.start + step - 1) / step) : 0;
  w.count = plaitk_pooling_max_of(w.count, 0);
  w.divisor = w.count;
  if (s->include_pad) w.divisor = plaitk_pooling_min(first + taps, in + s->pad[d]) - first;
  return w;
}

// A buffer of combined rows has padding columns. These are the number on the left, and the total number of columns.
PLAIT_INLINE int64_t plaitk_pooling_left(const plaitk_pooling_shape *s) { return s->adaptive ? 0 : s->pad[2]; }

PLAIT_INLINE int64_t plaitk_pooling_width(const plaitk_pooling_shape *s) {
  if (s->adaptive) return s->in[2];
  int64_t reach = (s->out[2] - 1) * s->stride[2] + (s->kernel[2] - 1) * s->dilation[2] + 1;
  return plaitk_pooling_max_of(reach, s->in[2] + s->pad[2]);
}

// Rows of output in a chunk.
PLAIT_INLINE int64_t plaitk_pooling_rows(const plaitk_pooling_shape *s) {
  int64_t height = s->adaptive ? (s->in[0] / plaitk_pooling_max_of(s->out[0], 1) + 1) *
                                     (s->in[1] / plaitk_pooling_max_of(s->out[1], 1) + 1)
                               : s->kernel[0] * s->kernel[1];
  int64_t taps = s->adaptive ? s->in[2] / plaitk_pooling_max_of(s->out[2], 1) + 1 : s->kernel[2];
  return 1 + 32768 / (height * s->in[2] + taps * s->out[2] + 1);
}

#endif

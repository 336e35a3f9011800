// Weighted sums along a dimension, of windows that move with the result.
#ifndef PLAITK_RESAMPLE_H
#define PLAITK_RESAMPLE_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

// plaitk_resample_shape describes y [outer, out, inner] made of x [outer, in, inner].
typedef struct {
  int64_t dtype;  // float32, float64 or uint8
  int64_t outer, in, inner, out;
  int64_t taps;   // weights of an element of the result
  int64_t shift;  // of sums of bytes
} plaitk_resample_shape;

// The bytes of scratch, aligned to 64, that a call needs.
int64_t plaitk_resample_scratch(const plait_pool *pool, const plaitk_resample_shape *s);
// y[o, j, i] = the sum of weights[j, k] * x[o, first + k, i] for k < count, where windows [out, 2] has first and count of j. The weights
// [out, taps] for bytes are integers of 16 bits.
void plaitk_resample(plait_pool *pool, const plaitk_resample_shape *s, const int64_t *windows, const double *weights,
                     const void *x, void *y, void *scratch);

#endif

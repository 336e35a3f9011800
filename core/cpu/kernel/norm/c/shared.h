// Shared by the norm kernels: limits, and access to parameters of any floating dtype.
#ifndef PLAITK_NORM_SHARED_H
#define PLAITK_NORM_SHARED_H

#include <math.h>

#include "../../../include/plait_lanes.h"
#include "../../../include/plait_mixed.h"
#include "../../../include/plait_pool.h"

// Sums run over at most this many elements in the accumulator type. Sums of such blocks are in float64.
#define SUM_BLOCK 4096
// Mean and squared deviations are computed over blocks of this size, which fit the L1 cache, and then combined.
#define STAT_BLOCK 4096
// The deviations of a block are first taken from the mean of SAMPLES elements. FAR_SHARE is how much of them may come
// from the error of that mean.
#define SAMPLES 8
#define FAR_SHARE 0.8
// Elements in a chunk, at least.
#define CHUNK_ELEMENTS 16384
// Columns that one step of a column sum keeps on the stack.
#define COLUMN_BLOCK 512
// Below this, [channels, inner] is treated as one row of channels*inner columns, since inner alone is too short for
// vectors.
#define SHORT_INNER 16

// Returns p[n], with each element repeated, in the accumulator type of dtype. It returns p itself if p has that type
// already, else a copy at *at, which it advances.
PLAIT_INLINE const void *widen(const void *p, int wdtype, int dtype, int64_t n, int64_t repeat, double **at) {
  int acc = plait_acc_dtype(dtype);
  if (!p || (wdtype == acc && repeat == 1)) return p;
  void *out = *at;
  for (int64_t i = 0; i < n; i++) {
    double v = plait_load(p, wdtype, i);
    for (int64_t k = 0; k < repeat; k++) plait_store(out, acc, i * repeat + k, v);
  }
  *at += n * repeat;
  return out;
}

#endif

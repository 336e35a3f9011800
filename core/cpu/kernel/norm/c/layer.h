// Row normalisation with weights that repeat every `groups` rows: layer norm, RMS norm, and group norm of short rows.
#ifndef PLAITK_NORM_LAYER_H
#define PLAITK_NORM_LAYER_H

#include "shared.h"

struct layer_args {
  int dtype, wdtype, rms;
  const void *x, *dy;
  const void *arrived;  // added to dx, with which it shares no memory; may be NULL
  const void *w, *b;  // accumulator type, groups*n elements
  void *mean, *rstd;
  void *y, *dx, *dw, *db;
  int64_t rows, n, groups;
  int64_t fold;  // dw and db sum this many adjacent columns into one element
  double eps;
  // Set by the functions below.
  int64_t per_chunk, chunks;
  bool stream;  // y uses non-temporal stores
  char *part;
};

void plaitk_norm_rows_forward(plait_pool *pool, struct layer_args *a);
void plaitk_norm_rows_backward(plait_pool *pool, struct layer_args *a, void *part);
// The bytes of part that the backward needs.
int64_t plaitk_norm_rows_part(int64_t rows, int64_t n, int64_t groups);

#endif

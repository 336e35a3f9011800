#include "layer.h"
#include "norm.h"

struct group_args {
  int dtype, wdtype;
  const void *x, *dy;
  const void *w, *b;  // accumulator type
  void *mean, *rstd;
  void *y, *dx, *dw, *db;
  int64_t batch, channels, inner, groups;
  double eps;
  double *part;  // [2][batch][channels]: sums for dw and db
  int64_t per_chunk;
};

#define PLAIT_TEMPLATE "../kernel/norm/c/stats.h"
#include "../../../include/plait_each_float.h"
#define PLAIT_TEMPLATE "../kernel/norm/c/group_rows.h"
#include "../../../include/plait_each_float.h"

static void run_group(void *arg, int64_t chunk) {
  const struct group_args *a = arg;
  int64_t first = chunk * a->per_chunk, rows = plait_min64(a->per_chunk, a->batch * a->groups - first);
  switch (a->dtype) {
    case PLAIT_F16: (a->dy ? group_rows_grad_f16 : group_rows_f16)(a, first, rows); break;
    case PLAIT_BF16: (a->dy ? group_rows_grad_bf16 : group_rows_bf16)(a, first, rows); break;
    case PLAIT_F32: (a->dy ? group_rows_grad_f32 : group_rows_f32)(a, first, rows); break;
    default: (a->dy ? group_rows_grad_f64 : group_rows_f64)(a, first, rows);
  }
}

static void parallel(plait_pool *pool, struct group_args *a) {
  int64_t n = a->channels / a->groups * a->inner;
  a->per_chunk = plait_max64(1, CHUNK_ELEMENTS / n);
  plait_parallel(pool, plait_ceil_div(a->batch * a->groups, a->per_chunk), run_group, a);
}

int64_t plaitk_norm_group_scratch(int64_t batch, int64_t channels, int64_t inner, int64_t groups) {
  if (channels == 0 || inner == 0) return 0;
  if (inner >= SHORT_INNER) return (2 * channels + 2 * batch * channels) * 8;
  int64_t n = channels / groups * inner;
  return 2 * channels * inner * 8 + plaitk_norm_rows_part(batch * groups, n, groups);
}

void plaitk_norm_group_forward(plait_pool *pool, int dtype, int wdtype, const void *x, const void *w, const void *b,
                               void *y, void *mean, void *rstd, int64_t batch, int64_t channels, int64_t inner,
                               int64_t groups, double eps, void *scratch) {
  if (batch == 0 || channels == 0 || inner == 0) return;
  double *at = scratch;
  if (inner < SHORT_INNER) {
    struct layer_args a = {.dtype = dtype, .wdtype = wdtype, .x = x, .y = y, .mean = mean, .rstd = rstd,
                           .rows = batch * groups, .n = channels / groups * inner, .groups = groups, .fold = inner,
                           .eps = eps};
    a.w = widen(w, wdtype, dtype, channels, inner, &at);
    a.b = widen(b, wdtype, dtype, channels, inner, &at);
    plaitk_norm_rows_forward(pool, &a);
    return;
  }
  struct group_args a = {.dtype = dtype, .wdtype = wdtype, .x = x, .y = y, .mean = mean, .rstd = rstd,
                         .batch = batch, .channels = channels, .inner = inner, .groups = groups, .eps = eps};
  a.w = widen(w, wdtype, dtype, channels, 1, &at);
  a.b = widen(b, wdtype, dtype, channels, 1, &at);
  parallel(pool, &a);
}

void plaitk_norm_group_backward(plait_pool *pool, int dtype, int wdtype, const void *x, const void *dy, const void *w,
                                const void *mean, const void *rstd, void *dx, void *dw, void *db, int64_t batch,
                                int64_t channels, int64_t inner, int64_t groups, void *scratch) {
  double *at = scratch;
  void *out[2] = {dw, db};
  if (batch == 0 || channels == 0 || inner == 0) {
    for (int64_t k = 0; k < 2; k++) {
      for (int64_t c = 0; out[k] && c < channels; c++) plait_store(out[k], wdtype, c, 0);
    }
    return;
  }
  if (inner < SHORT_INNER) {
    struct layer_args a = {.dtype = dtype, .wdtype = wdtype, .x = x, .dy = dy, .mean = (void *)mean,
                           .rstd = (void *)rstd, .dx = dx, .dw = dw, .db = db, .rows = batch * groups,
                           .n = channels / groups * inner, .groups = groups, .fold = inner};
    a.w = widen(w, wdtype, dtype, channels, inner, &at);
    plaitk_norm_rows_backward(pool, &a, at);
    return;
  }
  struct group_args a = {.dtype = dtype, .wdtype = wdtype, .x = x, .dy = dy, .mean = (void *)mean,
                         .rstd = (void *)rstd, .dx = dx, .dw = dw, .db = db, .batch = batch, .channels = channels,
                         .inner = inner, .groups = groups};
  a.w = widen(w, wdtype, dtype, channels, 1, &at);
  a.part = at;
  parallel(pool, &a);
  for (int64_t k = 0; k < 2; k++) {
    for (int64_t c = 0; out[k] && c < channels; c++) {
      double s = 0;
      for (int64_t i = 0; i < batch; i++) s += a.part[(k * batch + i) * channels + c];
      plait_store(out[k], wdtype, c, s);
    }
  }
}

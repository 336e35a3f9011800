#include "layer.h"

#include "norm.h"
#include "../../../include/plait_stream.h"
#include "../../../include/plait_view.h"

#define PLAIT_TEMPLATE "../kernel/norm/c/stats.h"
#include "../../../include/plait_each_float.h"
#define PLAIT_TEMPLATE "../kernel/norm/c/layer_rows.h"
#include "../../../include/plait_each_float.h"

static void run_forward(void *arg, int64_t chunk) {
  const struct layer_args *a = arg;
  int64_t first = chunk * a->per_chunk, rows = plait_min64(a->per_chunk, a->rows - first);
  switch (a->dtype) {
    case PLAIT_F16: layer_rows_f16(a, first, rows); break;
    case PLAIT_BF16: layer_rows_bf16(a, first, rows); break;
    case PLAIT_F32: layer_rows_f32(a, first, rows); break;
    default: layer_rows_f64(a, first, rows);
  }
}

void plaitk_norm_rows_forward(plait_pool *pool, struct layer_args *a) {
  if (a->rows == 0 || a->n == 0) return;
  a->per_chunk = plait_max64(1, CHUNK_ELEMENTS / a->n);
  a->stream = a->x != a->y && a->rows * a->n * plait_dtype_size(a->dtype) >= PLAIT_STREAM_BYTES;
  plait_parallel(pool, plait_ceil_div(a->rows, a->per_chunk), run_forward, a);
}

static int64_t acc_size(int dtype) { return dtype == PLAIT_F64 ? 8 : 4; }

// Returns the number of rows that share one partial sum. It is large enough for the partial sums to be small compared
// with the data, and small enough for a float32 sum to stay accurate to a few ulp.
static int64_t rows_per_part(int64_t n, int64_t groups) {
  int64_t rows = plait_min64(256, plait_max64(16, 2 * CHUNK_ELEMENTS / plait_max64(n, 1)));
  return plait_ceil_div(rows, groups) * groups;
}

int64_t plaitk_norm_rows_part(int64_t rows, int64_t n, int64_t groups) {
  return plait_ceil_div(rows, rows_per_part(n, groups)) * 2 * n * groups * 8;
}

static void run_backward(void *arg, int64_t chunk) {
  const struct layer_args *a = arg;
  int64_t first = chunk * a->per_chunk, rows = plait_min64(a->per_chunk, a->rows - first);
  void *part = a->part ? a->part + chunk * 2 * a->n * a->groups * acc_size(a->dtype) : NULL;
  switch (a->dtype) {
    case PLAIT_F16: layer_rows_grad_f16(a, first, rows, part); break;
    case PLAIT_BF16: layer_rows_grad_bf16(a, first, rows, part); break;
    case PLAIT_F32: layer_rows_grad_f32(a, first, rows, part); break;
    default: layer_rows_grad_f64(a, first, rows, part);
  }
}

static void run_combine(void *arg, int64_t chunk) {
  const struct layer_args *a = arg;
  int64_t width = a->n * a->groups, block = COLUMN_BLOCK / a->fold * a->fold;
  int64_t first = chunk * block, count = plait_min64(block, width - first);
  void *out[2] = {a->dw, a->db};
  for (int64_t k = 0; k < 2; k++) {
    if (!out[k]) continue;
    double sum[COLUMN_BLOCK];
    if (a->dtype == PLAIT_F64) {
      layer_sum_parts_f64((const double *)(const void *)a->part, a->chunks, 2 * width, k * width + first, count, sum);
    } else {
      layer_sum_parts_f32((const float *)(const void *)a->part, a->chunks, 2 * width, k * width + first, count, sum);
    }
    for (int64_t j = 0; j < count; j += a->fold) {
      double s = 0;
      for (int64_t i = j; i < j + a->fold; i++) s += sum[i];
      plait_store(out[k], a->wdtype, (first + j) / a->fold, s);
    }
  }
}

void plaitk_norm_rows_backward(plait_pool *pool, struct layer_args *a, void *part) {
  if (a->n == 0) return;
  int weights = a->dw || a->db;
  a->part = weights ? part : NULL;
  a->per_chunk = weights ? rows_per_part(a->n, a->groups) : plait_max64(1, CHUNK_ELEMENTS / a->n);
  a->chunks = plait_ceil_div(a->rows, a->per_chunk);
  plait_parallel(pool, a->chunks, run_backward, a);
  if (weights) plait_parallel(pool, plait_ceil_div(a->n * a->groups, COLUMN_BLOCK / a->fold * a->fold), run_combine, a);
}

int64_t plaitk_norm_layer_scratch(int64_t rows, int64_t n) { return 2 * n * 8 + plaitk_norm_rows_part(rows, n, 1); }

void plaitk_norm_layer_forward(plait_pool *pool, int dtype, int wdtype, int rms, const void *x, const void *w,
                               const void *b, void *y, void *mean, void *rstd, int64_t rows, int64_t n, double eps,
                               void *scratch) {
  double *at = scratch;
  struct layer_args a = {.dtype = dtype, .wdtype = wdtype, .rms = rms, .x = x, .y = y, .mean = mean, .rstd = rstd,
                         .rows = rows, .n = n, .groups = 1, .fold = 1, .eps = eps};
  a.w = widen(w, wdtype, dtype, n, 1, &at);
  a.b = widen(b, wdtype, dtype, n, 1, &at);
  plaitk_norm_rows_forward(pool, &a);
}

void plaitk_norm_layer_backward(plait_pool *pool, int dtype, int wdtype, int rms, const void *x, const void *dy,
                                const void *w, const void *mean, const void *rstd, const void *arrived, void *dx, void *dw,
                                void *db, int64_t rows, int64_t n, void *scratch) {
  double *at = scratch;
  struct layer_args a = {.dtype = dtype, .wdtype = wdtype, .rms = rms, .x = x, .dy = dy, .mean = (void *)mean,
                         .rstd = (void *)rstd, .arrived = arrived, .dx = dx, .dw = dw, .db = db, .rows = rows, .n = n,
                         .groups = 1, .fold = 1};
  a.w = widen(w, wdtype, dtype, n, 1, &at);
  plaitk_norm_rows_backward(pool, &a, at);
}

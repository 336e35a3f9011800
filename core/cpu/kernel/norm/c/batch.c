#include "norm.h"
#include "shared.h"

// Elements of a segment, at most.
#define SEGMENT 65536
// Rows of a block of columns, whose sums stay in the accumulator type.
#define BLOCK_ROWS 64

enum pass { STATS, GRAD_SUMS, APPLY };

struct batch_args {
  int dtype;
  enum pass pass;
  const void *x, *dy;
  void *y, *dx;
  void *mean, *rstd;  // [channels], accumulator type
  int64_t batch, channels, inner, columns;
  int64_t pieces, segments, per_chunk;
  int64_t rows, width, fold;    // part is [rows][width]; `fold` adjacent columns belong to one channel
  double *part, *part2;         // two partial sums for each segment, or for each (row block, column)
  double *sum, *sum2, *column;  // [width], and scratch [2][width]
  void *coef[3], *column_mean;  // accumulator type, per channel or per column
};

static int is_short(const struct batch_args *a) { return a->inner < SHORT_INNER; }

PLAIT_INLINE int64_t segment_at(const struct batch_args *a, int64_t p) {
  return p / a->segments * a->inner + p % a->segments * SEGMENT;
}
PLAIT_INLINE int64_t segment_len(const struct batch_args *a, int64_t p) {
  return plait_min64(SEGMENT, a->inner - p % a->segments * SEGMENT);
}
PLAIT_INLINE int64_t segment_channel(const struct batch_args *a, int64_t p) {
  return p / a->segments % a->channels;
}

#define PLAIT_TEMPLATE "../kernel/norm/c/stats.h"
#include "../../../include/plait_each_float.h"
#define PLAIT_TEMPLATE "../kernel/norm/c/batch_pieces.h"
#include "../../../include/plait_each_float.h"

#define DISPATCH(fn, dtype, ...)                     \
  switch (dtype) {                                   \
    case PLAIT_F16: fn##_f16(__VA_ARGS__); break;    \
    case PLAIT_BF16: fn##_bf16(__VA_ARGS__); break;  \
    case PLAIT_F32: fn##_f32(__VA_ARGS__); break;    \
    default: fn##_f64(__VA_ARGS__);                  \
  }

static void run_segments(void *arg, int64_t chunk) {
  const struct batch_args *a = arg;
  int64_t first = chunk * a->per_chunk, last = plait_min64(a->pieces, first + a->per_chunk);
  for (int64_t p = first; p < last; p++) {
    switch (a->pass) {
      case STATS: DISPATCH(segment_stats, a->dtype, a, p); break;
      case GRAD_SUMS: DISPATCH(segment_grad_sums, a->dtype, a, p); break;
      default: DISPATCH(segment_apply, a->dtype, a, p);
    }
  }
}

static void run_columns(void *arg, int64_t chunk) {
  const struct batch_args *a = arg;
  int64_t across = plait_ceil_div(a->columns, COLUMN_BLOCK), block = chunk / across;
  int64_t column = chunk % across * COLUMN_BLOCK, count = plait_min64(COLUMN_BLOCK, a->columns - column);
  int64_t row = block * BLOCK_ROWS, rows = plait_min64(BLOCK_ROWS, a->batch - row), at = block * a->columns + column;
  switch (a->pass) {
    case STATS:
      DISPATCH(column_stats, a->dtype, a, row, rows, column, count, a->part + at, a->part2 + at);
      break;
    case GRAD_SUMS:
      DISPATCH(column_grad_sums, a->dtype, a, row, rows, column, count, a->part + at, a->part2 + at);
      break;
    default: DISPATCH(column_apply, a->dtype, a, row, rows, column, count);
  }
}

static void run(plait_pool *pool, struct batch_args *a, enum pass pass) {
  a->pass = pass;
  if (is_short(a)) {
    plait_parallel(pool, a->rows * plait_ceil_div(a->columns, COLUMN_BLOCK), run_columns, a);
  } else {
    plait_parallel(pool, plait_ceil_div(a->pieces, a->per_chunk), run_segments, a);
  }
}

// Adds up the rows of part [rows][width] in sum.
PLAIT_CLONES static void add_rows(const double *part, int64_t rows, int64_t width, double *sum) {
  memset(sum, 0, (size_t)width * sizeof *sum);
  for (int64_t r = 0; r < rows; r++) {
    const double *p = part + r * width;
#pragma omp simd
    for (int64_t j = 0; j < width; j++) sum[j] += p[j];
  }
}

// Adds count[j]*(part/count[j] - mean[j])^2 to sum for one row of sums. This is the contribution of the pieces' means
// to the variance.
PLAIT_CLONES static void add_spread(const double *part, const double *count, const double *mean, int64_t width,
                                    double *sum) {
#pragma omp simd
  for (int64_t j = 0; j < width; j++) {
    double d = part[j] / count[j] - mean[j];
    sum[j] += count[j] * d * d;
  }
}

static double fold(const struct batch_args *a, const double *column, int64_t c) {
  double s = 0;
  for (int64_t j = c * a->fold; j < (c + 1) * a->fold; j++) s += column[j];
  return s;
}

// Combines the pieces' sums and squared deviations per column: a->sum gets the sum of x, a->sum2 that of (x - mean)^2.
static void combine_stats(struct batch_args *a, double n) {
  add_rows(a->part, a->rows, a->width, a->sum);
  add_rows(a->part2, a->rows, a->width, a->sum2);
  double *mean = a->column, *count = a->column + a->width;
  for (int64_t c = 0; c < a->channels; c++) {
    double m = fold(a, a->sum, c) / n;
    for (int64_t j = 0; j < a->fold; j++) {
      mean[c * a->fold + j] = m;
      count[c * a->fold + j] = (double)(is_short(a) ? plait_min64(BLOCK_ROWS, a->batch) : segment_len(a, j));
    }
  }
  for (int64_t r = 0; r < a->rows; r++) {
    int64_t left = a->batch - r * BLOCK_ROWS;
    for (int64_t j = 0; is_short(a) && left < BLOCK_ROWS && j < a->width; j++) count[j] = (double)left;
    add_spread(a->part + r * a->width, count, mean, a->width, a->sum2);
  }
}

static void set_coef(const struct batch_args *a, void *array, int64_t c, double v) {
  int64_t repeat = is_short(a) ? a->inner : 1;
  for (int64_t k = 0; k < repeat; k++) plait_store(array, plait_acc_dtype(a->dtype), c * repeat + k, v);
}

static void prepare(struct batch_args *a, double *at) {
  a->columns = a->channels * a->inner;
  a->segments = plait_ceil_div(a->inner, SEGMENT);
  a->pieces = a->batch * a->channels * a->segments;
  a->per_chunk = plait_max64(1, CHUNK_ELEMENTS / a->inner);
  a->rows = is_short(a) ? plait_ceil_div(a->batch, BLOCK_ROWS) : a->batch;
  a->fold = is_short(a) ? a->inner : a->segments;
  a->width = a->channels * a->fold;
  a->part = at;
  a->part2 = at + a->rows * a->width;
  at += 2 * a->rows * a->width;
  a->sum = at;
  a->sum2 = at + a->width;
  a->column = at + 2 * a->width;
  at += 4 * a->width;
  int64_t coefs = is_short(a) ? a->columns : a->channels;
  for (int k = 0; k < 3; k++) a->coef[k] = at + k * coefs;
  a->column_mean = is_short(a) ? (void *)(at + 3 * coefs) : a->mean;
}

int64_t plaitk_norm_batch_scratch(int64_t batch, int64_t channels, int64_t inner) {
  int short_inner = inner < SHORT_INNER;
  int64_t rows = short_inner ? plait_ceil_div(batch, BLOCK_ROWS) : batch;
  int64_t width = channels * (short_inner ? inner : plait_ceil_div(inner, SEGMENT));
  return (2 * rows * width + 4 * width + 4 * channels * (short_inner ? inner : 1)) * 8;
}

void plaitk_norm_batch_forward(plait_pool *pool, int dtype, int wdtype, int training, const void *x, const void *w,
                               const void *b, const void *running_mean, const void *running_var, void *y, void *mean,
                               void *rstd, void *var, int64_t batch, int64_t channels, int64_t inner, double eps,
                               void *scratch) {
  if (batch == 0 || channels == 0 || inner == 0) return;
  struct batch_args a = {.dtype = dtype, .x = x, .y = y, .mean = mean, .rstd = rstd, .batch = batch,
                         .channels = channels, .inner = inner};
  prepare(&a, scratch);
  int acc = plait_acc_dtype(dtype);
  double n = (double)batch * (double)inner;
  if (training) {
    run(pool, &a, STATS);
    combine_stats(&a, n);
  }
  for (int64_t c = 0; c < channels; c++) {
    double m = training ? fold(&a, a.sum, c) / n : plait_load(running_mean, wdtype, c);
    double v = training ? fold(&a, a.sum2, c) / n : plait_load(running_var, wdtype, c);
    double r = 1 / sqrt(v + eps);
    plait_store(mean, acc, c, m);
    plait_store(rstd, acc, c, r);
    if (var) plait_store(var, acc, c, v);
    if (is_short(&a)) set_coef(&a, a.column_mean, c, m);
    double scale = w ? r * plait_load(w, wdtype, c) : r;
    set_coef(&a, a.coef[0], c, scale);
    // The mean that is subtracted is rounded. Add the rounded part to the sum that follows.
    double rest = plait_load(mean, acc, c) - m;
    set_coef(&a, a.coef[1], c, (b ? plait_load(b, wdtype, c) : 0) + (rest == rest ? rest * scale : 0));
  }
  run(pool, &a, APPLY);
}

void plaitk_norm_batch_backward(plait_pool *pool, int dtype, int wdtype, int training, const void *x, const void *dy,
                                const void *w, const void *mean, const void *rstd, void *dx, void *dw, void *db,
                                int64_t batch, int64_t channels, int64_t inner, void *scratch) {
  if (batch == 0 || inner == 0) {
    for (int64_t c = 0; c < channels; c++) {
      if (dw) plait_store(dw, wdtype, c, 0);
      if (db) plait_store(db, wdtype, c, 0);
    }
    return;
  }
  struct batch_args a = {.dtype = dtype, .x = x, .dy = dy, .dx = dx, .mean = (void *)mean, .rstd = (void *)rstd,
                         .batch = batch, .channels = channels, .inner = inner};
  prepare(&a, scratch);
  int acc = plait_acc_dtype(dtype), sums = dw || db || (training && dx);
  for (int64_t c = 0; is_short(&a) && c < channels; c++) set_coef(&a, a.column_mean, c, plait_load(mean, acc, c));
  if (sums) {
    run(pool, &a, GRAD_SUMS);
    add_rows(a.part, a.rows, a.width, a.sum);
    add_rows(a.part2, a.rows, a.width, a.sum2);
  }
  double n = (double)batch * (double)inner;
  for (int64_t c = 0; c < channels; c++) {
    double s = sums ? fold(&a, a.sum, c) : 0, sx = sums ? fold(&a, a.sum2, c) : 0;
    double r = plait_load(rstd, acc, c), scale = w ? r * plait_load(w, wdtype, c) : r;
    if (dw) plait_store(dw, wdtype, c, sx * r);
    if (db) plait_store(db, wdtype, c, s);
    set_coef(&a, a.coef[0], c, scale);
    set_coef(&a, a.coef[1], c, training ? -scale * r * r * sx / n : 0);
    set_coef(&a, a.coef[2], c, training ? -scale * s / n : 0);
  }
  if (dx) run(pool, &a, APPLY);
}

void plaitk_norm_batch_running(int dtype, int rdtype, const void *mean, const void *var, void *running_mean,
                               void *running_var, int64_t channels, double count, double momentum) {
  int acc = plait_acc_dtype(dtype);
  for (int64_t c = 0; c < channels; c++) {
    double m = plait_load(running_mean, rdtype, c), v = plait_load(running_var, rdtype, c);
    double unbiased = plait_load(var, acc, c) * (count / (count - 1));
    plait_store(running_mean, rdtype, c, (1 - momentum) * m + momentum * plait_load(mean, acc, c));
    plait_store(running_var, rdtype, c, (1 - momentum) * v + momentum * unbiased);
  }
}

#include "softmax.h"

#include "../../../include/plait_abreast.h"
#include "../../../include/plait_lanes.h"
#include "../../../include/plait_stream.h"
#include "../../../include/plait_view.h"

// Sums run over at most this many elements in the accumulator type. Sums of such blocks are in float64.
#define SUM_BLOCK 1024
// The same for sums along columns, in rows.
#define SUM_ROWS 16
// Up to this length, a row's exponentials are computed once and kept in a buffer on the stack. Those of longer rows are
// computed twice, and memory is read twice.
#define ROW_BUFFER 8192
// Elements in a part of a row that is written by non-temporal stores, at most.
#define STREAM_PART (PLAIT_STREAM_PART / 2)
// Columns in a block. If rows are at most WIDE_BLOCK wide and there are ENOUGH_BLOCKS of them, a block is the whole row
// instead: then memory is read in order.
#define COLUMN_BLOCK 256
#define WIDE_BLOCK 1024
#define ENOUGH_BLOCKS 8
// Columns as short as lines side by side may be are such lines if fewer are adjacent.
#define NARROW 64
// Elements in a chunk, at least.
#define CHUNK_ELEMENTS 16384

// Columns in a vector.
#define LANES 16
// Wide rows for which combining the copies of columns is worth it.
#define FEW_ROWS 8

#define LARGER(a, b) ((b) > (a) ? (b) : (a))

struct softmax_args {
  int dtype, log;
  bool stream;  // the result uses non-temporal stores
  const void *in, *dy;  // in is x; in the backward, where dy is given, it is y
  void *out;
  int64_t outer, n, inner;
  int64_t per_chunk;  // rows, or (outer, column block) pairs
  int64_t block, column_blocks, fold;  // columns in a block, blocks in a row
};

#define PLAIT_TEMPLATE "../kernel/softmax/c/rows.h"
#include "../../../include/plait_each_float.h"
#define PLAIT_TEMPLATE "../kernel/softmax/c/columns.h"
#include "../../../include/plait_each_float.h"
#define PLAIT_TEMPLATE "../kernel/softmax/c/abreast.h"
#include "../../../include/plait_each_float.h"

static void run_rows(void *arg, int64_t chunk) {
  const struct softmax_args *a = arg;
  int64_t first = chunk * a->per_chunk;
  int64_t rows = a->outer - first < a->per_chunk ? a->outer - first : a->per_chunk;
  switch (a->dtype) {
    case PLAIT_F16: task_rows_f16(a, first, rows); break;
    case PLAIT_BF16: task_rows_bf16(a, first, rows); break;
    case PLAIT_F32: task_rows_f32(a, first, rows); break;
    default: task_rows_f64(a, first, rows);
  }
}

static void run_columns(void *arg, int64_t chunk) {
  const struct softmax_args *a = arg;
  int64_t units = a->outer * a->column_blocks, first = chunk * a->per_chunk;
  int64_t last = units - first < a->per_chunk ? units : first + a->per_chunk;
  for (int64_t u = first; u < last; u++) {
    int64_t outer = u / a->column_blocks, column = u % a->column_blocks * a->block;
    int64_t w = a->inner - column < a->block ? a->inner - column : a->block;
    switch (a->dtype) {
      case PLAIT_F16: task_columns_f16(a, outer, column, w); break;
      case PLAIT_BF16: task_columns_bf16(a, outer, column, w); break;
      case PLAIT_F32: task_columns_f32(a, outer, column, w); break;
      default: task_columns_f64(a, outer, column, w);
    }
  }
}

// run_abreast is for short lines: units are groups of them.
static void run_abreast(void *arg, int64_t chunk) {
  const struct softmax_args *a = arg;
  int64_t size = plait_dtype_size(a->dtype), lines = a->outer * a->inner, group = PLAIT_ABREAST;
  int64_t sizes[] = {a->outer, a->inner}, steps[] = {a->n * a->inner, 1};
  struct plait_lines l = {.n = a->n, .stride = a->inner, .nk = a->inner == 1 ? 1 : 2, .size = sizes, .step = steps};
  uint64_t in[PLAIT_ABREAST_BLOCK], dy[PLAIT_ABREAST_BLOCK], out[PLAIT_ABREAST_BLOCK];
  int64_t last = plait_min64(lines, (chunk + 1) * a->per_chunk * group);
  for (int64_t at = chunk * a->per_chunk * group; at < last; at += group) {
    int64_t count = plait_min64(group, last - at), w = (count + LANES - 1) / LANES * LANES;
    plait_abreast_load(in, a->in, &l, at, count, size);
    if (a->dy) plait_abreast_load(dy, a->dy, &l, at, count, size);
#define ABREAST(NAME)                                                     \
  if (a->dy) {                                                            \
    softmax_abreast_grad_##NAME((void *)in, (void *)dy, (void *)out, a->n, w, a->log); \
  } else {                                                                \
    softmax_abreast_##NAME((void *)in, (void *)out, a->n, w, a->log);     \
  }
    switch (a->dtype) {
      case PLAIT_F16: ABREAST(f16) break;
      case PLAIT_BF16: ABREAST(bf16) break;
      case PLAIT_F32: ABREAST(f32) break;
      default: ABREAST(f64)
    }
#undef ABREAST
    plait_abreast_store(out, a->out, &l, at, count, size);
  }
}

static void run(plait_pool *pool, struct softmax_args *a) {
  if (a->outer == 0 || a->n == 0 || a->inner == 0) return;
  int64_t units, size;
  a->stream = a->dy == NULL && a->in != a->out && a->outer * a->n * plait_dtype_size(a->dtype) >= PLAIT_STREAM_BYTES;
  if (a->n <= PLAIT_ABREAST_N && a->inner < NARROW) {
    units = plait_ceil_div(a->outer * a->inner, PLAIT_ABREAST);
    a->per_chunk = plait_max64(1, CHUNK_ELEMENTS / (a->n * PLAIT_ABREAST));
    plait_parallel(pool, plait_ceil_div(units, a->per_chunk), run_abreast, a);
    return;
  }
  if (a->inner == 1) {
    units = a->outer;
    size = a->n;
  } else {
    bool whole = a->inner <= COLUMN_BLOCK || (a->inner <= WIDE_BLOCK && a->outer >= ENOUGH_BLOCKS);
    a->block = whole ? a->inner : COLUMN_BLOCK;
    a->column_blocks = (a->inner + a->block - 1) / a->block;
    // Copies of a column are combined in the end, so there are few if there are few rows, but enough to fill a vector.
    int64_t most = a->inner <= COLUMN_BLOCK ? COLUMN_BLOCK / a->inner : 1, fills = (LANES + a->inner - 1) / a->inner;
    a->fold = plait_min64(plait_min64(most, a->n), plait_max64(fills, a->n / FEW_ROWS));
    units = a->outer * a->column_blocks;
    size = a->n * (a->inner < a->block ? a->inner : a->block);
  }
  a->per_chunk = size < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / size : 1;
  int64_t chunks = (units + a->per_chunk - 1) / a->per_chunk;
  plait_parallel(pool, chunks, a->inner == 1 ? run_rows : run_columns, a);
}

void plaitk_softmax_forward(plait_pool *pool, int dtype, int log, const void *x, void *y, int64_t outer, int64_t n,
                            int64_t inner) {
  struct softmax_args a = {.dtype = dtype, .log = log, .in = x, .out = y, .outer = outer, .n = n, .inner = inner};
  run(pool, &a);
}

void plaitk_softmax_backward(plait_pool *pool, int dtype, int log, const void *y, const void *dy, void *dx,
                             int64_t outer, int64_t n, int64_t inner) {
  struct softmax_args a = {
      .dtype = dtype, .log = log, .in = y, .dy = dy, .out = dx, .outer = outer, .n = n, .inner = inner};
  run(pool, &a);
}

// tril and triu.
#include "../../copying/c/copying.h"
#include "rearrangement.h"

enum { CHUNK_ELEMENTS = 1 << 16 };

typedef struct {
  plait_walk batch;
  char *out;
  const char *in;
  int64_t size, rows, cols, out_row, out_col, in_row, in_col; // strides are in bytes
  int64_t diagonal, rows_per_chunk, parts;
  bool upper;
  char zero[16];
} triangle_job;

static void move(const triangle_job *j, char *out, const char *in, int64_t in_col, int64_t n) {
  if (n <= 0) return;
  plaitk_plane p = {.n = {n, 1}, .out = {j->out_col, 0}, .in = {in_col, 0}};
  plaitk_copying_plane(j->size, out, in, &p);
}

static int64_t clamp(int64_t x, int64_t high) { return x < 0 ? 0 : x > high ? high : x; }

static void triangle_chunk(void *arg, int64_t chunk) {
  const triangle_job *j = arg;
  plait_cursor c;
  plait_walk whole = j->batch;
  plait_walk_seek(&whole, &c, chunk / j->parts);
  char *out = j->out + c.offset[0];
  const char *in = j->in + c.offset[1];
  int64_t first = chunk % j->parts * j->rows_per_chunk, last = plait_min64(j->rows, first + j->rows_per_chunk);
  for (int64_t r = first; r < last; r++) {
    char *o = out + r * j->out_row;
    const char *x = in + r * j->in_row;
    int64_t from = 0, to = j->cols; // the columns that are kept
    if (j->upper) {
      from = clamp(r + j->diagonal, j->cols);
    } else {
      to = clamp(r + j->diagonal + 1, j->cols);
    }
    move(j, o, j->zero, 0, from);
    if (o != x) move(j, o + from * j->out_col, x + from * j->in_col, j->in_col, to - from);
    move(j, o + to * j->out_col, j->zero, 0, j->cols - to);
  }
}

void plaitk_rearrangement_triangle(plait_pool *pool, const plait_view *out, const plait_view *in, int64_t diagonal, int64_t upper) {
  if (plait_numel(out) == 0) return;
  triangle_job j = {.out = out->data, .in = in->data, .upper = upper, .zero = {0}};
  int64_t d = out->ndim - 2;
  j.size = plait_dtype_size(out->dtype);
  j.rows = out->shape[d], j.cols = out->shape[d + 1];
  j.out_row = out->stride[d] * j.size, j.out_col = out->stride[d + 1] * j.size;
  j.in_row = in->stride[d] * j.size, j.in_col = in->stride[d + 1] * j.size;
  j.diagonal = clamp(diagonal + j.rows, j.rows + j.cols) - j.rows; // clamp: diagonals outside the matrix are all equal
  plait_walk_init(&j.batch, 2);
  for (int64_t i = 0; i < d; i++) {
    int64_t strides[2] = {out->stride[i] * j.size, in->stride[i] * j.size};
    plait_walk_add(&j.batch, out->shape[i], strides);
  }
  // The walk's rows must be whole matrices, so it gets an inner dimension of size 1.
  j.batch.shape[j.batch.ndim++] = 1;
  j.rows_per_chunk = plait_max64(1, CHUNK_ELEMENTS / j.cols);
  j.parts = plait_ceil_div(j.rows, j.rows_per_chunk);
  int64_t chunks = plait_walk_rows(&j.batch) * j.parts;
  if (chunks == 1) {
    triangle_chunk(&j, 0);
  } else {
    plait_parallel(pool, chunks, triangle_chunk, &j);
  }
}

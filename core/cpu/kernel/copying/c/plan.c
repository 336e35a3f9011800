// The plan of a copy: which dimensions are merged, which two span the tiles, and how large the tiles are.
#include "copying.h"

enum {
  RUN_BYTES = 1 << 15,     // of a unit whose rows are contiguous in both operands
  PACK_ELEMENTS = 1 << 10, // of a unit that is converted through a buffer
  SMALL_PLANE = 64,        // with fewer elements in the plane, tiles span the longest dimension instead
  SHORT_RUN = 8,           // elements next to each other in the input for which a tiny plane is worth it
  STREAM_BYTES = 1 << 24,  // outputs of at least this size use non-temporal stores
};

static int64_t abs64(int64_t x) { return x < 0 ? -x : x; }

// Treats a row as one larger element, if it is contiguous in both operands and has the size of an element type.
static void widen_rows(plaitk_copy_plan *p, plait_walk *w) {
  if (w->ndim < 2) return;
  int64_t *inner = w->stride[w->ndim - 1], bytes = w->shape[w->ndim - 1] * p->size;
  if (inner[0] != p->size || inner[1] != p->size || bytes > 16 || (bytes & (bytes - 1))) return;
  p->size = p->in_size = bytes;
  w->ndim--;
}

// Returns the second dimension of the tiles; the first is the innermost one. It is the dimension in which the input is
// contiguous, or the next outer one. If tiles would be tiny, it is the longest dimension, unless the input is read in runs.
static int64_t second_dim(const plait_walk *w, int64_t in_size) {
  int64_t a = w->ndim - 1, best = a;
  if (w->stride[a][1] != 0)
    for (int64_t d = a - 1; d >= 0; d--)
      if (w->stride[d][1] != 0 && abs64(w->stride[d][1]) < abs64(w->stride[best][1])) best = d;
  if (best == a) best = a - 1;
  bool runs = w->stride[best][1] == in_size && w->shape[best] >= SHORT_RUN;
  if (w->shape[a] * w->shape[best] < SMALL_PLANE && !runs)
    for (int64_t d = a - 1; d >= 0; d--)
      if (w->shape[d] > w->shape[best]) best = d;
  return best;
}

static void plan_tiles(plaitk_copy_plan *p) {
  const plaitk_plane *q = &p->plane;
  int64_t larger = plait_max64(p->size, p->in_size), elements = RUN_BYTES / larger;
  bool transposed = abs64(q->in[1]) < abs64(q->in[0]) && q->n[1] > 1 && q->in[1] != 0;
  bool packed = p->convert && (q->out[0] != p->size || q->in[0] != p->in_size || q->n[0] < 64);
  if (packed) elements = PACK_ELEMENTS;
  if (transposed) {
    // Tiles are square, so that both sides move whole cache lines. In a narrow plane they are longer.
    int64_t side = packed ? 32 : larger == 1 ? 256 : larger >= 8 ? 64 : 128;
    elements = packed ? PACK_ELEMENTS : side * side;
    p->tile[0] = plait_min64(q->n[0], side);
    p->tile[1] = plait_min64(q->n[1], elements / p->tile[0]);
    p->tile[0] = plait_min64(q->n[0], elements / p->tile[1]);
  } else {
    p->tile[0] = plait_min64(q->n[0], elements);
    p->tile[1] = plait_min64(q->n[1], plait_max64(1, elements / p->tile[0]));
  }
  p->across = plait_ceil_div(q->n[0], p->tile[0]);
  p->unit_bytes = p->tile[0] * p->tile[1] * larger;
}

void plaitk_copying_plan(plaitk_copy_plan *p, const plait_view *out, const plait_view *in) {
  p->out = out->data, p->in = in->data;
  p->size = plait_dtype_size(out->dtype), p->in_size = plait_dtype_size(in->dtype);
  p->convert = out->dtype == in->dtype ? NULL : plaitk_copying_converter(out->dtype, in->dtype);
  plait_walk w;
  plait_walk_init(&w, 2);
  int64_t numel = 1;
  for (int64_t d = 0; d < out->ndim; d++) {
    int64_t strides[2] = {out->stride[d] * p->size, in->stride[d] * p->in_size};
    if (strides[0] < 0 && out->shape[d] > 1) { // iterate over the output in ascending order
      p->out += (out->shape[d] - 1) * strides[0], strides[0] = -strides[0];
      p->in += (out->shape[d] - 1) * strides[1], strides[1] = -strides[1];
    }
    numel *= out->shape[d];
    plait_walk_add(&w, out->shape[d], strides);
  }
  p->units = 0, p->ndim = 0, p->down = -1;
  if (numel == 0) return;
  plait_walk_sort(&w, 0);
  if (!p->convert) widen_rows(p, &w);
  p->plane = (plaitk_plane){.n = {1, 1}, .out = {p->size, 0}, .in = {p->in_size, 0}};
  int64_t b = -1;
  if (w.ndim > 0) {
    int64_t a = w.ndim - 1;
    p->plane.n[0] = w.shape[a], p->plane.out[0] = w.stride[a][0], p->plane.in[0] = w.stride[a][1];
  }
  if (w.ndim > 1) {
    b = second_dim(&w, p->in_size);
    p->plane.n[1] = w.shape[b], p->plane.out[1] = w.stride[b][0], p->plane.in[1] = w.stride[b][1];
  }
  p->plane.stream = !p->convert && numel * p->size >= STREAM_BYTES;
  plan_tiles(p);
  p->units = p->across;
  for (int64_t d = 0; d + 1 < w.ndim; d++) {
    int64_t n = w.shape[d], step = 1;
    if (d == b) {
      step = p->tile[1], n = plait_ceil_div(n, step);
      if (n == 1) continue;
      p->down = p->ndim;
    }
    p->shape[p->ndim] = n;
    p->stride[p->ndim][0] = w.stride[d][0] * step, p->stride[p->ndim][1] = w.stride[d][1] * step;
    p->ndim++;
    p->units *= n;
  }
}

// Converts a tile through buffers, so that the conversion always runs over contiguous elements.
static void convert_tile(const plaitk_copy_plan *p, char *out, const char *in, const plaitk_plane *q) {
  int64_t n0 = q->n[0], n1 = q->n[1];
  bool out_rows = q->out[0] == p->size, in_rows = q->in[0] == p->in_size;
  if (out_rows && in_rows && n0 >= 64) {
    for (int64_t j = 0; j < n1; j++) p->convert(out + j * q->out[1], in + j * q->in[1], n0);
    return;
  }
  char packed[PACK_ELEMENTS * 8] __attribute__((aligned(64))), converted[PACK_ELEMENTS * 8] __attribute__((aligned(64)));
  if (!in_rows || (n1 > 1 && q->in[1] != n0 * p->in_size)) {
    plaitk_plane gather = {.n = {n0, n1}, .out = {p->in_size, n0 * p->in_size}, .in = {q->in[0], q->in[1]}};
    plaitk_copying_plane(p->in_size, packed, in, &gather);
    in = packed;
  }
  if (out_rows && (n1 == 1 || q->out[1] == n0 * p->size)) {
    p->convert(out, in, n0 * n1);
    return;
  }
  p->convert(converted, in, n0 * n1);
  plaitk_plane scatter = {.n = {n0, n1}, .out = {q->out[0], q->out[1]}, .in = {p->size, n0 * p->size}};
  plaitk_copying_plane(p->size, out, converted, &scatter);
}

void plaitk_copying_run(const plaitk_copy_plan *p, int64_t first, int64_t last) {
  int64_t at[PLAIT_MAX_DIMS] = {0}, across = first % p->across, rest = first / p->across;
  char *out = p->out;
  const char *in = p->in;
  for (int64_t d = p->ndim - 1; d >= 0; d--) {
    at[d] = rest % p->shape[d];
    rest /= p->shape[d];
    out += at[d] * p->stride[d][0], in += at[d] * p->stride[d][1];
  }
  plaitk_plane q = p->plane;
  for (int64_t u = first; u < last; u++) {
    int64_t start = across * p->tile[0], down = p->down < 0 ? 0 : at[p->down];
    q.n[0] = plait_min64(p->tile[0], p->plane.n[0] - start);
    q.n[1] = plait_min64(p->tile[1], p->plane.n[1] - down * p->tile[1]);
    char *o = out + start * q.out[0];
    const char *i = in + start * q.in[0];
    if (p->convert) {
      convert_tile(p, o, i, &q);
    } else {
      plaitk_copying_plane(p->size, o, i, &q);
    }
    if (++across < p->across) continue;
    across = 0;
    for (int64_t d = p->ndim - 1; d >= 0; d--) {
      out += p->stride[d][0], in += p->stride[d][1];
      if (++at[d] < p->shape[d]) break;
      out -= p->shape[d] * p->stride[d][0], in -= p->shape[d] * p->stride[d][1];
      at[d] = 0;
    }
  }
}

// gather and scatter, which have an index for each element.
#include "indexing.h"

enum { CHUNK = 1 << 14, SEGMENT = 1 << 13, MOST_SHORT = 64, TOGETHER = 512 };

typedef struct {
  const plait_view *out, *in, *index;
  plait_walk walk; // over out, index and in, without the indexed dimension of in
  int64_t stride, limit;
  int64_t segments, units, units_per_chunk;
  atomic_bool bad;
} gather_job;

// Takes n elements of type T by indices of type I that have been checked. Element k is of the row that begins at rows[k], or without rows
// at k * step.
#define TAKE(T, I)                                                                                                  \
  static void take_##T##_##I(void *restrict to, const void *restrict from, const void *restrict indices,            \
                             const int64_t *restrict rows, int64_t step, int64_t n, int64_t stride) {               \
    T *restrict out = to;                                                                                           \
    const T *restrict in = from;                                                                                    \
    const I *restrict index = indices;                                                                              \
    if (rows != NULL) {                                                                                             \
      for (int64_t k = 0; k < n; k++) out[k] = in[rows[k] + index[k] * stride];                                     \
    } else if (stride == 1 && step == 0) {                                                                          \
      for (int64_t k = 0; k < n; k++) out[k] = in[index[k]];                                                        \
    } else {                                                                                                        \
      for (int64_t k = 0; k < n; k++) out[k] = in[k * step + index[k] * stride];                                    \
    }                                                                                                               \
  }
TAKE(uint8_t, int32_t)
TAKE(uint16_t, int32_t)
TAKE(uint32_t, int32_t)
TAKE(uint64_t, int32_t)
TAKE(uint8_t, int64_t)
TAKE(uint16_t, int64_t)
TAKE(uint32_t, int64_t)
TAKE(uint64_t, int64_t)
#undef TAKE

// Takes n elements at contiguous indices, or finds that one of these is bad. Offsets are in elements.
static bool take(gather_job *job, int64_t to, int64_t from, int64_t at, const int64_t *rows, int64_t step, int64_t n) {
  static void (*const takes[2][4])(void *, const void *, const void *, const int64_t *, int64_t, int64_t, int64_t) = {
      {take_uint8_t_int32_t, take_uint16_t_int32_t, take_uint32_t_int32_t, take_uint64_t_int32_t},
      {take_uint8_t_int64_t, take_uint16_t_int64_t, take_uint32_t_int64_t, take_uint64_t_int64_t}};
  int64_t size = plait_dtype_size(job->out->dtype), dtype = job->index->dtype;
  const char *index = job->index->data + at * plait_dtype_size(dtype);
  if (plaitk_indexing_outside(index, dtype, 1, n, job->limit, 0)) {
    atomic_store_explicit(&job->bad, true, memory_order_relaxed);
    return false;
  }
  takes[dtype == PLAIT_I64][__builtin_ctzll((uint64_t)size)](job->out->data + to * size, job->in->data + from * size, index, rows, step, n,
                                                             job->stride);
  return true;
}

// Gathers short rows. Those that lie one after another in index and out are checked and gathered together.
static void gather_short(gather_job *job, plait_cursor *c, int64_t rows) {
  const plait_walk *w = &job->walk;
  int64_t n = plait_walk_inner(w), is = plait_walk_step(w, 2), most = TOGETHER / n, starts[TOGETHER];
  // If rows of in are equally far apart too, all groups look alike.
  bool even = w->ndim == 2 && w->stride[0][0] == n && w->stride[0][1] == n;
  for (int64_t r = 0; even && r < plait_min64(rows, most); r++)
    for (int64_t j = 0; j < n; j++) starts[r * n + j] = r * w->stride[0][2] + j * is;
  while (rows > 0) {
    int64_t to = c->offset[0], at = c->offset[1], from = c->offset[2], together = 0;
    if (even) {
      together = plait_min64(rows, most);
      for (int o = 0; o < 3; o++) c->offset[o] += together * w->stride[0][o];
      rows -= together;
    } else {
      do {
        for (int64_t j = 0; j < n; j++) starts[together * n + j] = c->offset[2] - from + j * is;
        together++;
        plait_walk_next(w, c);
      } while (--rows > 0 && together < most && c->offset[0] == to + together * n && c->offset[1] == at + together * n);
    }
    if (!take(job, to, from, at, starts, 0, together * n)) return;
  }
}

static void gather_chunk(void *arg, int64_t chunk) {
  gather_job *job = arg;
  const plait_walk *w = &job->walk;
  int64_t size = plait_dtype_size(job->out->dtype), index_size = plait_dtype_size(job->index->dtype);
  int64_t n = plait_walk_inner(w), os = plait_walk_step(w, 0), xs = plait_walk_step(w, 1), is = plait_walk_step(w, 2);
  int64_t first = chunk * job->units_per_chunk, last = plait_min64(job->units, first + job->units_per_chunk);
  int64_t segment = first % job->segments, offsets[PLAITK_BLOCK];
  plait_cursor c;
  plait_walk_seek(w, &c, first / job->segments);
  if (n <= MOST_SHORT && os == 1 && xs == 1) {
    gather_short(job, &c, last - first);
    return;
  }
  for (int64_t u = first; u < last; u++) {
    int64_t end = plait_min64(n, (segment + 1) * SEGMENT);
    for (int64_t i = segment * SEGMENT; i < end; i += PLAITK_BLOCK) {
      int64_t count = plait_min64(PLAITK_BLOCK, end - i);
      if (os == 1 && xs == 1) {
        if (!take(job, c.offset[0] + i, c.offset[2] + i * is, c.offset[1] + i, NULL, is, count)) return;
        continue;
      }
      const char *index = job->index->data + (c.offset[1] + i * xs) * index_size;
      if (plaitk_indexing_offsets(offsets, false, index, job->index->dtype, xs, count, job->limit, false, job->stride, is)) {
        atomic_store_explicit(&job->bad, true, memory_order_relaxed);
        return;
      }
      plaitk_indexing_take(size, job->out->data + (c.offset[0] + i * os) * size, os,
                           job->in->data + (c.offset[2] + i * is) * size, offsets, count);
    }
    if (++segment == job->segments) segment = 0, plait_walk_next(w, &c);
  }
}

int64_t plaitk_indexing_gather(plait_pool *pool, const plait_view *out, const plait_view *in, const plait_view *index,
                               int64_t dim, plaitk_bad_index *bad) {
  if (plait_numel(out) == 0) return 0;
  gather_job job = {.out = out, .in = in, .index = index, .bad = false};
  plait_walk_init(&job.walk, 3);
  for (int64_t d = 0; d < out->ndim; d++) {
    int64_t strides[3] = {out->stride[d], index->stride[d], d == dim ? 0 : in->stride[d]};
    plait_walk_add(&job.walk, out->shape[d], strides);
  }
  plait_walk_sort(&job.walk, 0);
  job.stride = out->ndim ? in->stride[dim] : 0, job.limit = out->ndim ? in->shape[dim] : 1;
  int64_t n = plait_walk_inner(&job.walk);
  job.segments = plait_ceil_div(n, SEGMENT);
  job.units = plait_walk_rows(&job.walk) * job.segments;
  job.units_per_chunk = plait_max64(1, CHUNK / plait_min64(n, SEGMENT));
  plaitk_run(pool, plait_ceil_div(job.units, job.units_per_chunk), gather_chunk, &job);
  bad->tensor = 0;
  return job.bad ? plaitk_indexing_first_bad(index, job.limit, false, bad) : 0;
}

typedef struct {
  const plait_view *self, *index, *src;
  plaitk_combine combine;
  plait_walk walk; // over self, index and src, without the indexed dimension
  int64_t length, self_step, index_step, src_step, limit; // along the indexed dimension
  int64_t segment, segments, units, units_per_chunk;
  bool across; // inner loops run across columns, not along the indexed dimension
} scatter_job;

// Combines `count` values into self, at most PLAITK_BLOCK. Their indices have been checked.
static void scatter_block(const scatter_job *job, int64_t self, int64_t along, int64_t index, int64_t index_step,
                          int64_t src, int64_t src_step, int64_t count) {
  int64_t offsets[PLAITK_BLOCK], size = plait_dtype_size(job->self->dtype);
  const char *from = job->index->data + index * plait_dtype_size(job->index->dtype);
  const int64_t *at = (const int64_t *)from;
  plaitk_steps steps = {index_step, job->self_step, along};
  if (job->index->dtype != PLAIT_I64) {
    plaitk_indexing_offsets(offsets, false, from, job->index->dtype, index_step, count, job->limit, false, job->self_step, along);
    at = offsets, steps = (plaitk_steps){1, 1, 0};
  }
  job->combine.at(job->self->data + self * size, at, steps, job->src->data + src * size, src_step, count);
}

// A unit of work is a segment of columns, from i to end, in one row of the walk. It combines each element of self with
// its values in order.
static void scatter_unit(const scatter_job *job, const plait_cursor *c, int64_t i, int64_t end) {
  const plait_walk *w = &job->walk;
  int64_t ss = plait_walk_step(w, 0), xs = plait_walk_step(w, 1), vs = plait_walk_step(w, 2);
  if (job->across) {
    for (; i < end; i += PLAITK_BLOCK) {
      int64_t count = plait_min64(PLAITK_BLOCK, end - i);
      for (int64_t j = 0; j < job->length; j++)
        scatter_block(job, c->offset[0] + i * ss, ss, c->offset[1] + i * xs + j * job->index_step, xs,
                      c->offset[2] + i * vs + j * job->src_step, vs, count);
    }
    return;
  }
  for (; i < end; i++)
    for (int64_t j = 0; j < job->length; j += PLAITK_BLOCK)
      scatter_block(job, c->offset[0] + i * ss, 0, c->offset[1] + i * xs + j * job->index_step, job->index_step,
                    c->offset[2] + i * vs + j * job->src_step, job->src_step, plait_min64(PLAITK_BLOCK, job->length - j));
}

static void scatter_chunk(void *arg, int64_t chunk) {
  const scatter_job *job = arg;
  int64_t first = chunk * job->units_per_chunk, last = plait_min64(job->units, first + job->units_per_chunk);
  int64_t segment = first % job->segments, n = plait_walk_inner(&job->walk);
  plait_cursor c;
  plait_walk_seek(&job->walk, &c, first / job->segments);
  for (int64_t u = first; u < last; u++) {
    scatter_unit(job, &c, segment * job->segment, plait_min64(n, (segment + 1) * job->segment));
    if (++segment == job->segments) segment = 0, plait_walk_next(&job->walk, &c);
  }
}

int64_t plaitk_indexing_scatter(plait_pool *pool, const plait_view *self, const plait_view *index, const plait_view *src,
                                int64_t dim, int64_t mode, plaitk_bad_index *bad) {
  if (plait_numel(index) == 0) return 0;
  scatter_job job = {.self = self, .index = index, .src = src, .combine = plaitk_indexing_combine(mode, self->dtype)};
  job.length = job.limit = 1;
  if (index->ndim) {
    job.length = index->shape[dim], job.limit = self->shape[dim];
    job.self_step = self->stride[dim], job.index_step = index->stride[dim], job.src_step = src->stride[dim];
  }
  if (plaitk_indexing_check(pool, index, job.limit, false, bad)) return 1;
  plait_walk_init(&job.walk, 3);
  for (int64_t d = 0; d < index->ndim; d++) {
    if (d == dim) continue;
    int64_t strides[3] = {self->stride[d], index->stride[d], src->stride[d]};
    plait_walk_add(&job.walk, index->shape[d], strides);
  }
  plait_walk_sort(&job.walk, 0);
  int64_t n = plait_walk_inner(&job.walk);
  job.across = n >= 4 && (job.length < 4 || plait_walk_step(&job.walk, 0) < job.self_step);
  job.segment = plait_min64(n, plait_max64(job.across ? 64 : 1, CHUNK / job.length));
  job.segments = plait_ceil_div(n, job.segment);
  job.units = plait_walk_rows(&job.walk) * job.segments;
  job.units_per_chunk = plait_max64(1, CHUNK / (job.segment * job.length));
  plaitk_run(pool, plait_ceil_div(job.units, job.units_per_chunk), scatter_chunk, &job);
  return 0;
}

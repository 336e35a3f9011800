// Reads slices at index tuples: advanced indexing, index_select, embedding.
#include "indexing.h"

enum { CHUNK_BYTES = 1 << 17, SEGMENT = 1 << 12, MOST_SHORT = 64 };

typedef struct {
  char *out;
  const char *in;
  plait_walk walk; // over out, in and the tuples' positions
  int64_t size, bytes, segments, units, units_per_chunk;
  const int64_t *offsets;
} select_job;

static void select_row(const select_job *job, const plait_cursor *c, int64_t i, int64_t count) {
  const plait_walk *w = &job->walk;
  int64_t os = plait_walk_step(w, 0), is = plait_walk_step(w, 1), ts = plait_walk_step(w, 2), size = job->size;
  char *out = job->out + (c->offset[0] + i * os) * size;
  const char *in = job->in + (c->offset[1] + i * is) * size;
  const int64_t *offsets = job->offsets + c->offset[2] + i * ts;
  if (ts == 1) return plaitk_indexing_take(size, out, os, in, offsets, count);
  if (ts == 0 && os == 1 && is == 1) {
    memcpy(out, in + *offsets * size, (size_t)(count * size));
    return;
  }
  int64_t each[PLAITK_BLOCK];
  for (int64_t j = 0; j < count; j += PLAITK_BLOCK) {
    int64_t n = plait_min64(PLAITK_BLOCK, count - j);
    for (int64_t e = 0; e < n; e++) each[e] = offsets[(j + e) * ts] + (j + e) * is;
    plaitk_indexing_take(size, out + j * os * size, os, in, each, n);
  }
}

// Whether units are rows that are copied whole, each from where one tuple says.
static bool copies_rows(const plait_walk *w) {
  return w->ndim == 2 && plait_walk_step(w, 0) == 1 && plait_walk_step(w, 1) == 1 && plait_walk_step(w, 2) == 0 && w->stride[0][1] == 0;
}

// Whether units are short rows of which the same few elements are taken, as by indices of columns.
static bool takes_columns(const plait_walk *w) {
  return w->ndim == 2 && plait_walk_step(w, 1) == 0 && plait_walk_step(w, 2) == 1 && w->stride[0][2] == 0 && plait_walk_inner(w) <= MOST_SHORT;
}

#define COLUMNS(T)                                                                                           \
  static void columns_##T(const select_job *job, int64_t first, int64_t last) {                              \
    const plait_walk *w = &job->walk;                                                                        \
    int64_t n = plait_walk_inner(w), os = plait_walk_step(w, 0), to = w->stride[0][0], from = w->stride[0][1]; \
    for (int64_t u = first; u < last; u++) {                                                                 \
      T *out = (T *)job->out + u * to;                                                                       \
      const T *in = (const T *)job->in + u * from;                                                           \
      for (int64_t i = 0; i < n; i++) out[i * os] = in[job->offsets[i]];                                     \
    }                                                                                                        \
  }
COLUMNS(uint8_t)
COLUMNS(uint16_t)
COLUMNS(uint32_t)
COLUMNS(uint64_t)

static void select_chunk(void *arg, int64_t chunk) {
  const select_job *job = arg;
  const plait_walk *w = &job->walk;
  int64_t first = chunk * job->units_per_chunk, last = plait_min64(job->units, first + job->units_per_chunk);
  if (job->segments == 1 && copies_rows(w)) {
    int64_t row = w->stride[0][0] * job->size, tuple = w->stride[0][2], bytes = plait_walk_inner(w) * job->size;
    for (int64_t u = first; u < last; u++) {
      memcpy(job->out + u * row, job->in + job->offsets[u * tuple] * job->size, (size_t)bytes);
    }
    return;
  }
  if (takes_columns(w)) {
    switch (job->size) {
      case 1: return columns_uint8_t(job, first, last);
      case 2: return columns_uint16_t(job, first, last);
      case 4: return columns_uint32_t(job, first, last);
      default: return columns_uint64_t(job, first, last);
    }
  }
  int64_t segment = first % job->segments, n = plait_walk_inner(w);
  plait_cursor c;
  plait_walk_seek(w, &c, first / job->segments);
  for (int64_t u = first; u < last; u++) {
    select_row(job, &c, segment * SEGMENT, plait_min64(SEGMENT, n - segment * SEGMENT));
    if (++segment == job->segments) segment = 0, plait_walk_next(w, &c);
  }
}

int64_t plaitk_indexing_select(plait_pool *pool, const plait_view *out, const plait_view *in, int64_t k,
                               const plait_view *index, int64_t wrap, int64_t *offsets, plaitk_bad_index *bad) {
  if (plaitk_indexing_resolve(pool, in, k, index, wrap, offsets, NULL, bad)) return 1;
  if (plait_numel(out) == 0) return 0;
  select_job job = {.out = out->data, .in = in->data, .size = plait_dtype_size(out->dtype), .offsets = offsets};
  plait_walk_init(&job.walk, 3);
  int64_t tuples = index[0].ndim, number = plait_numel(&index[0]);
  for (int64_t d = 0; d < out->ndim; d++) {
    int64_t strides[3] = {out->stride[d], 0, 0};
    if (d < tuples) {
      strides[2] = number /= out->shape[d];
    } else {
      strides[1] = in->stride[d - tuples + k];
    }
    plait_walk_add(&job.walk, out->shape[d], strides);
  }
  plait_walk_sort(&job.walk, 0);
  int64_t n = plait_walk_inner(&job.walk);
  job.segments = plait_ceil_div(n, SEGMENT);
  job.units = plait_walk_rows(&job.walk) * job.segments;
  job.units_per_chunk = plait_max64(1, CHUNK_BYTES / (plait_min64(n, SEGMENT) * job.size));
  plaitk_run(pool, plait_ceil_div(job.units, job.units_per_chunk), select_chunk, &job);
  return 0;
}

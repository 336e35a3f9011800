// Converts indices to offsets and checks them.
#include "indexing.h"

enum { CHUNK = 1 << 14 };

#define OFFSETS(T)                                                                                                    \
  PLAIT_INLINE bool offsets_loop_##T(int64_t *restrict offsets, bool add, const T *restrict x, int64_t step, int64_t n, \
                                     int64_t size, bool wrap, int64_t stride, int64_t along) {                        \
    int64_t low = 0, high = 0, extra = wrap ? size : 0;                                                               \
    _Pragma("omp simd reduction(min : low) reduction(max : high)") for (int64_t i = 0; i < n; i++) {                  \
      int64_t j = x[i * step];                                                                                        \
      j += j < 0 ? extra : 0;                                                                                         \
      low = j < low ? j : low;                                                                                        \
      high = j > high ? j : high;                                                                                     \
      /* Unsigned: a bad index may overflow. */                                                                       \
      offsets[i] = (int64_t)((add ? (uint64_t)offsets[i] : 0) + (uint64_t)j * (uint64_t)stride + (uint64_t)(i * along)); \
    }                                                                                                                 \
    return n > 0 && (low < 0 || high >= size);                                                                        \
  }                                                                                                                   \
  PLAIT_CLONES static bool offsets_##T(int64_t *restrict offsets, bool add, const char *index, int64_t step, int64_t n, \
                                       int64_t size, bool wrap, int64_t stride, int64_t along) {                      \
    const T *x = (const T *)index;                                                                                    \
    if (add) return offsets_loop_##T(offsets, true, x, step, n, size, wrap, stride, along);                           \
    if (step == 1 && stride == 1 && along == 0) return offsets_loop_##T(offsets, false, x, 1, n, size, wrap, 1, 0);   \
    if (step == 1) return offsets_loop_##T(offsets, false, x, 1, n, size, wrap, stride, along);                       \
    return offsets_loop_##T(offsets, false, x, step, n, size, wrap, stride, along);                                   \
  }
OFFSETS(int32_t)
OFFSETS(int64_t)

bool plaitk_indexing_offsets(int64_t *restrict offsets, bool add, const char *index, int64_t dtype, int64_t step, int64_t n,
                             int64_t size, bool wrap, int64_t stride, int64_t along) {
  return dtype == PLAIT_I32 ? offsets_int32_t(offsets, add, index, step, n, size, wrap, stride, along)
                            : offsets_int64_t(offsets, add, index, step, n, size, wrap, stride, along);
}

#define OUTSIDE(T)                                                                                     \
  PLAIT_CLONES static bool outside_##T(const T *x, int64_t step, int64_t n, int64_t size, int64_t extra) { \
    uint64_t bad = 0, most = (uint64_t)(size + extra);                                                 \
    if (step == 1) {                                                                                   \
      _Pragma("omp simd reduction(| : bad)") for (int64_t i = 0; i < n; i++)                           \
          bad |= (uint64_t)x[i] + (uint64_t)extra >= most;                                             \
    } else {                                                                                           \
      for (int64_t i = 0; i < n; i++) bad |= (uint64_t)x[i * step] + (uint64_t)extra >= most;          \
    }                                                                                                  \
    return bad;                                                                                        \
  }
OUTSIDE(int32_t)
OUTSIDE(int64_t)

bool plaitk_indexing_outside(const char *index, int64_t dtype, int64_t step, int64_t n, int64_t size, int64_t extra) {
  return dtype == PLAIT_I32 ? outside_int32_t((const int32_t *)index, step, n, size, extra)
                            : outside_int64_t((const int64_t *)index, step, n, size, extra);
}

static void index_walk(plait_walk *w, const plait_view *index) {
  plait_walk_init(w, 1);
  for (int64_t d = 0; d < index->ndim; d++) plait_walk_add(w, index->shape[d], &index->stride[d]);
}

int64_t plaitk_indexing_first_bad(const plait_view *index, int64_t size, bool wrap, plaitk_bad_index *bad) {
  plait_walk w;
  plaitk_span s;
  index_walk(&w, index);
  plaitk_span_init(&s, &w, 0, plait_numel(index));
  int64_t bytes = plait_dtype_size(index->dtype), step = plait_walk_step(&w, 0), low = wrap ? -size : 0;
  while (plaitk_span_next(&s)) {
    for (int64_t i = 0; i < s.count; i++) {
      const char *p = index->data + (s.start[0] + i * step) * bytes;
      int64_t j = index->dtype == PLAIT_I32 ? *(const int32_t *)p : *(const int64_t *)p;
      if (j < low || j >= size) {
        bad->position = s.done + i, bad->value = j;
        return 1;
      }
    }
  }
  return 0;
}

typedef struct {
  const plait_view *indexed, *index;
  const plait_walk *walks; // one for each index tensor
  int64_t k, count, *offsets, *keys;
  bool wrap;
  atomic_bool bad;
} resolve_job;

static void resolve_chunk(void *arg, int64_t chunk) {
  resolve_job *job = arg;
  int64_t first = chunk * CHUNK, last = plait_min64(job->count, first + CHUNK);
  bool bad = false;
  int64_t number = 1; // number of tuples of the index tensors after t
  for (int64_t t = job->k - 1; t >= 0; t--) {
    const plait_view *x = &job->index[t];
    const plait_walk *w = &job->walks[t];
    int64_t size = job->indexed->shape[t], bytes = plait_dtype_size(x->dtype), step = plait_walk_step(w, 0);
    plaitk_span s;
    for (plaitk_span_init(&s, w, first, last); plaitk_span_next(&s);) {
      const char *from = x->data + s.start[0] * bytes;
      bool add = t < job->k - 1;
      bad |= plaitk_indexing_offsets(job->offsets + first + s.done, add, from, x->dtype, step, s.count, size, job->wrap,
                                     job->indexed->stride[t], 0);
      if (job->keys)
        plaitk_indexing_offsets(job->keys + first + s.done, add, from, x->dtype, step, s.count, size, job->wrap, number, 0);
    }
    number *= size;
  }
  if (bad) atomic_store_explicit(&job->bad, true, memory_order_relaxed);
}

int64_t plaitk_indexing_resolve(plait_pool *pool, const plait_view *indexed, int64_t k, const plait_view *index, bool wrap,
                                int64_t *offsets, int64_t *keys, plaitk_bad_index *bad) {
  plait_walk walks[PLAIT_MAX_DIMS];
  for (int64_t t = 0; t < k; t++) index_walk(&walks[t], &index[t]);
  resolve_job job = {.indexed = indexed, .index = index, .walks = walks, .k = k, .count = plait_numel(&index[0]),
                     .offsets = offsets, .keys = keys, .wrap = wrap, .bad = false};
  plaitk_run(pool, plait_ceil_div(job.count, CHUNK), resolve_chunk, &job);
  if (!job.bad) return 0;
  for (bad->tensor = 0; bad->tensor < k; bad->tensor++)
    if (plaitk_indexing_first_bad(&index[bad->tensor], indexed->shape[bad->tensor], wrap, bad)) return 1;
  return 0;
}

typedef struct {
  const plait_view *index;
  plait_walk walk;
  int64_t count, size;
  bool wrap;
  atomic_bool bad;
} check_job;

static void check_chunk(void *arg, int64_t chunk) {
  check_job *job = arg;
  int64_t first = chunk * CHUNK, last = plait_min64(job->count, first + CHUNK), step = plait_walk_step(&job->walk, 0);
  int64_t extra = job->wrap ? job->size : 0;
  bool bad = false;
  plaitk_span s;
  for (plaitk_span_init(&s, &job->walk, first, last); plaitk_span_next(&s);) {
    const char *from = job->index->data + s.start[0] * plait_dtype_size(job->index->dtype);
    bad |= plaitk_indexing_outside(from, job->index->dtype, step, s.count, job->size, extra);
  }
  if (bad) atomic_store_explicit(&job->bad, true, memory_order_relaxed);
}

int64_t plaitk_indexing_check(plait_pool *pool, const plait_view *index, int64_t size, bool wrap, plaitk_bad_index *bad) {
  check_job job = {.index = index, .count = plait_numel(index), .size = size, .wrap = wrap, .bad = false};
  if (job.count == 0) return 0;
  index_walk(&job.walk, index);
  plait_walk_sort(&job.walk, 0);
  plaitk_run(pool, plait_ceil_div(job.count, CHUNK), check_chunk, &job);
  bad->tensor = 0;
  return job.bad ? plaitk_indexing_first_bad(index, size, wrap, bad) : 0;
}

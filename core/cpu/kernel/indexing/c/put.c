// Writes slices at index tuples: index_put, index_add, index_copy, index_fill.
#include "indexing.h"

enum { CHUNK = 1 << 15, SEGMENT = 1 << 9 };

typedef struct {
  char *self;
  const char *values;
  int64_t dtype, size, count;
  plait_walk rest;   // over self and values, without the indexed dimensions
  plait_walk tuples; // over values, along the index tuples, in row-major order
  const int64_t *offsets;
  plaitk_combine combine;
  bool along; // inner loops run along the tuples
  int64_t segment, segments, units, units_per_chunk;
  // Only used where values are combined in float32: the tuples sorted by destination.
  const int64_t *keys, *order;
  int64_t groups;
} put_job;

// A unit of work is a segment of a row of `rest`, with all tuples in order.
static void put_unit(const put_job *job, const plait_cursor *c, int64_t first, int64_t n) {
  int64_t ss = plait_walk_step(&job->rest, 0), vs = plait_walk_step(&job->rest, 1), size = job->size;
  int64_t ts = plait_walk_step(&job->tuples, 0);
  char *self = job->self + (c->offset[0] + first * ss) * size;
  const char *values = job->values + (c->offset[1] + first * vs) * size;
  plaitk_span s;
  if (job->along) {
    for (int64_t i = 0; i < n; i++)
      for (plaitk_span_init(&s, &job->tuples, 0, job->count); plaitk_span_next(&s);)
        job->combine.at(self + i * ss * size, job->offsets + s.done, (plaitk_steps){1, 1, 0}, values + (i * vs + s.start[0]) * size,
                        ts, s.count);
    return;
  }
  for (plaitk_span_init(&s, &job->tuples, 0, job->count); plaitk_span_next(&s);)
    for (int64_t t = 0; t < s.count; t++)
      job->combine.row(self + job->offsets[s.done + t] * size, ss, values + (s.start[0] + t * ts) * size, vs, n);
}

static void put_chunk(void *arg, int64_t chunk) {
  const put_job *job = arg;
  int64_t first = chunk * job->units_per_chunk, last = plait_min64(job->units, first + job->units_per_chunk);
  int64_t segment = first % job->segments, n = plait_walk_inner(&job->rest);
  plait_cursor c;
  plait_walk_seek(&job->rest, &c, first / job->segments);
  for (int64_t u = first; u < last; u++) {
    int64_t start = segment * job->segment;
    put_unit(job, &c, start, plait_min64(job->segment, n - start));
    if (++segment == job->segments) segment = 0, plait_walk_next(&job->rest, &c);
  }
}

static void plan_loops(put_job *job) {
  int64_t n = plait_walk_inner(&job->rest), rows = plait_walk_rows(&job->rest);
  int64_t step = plait_walk_step(&job->rest, 0), ts = plait_walk_step(&job->tuples, 0);
  // Inner loops run along the tuples if the values are contiguous that way, or if rows are very short.
  job->along = n < 4 || (step != 1 && ts != 0 && ts < plait_walk_step(&job->rest, 1));
  job->segment = job->along ? plait_max64(1, CHUNK / job->count) : plait_min64(SEGMENT, plait_max64(16, plait_ceil_div(n, 8)));
  job->segment = plait_min64(job->segment, n);
  job->segments = plait_ceil_div(n, job->segment);
  job->units = rows * job->segments;
  job->units_per_chunk = plait_max64(1, CHUNK / (job->segment * job->count));
}

static void load_f32(float *restrict out, const uint16_t *restrict in, int64_t step, int64_t n, bool bf16) {
  if (bf16) {
    for (int64_t i = 0; i < n; i++) out[i] = plait_bf16_to_f32(in[i * step]);
  } else {
    for (int64_t i = 0; i < n; i++) out[i] = plait_f16_to_f32(in[i * step]);
  }
}

static void store_f32(uint16_t *restrict out, int64_t step, const float *restrict in, int64_t n, bool bf16) {
  if (bf16) {
    for (int64_t i = 0; i < n; i++) out[i * step] = plait_f32_to_bf16(in[i]);
  } else {
    for (int64_t i = 0; i < n; i++) out[i * step] = plait_f32_to_f16(in[i]);
  }
}

// Combines the values of tuples order[first..last-1], which have one destination, in float32.
static void half_group(const put_job *job, int64_t first, int64_t last) {
  int64_t ss = plait_walk_step(&job->rest, 0), vs = plait_walk_step(&job->rest, 1), n = plait_walk_inner(&job->rest);
  int64_t rows = plait_walk_rows(&job->rest);
  bool bf16 = job->dtype == PLAIT_BF16;
  uint16_t *self = (uint16_t *)job->self + job->offsets[job->order[first]];
  const uint16_t *values = (const uint16_t *)job->values;
  plait_cursor c, at;
  plait_walk_seek(&job->rest, &c, 0);
  for (int64_t r = 0; r < rows; r++, plait_walk_next(&job->rest, &c)) {
    for (int64_t i = 0; i < n; i += SEGMENT) {
      float sum[SEGMENT], value[SEGMENT];
      int64_t count = plait_min64(SEGMENT, n - i), inner = plait_walk_inner(&job->tuples);
      load_f32(sum, self + c.offset[0] + i * ss, ss, count, bf16);
      for (int64_t t = first; t < last; t++) {
        int64_t tuple = job->order[t];
        plait_walk_seek(&job->tuples, &at, tuple / inner);
        int64_t from = at.offset[0] + tuple % inner * plait_walk_step(&job->tuples, 0);
        load_f32(value, values + from + c.offset[1] + i * vs, vs, count, bf16);
        job->combine.row((char *)sum, 1, (char *)value, 1, count);
      }
      store_f32(self + c.offset[0] + i * ss, ss, sum, count, bf16);
    }
  }
}

// A chunk handles the groups of equal keys that start among its tuples.
static void half_chunk(void *arg, int64_t chunk) {
  const put_job *job = arg;
  int64_t first = chunk * job->units_per_chunk, last = plait_min64(job->count, first + job->units_per_chunk);
  while (first > 0 && first < last && job->keys[first] == job->keys[first - 1]) first++;
  while (first < last) {
    int64_t end = first + 1;
    while (end < job->count && job->keys[end] == job->keys[first]) end++;
    half_group(job, first, end);
    first = end;
  }
}

static bool in_f32(int64_t dtype, int64_t mode) {
  return mode != PLAITK_ASSIGN && (dtype == PLAIT_F16 || dtype == PLAIT_BF16);
}

int64_t plaitk_indexing_put_scratch(int64_t dtype, int64_t mode) { return in_f32(dtype, mode) ? 5 : 1; }

int64_t plaitk_indexing_put(plait_pool *pool, const plait_view *self, const plait_view *values, int64_t k,
                            const plait_view *index, int64_t wrap, int64_t mode, int64_t *offsets, plaitk_bad_index *bad) {
  put_job job = {.self = self->data, .values = values->data, .dtype = self->dtype, .size = plait_dtype_size(self->dtype),
                 .count = plait_numel(&index[0]), .offsets = offsets};
  bool half = in_f32(self->dtype, mode);
  int64_t *keys = half ? offsets + job.count : NULL;
  if (plaitk_indexing_resolve(pool, self, k, index, wrap, offsets, keys, bad)) return 1;
  if (plait_numel(values) == 0) return 0;
  plait_walk_init(&job.tuples, 1);
  for (int64_t d = 0; d < index[0].ndim; d++) plait_walk_add(&job.tuples, values->shape[d], &values->stride[d]);
  plait_walk_init(&job.rest, 2);
  for (int64_t d = k; d < self->ndim; d++) {
    int64_t strides[2] = {self->stride[d], values->stride[d - k + index[0].ndim]};
    plait_walk_add(&job.rest, self->shape[d], strides);
  }
  plait_walk_sort(&job.rest, 0);
  if (half) {
    int64_t *order = keys + job.count, places = 1;
    for (int64_t t = 0; t < k; t++) places *= self->shape[t];
    plaitk_indexing_sort(keys, order, order + job.count, order + 2 * job.count, job.count, places);
    job.keys = keys, job.order = order;
    job.combine = plaitk_indexing_combine(mode, PLAIT_F32);
    job.units_per_chunk = plait_max64(1, CHUNK / (plait_walk_inner(&job.rest) * plait_walk_rows(&job.rest)));
    plaitk_run(pool, plait_ceil_div(job.count, job.units_per_chunk), half_chunk, &job);
    return 0;
  }
  job.combine = plaitk_indexing_combine(mode, self->dtype);
  plan_loops(&job);
  plaitk_run(pool, plait_ceil_div(job.units, job.units_per_chunk), put_chunk, &job);
  return 0;
}

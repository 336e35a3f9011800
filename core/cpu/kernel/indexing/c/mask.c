// Kernels that read or write where a mask is true, in row-major order.
#include "indexing.h"

enum { CHUNK = 1 << 14, BUFFER = 256 };

typedef struct {
  const plait_view *mask, *other; // other: the operand that is accessed where the mask is true
  char *flat;                     // the contiguous operand
  plait_walk walk;                // over mask and other
  int64_t size, count, *before;   // before[c]: number of true elements in the chunks before c
  int64_t row_step, column_step;  // strides of positions
} mask_job;

static void mask_walk(mask_job *job) {
  plait_walk_init(&job->walk, 2);
  for (int64_t d = 0; d < job->mask->ndim; d++) {
    int64_t strides[2] = {job->mask->stride[d], job->other ? job->other->stride[d] : 0};
    plait_walk_add(&job->walk, job->mask->shape[d], strides);
  }
}

PLAIT_CLONES static int64_t count_run(const uint8_t *mask, int64_t step, int64_t n) {
  int64_t total = 0;
  if (step == 1) {
    for (int64_t i = 0; i < n; i += 255) { // sum bytes that cannot overflow
      int64_t end = plait_min64(n, i + 255), sum = 0;
      _Pragma("omp simd reduction(+ : sum)") for (int64_t j = i; j < end; j++) sum += mask[j] != 0;
      total += sum;
    }
  } else {
    for (int64_t i = 0; i < n; i++) total += mask[i * step] != 0;
  }
  return total;
}

static void count_chunk(void *arg, int64_t chunk) {
  mask_job *job = arg;
  int64_t total = 0, step = plait_walk_step(&job->walk, 0);
  plaitk_span s;
  plaitk_span_init(&s, &job->walk, chunk * CHUNK, plait_min64(job->count, (chunk + 1) * CHUNK));
  while (plaitk_span_next(&s)) total += count_run((const uint8_t *)job->mask->data + s.start[0], step, s.count);
  job->before[chunk] = total;
}

// Counts the true elements of each chunk, and turns the counts into exclusive prefix sums.
static int64_t prefix_counts(plait_pool *pool, mask_job *job) {
  int64_t chunks = plait_ceil_div(job->count, CHUNK), total = 0;
  plaitk_run(pool, chunks, count_chunk, job);
  for (int64_t c = 0; c < chunks; c++) {
    int64_t here = job->before[c];
    job->before[c] = total, total += here;
  }
  return total;
}

int64_t plaitk_indexing_mask_scratch(const plait_view *mask) { return plait_ceil_div(plait_numel(mask), CHUNK); }

int64_t plaitk_indexing_count(plait_pool *pool, const plait_view *mask, int64_t *scratch) {
  mask_job job = {.mask = mask, .count = plait_numel(mask), .before = scratch};
  mask_walk(&job);
  return prefix_counts(pool, &job);
}

// Writes the positions of the true elements within a run of n <= BUFFER elements.
static int64_t true_positions(int64_t *restrict out, const uint8_t *restrict mask, int64_t step, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    out[count] = i;
    count += mask[i * step] != 0;
  }
  return count;
}

// A function that is called for each stretch of at most BUFFER elements with a true one. It gets the stretch's offset
// in the other operand, the positions of the true elements in it, their number, and the number of true elements before
// it.
typedef void (*stretch_fn)(const mask_job *job, int64_t offset, int64_t *place, int64_t n, int64_t before);

static void each_stretch(const mask_job *job, int64_t chunk, stretch_fn fn) {
  int64_t before = job->before[chunk], step = plait_walk_step(&job->walk, 0), other = plait_walk_step(&job->walk, 1);
  plaitk_span s;
  plaitk_span_init(&s, &job->walk, chunk * CHUNK, plait_min64(job->count, (chunk + 1) * CHUNK));
  while (plaitk_span_next(&s)) {
    for (int64_t i = 0; i < s.count; i += BUFFER) {
      int64_t place[BUFFER + 1];
      const uint8_t *mask = (const uint8_t *)job->mask->data + s.start[0] + i * step;
      int64_t n = true_positions(place, mask, step, plait_min64(BUFFER, s.count - i));
      if (n == 0) continue;
      for (int64_t e = 0; e < n; e++) place[e] *= other;
      fn(job, s.start[1] + i * other, place, n, before);
      before += n;
    }
  }
}

static void select_stretch(const mask_job *job, int64_t offset, int64_t *place, int64_t n, int64_t before) {
  plaitk_indexing_take(job->size, job->flat + before * job->size, 1, job->other->data + offset * job->size, place, n);
}

static void scatter_stretch(const mask_job *job, int64_t offset, int64_t *place, int64_t n, int64_t before) {
  plaitk_combine assign = plaitk_indexing_combine(PLAITK_ASSIGN, job->other->dtype);
  assign.at(job->other->data + offset * job->size, place, (plaitk_steps){1, 1, 0}, job->flat + before * job->size, 1, n);
}

static void select_chunk(void *arg, int64_t chunk) { each_stretch(arg, chunk, select_stretch); }
static void scatter_chunk(void *arg, int64_t chunk) { each_stretch(arg, chunk, scatter_stretch); }

int64_t plaitk_indexing_masked_select(plait_pool *pool, const plait_view *out, const plait_view *in, const plait_view *mask,
                                      int64_t *scratch) {
  mask_job job = {.mask = mask, .other = in, .flat = out->data, .size = plait_dtype_size(in->dtype),
                  .count = plait_numel(mask), .before = scratch};
  mask_walk(&job);
  int64_t total = prefix_counts(pool, &job);
  if (total == plait_numel(out)) plaitk_run(pool, plait_ceil_div(job.count, CHUNK), select_chunk, &job);
  return total;
}

int64_t plaitk_indexing_masked_scatter(plait_pool *pool, const plait_view *self, const plait_view *mask,
                                       const plait_view *source, int64_t *scratch) {
  mask_job job = {.mask = mask, .other = self, .flat = source->data, .size = plait_dtype_size(self->dtype),
                  .count = plait_numel(mask), .before = scratch};
  mask_walk(&job);
  int64_t total = prefix_counts(pool, &job);
  if (total <= plait_numel(source)) plaitk_run(pool, plait_ceil_div(job.count, CHUNK), scatter_chunk, &job);
  return total;
}

static void positions_chunk(void *arg, int64_t chunk) {
  const mask_job *job = arg;
  const plait_view *m = job->mask;
  int64_t *out = (int64_t *)job->flat, first = chunk * CHUNK, last = plait_min64(job->count, first + CHUNK);
  int64_t at[PLAIT_MAX_DIMS], rest = first, offset = 0, column = job->before[chunk];
  for (int64_t d = m->ndim - 1; d >= 0; d--) {
    at[d] = rest % m->shape[d], rest /= m->shape[d];
    offset += at[d] * m->stride[d];
  }
  for (int64_t i = first; i < last; i++) {
    if (m->data[offset]) {
      for (int64_t d = 0; d < m->ndim; d++) out[d * job->row_step + column * job->column_step] = at[d];
      column++;
    }
    for (int64_t d = m->ndim - 1; d >= 0; d--) {
      offset += m->stride[d];
      if (++at[d] < m->shape[d]) break;
      offset -= at[d] * m->stride[d], at[d] = 0;
    }
  }
}

int64_t plaitk_indexing_positions(plait_pool *pool, const plait_view *out, const plait_view *mask, int64_t *scratch) {
  mask_job job = {.mask = mask, .flat = out->data, .count = plait_numel(mask), .before = scratch,
                  .row_step = out->stride[0], .column_step = out->stride[1]};
  mask_walk(&job);
  int64_t total = prefix_counts(pool, &job);
  if (total == out->shape[1]) plaitk_run(pool, plait_ceil_div(job.count, CHUNK), positions_chunk, &job);
  return total;
}

// The gradient of an embedding's weight.
#include "indexing.h"

enum { CHUNK_BYTES = 1 << 17, SEGMENT = 512, TERMS = 64 };

typedef struct {
  char *out;
  const char *grad;
  int64_t dtype, size, rows, columns, out_row, out_step, grad_step, count;
  plait_walk tuples; // of grad, over the indices
  const int64_t *keys, *order;
  int64_t rows_per_chunk, segments;
  bool by_frequency, onto; // onto: add to the values in out
} embedding_job;

#define ADD_ROW(name, S, A, LOAD)                                                                     \
  PLAIT_CLONES static void add_##name(void *sum, const void *row, int64_t step, int64_t n) {          \
    A *restrict a = sum;                                                                              \
    const S *restrict x = row;                                                                        \
    if (step == 1) {                                                                                  \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) a[i] += (A)LOAD(x[i]);                      \
    } else {                                                                                          \
      for (int64_t i = 0; i < n; i++) a[i] += (A)LOAD(x[i * step]);                                   \
    }                                                                                                 \
  }
#define STORE_ROW(name, S, A, STORE)                                                                  \
  PLAIT_CLONES static void store_##name(void *row, int64_t step, const void *sum, double scale, int64_t n) { \
    const A *restrict a = sum;                                                                        \
    S *restrict x = row;                                                                              \
    A by = (A)scale;                                                                                  \
    if (step == 1) {                                                                                  \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) x[i] = STORE(a[i] * by);                    \
    } else {                                                                                          \
      for (int64_t i = 0; i < n; i++) x[i * step] = STORE(a[i] * by);                                 \
    }                                                                                                 \
  }
#define ADD_STORED(name, S, LOAD, STORE)                                                              \
  PLAIT_CLONES static void onto_##name(void *row, int64_t step, const void *stored, int64_t n) {      \
    const S *restrict a = stored;                                                                     \
    S *restrict x = row;                                                                              \
    if (step == 1) {                                                                                  \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) x[i] = STORE(LOAD(x[i]) + LOAD(a[i]));      \
    } else {                                                                                          \
      for (int64_t i = 0; i < n; i++) x[i * step] = STORE(LOAD(x[i * step]) + LOAD(a[i]));            \
    }                                                                                                 \
  }
#define SAME(x) (x)
ADD_ROW(f16, uint16_t, float, plait_f16_to_f32)
ADD_ROW(bf16, uint16_t, float, plait_bf16_to_f32)
ADD_ROW(f32, float, float, SAME)
ADD_ROW(f64, double, double, SAME)
STORE_ROW(f16, uint16_t, float, plait_f32_to_f16)
STORE_ROW(bf16, uint16_t, float, plait_f32_to_bf16)
STORE_ROW(f32, float, float, SAME)
STORE_ROW(f64, double, double, SAME)
ADD_STORED(f16, uint16_t, plait_f16_to_f32, plait_f32_to_f16)
ADD_STORED(bf16, uint16_t, plait_bf16_to_f32, plait_f32_to_bf16)
ADD_STORED(f32, float, SAME, SAME)
ADD_STORED(f64, double, SAME, SAME)

static const struct {
  void (*add)(void *sum, const void *row, int64_t step, int64_t n);
  void (*store)(void *row, int64_t step, const void *sum, double scale, int64_t n);
  void (*onto)(void *row, int64_t step, const void *stored, int64_t n);
  void (*merge)(void *sum, const void *part, int64_t step, int64_t n);
} functions[8] = {
    [PLAIT_F16] = {add_f16, store_f16, onto_f16, add_f32},
    [PLAIT_BF16] = {add_bf16, store_bf16, onto_bf16, add_f32},
    [PLAIT_F32] = {add_f32, store_f32, onto_f32, add_f32},
    [PLAIT_F64] = {add_f64, store_f64, onto_f64, add_f64},
};

// Sums the gradients at order[first..last-1]. TERMS rows make a part, TERMS parts a block, and the blocks make the
// total. This keeps the rounding errors of a frequent row small.
static void sum_row(const embedding_job *job, char *out, int64_t column, int64_t n, int64_t first, int64_t last) {
  double sums[3][SEGMENT]; // total, block, part
  int64_t inner = plait_walk_inner(&job->tuples), step = plait_walk_step(&job->tuples, 0);
  size_t bytes = (size_t)n * sizeof(double);
  int deepest = last - first <= TERMS ? 0 : last - first <= TERMS * TERMS ? 1 : 2;
  for (int level = 0; level <= deepest; level++) memset(sums[level], 0, bytes);
  for (int64_t t = first; t < last; t++) {
    plait_cursor at;
    plait_walk_seek(&job->tuples, &at, job->order[t] / inner);
    int64_t from = at.offset[0] + job->order[t] % inner * step + column * job->grad_step, done = t + 1 - first;
    functions[job->dtype].add(sums[deepest], job->grad + from * job->size, job->grad_step, n);
    for (int level = deepest; level > 0 && (done % TERMS == 0 || t + 1 == last); level--, done /= TERMS) {
      functions[job->dtype].merge(sums[level - 1], sums[level], 1, n);
      memset(sums[level], 0, bytes);
    }
  }
  double scale = job->by_frequency ? 1.0 / (double)(last - first) : 1;
  if (!job->onto) {
    functions[job->dtype].store(out, job->out_step, sums[0], scale, n);
    return;
  }
  char row[SEGMENT * sizeof(double)]; // the sum, rounded as if it were added afterwards
  functions[job->dtype].store(row, 1, sums[0], scale, n);
  functions[job->dtype].onto(out, job->out_step, row, n);
}

// The first position in the sorted keys whose key is not below the given one.
static int64_t lower_bound(const int64_t *keys, int64_t n, int64_t key) {
  int64_t low = 0, high = n;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (keys[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A chunk is a range of the vocabulary and a segment of the columns.
static void embedding_chunk(void *arg, int64_t chunk) {
  const embedding_job *job = arg;
  int64_t column = chunk % job->segments * SEGMENT, n = plait_min64(SEGMENT, job->columns - column);
  int64_t row = chunk / job->segments * job->rows_per_chunk, end = plait_min64(job->rows, row + job->rows_per_chunk);
  int64_t t = lower_bound(job->keys, job->count, row);
  for (; row < end; row++) {
    char *out = job->out + (row * job->out_row + column * job->out_step) * job->size;
    int64_t first = t;
    while (t < job->count && job->keys[t] == row) t++;
    if (t > first) {
      sum_row(job, out, column, n, first, t);
    } else if (job->onto) {
      continue;
    } else if (job->out_step == 1) {
      memset(out, 0, (size_t)(n * job->size));
    } else {
      for (int64_t i = 0; i < n; i++) memset(out + i * job->out_step * job->size, 0, (size_t)job->size);
    }
  }
}

int64_t plaitk_indexing_embedding_backward(plait_pool *pool, const plait_view *out, const plait_view *grad,
                                           const plait_view *index, int64_t padding, int64_t by_frequency,
                                           int64_t onto, int64_t *scratch, plaitk_bad_index *bad) {
  int64_t n = plait_numel(index), *keys = scratch, *order = keys + n, *keys2 = order + n, *order2 = keys2 + n;
  embedding_job job = {.out = out->data, .grad = grad->data, .dtype = out->dtype, .size = plait_dtype_size(out->dtype),
                       .rows = out->shape[0], .columns = out->shape[1], .out_row = out->stride[0], .out_step = out->stride[1],
                       .grad_step = grad->stride[grad->ndim - 1], .keys = keys, .order = order, .by_frequency = by_frequency, .onto = onto};
  plait_view rows = {.ndim = 1, .shape = {job.rows}, .stride = {1}};
  if (plaitk_indexing_resolve(pool, &rows, 1, index, false, keys, NULL, bad)) return 1;
  if (job.rows == 0 || job.columns == 0) return 0;
  plait_walk_init(&job.tuples, 1);
  for (int64_t d = 0; d < index->ndim; d++) plait_walk_add(&job.tuples, grad->shape[d], &grad->stride[d]);
  if (padding >= 0)
    for (int64_t i = 0; i < n; i++) keys[i] = keys[i] == padding ? job.rows : keys[i]; // padding sorts after all other keys
  plaitk_indexing_sort(keys, order, keys2, order2, n, job.rows + 1);
  job.count = lower_bound(keys, n, job.rows);
  job.segments = plait_ceil_div(job.columns, SEGMENT);
  job.rows_per_chunk = plait_max64(1, CHUNK_BYTES / (plait_min64(job.columns, SEGMENT) * job.size));
  plaitk_run(pool, plait_ceil_div(job.rows, job.rows_per_chunk) * job.segments, embedding_chunk, &job);
  return 0;
}

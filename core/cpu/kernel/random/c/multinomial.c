// Samples from discrete distributions.
#include "random.h"
#include "../../../include/plait_philox_words.h"

// Rows are split into at most this many chunks. Each chunk has its own scratch.
#define CHUNKS 16

typedef struct {
  uint64_t seed, offset;
  int64_t *out;
  const char *weights;
  int64_t dtype, rows, n, count, replacement;
  double *scratch;
  int64_t scratch_per_chunk; // in doubles
  int64_t bad[CHUNKS], reason[CHUNKS];
} draw_task;

typedef struct {
  double key;
  int64_t index;
} candidate;

static int64_t chunks_of(int64_t rows) { return rows < CHUNKS ? rows : CHUNKS; }

static int64_t doubles_per_chunk(int64_t n, int64_t count) { return n + 2 * count; }

int64_t plaitk_random_multinomial_scratch(int64_t rows, int64_t n, int64_t count) {
  return (int64_t)sizeof(draw_task) + chunks_of(rows) * doubles_per_chunk(n, count) * (int64_t)sizeof(double);
}

static void load(double *w, const char *p, int64_t dtype, int64_t first, int64_t n) {
#define LOAD(T, expression)                        \
  {                                                \
    const T *x = (const T *)p + first;             \
    for (int64_t i = 0; i < n; i++) w[i] = expression; \
    break;                                         \
  }
  switch (dtype) {
  case PLAIT_F16: LOAD(uint16_t, plait_f16_to_f32(x[i]))
  case PLAIT_BF16: LOAD(uint16_t, plait_bf16_to_f32(x[i]))
  case PLAIT_F32: LOAD(float, x[i])
  default: LOAD(double, x[i])
  }
}

// Returns a uniform number in [0, 1).
static double draw(const draw_task *t, int64_t index) {
  uint32_t w[4];
  plait_philox(t->seed, t->offset + (uint64_t)(index / 2), &w[0], &w[1], &w[2], &w[3]);
  return index % 2 ? plait_uniform(w[2], w[3]) : plait_uniform(w[0], w[1]);
}

#define COUNTERS 128

// Makes the uniform numbers of COUNTERS counters, two of each.
PLAIT_CLONES static void to_uniform(double *restrict u, const uint32_t *restrict w) {
#pragma omp simd
  for (int64_t i = 0; i < 2 * COUNTERS; i++) u[i] = plait_uniform(w[2 * i], w[2 * i + 1]);
}

// Uniform numbers of which rows take the next ones.
typedef struct {
  int64_t first, end; // those that it has
  double u[2 * COUNTERS];
} uniforms;

// Makes the numbers from `index` on.
static void refill(uniforms *b, const draw_task *t, int64_t index) {
  uint32_t w[4 * COUNTERS];
  b->first = index - index % 2;
  b->end = b->first + 2 * COUNTERS;
  plait_philox_words(w, COUNTERS, t->seed, t->offset + (uint64_t)(index / 2));
  to_uniform(b->u, w);
}

// Replaces weights by their keys, and those that are 0 by -1.
PLAIT_CLONES static void make_keys(double *restrict w, const double *restrict u, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) w[i] = plait_vm_pick(w[i] == 0.0, -1.0, -plait_vm_log(1.0 - u[i]) / w[i]);
}

static void draw_keys(const draw_task *t, uniforms *b, int64_t index, double *w, int64_t n) {
  for (int64_t end = index + n; index < end;) {
    if (index < b->first || index >= b->end) refill(b, t, index);
    int64_t m = (b->end < end ? b->end : end) - index;
    make_keys(w, b->u + (index - b->first), m);
    w += m, index += m;
  }
}

static bool is_less(candidate a, candidate b) { return a.key < b.key || (a.key == b.key && a.index < b.index); }

// Inserts c at the root of a binary heap of n candidates and sifts it down. The candidate with the largest key is on
// top.
static void sift(candidate *heap, int64_t n, candidate c) {
  int64_t i = 0;
  for (int64_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && is_less(heap[child], heap[child + 1])) child++;
    if (!is_less(c, heap[child])) break;
    heap[i] = heap[child];
  }
  heap[i] = c;
}

static int64_t draw_row(const draw_task *t, uniforms *b, int64_t row, double *w) {
  int64_t positive = 0;
  double sum = 0.0;
  load(w, t->weights, t->dtype, row * t->n, t->n);
  for (int64_t i = 0; i < t->n; i++) {
    if (!(w[i] >= 0.0 && w[i] < PLAIT_VM_INF)) return 1;
    positive += w[i] > 0.0;
  }
  if (positive == 0) return 2;
  int64_t *out = t->out + row * t->count;
  if (t->replacement) {
    for (int64_t i = 0; i < t->n; i++) w[i] = sum += w[i];
    for (int64_t j = 0; j < t->count; j++) {
      double u = draw(t, row * t->count + j) * sum;
      if (u >= sum) u = nextafter(sum, 0.0);
      // Binary search for the first position whose running sum exceeds u; its weight is positive.
      int64_t low = 0, high = t->n - 1;
      while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (w[middle] > u) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      out[j] = low;
    }
    return 0;
  }
  if (positive < t->count) return 3;
  draw_keys(t, b, row * t->n, w, t->n);
  candidate *heap = (candidate *)(w + t->n);
  int64_t size = 0;
  for (int64_t i = 0; i < t->n; i++) {
    if (w[i] < 0.0) continue;
    candidate c = {w[i], i};
    if (size < t->count) {
      // Append and sift up.
      int64_t at = size++;
      for (; at > 0 && is_less(heap[(at - 1) / 2], c); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
      heap[at] = c;
    } else if (is_less(c, heap[0])) {
      sift(heap, size, c);
    }
  }
  for (; size > 0; size--) {
    out[size - 1] = heap[0].index;
    sift(heap, size - 1, heap[size - 1]);
  }
  return 0;
}

static void draw_chunk(void *arg, int64_t chunk) {
  draw_task *t = arg;
  int64_t chunks = chunks_of(t->rows);
  double *w = t->scratch + chunk * t->scratch_per_chunk;
  uniforms b = {0};
  for (int64_t row = t->rows * chunk / chunks, last = t->rows * (chunk + 1) / chunks; row < last; row++) {
    t->reason[chunk] = draw_row(t, &b, row, w);
    if (t->reason[chunk]) {
      t->bad[chunk] = row;
      return;
    }
  }
}

int64_t plaitk_random_multinomial(plait_pool *pool, uint64_t seed, uint64_t offset, int64_t *out, const void *weights, int64_t dtype,
                                  int64_t rows, int64_t n, int64_t count, int64_t replacement, void *scratch, int64_t *reason) {
  draw_task *t = scratch;
  *t = (draw_task){.seed = seed, .offset = offset, .out = out, .weights = weights, .dtype = dtype, .rows = rows, .n = n,
                   .count = count, .replacement = replacement, .scratch = (double *)(t + 1),
                   .scratch_per_chunk = doubles_per_chunk(n, count)};
  plait_parallel(pool, chunks_of(rows), draw_chunk, t);
  for (int64_t i = 0; i < chunks_of(rows); i++) {
    if (t->reason[i]) {
      *reason = t->reason[i];
      return t->bad[i];
    }
  }
  return -1;
}

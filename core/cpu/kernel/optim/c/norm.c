// Norms, scaling and clamping of lists of gradients.
#include "optim.h"
#include "../../../include/plait_vmath.h"

#define CHUNK PLAITK_OPTIM_CHUNK
#define PIECE 1024

typedef struct {
  const plaitk_optim_span *spans;
  int64_t count;
  double p, factor;
  double *partial;
  int32_t *found;
} span_task;

static int64_t chunks_of(plaitk_optim_span *spans, int64_t count) {
  int64_t chunks = 0;
  for (int64_t i = 0; i < count; i++) {
    spans[i].first = chunks;
    chunks += (spans[i].n + CHUNK - 1) / CHUNK;
  }
  return chunks;
}

// Finds the tensor of a chunk, and the chunk's elements in it.
static const plaitk_optim_span *find(const span_task *t, int64_t chunk, int64_t *first, int64_t *n) {
  int64_t low = 0, high = t->count - 1;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (t->spans[middle].first <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const plaitk_optim_span *s = &t->spans[low];
  *first = (chunk - s->first) * CHUNK;
  *n = s->n - *first < CHUNK ? s->n - *first : CHUNK;
  return s;
}

// Loads up to PIECE 16-bit elements as float32, or returns the address of those of a float32 tensor.
static const float *piece(float *buffer, const plaitk_optim_span *s, int64_t at, int64_t n) {
  if (s->dtype == PLAIT_F32) return (const float *)s->data + at;
  const uint16_t *h = (const uint16_t *)s->data + at;
  if (s->dtype == PLAIT_F16) {
    for (int64_t i = 0; i < n; i++) buffer[i] = plait_f16_to_f32(h[i]);
  } else {
    for (int64_t i = 0; i < n; i++) buffer[i] = plait_bf16_to_f32(h[i]);
  }
  return buffer;
}

// Squares are summed in float64. The square of a float32 is exact there, and cannot overflow or underflow.
PLAIT_CLONES static double squares_f32(const float *x, int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sum;
}

PLAIT_CLONES static double squares_f64(const double *x, int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

static double powers(double x, double p) {
  x = fabs(x);
  if (p == 1.0) return x;
  if (p == 0.0) return x != 0.0;
  return pow(x, p);
}

static double larger(double a, double b) { return a > b || a != a ? a : b; }

// Folds n elements into their sum, or for an infinite p their extremum. get(i) is element i.
#define SCAN(get)                                                                              \
  {                                                                                            \
    double r = isinf(t->p) ? (t->p > 0 ? 0.0 : PLAIT_VM_INF) : 0.0;                            \
    for (int64_t i = 0; i < n; i++) {                                                          \
      double v = (double)(get);                                                                \
      r = !isinf(t->p) ? r + powers(v, t->p) : t->p > 0 ? larger(fabs(v), r) : -larger(-fabs(v), -r); \
    }                                                                                          \
    return r;                                                                                  \
  }

static double scan_f32(const span_task *t, const float *x, int64_t n) {
  if (t->p == 2.0) return squares_f32(x, n);
  SCAN(x[i])
}

static double scan_f64(const span_task *t, const double *x, int64_t n) {
  if (t->p == 2.0) return squares_f64(x, n);
  SCAN(x[i])
}

static double combine(const span_task *t, double a, double b) {
  return !isinf(t->p) ? a + b : t->p > 0 ? larger(a, b) : -larger(-a, -b);
}

static void sum_chunk(void *arg, int64_t chunk) {
  const span_task *t = arg;
  int64_t first, n;
  const plaitk_optim_span *s = find(t, chunk, &first, &n);
  if (s->dtype == PLAIT_F64) {
    t->partial[chunk] = scan_f64(t, (const double *)s->data + first, n);
    return;
  }
  float buffer[PIECE];
  double sum = 0.0;
  for (int64_t i = 0; i < n; i += PIECE) {
    int64_t m = n - i < PIECE ? n - i : PIECE;
    double part = scan_f32(t, piece(buffer, s, first + i, m), m);
    sum = i == 0 ? part : combine(t, sum, part);
  }
  t->partial[chunk] = sum;
}

double plaitk_optim_power_sum(plait_pool *pool, plaitk_optim_span *spans, int64_t count, double p, double *partial) {
  int64_t chunks = chunks_of(spans, count);
  if (chunks == 0) return 0.0;
  span_task t = {.spans = spans, .count = count, .p = p, .partial = partial};
  plait_parallel(pool, chunks, sum_chunk, &t);
  // Pairwise, so that the order depends on the sizes only and the error stays small.
  for (int64_t n = chunks; n > 1; n = (n + 1) / 2) {
    for (int64_t i = 0; i < n / 2; i++) partial[i] = combine(&t, partial[2 * i], partial[2 * i + 1]);
    if (n % 2) partial[n / 2] = partial[n - 1];
  }
  return partial[0];
}

PLAIT_CLONES static void scale_f32(float *x, int64_t n, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

PLAIT_CLONES static void scale_f64(double *x, int64_t n, double factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

PLAIT_CLONES static void scale_f16(uint16_t *x, int64_t n, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = plait_f32_to_f16(plait_f16_to_f32(x[i]) * factor);
}

PLAIT_CLONES static void scale_bf16(uint16_t *x, int64_t n, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = plait_f32_to_bf16(plait_bf16_to_f32(x[i]) * factor);
}

static void scale_chunk(void *arg, int64_t chunk) {
  const span_task *t = arg;
  int64_t first, n;
  const plaitk_optim_span *s = find(t, chunk, &first, &n);
  switch (s->dtype) {
  case PLAIT_F64:
    scale_f64((double *)s->data + first, n, t->factor);
    break;
  case PLAIT_F32:
    scale_f32((float *)s->data + first, n, (float)t->factor);
    break;
  case PLAIT_F16:
    scale_f16((uint16_t *)s->data + first, n, (float)t->factor);
    break;
  default:
    scale_bf16((uint16_t *)s->data + first, n, (float)t->factor);
  }
}

void plaitk_optim_scale(plait_pool *pool, plaitk_optim_span *spans, int64_t count, double factor) {
  span_task t = {.spans = spans, .count = count, .factor = factor};
  plait_parallel(pool, chunks_of(spans, count), scale_chunk, &t);
}

// Returns NaN if one of the n elements is not finite, since zero times it is NaN.
PLAIT_CLONES static float zeros_f32(const float *x, int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += 0.0f * x[i];
  return sum;
}

PLAIT_CLONES static double zeros_f64(const double *x, int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += 0.0 * x[i];
  return sum;
}

static void unscale_chunk(void *arg, int64_t chunk) {
  const span_task *t = arg;
  int64_t first, n;
  const plaitk_optim_span *s = find(t, chunk, &first, &n);
  double zeros = 0.0;
  if (s->dtype == PLAIT_F64) {
    zeros = zeros_f64((const double *)s->data + first, n);
  } else {
    float buffer[PIECE];
    for (int64_t i = 0; i < n; i += PIECE) {
      int64_t m = n - i < PIECE ? n - i : PIECE;
      zeros += zeros_f32(piece(buffer, s, first + i, m), m);
    }
  }
  if (zeros != zeros) __atomic_store_n(t->found, 1, __ATOMIC_RELAXED);
  scale_chunk(arg, chunk);
}

void plaitk_optim_unscale(plait_pool *pool, plaitk_optim_span *spans, int64_t count, double factor, float *found) {
  int32_t any = 0;
  span_task t = {.spans = spans, .count = count, .factor = factor, .found = &any};
  plait_parallel(pool, chunks_of(spans, count), unscale_chunk, &t);
  *found = (float)any;
}

PLAIT_CLONES static void clamp_f32(float *x, int64_t n, float limit) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = plait_vm_at_leastf(plait_vm_at_mostf(x[i], limit), -limit);
}

PLAIT_CLONES static void clamp_f64(double *x, int64_t n, double limit) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = plait_vm_at_least(plait_vm_at_most(x[i], limit), -limit);
}

static void clamp_chunk(void *arg, int64_t chunk) {
  const span_task *t = arg;
  int64_t first, n;
  const plaitk_optim_span *s = find(t, chunk, &first, &n);
  if (s->dtype == PLAIT_F64) {
    clamp_f64((double *)s->data + first, n, t->factor);
  } else if (s->dtype == PLAIT_F32) {
    clamp_f32((float *)s->data + first, n, (float)t->factor);
  } else {
    uint16_t *h = (uint16_t *)s->data + first;
    bool half = s->dtype == PLAIT_F16;
    float limit = (float)t->factor;
    for (int64_t i = 0; i < n; i++) {
      float v = half ? plait_f16_to_f32(h[i]) : plait_bf16_to_f32(h[i]);
      v = plait_vm_at_leastf(plait_vm_at_mostf(v, limit), -limit);
      h[i] = half ? plait_f32_to_f16(v) : plait_f32_to_bf16(v);
    }
  }
}

void plaitk_optim_clamp(plait_pool *pool, plaitk_optim_span *spans, int64_t count, double limit) {
  span_task t = {.spans = spans, .count = count, .factor = limit};
  plait_parallel(pool, chunks_of(spans, count), clamp_chunk, &t);
}

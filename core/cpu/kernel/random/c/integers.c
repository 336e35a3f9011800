// Random integers and Bernoulli samples.
#include "random.h"
#include "../../../include/plait_philox_words.h"

#define CHUNK 16384
#define STEP 1024

void plaitk_random_words(int64_t bytes, uint32_t *w, int64_t blocks, uint64_t seed, uint64_t counter) {
  plait_philox_words_by((int)bytes, w, blocks, seed, counter);
}

// Stores n integers as elements of any dtype.
PLAIT_CLONES static void store(void *out, int64_t dtype, const int64_t *v, int64_t n) {
#define STORE(T, expression)                                \
  {                                                         \
    T *y = out;                                             \
    for (int64_t i = 0; i < n; i++) y[i] = (T)(expression); \
    break;                                                  \
  }
  switch (dtype) {
  case PLAIT_BOOL: STORE(uint8_t, v[i] != 0)
  case PLAIT_I8:
  case PLAIT_U8: STORE(uint8_t, v[i])
  case PLAIT_I16:
  case PLAIT_U16: STORE(uint16_t, v[i])
  case PLAIT_I32:
  case PLAIT_U32: STORE(uint32_t, v[i])
  case PLAIT_I64:
  case PLAIT_U64: STORE(int64_t, v[i])
  case PLAIT_F16: STORE(uint16_t, plait_f32_to_f16((float)v[i]))
  case PLAIT_BF16: STORE(uint16_t, plait_f32_to_bf16((float)v[i]))
  case PLAIT_F32: STORE(float, v[i])
  case PLAIT_F64: STORE(double, v[i])
  }
}

typedef struct {
  uint64_t seed, offset;
  char *out;
  int64_t dtype, n, low;
  uint64_t range;
  double p;
  const char *probabilities;
  int64_t pdtype;
} integer_task;

// low + floor(range w / 2^64) for numbers w of two words each. A range below 2^32 takes two 32-bit products.
PLAIT_CLONES static void scaled_small(int64_t *restrict y, const uint32_t *restrict w, int64_t n, int64_t low, uint32_t range) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    uint64_t p = (uint64_t)w[2 * i] * range + (((uint64_t)w[2 * i + 1] * range) >> 32);
    y[i] = low + (int64_t)(p >> 32);
  }
}

static uint64_t high_product(uint64_t a, uint64_t b) {
  uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
  uint64_t middle = ah * bl + ((al * bl) >> 32), other = al * bh + (uint32_t)middle;
  return ah * bh + (middle >> 32) + (other >> 32);
}

static void scaled_large(int64_t *y, const uint32_t *w, int64_t n, int64_t low, uint64_t range) {
  for (int64_t i = 0; i < n; i++) {
    uint64_t v = (uint64_t)w[2 * i] << 32 | w[2 * i + 1];
    y[i] = (int64_t)((uint64_t)low + (range ? high_product(v, range) : v));
  }
}

static void integer_chunk(void *arg, int64_t chunk) {
  const integer_task *t = arg;
  int64_t first = chunk * CHUNK, n = t->n - first < CHUNK ? t->n - first : CHUNK;
  int64_t y[STEP];
  for (int64_t i = 0; i < n; i += STEP) {
    int64_t m = n - i < STEP ? n - i : STEP;
    uint32_t w[2 * STEP];
    plait_philox_words(w, (m + 1) / 2, t->seed, t->offset + (uint64_t)((first + i) / 2));
    if (t->range != 0 && t->range >> 32 == 0) {
      scaled_small(y, w, m, t->low, (uint32_t)t->range);
    } else {
      scaled_large(y, w, m, t->low, t->range);
    }
    store(t->out + (first + i) * plait_dtype_size(t->dtype), t->dtype, y, m);
  }
}

void plaitk_random_integers(plait_pool *pool, uint64_t seed, uint64_t offset, void *out, int64_t dtype, int64_t n, int64_t low,
                            uint64_t range) {
  integer_task t = {.seed = seed, .offset = offset, .out = out, .dtype = dtype, .n = n, .low = low, .range = range};
  plait_parallel(pool, (n + CHUNK - 1) / CHUNK, integer_chunk, &t);
}

// A toss is won where its word, as a fraction of 2^32, is below the probability.
PLAIT_CLONES static void tosses(int64_t *restrict y, const uint32_t *restrict w, int64_t n, const double *restrict limit, int64_t stride) {
  if (stride == 0) {
    double l = limit[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (double)w[i] < l;
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = (double)w[i] < limit[i];
}

static double probability(const char *p, int64_t dtype, int64_t i) {
  switch (dtype) {
  case PLAIT_F16: return plait_f16_to_f32(((const uint16_t *)p)[i]);
  case PLAIT_BF16: return plait_bf16_to_f32(((const uint16_t *)p)[i]);
  case PLAIT_F32: return ((const float *)p)[i];
  default: return ((const double *)p)[i];
  }
}

static void bernoulli_chunk(void *arg, int64_t chunk) {
  const integer_task *t = arg;
  int64_t first = chunk * CHUNK, n = t->n - first < CHUNK ? t->n - first : CHUNK;
  int64_t y[STEP];
  double limit[STEP] = {t->p * 0x1p32};
  for (int64_t i = 0; i < n; i += STEP) {
    int64_t m = n - i < STEP ? n - i : STEP;
    if (t->probabilities) {
      for (int64_t k = 0; k < m; k++) limit[k] = probability(t->probabilities, t->pdtype, first + i + k) * 0x1p32;
    }
    uint32_t w[STEP];
    plait_philox_words(w, (m + 3) / 4, t->seed, t->offset + (uint64_t)((first + i) / 4));
    tosses(y, w, m, limit, t->probabilities != NULL);
    store(t->out + (first + i) * plait_dtype_size(t->dtype), t->dtype, y, m);
  }
}

int64_t plaitk_random_bernoulli(plait_pool *pool, uint64_t seed, uint64_t offset, void *out, int64_t dtype, int64_t n, double p,
                                const void *probabilities, int64_t pdtype) {
  if (probabilities) {
    for (int64_t i = 0; i < n; i++) {
      double q = probability(probabilities, pdtype, i);
      if (!(q >= 0.0 && q <= 1.0)) return i;
    }
  }
  integer_task t = {.seed = seed, .offset = offset, .out = out, .dtype = dtype, .n = n, .p = p, .probabilities = probabilities, .pdtype = pdtype};
  plait_parallel(pool, (n + CHUNK - 1) / CHUNK, bernoulli_chunk, &t);
  return -1;
}

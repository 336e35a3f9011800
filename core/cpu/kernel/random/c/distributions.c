// Continuous distributions.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math") // else loops with comparisons are not vectorised
#endif
#include "random.h"
#include "../../../include/plait_philox_words.h"

// Elements of a chunk, a multiple of 4.
#define CHUNK 16384

typedef struct {
  const plaitk_random *r;
  char *out;
  int64_t dtype, n;
  float limit; // the largest value of the dtype below b
} fill_task;

// Words that are made at a time, a multiple of 4.
#define STEP 1024

#define EACH(f) _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = f(w[i]);

// `mask` clears the low bits of a word that the dtype has no room for: it keeps 24, 11 or 8 bits. Then rounding cannot
// reach 1.
PLAIT_CLONES static void uniform(float *restrict y, const uint32_t *restrict w, int64_t n, float low, float span, float limit,
                                 uint32_t mask) {
#define UNIFORM(w) plait_vm_at_mostf(low + span * plait_uniformf((w) & mask), limit)
  EACH(UNIFORM)
}

PLAIT_CLONES static void normal(float *restrict y, const uint32_t *restrict w, int64_t n, float mean, float std) {
#pragma omp simd
  for (int64_t i = 0; i < n / 2; i++) {
    float a, b;
    plait_normal_pairf(w[2 * i], w[2 * i + 1], &a, &b);
    y[2 * i] = mean + std * a;
    y[2 * i + 1] = mean + std * b;
  }
}

// -log(u) with u in (0, 1), so that the result is positive.
PLAIT_INLINE float negative_logf(uint32_t w) {
  return -plait_vm_logf(plait_vm_at_mostf(plait_uniform_openf(w), 0x1.fffffep-1f));
}

PLAIT_CLONES static void exponential(float *restrict y, const uint32_t *restrict w, int64_t n, float scale) {
#define EXPONENTIAL(w) (negative_logf(w) * scale)
  EACH(EXPONENTIAL)
}

PLAIT_CLONES static void geometric(float *restrict y, const uint32_t *restrict w, int64_t n, float scale) {
#define GEOMETRIC(w) plait_vm_at_leastf(plait_vm_ceilf(negative_logf(w) * scale), 1.0f)
  EACH(GEOMETRIC)
}

PLAIT_CLONES static void exponentiate(float *restrict y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = plait_vm_expf(y[i]);
}

PLAIT_CLONES static void cauchy(float *restrict y, const uint32_t *restrict w, int64_t n, float median, float scale) {
  // u is in (0, 1), the middle of one of 2^24 intervals, so that the tangent is finite.
#define CAUCHY(w) (median + scale * plait_vm_near_tanf((((float)(int32_t)((w) >> 8) - 0x1p23f) + 0.5f) * 0x1.921fb6p-23f))
  EACH(CAUCHY)
}

// A normal distribution truncated to the values whose distribution function is between (1 + low) / 2 and (1 + high) /
// 2.
PLAIT_CLONES static void trunc_normal(float *restrict y, const uint32_t *restrict w, int64_t n, double mean, double scale,
                                      double low, double high, float least, float most) {
#define TRUNC_NORMAL(w) plait_vm_at_mostf(plait_vm_at_leastf((float)(mean + scale * plait_vm_wide_erfinv(PLACE(w))), least), most)
#define PLACE(w) (low + (high - low) * ((double)(int32_t)((w) >> 1) * 0x1p-31 + 0x1p-32))
  EACH(TRUNC_NORMAL)
}

// Computes n numbers, a multiple of 4 and at most STEP.
static void fill_step(const fill_task *t, float *y, int64_t n, uint64_t counter) {
  const plaitk_random *r = t->r;
  uint32_t w[STEP];
  plait_philox_words(w, n / 4, r->seed, counter);
  float a = (float)r->a, b = (float)r->b;
  switch (r->distribution) {
  case PLAITK_UNIFORM: {
    uint32_t mask = t->dtype == PLAIT_F16 ? 0xffe00000u : t->dtype == PLAIT_BF16 ? 0xff000000u : 0xffffff00u;
    uniform(y, w, n, a, (float)(r->b - r->a), t->limit, mask);
    break;
  }
  case PLAITK_NORMAL:
    normal(y, w, n, a, b);
    break;
  case PLAITK_LOG_NORMAL:
    normal(y, w, n, a, b);
    exponentiate(y, n);
    break;
  case PLAITK_EXPONENTIAL:
    exponential(y, w, n, (float)(1.0 / r->a));
    break;
  case PLAITK_CAUCHY:
    cauchy(y, w, n, a, b);
    break;
  case PLAITK_GEOMETRIC:
    geometric(y, w, n, (float)(-1.0 / log1p(-r->a)));
    break;
  case PLAITK_TRUNC_NORMAL:
    trunc_normal(y, w, n, r->a, r->b * 0x1.6a09e667f3bcdp+0, erf((r->c - r->a) / (r->b * 0x1.6a09e667f3bcdp+0)),
                 erf((r->d - r->a) / (r->b * 0x1.6a09e667f3bcdp+0)), (float)r->c, (float)r->d);
    break;
  }
}

static void fill_floats(const fill_task *t, float *y, int64_t n, uint64_t counter) {
  for (int64_t i = 0; i < n; i += STEP) fill_step(t, y + i, n - i < STEP ? n - i : STEP, counter + (uint64_t)(i / 4));
}

// Computes the two float64 numbers of one Philox block.
static void pair(const plaitk_random *r, uint64_t counter, double y[2]) {
  uint32_t w0, w1, w2, w3;
  plait_philox(r->seed, counter, &w0, &w1, &w2, &w3);
  double u[2] = {plait_uniform(w0, w1), plait_uniform(w2, w3)};
  if (r->distribution == PLAITK_NORMAL || r->distribution == PLAITK_LOG_NORMAL) {
    double radius = sqrt(-2.0 * log(1.0 - u[0])), angle = 0x1.921fb54442d18p+2 * u[1];
    y[0] = r->a + r->b * (radius * cos(angle));
    y[1] = r->a + r->b * (radius * sin(angle));
    if (r->distribution == PLAITK_LOG_NORMAL) y[0] = exp(y[0]), y[1] = exp(y[1]);
    return;
  }
  for (int i = 0; i < 2; i++) {
    double middle = u[i] + 0x1p-54; // in (0, 1)
    switch (r->distribution) {
    case PLAITK_UNIFORM: {
      double v = r->a + (r->b - r->a) * u[i];
      y[i] = v >= r->b && r->b > r->a ? nextafter(r->b, r->a) : v;
      break;
    }
    case PLAITK_EXPONENTIAL:
      y[i] = -log(middle) / r->a;
      break;
    case PLAITK_CAUCHY:
      y[i] = r->a + r->b * tan(0x1.921fb54442d18p+1 * ((u[i] - 0.5) + 0x1p-54));
      break;
    case PLAITK_GEOMETRIC:
      y[i] = fmax(ceil(log(middle) / log1p(-r->a)), 1.0);
      break;
    default: { // PLAITK_TRUNC_NORMAL
      double scale = r->b * 0x1.6a09e667f3bcdp+0, low = erf((r->c - r->a) / scale), high = erf((r->d - r->a) / scale);
      y[i] = fmin(fmax(r->a + scale * plait_vm_erfinv(low + (high - low) * middle), r->c), r->d);
    }
    }
  }
}

// What `pair` makes of blocks of a uniform distribution. The product and the sum are apart, so that compilers do not fuse them.
PLAIT_CLONES static void uniform_pairs(double *restrict y, const uint32_t *restrict w, int64_t n, double low, double span, double limit) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = span * plait_uniform(w[2 * i], w[2 * i + 1]);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = plait_vm_at_most(low + y[i], limit);
}

static void fill_doubles(const fill_task *t, double *y, int64_t n, uint64_t counter) {
  const plaitk_random *r = t->r;
  double two[2];
  int64_t done = 0;
  if (r->distribution == PLAITK_UNIFORM) {
    for (; done + 2 <= n; done += STEP / 2) {
      int64_t m = (n - done < STEP / 2 ? n - done : STEP / 2) / 2 * 2;
      uint32_t w[STEP];
      plait_philox_words(w, m / 2, r->seed, counter + (uint64_t)(done / 2));
      uniform_pairs(y + done, w, m, r->a, r->b - r->a, r->b > r->a ? nextafter(r->b, r->a) : r->b);
    }
    done = n / 2 * 2;
  }
  for (int64_t i = done; i < n; i += 2) {
    pair(r, counter + (uint64_t)(i / 2), two);
    y[i] = two[0];
    if (i + 1 < n) y[i + 1] = two[1];
  }
}

PLAIT_CLONES static void round_half(void *out, const float *y, int64_t n, int64_t dtype) {
  uint16_t *h = out;
  if (dtype == PLAIT_F16) {
    for (int64_t i = 0; i < n; i++) h[i] = plait_f32_to_f16(y[i]);
  } else {
    for (int64_t i = 0; i < n; i++) h[i] = plait_f32_to_bf16(y[i]);
  }
}

static void fill_chunk(void *arg, int64_t chunk) {
  const fill_task *t = arg;
  int64_t first = chunk * CHUNK, n = t->n - first < CHUNK ? t->n - first : CHUNK;
  if (t->dtype == PLAIT_F64) {
    fill_doubles(t, (double *)t->out + first, n, t->r->offset + (uint64_t)(first / 2));
    return;
  }
  uint64_t counter = t->r->offset + (uint64_t)(first / 4);
  if (t->dtype == PLAIT_F32) {
    float *y = (float *)t->out + first, rest[4];
    fill_floats(t, y, n / 4 * 4, counter);
    if (n % 4) {
      fill_floats(t, rest, 4, counter + (uint64_t)(n / 4));
      memcpy(y + n / 4 * 4, rest, (size_t)(n % 4) * sizeof *rest);
    }
    return;
  }
  float y[STEP];
  for (int64_t i = 0; i < n; i += STEP) {
    int64_t m = n - i < STEP ? n - i : STEP;
    fill_step(t, y, (m + 3) / 4 * 4, counter + (uint64_t)(i / 4));
    round_half(t->out + 2 * (first + i), y, m, t->dtype);
  }
}

// Returns the largest number of the dtype below b, so that a uniform distribution on [a, b) never reaches b.
static float largest_below(double b, int64_t dtype) {
  float f = (float)b;
  if ((double)f >= b) f = nextafterf(f, -PLAIT_VM_INFF);
  if (dtype == PLAIT_BF16) {
    // Toward minus infinity.
    uint32_t u = plait_f32_bits(f);
    return plait_bits_f32((u & 0x80000000u ? u + 0xffffu : u) & 0xffff0000u);
  }
  if (dtype == PLAIT_F16) {
    uint16_t h = plait_f32_to_f16(f);
    if (plait_f16_to_f32(h) > f) h = (uint16_t)(h == 0 ? 0x8001u : h & 0x8000u ? h + 1u : h - 1u);
    return plait_f16_to_f32(h);
  }
  return f;
}

void plaitk_random_fill(plait_pool *pool, const plaitk_random *r, void *out, int64_t dtype, int64_t n) {
  fill_task t = {.r = r, .out = out, .dtype = dtype, .n = n, .limit = r->b > r->a ? largest_below(r->b, dtype) : (float)r->b};
  plait_parallel(pool, (n + CHUNK - 1) / CHUNK, fill_chunk, &t);
}

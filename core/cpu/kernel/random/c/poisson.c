// Poisson variables.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math") // else loops with comparisons are not vectorised
#endif
#include "random.h"

#include <math.h>

#include "../../../include/plait_philox_words.h"

#define CHUNK 4096
#define STEP 256
#define FEW 10.0 // below this rate counts are found by inversion, which takes about as many steps

typedef struct {
  uint64_t seed;
  const char *rates;
  char *out;
  int64_t dtype, n;
  int64_t bad; // the first position of a rate that is negative or NaN, or n
} poisson_task;

// A rate's numbers in PTRS, the rejection method of Hoermann (1993).
typedef struct {
  double a, b, inside;
} shape;

PLAIT_INLINE shape shape_of(double rate) {
  double b = 0.931 + 2.53 * sqrt(rate);
  shape s = {-0.059 + 0.02483 * b, b, 0.9277 - 3.6224 / (b - 2)};
  return s;
}

// Two numbers in (0, 1] from the words of a block, the first less 1/2.
PLAIT_INLINE double centred(const uint32_t *w) { return 0.5 - plait_uniform(w[0], w[1]); }
PLAIT_INLINE double positive(const uint32_t *w) { return 1 - plait_uniform(w[2], w[3]); }

PLAIT_INLINE double candidate(double rate, shape s, double u) {
  return floor((2 * s.a / (0.5 - fabs(u)) + s.b) * u + rate + 0.43);
}

// log(rate^k exp(-rate) / k!) by Stirling's formula, of whose terms none cancel where k is near the rate.
static double log_density(double rate, double k) {
  static const double log_factorials[] = {0, 0, 0.693147180559945309, 1.791759469228055, 3.178053830347945620, 4.787491742782045994,
                                          6.579251212010100995, 8.525161361065414300, 10.604602902745250228, 12.801827480081469611};
  if (k < 10) return k * log(rate) - rate - log_factorials[(int)k];
  double e = (k - rate) / rate, i = 1 / k, i2 = i * i;
  return -rate * ((1 + e) * log1p(e) - e) - log(6.283185307179586477 * k) / 2 - i * (1.0 / 12 - i2 * (1.0 / 360 - i2 * (1.0 / 1260 - i2 / 1680)));
}

// Reports whether a candidate that is not quickly accepted lies below the density.
static bool accepted(double rate, shape s, double u, double v, double k) {
  double us = 0.5 - fabs(u);
  if (!(k >= 0) || (us < 0.013 && v > us)) return false;
  double score = log(v * (1.1239 + 1.1328 / (s.b - 3.4)) / (s.a / (us * us) + s.b));
  return score <= log_density(rate, k);
}

// Draws for element i, whose first candidate was refused. Attempt t of element i has block t * 2^40 + i.
static double drawn_again(double rate, uint64_t seed, uint64_t i) {
  shape s = shape_of(rate);
  for (uint64_t t = 1;; t++) {
    uint32_t w[4];
    plait_philox(seed, (t << 40) + i, &w[0], &w[1], &w[2], &w[3]);
    double u = centred(w), v = positive(w), k = candidate(rate, s, u);
    if ((0.5 - fabs(u) >= 0.07 && v <= s.inside && k >= 0) || accepted(rate, s, u, v, k)) return k;
  }
}

// Inversion: counts up from the probability of 0. Far out, where a term is lost in the sum, rounding alone would keep u above it.
static double inverted(double rate, double zero, double u) {
  double k = 0, p = zero, below = zero;
  while (u > below && p > 1e-30) {
    k++;
    p *= rate / k;
    below += p;
  }
  return k;
}

// Writes the first candidates of n rates and whether they are accepted, and the probabilities of 0 of small rates.
PLAIT_CLONES static void propose(double *restrict k, double *restrict fine, double *restrict zero, const double *restrict rate,
                                 const uint32_t *restrict w, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    double r = rate[i] > FEW ? rate[i] : FEW;
    shape s = shape_of(r);
    double u = centred(w + 4 * i), v = positive(w + 4 * i), us = 0.5 - fabs(u);
    double made = candidate(r, s, u);
    k[i] = made;
    fine[i] = (double)((us >= 0.07) & (v <= s.inside) & (made >= 0));
  }
#pragma omp simd
  for (int64_t i = 0; i < n; i++) zero[i] = plait_vm_exp(-(rate[i] < FEW ? rate[i] : FEW));
}

PLAIT_CLONES static void load(double *restrict to, const char *from, int64_t dtype, int64_t n) {
  switch (dtype) {
  case PLAIT_F16:
    for (int64_t i = 0; i < n; i++) to[i] = plait_f16_to_f32(((const uint16_t *)from)[i]);
    break;
  case PLAIT_BF16:
    for (int64_t i = 0; i < n; i++) to[i] = plait_bf16_to_f32(((const uint16_t *)from)[i]);
    break;
  case PLAIT_F32:
    for (int64_t i = 0; i < n; i++) to[i] = ((const float *)from)[i];
    break;
  default:
    memcpy(to, from, (size_t)n * sizeof(double));
  }
}

PLAIT_CLONES static void save(char *to, const double *restrict from, int64_t dtype, int64_t n) {
  switch (dtype) {
  case PLAIT_F16:
    for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[i] = plait_f32_to_f16((float)from[i]);
    break;
  case PLAIT_BF16:
    for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[i] = plait_f32_to_bf16((float)from[i]);
    break;
  case PLAIT_F32:
    for (int64_t i = 0; i < n; i++) ((float *)to)[i] = (float)from[i];
    break;
  default:
    memcpy(to, from, (size_t)n * sizeof(double));
  }
}

static void poisson_chunk(void *arg, int64_t chunk) {
  poisson_task *t = arg;
  int64_t end = (chunk + 1) * CHUNK < t->n ? (chunk + 1) * CHUNK : t->n, size = plait_dtype_size(t->dtype);
  for (int64_t first = chunk * CHUNK, n; first < end; first += n) {
    n = end - first < STEP ? end - first : STEP;
    double rate[STEP], y[STEP], fine[STEP], zero[STEP];
    uint32_t w[4 * STEP];
    load(rate, t->rates + first * size, t->dtype, n);
    plait_philox_words(w, n, t->seed, (uint64_t)first);
    propose(y, fine, zero, rate, w, n);
    for (int64_t i = 0; i < n; i++) {
      double r = rate[i];
      const uint32_t *own = w + 4 * i;
      if (!(r >= 0)) {
        int64_t at = first + i, least = __atomic_load_n(&t->bad, __ATOMIC_RELAXED);
        while (at < least && !__atomic_compare_exchange_n(&t->bad, &least, at, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
      } else if (r < FEW) {
        y[i] = inverted(r, zero[i], plait_uniform(own[0], own[1]));
      } else if (isinf(r)) {
        y[i] = r;
      } else if (fine[i] == 0 && !accepted(r, shape_of(r), centred(own), positive(own), y[i])) {
        y[i] = drawn_again(r, t->seed, (uint64_t)(first + i));
      }
    }
    save(t->out + first * size, y, t->dtype, n);
  }
}

int64_t plaitk_random_poisson(plait_pool *pool, uint64_t seed, uint64_t offset, void *out, const void *rates, int64_t dtype, int64_t n,
                              double *bad) {
  uint32_t w[4];
  plait_philox(seed, offset, &w[0], &w[1], &w[2], &w[3]);
  poisson_task t = {.seed = (uint64_t)w[0] << 32 | w[1], .rates = rates, .out = out, .dtype = dtype, .n = n, .bad = n};
  plait_parallel(pool, (n + CHUNK - 1) / CHUNK, poisson_chunk, &t);
  if (t.bad == n) return -1;
  load(bad, t.rates + t.bad * plait_dtype_size(dtype), dtype, 1);
  return t.bad;
}

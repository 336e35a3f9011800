// log(sum(exp(x))) of floats, where each block is relative to its maximum.
#include "../../../include/plait_exp_below.h"
#include "../../../include/plait_lanes.h"
#include "reduction.h"

// exp of numbers that are not positive.
#define EXP_float(x) plait_exp_belowf(x)
#define EXP_double(x) plait_vm_exp(x)

// Returns exp(d) for d <= 0 as the product of the result and *times. The error is 1.5 ulp plus 0.12 ulp for each unit
// of |d|. `least` is -87, where the float exponent ends: smaller terms become 2^-125, which is negligible next to the
// largest term, 1. NaN stays NaN. `least` must not be a constant that the compiler sees, or it turns the selection into
// a branch.
PLAIT_INLINE float term(float d, float least, float *times) {
  float y = least > d ? least : d;
  const float rounder = PLAIT_VM_ROUNDERF + 127.0f;
  float t = y * 0x1.715476p+0f + rounder;
  float f = y * 0x1.715476p+0f - (t - rounder);
  float p = 0x1.5cbe9ap-10f;
  p = p * f + 0x1.3cf40cp-7f;
  p = p * f + 0x1.c6b596p-5f;
  p = p * f + 0x1.ebf9a4p-3f;
  p = p * f + 0x1.62e42ap-1f;
  *times = plait_bits_f32(plait_f32_bits(t) << 23);
  return p * f + 1.0f;
}

static const volatile float least_term = -87.0f;

PLAIT_INLINE float term_value(float d, float least) {
  float times, v = term(d, least, &times);
  return v * times;
}

// The terms of a sum, relative to `top`.
#define TERM_F16(x) term_value(plait_f16_to_f32(x) - top, least)
#define TERM_BF16(x) term_value(plait_bf16_to_f32(x) - top, least)
#define TERM_F32(x) term_value((x) - top, least)
#define TERM_F64(x) plait_vm_exp((x) - top)

// Lanes of sums and maxima of rows: two AVX2 vectors, since more would not fit the registers.
#define TERM_LANES 16
// Terms that are summed before their sum is added to the row's. This bounds the number of roundings in a sum.
#define TERM_BLOCK 512

// Rows in one pass over memory. NAME_sum returns the sum of a row's terms relative to `top`, and at the same time finds
// the maximum of the next row, q. The maximum ignores NaN; the sum keeps it. A maximum that is not finite is computed
// again, with NaNs.
#define LOGSUMEXP_ROWS(NAME, F, T, U, LOAD)                                                                 \
  PLAIT_INLINE float NAME##_sum(const T *p, const T *q, int64_t n, float top, float least, float *next) {   \
    float m[TERM_LANES], sum[TERM_LANES];                                                                   \
    SIMD for (int l = 0; l < TERM_LANES; l++) m[l] = -INFINITY, sum[l] = 0;                                 \
    for (int64_t i = 0; i < n;) {                                                                           \
      int64_t end = n - i < TERM_BLOCK ? n : i + TERM_BLOCK;                                                \
      float acc[TERM_LANES];                                                                                \
      SIMD for (int l = 0; l < TERM_LANES; l++) acc[l] = 0;                                                 \
      for (; i + TERM_LANES <= end; i += TERM_LANES) {                                                      \
        plait_prefetch((const char *)(q + i) + FETCH_AHEAD, TERM_LANES * sizeof(T));                           \
        SIMD for (int l = 0; l < TERM_LANES; l++) TERM_STEP(LOAD(p[i + l]), LOAD(q[i + l]))                 \
      }                                                                                                     \
      if (i < end) {                                                                                        \
        float x[TERM_LANES], y[TERM_LANES];                                                                 \
        for (int l = 0; l < TERM_LANES; l++) x[l] = y[l] = -INFINITY;                                       \
        for (int l = 0; i < end; l++, i++) x[l] = LOAD(p[i]), y[l] = LOAD(q[i]);                            \
        SIMD for (int l = 0; l < TERM_LANES; l++) TERM_STEP(x[l], y[l])                                     \
      }                                                                                                     \
      SIMD for (int l = 0; l < TERM_LANES; l++) sum[l] += acc[l];                                           \
    }                                                                                                       \
    TERM_FOLD(sum, OP_ADD)                                                                                  \
    TERM_FOLD(m, OP_MAX)                                                                                    \
    *next = m[0];                                                                                           \
    return sum[0];                                                                                          \
  }                                                                                                         \
  PLAIT_CLONES static void NAME##_rows(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                  \
    const T *p = in;                                                                                        \
    float next, least = least_term;                                                                         \
    FOLD_ROW(next, p, n, float, 64, LOAD, -INFINITY, OP_MAX);                                               \
    for (int64_t k = 0; k < rows; k++, p += stride) {                                                       \
      float top = next;                                                                                     \
      float sum = NAME##_sum(p, k + 1 < rows ? p + stride : p, n, top, least, &next);                       \
      if (!isfinite(top)) {                                                                                 \
        const U *bits = (const U *)p;                                                                       \
        U key;                                                                                              \
        FOLD_ROW(key, bits, n, U, 64, key_max_##F, 0, OP_MAX);                                              \
        top = key_value_max_##F(key);                                                                       \
        sum = 1;                                                                                            \
      }                                                                                                     \
      logsumexp_add((double *)s.a + k, (double *)s.b + k, (double)top, (double)sum);                        \
    }                                                                                                       \
  }
#define TERM_STEP(x, y)                                             \
  {                                                                 \
    float x_ = x, y_ = y, times, v = term(x_ - top, least, &times); \
    acc[l] += v * times;                                            \
    m[l] = OP_MAX(m[l], y_);                                        \
  }
#define TERM_FOLD(s, f) PLAIT_FOLD_HALF(s, f, 8) PLAIT_FOLD_HALF(s, f, 4) s[0] = f(f(s[0], s[2]), f(s[1], s[3]));

// Rows in two passes. If the maximum of a block is not finite, its sum is not used.
#define LOGSUMEXP_ROWS_TWICE(NAME, F, T, U, C, L, TERM)                                                     \
  PLAIT_CLONES static void NAME##_rows(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                  \
    const float least = least_term;                                                                         \
    (void)least;                                                                                            \
    for (int64_t k = 0; k < rows; k++) {                                                                    \
      const T *p = (const T *)in + k * stride;                                                              \
      U key;                                                                                                \
      C sum = 1;                                                                                            \
      const U *bits = (const U *)p;                                                                         \
      FOLD_ROW(key, bits, n, U, L, key_max_##F, 0, OP_MAX);                                                 \
      C top = key_value_max_##F(key);                                                                       \
      if (isfinite(top)) FOLD_ROW(sum, p, n, C, L, TERM, 0, OP_ADD);                                        \
      logsumexp_add((double *)s.a + k, (double *)s.b + k, (double)top, (double)sum);                        \
    }                                                                                                       \
  }

// The sums of columns of any length, and of a few elements in the order of rows.
#define TOTAL_ALL(T, C, TERM)                \
  for (int64_t r = 0; r < rows; r++) {       \
    const T *q = p + r * stride;             \
    SIMD for (int64_t j = 0; j < n; j++) {   \
      C top = tops[j];                       \
      sum[j] += TERM(q[j]);                  \
    }                                        \
  }
#define TOTAL_FEW(T, C, TERM)                                                                                 \
  for (int64_t first = 0; first < n; first += FEW_STRIP) {                                                    \
    int64_t m = n - first < FEW_STRIP ? n - first : FEW_STRIP;                                                \
    C t[64 / sizeof(C)][FEW_STRIP];                                                                           \
    FOLD_FEW(t, p + first, rows, stride, m, C, 256 / (int)sizeof(C), FEW_##TERM, 0);                          \
    SIMD for (int64_t j = 0; j < m; j++) sum[first + j] = t[0][j];                                            \
  }                                                                                                           \
  SIMD for (int64_t j = 0; j < n; j++) ((double *)s.a)[j] = -INFINITY, ((double *)s.b)[j] = 0;
#define FEW(C, TERM, x)       \
  ({                          \
    C top = tops[first + j];  \
    TERM(x);                  \
  })
#define FEW_TERM_F16(x) FEW(float, TERM_F16, x)
#define FEW_TERM_BF16(x) FEW(float, TERM_BF16, x)
#define FEW_TERM_F32(x) FEW(float, TERM_F32, x)
#define FEW_TERM_F64(x) FEW(double, TERM_F64, x)

#define LOGSUMEXP_COLS(NAME, F, T, U, C, TOTAL, TERM)                                                       \
  PLAIT_CLONES static void NAME(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at,        \
                                       double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                  \
    const float least = least_term;                                                                         \
    (void)least;                                                                                            \
    const T *p = in;                                                                                        \
    U keys[REDUCE_WIDTH_TWO];                                                                               \
    C tops[REDUCE_WIDTH_TWO], sum[REDUCE_WIDTH_TWO];                                                        \
    SIMD for (int64_t j = 0; j < n; j++) {                                                                  \
      keys[j] = 0;                                                                                          \
      sum[j] = 0;                                                                                           \
    }                                                                                                       \
    const U *bits = in;                                                                                     \
    FOLD_COLS(keys, bits, rows, stride, n, s.far, U, key_max_##F, OP_MAX);                                  \
    SIMD for (int64_t j = 0; j < n; j++) tops[j] = key_value_max_##F(keys[j]);                              \
    TOTAL(T, C, TERM)                                                                                       \
    double *m = s.a, *t = s.b;                                                                              \
    SIMD for (int64_t j = 0; j < n; j++) {                                                                  \
      double x = (double)tops[j], y = OP_FMAX(m[j], x);                                                     \
      double at = plait_vm_pick(plait_vm_abs(y) < INFINITY, y, 0);                                          \
      double more = plait_vm_pick(x > -INFINITY, (double)sum[j] * (double)EXP_##C((C)(x - at)), 0);         \
      double v = t[j] * (double)EXP_##C((C)(m[j] - at)) + more;                                             \
      t[j] = plait_vm_pick(plait_vm_abs(y) < INFINITY, v, y > 0);                                           \
      m[j] = y;                                                                                             \
    }                                                                                                       \
  }

LOGSUMEXP_ROWS_TWICE(logsumexp_f16, f16, uint16_t, uint16_t, float, 64, TERM_F16)
LOGSUMEXP_ROWS(logsumexp_bf16, bf16, uint16_t, uint16_t, LOAD_BF16)
LOGSUMEXP_ROWS(logsumexp_f32, f32, float, uint32_t, LOAD_SAME)
LOGSUMEXP_ROWS_TWICE(logsumexp_f64, f64, double, uint64_t, double, 32, TERM_F64)

LOGSUMEXP_COLS(logsumexp_f16_cols, f16, uint16_t, uint16_t, float, TOTAL_ALL, TERM_F16)
LOGSUMEXP_COLS(logsumexp_f16_few, f16, uint16_t, uint16_t, float, TOTAL_FEW, TERM_F16)
LOGSUMEXP_COLS(logsumexp_bf16_cols, bf16, uint16_t, uint16_t, float, TOTAL_ALL, TERM_BF16)
LOGSUMEXP_COLS(logsumexp_bf16_few, bf16, uint16_t, uint16_t, float, TOTAL_FEW, TERM_BF16)
LOGSUMEXP_COLS(logsumexp_f32_cols, f32, float, uint32_t, float, TOTAL_ALL, TERM_F32)
LOGSUMEXP_COLS(logsumexp_f32_few, f32, float, uint32_t, float, TOTAL_FEW, TERM_F32)
LOGSUMEXP_COLS(logsumexp_f64_cols, f64, double, uint64_t, double, TOTAL_ALL, TERM_F64)
LOGSUMEXP_COLS(logsumexp_f64_few, f64, double, uint64_t, double, TOTAL_FEW, TERM_F64)

const struct leaf *plaitk_reduction_logsumexp_leaf(int dtype) {
  static const struct leaf leaves[] = {SUM_LEAF(logsumexp_f16), SUM_LEAF(logsumexp_bf16), SUM_LEAF(logsumexp_f32),
                                       SUM_LEAF(logsumexp_f64)};
  return plait_is_float(dtype) ? &leaves[dtype - PLAIT_F16] : NULL;
}

// log(sum(exp(x))), of floats: each block relative to its maximum.
#include "../../../include/plait_exp_below.h"
#include "reduce.h"

// Of numbers that are not positive.
#define EXP_float(x) plait_exp_belowf(x)
#define EXP_double(x) plait_vm_exp(x)

// The terms of a sum relative to `top`.
#define TERM_F16(x) plait_exp_belowf(plait_f16_to_f32(x) - top)
#define TERM_BF16(x) plait_exp_belowf(plait_bf16_to_f32(x) - top)
#define TERM_F32(x) plait_exp_belowf((x) - top)
#define TERM_F64(x) plait_vm_exp((x) - top)

// Where the maximum of a block is not finite, its sum is not looked at.
#define LOGSUMEXP_LEAF(NAME, F, T, U, C, L, TERM)                                                           \
  PLAIT_CLONES static void NAME##_rows(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                  \
    for (int64_t k = 0; k < rows; k++) {                                                                    \
      const T *p = (const T *)in + k * stride;                                                              \
      U key;                                                                                                \
 C sum = 1;                                                                                                 \
      const U *bits = (const U *)p;                                                                         \
      FOLD_ROW(key, bits, n, U, L, key_max_##F, 0, OP_MAX);                                                 \
      C top = key_value_max_##F(key);                                                                       \
      if (isfinite(top)) FOLD_ROW(sum, p, n, C, L, TERM, 0, OP_ADD);                                        \
      logsumexp_add((double *)s.a + k, (double *)s.b + k, (double)top, (double)sum);                        \
    }                                                                                                       \
  }                                                                                                         \
  PLAIT_CLONES static void NAME##_cols(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                  \
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
    for (int64_t r = 0; r < rows; r++) {                                                                    \
      const T *q = p + r * stride;                                                                          \
      SIMD for (int64_t j = 0; j < n; j++) {                                                                \
        C top = tops[j];                                                                                    \
        sum[j] += TERM(q[j]);                                                                               \
      }                                                                                                     \
    }                                                                                                       \
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

LOGSUMEXP_LEAF(logsumexp_f16, f16, uint16_t, uint16_t, float, 64, TERM_F16)
LOGSUMEXP_LEAF(logsumexp_bf16, bf16, uint16_t, uint16_t, float, 64, TERM_BF16)
LOGSUMEXP_LEAF(logsumexp_f32, f32, float, uint32_t, float, 64, TERM_F32)
LOGSUMEXP_LEAF(logsumexp_f64, f64, double, uint64_t, double, 32, TERM_F64)

#define LEAF(name) {name##_rows, name##_cols}

const struct leaf *plaitk_reduce_logsumexp_leaf(int dtype) {
  static const struct leaf leaves[] = {LEAF(logsumexp_f16), LEAF(logsumexp_bf16), LEAF(logsumexp_f32),
                                       LEAF(logsumexp_f64)};
  return dtype < PLAIT_F16 ? NULL : &leaves[dtype - PLAIT_F16];
}

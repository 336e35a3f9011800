// Sums and products of complex numbers. Elements, and the strides between rows, are pairs.
#include "reduction.h"

#define SUM(T, L)                                                                                              \
  PLAIT_CLONES static void sum_##T##_rows(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                          double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                     \
    for (int64_t k = 0; k < rows; k++) {                                                                       \
      const T *p = (const T *)in + 2 * k * stride;                                                             \
      T re, im;                                                                                                \
      FOLD_PAIRS(re, im, p, 2 * n, T, L, LOAD_SAME, 0, OP_ADD);                                                \
      FLUSH_SUM(s, 2 * k, re);                                                                                 \
      FLUSH_SUM(s, 2 * k + 1, im);                                                                             \
    }                                                                                                          \
  }
SUM(float, 64)
SUM(double, 32)

enum { LANES = 16 };

// Products are double, as those of real numbers.
#define PROD(T)                                                                                                 \
  PLAIT_CLONES static void prod_##T##_rows(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                           double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                      \
    for (int64_t k = 0; k < rows; k++) {                                                                        \
      const T *p = (const T *)in + 2 * k * stride;                                                              \
      double *out = (double *)s.a + 2 * k;                                                                      \
      int64_t i = 0;                                                                                            \
      if (n >= LANES) {                                                                                         \
        double re[LANES], im[LANES];                                                                            \
        SIMD for (int j = 0; j < LANES; j++) re[j] = p[2 * j], im[j] = p[2 * j + 1];                            \
        for (i = LANES; i + LANES <= n; i += LANES) {                                                           \
          const T *q = p + 2 * i;                                                                               \
          SIMD for (int j = 0; j < LANES; j++) {                                                                \
            double a = re[j], b = im[j], x = q[2 * j], y = q[2 * j + 1];                                        \
            re[j] = a * x - b * y, im[j] = a * y + b * x;                                                       \
          }                                                                                                     \
        }                                                                                                       \
        for (int h = LANES / 2; h > 0; h /= 2) {                                                                \
          SIMD for (int j = 0; j < h; j++) {                                                                    \
            double a = re[j], b = im[j], x = re[j + h], y = im[j + h];                                          \
            re[j] = a * x - b * y, im[j] = a * y + b * x;                                                       \
          }                                                                                                     \
        }                                                                                                       \
        complex_multiply(out, re[0], im[0]);                                                                    \
      }                                                                                                         \
      for (; i < n; i++) complex_multiply(out, p[2 * i], p[2 * i + 1]);                                         \
    }                                                                                                           \
  }                                                                                                             \
  PLAIT_CLONES static void prod_##T##_cols(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                           double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                      \
    double *out = s.a;                                                                                          \
    for (int64_t k = 0; k < rows; k++) {                                                                        \
      const T *p = (const T *)in + 2 * k * stride;                                                              \
      SIMD for (int64_t j = 0; j < n; j++) {                                                                    \
        double a = out[2 * j], b = out[2 * j + 1], x = p[2 * j], y = p[2 * j + 1];                              \
        out[2 * j] = a * x - b * y, out[2 * j + 1] = a * y + b * x;                                             \
      }                                                                                                         \
    }                                                                                                           \
  }
PROD(float)
PROD(double)

const struct leaf *plaitk_reduction_pairs_leaf(int op, int dtype) {
  static const struct leaf leaves[2][2] = {
      {{sum_float_rows, NULL, NULL}, {sum_double_rows, NULL, NULL}}, {LEAF(prod_float), LEAF(prod_double)}};
  return &leaves[op == REDUCE_PROD][dtype == PLAIT_F64];
}

// Running sums and products of complex numbers, in double. Elements, and the strides between them, are pairs.
#include "scan.h"

typedef double sum __attribute__((vector_size(16)));
typedef struct {
  double re, im;
} product;

PLAIT_INLINE sum add(sum a, sum b) { return a + b; }
PLAIT_INLINE product multiply(product a, product b) {
  return (product){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

#define SUM_OF(re, im) (sum){re, im}
#define SUM_RE(v) (v)[0]
#define SUM_IM(v) (v)[1]
#define PRODUCT_OF(re, im) (product){re, im}
#define PRODUCT_RE(v) (v).re
#define PRODUCT_IM(v) (v).im

enum { LANES = 16 };

// Totals join the state with n adjacent elements, of which every LANES-th one is joined first, as far as they go. They return how many.
#define TOTALS(T)                                                                            \
  PLAIT_INLINE int64_t sum_total_##T(const T *in, int64_t n, double *re, double *im) {       \
    double lane[2 * LANES] = {0};                                                            \
    int64_t i = 0;                                                                           \
    for (; i + LANES <= n; i += LANES, in += 2 * LANES) {                                    \
      SIMD for (int j = 0; j < 2 * LANES; j++) lane[j] += in[j];                             \
    }                                                                                        \
    for (int h = LANES; h > 1; h /= 2) {                                                     \
      SIMD for (int j = 0; j < h; j++) lane[j] += lane[j + h];                               \
    }                                                                                        \
    *re += lane[0], *im += lane[1];                                                          \
    return i;                                                                                \
  }                                                                                          \
  PLAIT_INLINE int64_t prod_total_##T(const T *in, int64_t n, double *re, double *im) {      \
    if (n < LANES) return 0;                                                                 \
    double r[LANES], m[LANES];                                                               \
    SIMD for (int j = 0; j < LANES; j++) r[j] = in[2 * j], m[j] = in[2 * j + 1];             \
    int64_t i = LANES;                                                                       \
    for (in += 2 * LANES; i + LANES <= n; i += LANES, in += 2 * LANES) {                     \
      SIMD for (int j = 0; j < LANES; j++) {                                                 \
        double a = r[j], b = m[j], x = in[2 * j], y = in[2 * j + 1];                         \
        r[j] = a * x - b * y, m[j] = a * y + b * x;                                          \
      }                                                                                      \
    }                                                                                        \
    product all = {*re, *im};                                                                \
    for (int j = 0; j < LANES; j++) all = multiply(all, (product){r[j], m[j]});              \
    *re = all.re, *im = all.im;                                                              \
    return i;                                                                                \
  }
TOTALS(float)
TOTALS(double)

typedef double quad __attribute__((vector_size(32)));
typedef double quad_double __attribute__((vector_size(32), aligned(8), may_alias));
typedef float quad_float __attribute__((vector_size(16), aligned(4), may_alias));

// Runs are the scans of adjacent elements as far as they go in fours, in the order of sum_float_rows. They return how many.
#define SUM_RUN(T)                                                                                        \
  PLAIT_INLINE int64_t sum_run_##T(const T *in, T *out, int64_t n, double *re, double *im) {              \
    quad a = {*re, *im, *re, *im};                                                                        \
    const quad none = {0};                                                                                \
    int64_t i = 0;                                                                                        \
    for (; i + 4 <= n; i += 4, in += 8, out += 8) {                                                       \
      quad x = {in[0], in[1], in[2], in[3]}, y = {in[4], in[5], in[6], in[7]};                            \
      x += __builtin_shufflevector(x, none, 4, 5, 0, 1);                                                  \
      y += __builtin_shufflevector(y, none, 4, 5, 0, 1);                                                  \
      y += __builtin_shufflevector(x, x, 2, 3, 2, 3);                                                     \
      *(quad_##T *)out = __builtin_convertvector(a + x, quad_##T);                                        \
      *(quad_##T *)(out + 4) = __builtin_convertvector(a + y, quad_##T);                                  \
      a += __builtin_shufflevector(y, y, 2, 3, 2, 3);                                                     \
    }                                                                                                     \
    *re = a[0], *im = a[1];                                                                               \
    return i;                                                                                             \
  }
SUM_RUN(float)
SUM_RUN(double)

// Four elements are joined before the state joins them, so that it waits for one operation alone and not for four.
#define ROWS(NAME, T, S, OF, RE, IM, JOIN, TOTAL, RUNS)                                                             \
  PLAIT_CLONES static void NAME##_rows(const struct scan_part *part) {                                       \
    const struct scan_part p = *part;                                                                        \
    double *re = p.s.a, *im = p.s.b;                                                                         \
    int64_t step = 2 * p.in_stride, far = 2 * p.out_stride;                                                  \
    for (int64_t k = 0; k < p.lines; k++) {                                                                  \
      const T *in = (const T *)p.in + 2 * k * p.in_line;                                                     \
      T *out = p.out == NULL ? NULL : (T *)p.out + 2 * k * p.out_line;                                       \
      int64_t i = 0;                                                                                         \
      if (p.in_stride == 1 && out == NULL) in += 2 * (i = TOTAL(in, p.n, re + k, im + k));                   \
      if (RUNS && p.in_stride == 1 && p.out_stride == 1 && out != NULL) {                                    \
        i = sum_run_##T(in, out, p.n, re + k, im + k);                                                       \
        in += 2 * i, out += 2 * i;                                                                           \
      }                                                                                                      \
      S a = OF(re[k], im[k]);                                                                                \
      for (; i + 4 <= p.n; i += 4, in += 4 * step) {                                                         \
        const T *in1 = in + step, *in2 = in1 + step, *in3 = in2 + step;                                      \
        S x = OF(in[0], in[1]), y = OF(in2[0], in2[1]);                                                      \
        S x1 = JOIN(x, OF(in1[0], in1[1])), y1 = JOIN(y, OF(in3[0], in3[1])), all = JOIN(x1, y1);            \
        if (out != NULL) {                                                                                   \
          T *out1 = out + far, *out2 = out1 + far, *out3 = out2 + far;                                       \
          S u = JOIN(a, x), u1 = JOIN(a, x1), u2 = JOIN(a, JOIN(x1, y)), u3 = JOIN(a, all);                  \
          out[0] = (T)RE(u), out[1] = (T)IM(u), out1[0] = (T)RE(u1), out1[1] = (T)IM(u1);                    \
          out2[0] = (T)RE(u2), out2[1] = (T)IM(u2), out3[0] = (T)RE(u3), out3[1] = (T)IM(u3);                \
          out += 4 * far;                                                                                    \
        }                                                                                                    \
        a = JOIN(a, all);                                                                                    \
      }                                                                                                      \
      for (; i < p.n; i++, in += step) {                                                                     \
        a = JOIN(a, OF(in[0], in[1]));                                                                       \
        if (out == NULL) continue;                                                                           \
        out[0] = (T)RE(a), out[1] = (T)IM(a);                                                                \
        out += far;                                                                                          \
      }                                                                                                      \
      re[k] = RE(a), im[k] = IM(a);                                                                          \
    }                                                                                                        \
  }

ROWS(sum_float, float, sum, SUM_OF, SUM_RE, SUM_IM, add, sum_total_float, true)
ROWS(sum_double, double, sum, SUM_OF, SUM_RE, SUM_IM, add, sum_total_double, true)
ROWS(prod_float, float, product, PRODUCT_OF, PRODUCT_RE, PRODUCT_IM, multiply, prod_total_float, false)
ROWS(prod_double, double, product, PRODUCT_OF, PRODUCT_RE, PRODUCT_IM, multiply, prod_total_double, false)

#define COLUMNS(NAME, T)                                                                       \
  PLAIT_CLONES static void NAME##_columns(const struct scan_part *p) {                         \
    double *re = p->s.a, *im = p->s.b;                                                         \
    int64_t lines = p->lines;                                                                  \
    for (int64_t i = 0; i < p->n; i++) {                                                       \
      const T *in = (const T *)p->in + 2 * i * p->in_stride;                                   \
      T *out = p->out == NULL ? NULL : (T *)p->out + 2 * i * p->out_stride;                    \
      SIMD for (int64_t j = 0; j < lines; j++) {                                               \
        double a = re[j], b = im[j], x = in[2 * j], y = in[2 * j + 1];                         \
        re[j] = a * x - b * y, im[j] = a * y + b * x;                                          \
      }                                                                                        \
      if (out == NULL) continue;                                                               \
      SIMD for (int64_t j = 0; j < lines; j++) out[2 * j] = (T)re[j], out[2 * j + 1] = (T)im[j]; \
    }                                                                                          \
  }

COLUMNS(prod_float, float)
COLUMNS(prod_double, double)

// Columns of sums are those of the parts.
const struct scan_leaves *plaitk_scan_pairs(int op, int dtype) {
  static const struct scan_leaves leaves[2][2] = {{{sum_float_rows, NULL, NULL}, {sum_double_rows, NULL, NULL}},
                                                  {{prod_float_rows, prod_float_columns, NULL}, {prod_double_rows, prod_double_columns, NULL}}};
  return &leaves[op == SCAN_PROD][dtype == PLAIT_F64];
}

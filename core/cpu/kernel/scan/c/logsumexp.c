// Running log(sum(exp(x))) of floats, as a running maximum m and a running sum of exp(x - m).
#include "../../../include/plait_exp_below.h"
#include "scan.h"

enum { BLOCK = 256 };

// exp of numbers that are not positive.
#define EXP_float(x) plait_exp_belowf(x)
#define EXP_double(x) plait_vm_exp(x)
#define LOG_float(x) plait_vm_logf(x)
#define LOG_double(x) plait_vm_log(x)
#define PICK_float(c, a, b) plait_vm_pickf(c, a, b)
#define PICK_double(c, a, b) plait_vm_pick(c, a, b)

// exp(x - m), but 1 if both are the same infinity.
#define WEIGHT(C, x, m) PICK_##C((x) == (m), 1, EXP_##C((x) - (m)))

#define LOGSUMEXP_LEAVES(NAME, T, C, LOAD, STORE)                                                      \
  /* One block of one line: the maxima in order, then all exponentials, then the sums in order. */     \
  PLAIT_CLONES static void NAME##_block(const C *x, C *y, int64_t n, double *m, double *s) {           \
    C top[BLOCK + 1], decay[BLOCK], term[BLOCK];                                                       \
    top[0] = (C)*m;                                                                                    \
    for (int64_t i = 0; i < n; i++) top[i + 1] = (x[i] > top[i]) | (x[i] != x[i]) ? x[i] : top[i];     \
    SIMD for (int64_t i = 0; i < n; i++) {                                                             \
      decay[i] = WEIGHT(C, top[i], top[i + 1]);                                                        \
      term[i] = WEIGHT(C, x[i], top[i + 1]);                                                           \
    }                                                                                                  \
    double sum = *s;                                                                                   \
    for (int64_t i = 0; i < n; i++) {                                                                  \
      sum = sum * (double)decay[i] + (double)term[i];                                                  \
      y[i] = (C)sum;                                                                                   \
    }                                                                                                  \
    SIMD for (int64_t i = 0; i < n; i++) y[i] = top[i + 1] + LOG_##C(y[i]);                            \
    *m = (double)top[n];                                                                               \
    *s = sum;                                                                                          \
  }                                                                                                    \
  static void NAME##_rows(const struct scan_part *p) {                                                 \
    for (int64_t k = 0; k < p->lines; k++) {                                                           \
      const T *in = (const T *)p->in + k * p->in_line;                                                 \
      C x[BLOCK], y[BLOCK];                                                                            \
      for (int64_t at = 0; at < p->n; at += BLOCK) {                                                   \
        int64_t n = p->n - at < BLOCK ? p->n - at : BLOCK;                                             \
        for (int64_t i = 0; i < n; i++) x[i] = LOAD(in[(at + i) * p->in_stride]);                      \
        NAME##_block(x, y, n, (double *)p->s.a + k, (double *)p->s.b + k);                             \
        if (p->out == NULL) continue;                                                                  \
        T *out = (T *)p->out + k * p->out_line;                                                        \
        for (int64_t i = 0; i < n; i++) out[(at + i) * p->out_stride] = STORE(y[i]);                   \
      }                                                                                                \
    }                                                                                                  \
  }                                                                                                    \
  PLAIT_CLONES static void NAME##_columns(const struct scan_part *p) {                                 \
    double *m = p->s.a, *s = p->s.b;                                                                   \
    int64_t lines = p->lines;                                                                          \
    C y[SCAN_WIDTH];                                                                                   \
    for (int64_t i = 0; i < p->n; i++) {                                                               \
      const T *in = (const T *)p->in + i * p->in_stride;                                               \
      SIMD for (int64_t j = 0; j < lines; j++) {                                                       \
        C x = LOAD(in[j]), old = (C)m[j], top = PICK_##C((x > old) | (x != x), x, old);                \
        double sum = s[j] * (double)WEIGHT(C, old, top) + (double)WEIGHT(C, x, top);                   \
        m[j] = (double)top;                                                                            \
        s[j] = sum;                                                                                    \
        y[j] = top + LOG_##C((C)sum);                                                                  \
      }                                                                                                \
      if (p->out == NULL) continue;                                                                    \
      T *out = (T *)p->out + i * p->out_stride;                                                        \
      SIMD for (int64_t j = 0; j < lines; j++) out[j] = STORE(y[j]);                                   \
    }                                                                                                  \
  }

LOGSUMEXP_LEAVES(logsumexp_f16, uint16_t, float, LOAD_F16, STORE_F16)
LOGSUMEXP_LEAVES(logsumexp_bf16, uint16_t, float, LOAD_BF16, STORE_BF16)
LOGSUMEXP_LEAVES(logsumexp_f32, float, float, LOAD_SAME, STORE_SAME)
LOGSUMEXP_LEAVES(logsumexp_f64, double, double, LOAD_SAME, STORE_SAME)

#define LEAF(name) {name##_rows, name##_columns, NULL}

const struct scan_leaves *plaitk_scan_logsumexp(int dtype) {
  static const struct scan_leaves leaves[] = {LEAF(logsumexp_f16), LEAF(logsumexp_bf16), LEAF(logsumexp_f32),
                                              LEAF(logsumexp_f64)};
  return plait_is_float(dtype) ? &leaves[dtype - PLAIT_F16] : NULL;
}

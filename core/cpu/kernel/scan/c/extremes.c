// Running maximum and minimum with indices. Of equal elements the last one counts, as in PyTorch. From the first NaN
// on, the result is NaN.
#include "scan.h"

#define AT_LEAST(x, a) ((x) >= (a))
#define AT_MOST(x, a) ((x) <= (a))
#define FAT_LEAST(x, a) (((x) != (x)) | (((x) >= (a)) & ((a) == (a))))
#define FAT_MOST(x, a) (((x) != (x)) | (((x) <= (a)) & ((a) == (a))))

// LINES rows are scanned beside each other, as each step waits for the one before it.
enum { LINES = 4 };

// Elements of type T are compared as C, and states are kept as S.
#define EXTREME_LEAVES(NAME, T, C, S, LOAD, STORE, BEATS)                                         \
  PLAIT_INLINE void NAME##_lines(const struct scan_part *part, int64_t k, int lines, bool both) { \
    const struct scan_part p = *part;                                                             \
    S *best = (S *)p.s.a + k;                                                                     \
    int64_t *where = (int64_t *)p.s.b + k, w[LINES];                                              \
    C a[LINES];                                                                                   \
    for (int l = 0; l < lines; l++) a[l] = (C)best[l], w[l] = where[l];                           \
    for (int64_t i = 0; i < p.n; i++) {                                                           \
      for (int l = 0; l < lines; l++) {                                                           \
        C x = (C)LOAD(((const T *)p.in)[(k + l) * p.in_line + i * p.in_stride]);                  \
        bool take = (w[l] < 0) | BEATS(x, a[l]);                                                  \
        a[l] = take ? x : a[l];                                                                   \
        w[l] ^= (w[l] ^ (p.at + i)) & -(int64_t)take;                                             \
        int64_t to = (k + l) * p.out_line + i * p.out_stride;                                     \
        if (both || p.out != NULL) ((T *)p.out)[to] = (T)STORE(a[l]);                             \
        if (both || p.index != NULL) p.index[to] = w[l];                                          \
      }                                                                                           \
    }                                                                                             \
    for (int l = 0; l < lines; l++) best[l] = (S)a[l], where[l] = w[l];                           \
  }                                                                                               \
  static void NAME##_rows(const struct scan_part *p) {                                            \
    bool both = p->out != NULL && p->index != NULL;                                               \
    int64_t k = 0;                                                                                \
    for (; both && k + LINES <= p->lines; k += LINES) NAME##_lines(p, k, LINES, true);            \
    for (; k < p->lines; k++) NAME##_lines(p, k, 1, false);                                       \
  }                                                                                               \
  PLAIT_CLONES static void NAME##_columns(const struct scan_part *p) {                            \
    C acc[SCAN_WIDTH];                                                                            \
    int64_t where[SCAN_WIDTH];                                                                    \
    S *best = p->s.a;                                                                             \
    int64_t lines = p->lines;                                                                     \
    for (int64_t j = 0; j < lines; j++) acc[j] = (C)best[j];                                      \
    memcpy(where, p->s.b, (size_t)lines * sizeof where[0]);                                       \
    for (int64_t i = 0; i < p->n; i++) {                                                          \
      const T *in = (const T *)p->in + i * p->in_stride;                                          \
      int64_t at = p->at + i;                                                                     \
      SIMD for (int64_t j = 0; j < lines; j++) {                                                  \
        C x = (C)LOAD(in[j]), a = acc[j];                                                         \
        int64_t w = where[j];                                                                     \
        bool take = (w < 0) | BEATS(x, a);                                                        \
        acc[j] = take ? x : a;                                                                    \
        where[j] = take ? at : w;                                                                 \
      }                                                                                           \
      if (p->out != NULL) {                                                                       \
        T *out = (T *)p->out + i * p->out_stride;                                                 \
        SIMD for (int64_t j = 0; j < lines; j++) out[j] = (T)STORE(acc[j]);                       \
      }                                                                                           \
      if (p->index != NULL) memcpy(p->index + i * p->out_stride, where, (size_t)lines * 8);       \
    }                                                                                             \
    for (int64_t j = 0; j < lines; j++) best[j] = (S)acc[j];                                      \
    memcpy(p->s.b, where, (size_t)lines * sizeof where[0]);                                       \
  }

#define INTS(SUFFIX, T)                                                                           \
  EXTREME_LEAVES(max_##SUFFIX, T, T, int64_t, LOAD_SAME, STORE_SAME, AT_LEAST)                    \
  EXTREME_LEAVES(min_##SUFFIX, T, T, int64_t, LOAD_SAME, STORE_SAME, AT_MOST)
#define FLOATS(SUFFIX, T, C, LOAD, STORE)                                                         \
  EXTREME_LEAVES(max_##SUFFIX, T, C, double, LOAD, STORE, FAT_LEAST)                              \
  EXTREME_LEAVES(min_##SUFFIX, T, C, double, LOAD, STORE, FAT_MOST)

INTS(u8, uint8_t)
INTS(i8, int8_t)
INTS(i16, int16_t)
INTS(u16, uint16_t)
INTS(u32, uint32_t)
EXTREME_LEAVES(max_u64, uint64_t, int64_t, int64_t, PLAIT_ORDERED, PLAIT_ORDERED, AT_LEAST)
EXTREME_LEAVES(min_u64, uint64_t, int64_t, int64_t, PLAIT_ORDERED, PLAIT_ORDERED, AT_MOST)
INTS(i32, int32_t)
INTS(i64, int64_t)
FLOATS(f16, uint16_t, float, LOAD_F16, STORE_F16)
FLOATS(bf16, uint16_t, float, LOAD_BF16, STORE_BF16)
FLOATS(f32, float, float, LOAD_SAME, STORE_SAME)
FLOATS(f64, double, double, LOAD_SAME, STORE_SAME)

#define LEAF(name) {name##_rows, name##_columns}
const struct scan_leaves *plaitk_scan_extremes(int op, int dtype) {
  static const struct scan_leaves maxima[] = {PLAIT_BY_DTYPE(LEAF, max)}, minima[] = {PLAIT_BY_DTYPE(LEAF, min)};
  return op == SCAN_MAX ? &maxima[dtype] : &minima[dtype];
}

// Running maximum and minimum with indices. Of equal elements the last one counts, as in PyTorch. From the first NaN
// on, the result is NaN.
#include "scan.h"

#define AT_LEAST(x, a) ((x) >= (a))
#define AT_MOST(x, a) ((x) <= (a))
#define FAT_LEAST(x, a) (((x) != (x)) | (((x) >= (a)) & ((a) == (a))))
#define FAT_MOST(x, a) (((x) != (x)) | (((x) <= (a)) & ((a) == (a))))

// A row goes by blocks: one whose elements do not beat the best so far is filled with it.
enum { BLOCK = 16 };

// Elements of type T are compared as C, and states are kept as S.
#define EXTREME_LEAVES(NAME, T, C, S, LOAD, STORE, BEATS)                                         \
  PLAIT_INLINE bool NAME##_beaten(const T *in, C a) {                                             \
    int any = 0;                                                                                  \
    _Pragma("omp simd reduction(|:any)") for (int j = 0; j < BLOCK; j++) {                        \
      C x = (C)LOAD(in[j]);                                                                       \
      any |= BEATS(x, a);                                                                         \
    }                                                                                             \
    return any != 0;                                                                              \
  }                                                                                               \
  PLAIT_CLONES static void NAME##_rows(const struct scan_part *part) {                            \
    const struct scan_part p = *part;                                                             \
    bool blocks = p.out != NULL && p.index != NULL && p.in_stride == 1 && p.out_stride == 1;      \
    for (int64_t k = 0; k < p.lines; k++) {                                                       \
      const T *in = (const T *)p.in + k * p.in_line;                                              \
      T *out = p.out == NULL ? NULL : (T *)p.out + k * p.out_line;                                \
      int64_t *index = p.index == NULL ? NULL : p.index + k * p.out_line;                         \
      C a = (C)((S *)p.s.a)[k];                                                                   \
      int64_t w = ((int64_t *)p.s.b)[k];                                                          \
      for (int64_t first = 0; first < p.n; first += BLOCK) {                                      \
        int64_t n = p.n - first < BLOCK ? p.n - first : BLOCK;                                    \
        if (blocks && n == BLOCK && w >= 0 && !NAME##_beaten(in + first, a)) {                    \
          for (int j = 0; j < BLOCK; j++) out[first + j] = (T)STORE(a);                           \
          for (int j = 0; j < BLOCK; j++) index[first + j] = w;                                   \
          continue;                                                                               \
        }                                                                                         \
        for (int64_t i = first; i < first + n; i++) {                                             \
          C x = (C)LOAD(in[i * p.in_stride]);                                                     \
          bool take = (w < 0) | BEATS(x, a);                                                      \
          a = take ? x : a;                                                                       \
          w ^= (w ^ (p.at + i)) & -(int64_t)take;                                                 \
          if (out != NULL) out[i * p.out_stride] = (T)STORE(a);                                   \
          if (index != NULL) index[i * p.out_stride] = w;                                         \
        }                                                                                         \
      }                                                                                           \
      ((S *)p.s.a)[k] = (S)a, ((int64_t *)p.s.b)[k] = w;                                          \
    }                                                                                             \
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

#define LEAF(name) {name##_rows, name##_columns, NULL}
const struct scan_leaves *plaitk_scan_extremes(int op, int dtype) {
  static const struct scan_leaves maxima[] = {PLAIT_BY_DTYPE(LEAF, max)}, minima[] = {PLAIT_BY_DTYPE(LEAF, min)};
  return op == SCAN_MAX ? &maxima[dtype] : &minima[dtype];
}

// Copies elements from offsets, and combines values into elements.
#include "indexing.h"

#define TAKE(S, T)                                                                                                    \
  static void take##S(char *restrict out, int64_t os, const char *restrict in, const int64_t *restrict offsets, int64_t n) { \
    T *restrict o = (T *)out;                                                                                         \
    const T *restrict x = (const T *)in;                                                                              \
    if (os == 1) {                                                                                                    \
      for (int64_t i = 0; i < n; i++) o[i] = x[offsets[i]];                                                           \
    } else {                                                                                                          \
      for (int64_t i = 0; i < n; i++) o[i * os] = x[offsets[i]];                                                      \
    }                                                                                                                 \
  }
typedef uint8_t __attribute__((may_alias)) bits1;
typedef uint16_t __attribute__((may_alias)) bits2;
typedef uint32_t __attribute__((may_alias)) bits4;
typedef uint64_t __attribute__((may_alias)) bits8;
TAKE(1, bits1)
TAKE(2, bits2)
TAKE(4, bits4)
TAKE(8, bits8)

void plaitk_indexing_take(int64_t size, char *restrict out, int64_t os, const char *restrict in,
                          const int64_t *restrict offsets, int64_t n) {
  switch (size) {
  case 1: take1(out, os, in, offsets, n); break;
  case 2: take2(out, os, in, offsets, n); break;
  case 4: take4(out, os, in, offsets, n); break;
  default: take8(out, os, in, offsets, n); break;
  }
}

#define KEEP_NEW(a, b) (b)
#define SUM(a, b) ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
// If a or b is NaN, the result is NaN.
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

// U is the unsigned type of the arithmetic, so that integers wrap.
#define COMBINE(name, T, U, OP)                                                                                   \
  static void at_##name(char *self, const int64_t *index, plaitk_steps at, const char *values, int64_t step, int64_t n) { \
    T *s = (T *)self;                                                                                             \
    const T *v = (const T *)values;                                                                               \
    if (at.index == 1 && at.stride == 1 && at.along == 0 && step == 1) {                                          \
      for (int64_t i = 0; i < n; i++) s[index[i]] = (T)OP((U)s[index[i]], (U)v[i]);                               \
      return;                                                                                                     \
    }                                                                                                             \
    for (int64_t i = 0; i < n; i++) {                                                                             \
      T *p = s + index[i * at.index] * at.stride + i * at.along;                                                  \
      *p = (T)OP((U)*p, (U)v[i * step]);                                                                          \
    }                                                                                                             \
  }                                                                                                               \
  PLAIT_CLONES static void row_##name(char *self, int64_t self_step, const char *values, int64_t step, int64_t n) { \
    T *restrict s = (T *)self;                                                                                    \
    const T *restrict v = (const T *)values;                                                                      \
    if (self_step == 1 && step == 1) {                                                                            \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) s[i] = (T)OP((U)s[i], (U)v[i]);                         \
    } else if (self_step == 1 && step == 0) {                                                                     \
      U x = (U)v[0];                                                                                              \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) s[i] = (T)OP((U)s[i], x);                               \
    } else {                                                                                                      \
      for (int64_t i = 0; i < n; i++) s[i * self_step] = (T)OP((U)s[i * self_step], (U)v[i * step]);              \
    }                                                                                                             \
  }

#define COMBINE_ALL(name, T, U)    \
  COMBINE(add_##name, T, U, SUM)     \
  COMBINE(mul_##name, T, U, PRODUCT) \
  COMBINE(max_##name, T, T, LARGER)  \
  COMBINE(min_##name, T, T, SMALLER)

COMBINE(assign1, bits1, bits1, KEEP_NEW)
COMBINE(assign2, bits2, bits2, KEEP_NEW)
COMBINE(assign4, bits4, bits4, KEEP_NEW)
COMBINE(assign8, bits8, bits8, KEEP_NEW)
COMBINE_ALL(u8, uint8_t, uint32_t)
COMBINE_ALL(i8, int8_t, uint32_t)
COMBINE_ALL(i16, int16_t, uint32_t)
COMBINE_ALL(u16, uint16_t, uint32_t)
COMBINE_ALL(u32, uint32_t, uint32_t)
COMBINE_ALL(u64, uint64_t, uint64_t)
COMBINE_ALL(i32, int32_t, uint32_t)
COMBINE_ALL(i64, int64_t, uint64_t)
COMBINE_ALL(f32, float, float)
COMBINE_ALL(f64, double, double)

#define PAIR(name) {at_##name, row_##name}
// For bools, a sum or maximum is or, and a product or minimum is and.
#define OF_DTYPES(op, of_bool)                                                                                      \
  {                                                                                                                 \
    [PLAIT_BOOL] = PAIR(of_bool##_u8), [PLAIT_U8] = PAIR(op##_u8), [PLAIT_I32] = PAIR(op##_i32),                    \
    [PLAIT_I64] = PAIR(op##_i64), [PLAIT_F32] = PAIR(op##_f32), [PLAIT_F64] = PAIR(op##_f64),                       \
    [PLAIT_I8] = PAIR(op##_i8), [PLAIT_I16] = PAIR(op##_i16), [PLAIT_U16] = PAIR(op##_u16),                         \
    [PLAIT_U32] = PAIR(op##_u32), [PLAIT_U64] = PAIR(op##_u64)                                                      \
  }

static const plaitk_combine combines[PLAITK_MODES][PLAIT_DTYPES] = {
    [PLAITK_ADD] = OF_DTYPES(add, max),
    [PLAITK_MUL] = OF_DTYPES(mul, min),
    [PLAITK_MAX] = OF_DTYPES(max, max),
    [PLAITK_MIN] = OF_DTYPES(min, min),
};

plaitk_combine plaitk_indexing_combine(int64_t mode, int64_t dtype) {
  static const plaitk_combine assign[4] = {PAIR(assign1), PAIR(assign2), PAIR(assign4), PAIR(assign8)};
  if (mode != PLAITK_ASSIGN) return combines[mode][dtype];
  int64_t size = plait_dtype_size(dtype);
  return assign[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3];
}

// Maximum and minimum with the index of their first occurrence; a NaN wins over everything.
#include "reduce.h"

#define GREATER(a, b) ((a) > (b))
#define LESS(a, b) ((a) < (b))
// b beats the earlier a. Of floats: also where it is the first NaN.
#define FGREATER(b, a) (((b) > (a)) | (((b) != (b)) & ((a) == (a))))
#define FLESS(b, a) (((b) < (a)) | (((b) != (b)) & ((a) == (a))))

// Elements that are looked through for any hit at a time, before the place of the hit is.
#define FIND_STEP 256

// FIND defines NAME(p, n, lo, hi), the index of the first of n keys KEY(p[i]) for which HIT holds, of which there is one.
#define IN_RANGE(key) (((key) >= lo) & ((key) <= hi))
#define SAME(key) ((key) == lo)
#define FIND(NAME, U, KEY, HIT)                                                  \
  PLAIT_INLINE int64_t NAME(const U *p, int64_t n, U lo, U hi) {                 \
    (void)hi;                                                                    \
    int64_t i = 0;                                                               \
    for (; i + FIND_STEP <= n; i += FIND_STEP) {                                 \
      U any = 0;                                                                 \
      _Pragma("omp simd reduction(|:any)") for (int j = 0; j < FIND_STEP; j++) { \
        U k = KEY(p[i + j]);                                                     \
        any |= (U)HIT(k);                                                        \
      }                                                                          \
      if (any) break;                                                            \
    }                                                                            \
    for (; i < n; i += 64) {                                                     \
      int m = (int)(n - i < 64 ? n - i : 64);                                    \
      U first = 64;                                                              \
      _Pragma("omp simd reduction(min:first)") for (int j = 0; j < m; j++) {     \
        U k = KEY(p[i + j]), here = (U)j;                                        \
        first = HIT(k) ? (here < first ? here : first) : first;                  \
      }                                                                          \
      if (first < 64) return i + (int64_t)first;                                 \
    }                                                                            \
    return 0;                                                                    \
  }

FIND(find_key_u8, uint8_t, LOAD_SAME, SAME)
FIND(find_key_u16, uint16_t, LOAD_SAME, SAME)
FIND(find_key_i32, int32_t, LOAD_SAME, SAME)
FIND(find_key_u32, uint32_t, LOAD_SAME, SAME)
FIND(find_key_i64, int64_t, LOAD_SAME, SAME)
FIND(find_key_u64, uint64_t, LOAD_SAME, SAME)
#define find_u8(p, n, k) find_key_u8(p, n, k, k)
#define find_i32(p, n, k) find_key_i32(p, n, k, k)
#define find_i64(p, n, k) find_key_i64(p, n, k, k)

// find_max_F and find_min_F find the first element that equals the one with the given key: any zero for a zero, any NaN
// for a NaN, and for all others the one pattern of bits that has the key.
#define FIND_FLOAT(ORDER, F, U, FIND_BITS, INF)                                      \
  FIND(find_key_##ORDER##_##F, U, key_##ORDER##_##F, IN_RANGE)                       \
  PLAIT_INLINE int64_t find_##ORDER##_##F(const U *p, int64_t n, U key) {            \
    U last = key_##ORDER##_##F(INF_OF_##ORDER(U, INF));                              \
    U a = key_##ORDER##_##F(0), b = key_##ORDER##_##F((U)(((U) ~(U)0 >> 1) + 1));    \
    if (key > last) return find_key_##ORDER##_##F(p, n, (U)(last + 1), (U) ~(U)0);   \
    if ((key == a) | (key == b)) {                                                   \
      return find_key_##ORDER##_##F(p, n, a < b ? a : b, a < b ? b : a);             \
    }                                                                                \
    U bits = key_order_##F(UNKEY_##ORDER(U, key, INF));                              \
    return FIND_BITS(p, n, bits, bits);                                              \
  }
#define INF_OF_max(U, INF) (U)(INF)
#define INF_OF_min(U, INF) (U)((INF) | ~((U) ~(U)0 >> 1))
#define UNKEY_max(U, key, INF) (U)((key) - (INF)-1)
#define UNKEY_min(U, key, INF) (U)((INF) - (key))

FIND_FLOAT(max, f16, uint16_t, find_key_u16, 0x7c00u)
FIND_FLOAT(min, f16, uint16_t, find_key_u16, 0x7c00u)
FIND_FLOAT(max, bf16, uint16_t, find_key_u16, 0x7f80u)
FIND_FLOAT(min, bf16, uint16_t, find_key_u16, 0x7f80u)
FIND_FLOAT(max, f32, uint32_t, find_key_u32, 0x7f800000u)
FIND_FLOAT(min, f32, uint32_t, find_key_u32, 0x7f800000u)
FIND_FLOAT(max, f64, uint64_t, find_key_u64, 0x7ff0000000000000u)
FIND_FLOAT(min, f64, uint64_t, find_key_u64, 0x7ff0000000000000u)

// ARG_STEP takes an element x of a column into its best value b and row w, with masks, because a chain of conditional
// expressions becomes branches.
#define ARG_STEP(C, I, x, ROW, BEATS) \
  {                                   \
    bool beats = BEATS(x, b);         \
    b = SELECT_##C(beats, x, b);      \
    w = SELECT_##I(beats, ROW, w);    \
  }
#define SELECT_float(c, a, b) plait_vm_pickf(c, a, b)
#define SELECT_double(c, a, b) plait_vm_pick(c, a, b)
#define SELECT_int32_t(c, a, b) (((a) & -(int32_t)(c)) | ((b) & ((int32_t)(c)-1)))
#define SELECT_int64_t(c, a, b) (((a) & -(int64_t)(c)) | ((b) & ((int64_t)(c)-1)))

// A row is folded in blocks of this many elements, and only the best block is looked through for the index.
#define ARG_BLOCK 1024

// ARG_LEAF: elements of type T are compared as C in columns and as L lanes of keys U in rows; column indices are kept as
// I, of the size of C, and values stored as S.
#define ARG_LEAF(NAME, T, C, U, L, I, S, LOAD, KEY, IDENTITY, OP, UNKEY, FIND, BEATS)                       \
  PLAIT_CLONES static void NAME##_rows(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)param;                                                                                            \
    S *value = s.a;                                                                                         \
    int64_t *index = s.b;                                                                                   \
    for (int64_t k = 0; k < rows; k++) {                                                                    \
      const T *p = (const T *)in + k * stride;                                                              \
      const U *bits = (const U *)p;                                                                         \
      U key = 0;                                                                                            \
      C v = 0;                                                                                              \
      int64_t from = 0;                                                                                     \
      for (int64_t i = 0; i < n; i += ARG_BLOCK) {                                                          \
        int64_t m = n - i < ARG_BLOCK ? n - i : ARG_BLOCK;                                                  \
        U here;                                                                                             \
        FOLD_ROW(here, bits + i, m, U, L, KEY, IDENTITY, OP);                                               \
        C best = (C)UNKEY(here);                                                                            \
        if (i > 0 && !BEATS(best, v)) continue;                                                             \
        key = here;                                                                                         \
        v = best;                                                                                           \
        from = i;                                                                                           \
      }                                                                                                     \
      if (index[k] >= 0 && !BEATS((S)v, value[k])) continue;                                                \
      value[k] = (S)v;                                                                                      \
      index[k] = at + from + FIND(bits + from, n - from, key);                                              \
    }                                                                                                       \
  }                                                                                                         \
  PLAIT_CLONES static void NAME##_cols(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)param;                                                                                            \
    const T *p = in;                                                                                        \
    C best[REDUCE_WIDTH];                                                                                   \
    I row[REDUCE_WIDTH];                                                                                    \
    SIMD for (int64_t j = 0; j < n; j++) {                                                                  \
      best[j] = (C)LOAD(p[j]);                                                                              \
      row[j] = 0;                                                                                           \
    }                                                                                                       \
    int64_t r = 1;                                                                                          \
    for (; r + 4 <= rows; r += 4) {                                                                         \
      const T *q = p + r * stride;                                                                          \
      I at0 = (I)r, at1 = (I)(r + 1), at2 = (I)(r + 2), at3 = (I)(r + 3);                                   \
      SIMD for (int64_t j = 0; j < n; j++) {                                                                \
        C x0 = (C)LOAD(q[j]), x1 = (C)LOAD(q[j + stride]);                                                  \
        C x2 = (C)LOAD(q[j + 2 * stride]), x3 = (C)LOAD(q[j + 3 * stride]);                                 \
        C b = best[j];                                                                                      \
        I w = row[j];                                                                                       \
        ARG_STEP(C, I, x0, at0, BEATS)                                                                      \
        ARG_STEP(C, I, x1, at1, BEATS)                                                                      \
        ARG_STEP(C, I, x2, at2, BEATS)                                                                      \
        ARG_STEP(C, I, x3, at3, BEATS)                                                                      \
        best[j] = b;                                                                                        \
        row[j] = w;                                                                                         \
      }                                                                                                     \
    }                                                                                                       \
    for (; r < rows; r++) {                                                                                 \
      const T *q = p + r * stride;                                                                          \
      I here = (I)r;                                                                                        \
      SIMD for (int64_t j = 0; j < n; j++) {                                                                \
        C x = (C)LOAD(q[j]), b = best[j];                                                                   \
        I w = row[j];                                                                                       \
        ARG_STEP(C, I, x, here, BEATS)                                                                      \
        best[j] = b;                                                                                        \
        row[j] = w;                                                                                         \
      }                                                                                                     \
    }                                                                                                       \
    S *value = s.a;                                                                                         \
    int64_t *index = s.b;                                                                                   \
    for (int64_t j = 0; j < n; j++) {                                                                       \
      if (index[j] >= 0 && !BEATS((S)best[j], value[j])) continue;                                          \
      value[j] = (S)best[j];                                                                                \
      index[j] = at + row[j];                                                                               \
    }                                                                                                       \
  }

#define INT_LEAVES(SUFFIX, T, C, L, I, LOW, HIGH)                                                                         \
  ARG_LEAF(argmax_##SUFFIX, T, C, T, L, I, int64_t, LOAD_SAME, LOAD_SAME, LOW, OP_MAX, LOAD_SAME, find_##SUFFIX, GREATER) \
  ARG_LEAF(argmin_##SUFFIX, T, C, T, L, I, int64_t, LOAD_SAME, LOAD_SAME, HIGH, OP_MIN, LOAD_SAME, find_##SUFFIX, LESS)
#define FLOAT_LEAVES(SUFFIX, T, C, U, L, I, LOAD)                                                             \
  ARG_LEAF(argmax_##SUFFIX, T, C, U, L, I, double, LOAD, key_max_##SUFFIX, 0, OP_MAX, key_value_max_##SUFFIX, \
 find_max_##SUFFIX, FGREATER)                                                                                 \
  ARG_LEAF(argmin_##SUFFIX, T, C, U, L, I, double, LOAD, key_min_##SUFFIX, 0, OP_MAX, key_value_min_##SUFFIX, \
 find_min_##SUFFIX, FLESS)

INT_LEAVES(u8, uint8_t, int32_t, 256, int32_t, 0, UINT8_MAX)
INT_LEAVES(i32, int32_t, int32_t, 64, int32_t, INT32_MIN, INT32_MAX)
INT_LEAVES(i64, int64_t, int64_t, 32, int64_t, INT64_MIN, INT64_MAX)
FLOAT_LEAVES(f16, uint16_t, float, uint16_t, 128, int32_t, LOAD_F16)
FLOAT_LEAVES(bf16, uint16_t, float, uint16_t, 128, int32_t, LOAD_BF16)
FLOAT_LEAVES(f32, float, float, uint32_t, 64, int32_t, LOAD_SAME)
FLOAT_LEAVES(f64, double, double, uint64_t, 32, int64_t, LOAD_SAME)

#define LEAF(name) {name##_rows, name##_cols}

const struct leaf *plaitk_reduce_arg_leaf(int op, int dtype) {
  static const struct leaf maxima[] = {LEAF(argmax_u8),  LEAF(argmax_u8),   LEAF(argmax_i32), LEAF(argmax_i64),
                                       LEAF(argmax_f16), LEAF(argmax_bf16), LEAF(argmax_f32), LEAF(argmax_f64)};
  static const struct leaf minima[] = {LEAF(argmin_u8),  LEAF(argmin_u8),   LEAF(argmin_i32), LEAF(argmin_i64),
                                       LEAF(argmin_f16), LEAF(argmin_bf16), LEAF(argmin_f32), LEAF(argmin_f64)};
  return op == REDUCE_ARGMAX ? &maxima[dtype] : &minima[dtype];
}

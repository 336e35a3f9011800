// Maximum and minimum with the index of their first occurrence. NaN wins over everything.
#include "reduction.h"

#define GREATER(a, b) ((a) > (b))
#define LESS(a, b) ((a) < (b))
// Whether b replaces a, which comes earlier. For floats this includes that b is the first NaN.
#define FGREATER(b, a) (((b) > (a)) | (((b) != (b)) & ((a) == (a))))
#define FLESS(b, a) (((b) < (a)) | (((b) != (b)) & ((a) == (a))))

// Number of elements that are tested for any hit at once. Only a block with a hit is searched for its position.
#define FIND_STEP 256

// FIND defines NAME(p, n, lo, hi): the index of the first of n keys KEY(p[i]) with a HIT. There must be one.
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

FIND(find_key_i8, int8_t, LOAD_SAME, SAME)
FIND(find_key_u8, uint8_t, LOAD_SAME, SAME)
FIND(find_key_i16, int16_t, LOAD_SAME, SAME)
FIND(find_key_u16, uint16_t, LOAD_SAME, SAME)
FIND(find_key_i32, int32_t, LOAD_SAME, SAME)
FIND(find_key_u32, uint32_t, LOAD_SAME, SAME)
FIND(find_key_u64, uint64_t, LOAD_SAME, SAME)
FIND(find_key_i64, int64_t, LOAD_SAME, SAME)
#define find_i8(p, n, k) find_key_i8(p, n, k, k)
#define find_u8(p, n, k) find_key_u8(p, n, k, k)
#define find_i16(p, n, k) find_key_i16(p, n, k, k)
#define find_u16(p, n, k) find_key_u16(p, n, k, k)
#define find_i32(p, n, k) find_key_i32(p, n, k, k)
#define find_u32(p, n, k) find_key_u32(p, n, k, k)
#define find_u64(p, n, k) find_key_u64(p, n, k, k)
#define find_i64(p, n, k) find_key_i64(p, n, k, k)

// find_max_F and find_min_F find the first element equal to the one with the given key. Zeros of both signs are equal,
// and so are all NaNs. Otherwise the bits must match.
#define FIND_FLOAT(ORDER, F, U, FIND_BITS, INF)                                    \
  FIND(find_key_##ORDER##_##F, U, key_##ORDER##_##F, IN_RANGE)                     \
  PLAIT_INLINE int64_t find_##ORDER##_##F(const U *p, int64_t n, U key) {          \
    U last = key_##ORDER##_##F(INF_OF_##ORDER(U, INF));                            \
    U a = key_##ORDER##_##F(0), b = key_##ORDER##_##F((U)(((U) ~(U)0 >> 1) + 1));  \
    if (key > last) return find_key_##ORDER##_##F(p, n, (U)(last + 1), (U) ~(U)0); \
    if ((key == a) | (key == b)) {                                                 \
      return find_key_##ORDER##_##F(p, n, a < b ? a : b, a < b ? b : a);           \
    }                                                                              \
    U bits = key_order_##F(UNKEY_##ORDER(U, key, INF));                            \
    return FIND_BITS(p, n, bits, bits);                                            \
  }
#define INF_OF_max(U, INF) (U)(INF)
#define INF_OF_min(U, INF) (U)((INF) | ~((U) ~(U)0 >> 1))
#define UNKEY_max(U, key, INF) (U)((key) - (INF)-1)
#define UNKEY_min(U, key, INF) (U)((INF) - (key))

FIND_FLOAT(max, f16, uint16_t, find_key_u16, 0x7c00u)
FIND_FLOAT(min, f16, uint16_t, find_key_u16, 0x7c00u)
FIND_FLOAT(max, bf16, uint16_t, find_key_u16, 0x7f80u)
FIND_FLOAT(min, bf16, uint16_t, find_key_u16, 0x7f80u)

// ARG_STEP compares an element x of a column with the best value b and its row w. It uses masks, since the compiler
// turns a chain of conditional expressions into branches.
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

// ARG_FLOATS reduces rows of float32 or float64 in one pass. Each lane keeps its best element and the iteration in
// which it found it. The result is the smallest index among the lanes that have the best element. NaNs are only
// detected; a row with one is searched for the first. L lanes are four AVX2 vectors, which fit the registers together
// with their iteration numbers.
#define ARG_FLOATS(NAME, T, I, L, FIRST, OP, BETTER, BEATS)                                                 \
  PLAIT_CLONES static void NAME##_rows(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)param;                                                                                            \
    double *value = s.a;                                                                                    \
    int64_t *index = s.b;                                                                                   \
    I none = at < 0; /* 0, but a loop that stores a constant becomes a slow memset */                       \
    for (int64_t k = 0; k < rows; k++) {                                                                    \
      const T *p = (const T *)in + k * stride;                                                              \
      T best[L], top[L / 2];                                                                                \
      I turn[L], place[L / 2], nan[L / 2], i = 0, t = 0, nans = 0;                                          \
      SIMD for (int l = 0; l < L; l++) best[l] = FIRST, turn[l] = none;                                     \
      SIMD for (int l = 0; l < L / 2; l++) nan[l] = none;                                                   \
      for (; i + L <= n; i += L, t++) {                                                                     \
        plait_prefetch((const char *)(p + i) + FETCH_AHEAD, L * sizeof(T));                                    \
        const T *x = p + i;                                                                                 \
        ARG_TURN(I, L, OP, BETTER)                                                                          \
      }                                                                                                     \
      if (i < n) {                                                                                          \
        T x[L];                                                                                             \
        SIMD for (int l = 0; l < L; l++) x[l] = l < n - i ? p[i + l] : FIRST;                               \
        ARG_TURN(I, L, OP, BETTER)                                                                          \
      }                                                                                                     \
      SIMD for (int l = 0; l < L / 2; l++) top[l] = OP(best[l], best[l + L / 2]);                           \
      ARG_FOLD(top, L / 2, OP)                                                                              \
      T v = top[0];                                                                                         \
      SIMD for (int l = 0; l < L / 2; l++) {                                                                \
        I a = best[l] == v ? turn[l] * L + l : REDUCE_BLOCK;                                                \
        I b = best[l + L / 2] == v ? turn[l + L / 2] * L + l + L / 2 : REDUCE_BLOCK;                        \
        place[l] = OP_MIN(a, b);                                                                            \
      }                                                                                                     \
      ARG_FOLD(place, L / 2, OP_MIN)                                                                        \
      int64_t found = place[0];                                                                             \
      _Pragma("omp simd reduction(|:nans)") for (int l = 0; l < L / 2; l++) nans |= nan[l];                 \
      if (nans) {                                                                                           \
        for (found = 0; p[found] == p[found];) found++;                                                     \
      }                                                                                                     \
      v = p[found];                                                                                         \
      if (index[k] >= 0 && !BEATS((double)v, value[k])) continue;                                           \
      value[k] = (double)v;                                                                                 \
      index[k] = at + found;                                                                                \
    }                                                                                                       \
  }
#define ARG_TURN(I, L, OP, BETTER)                \
  SIMD for (int l = 0; l < L; l++) {              \
    bool better = BETTER(x[l], best[l]);          \
    I now = -(I)better & t; /* turns only grow */ \
    turn[l] = OP_MAX(turn[l], now);               \
    best[l] = OP(best[l], x[l]);                  \
  }                                               \
  SIMD for (int l = 0; l < L / 2; l++) nan[l] |= -(I)__builtin_isunordered(x[l], x[l + L / 2]);
// Folds 16 or 8 lanes into the first.
#define ARG_FOLD(s, n, OP)                                                       \
  if (n > 8) SIMD for (int l = 0; l < 8; l++) s[l] = OP(s[l], s[(l + 8) % (n)]); \
  SIMD for (int l = 0; l < 4; l++) s[l] = OP(s[l], s[l + 4]);                    \
  s[0] = OP(s[0], s[2]), s[1] = OP(s[1], s[3]), s[0] = OP(s[0], s[1]);

// A row is reduced in blocks of this many elements. Only the block with the best element is searched for the index.
#define ARG_BLOCK 1024

// ARG_KEYS reduces rows of elements of type T, as L lanes of keys U. Values are stored as S.
#define ARG_KEYS(NAME, T, C, U, L, S, KEY, IDENTITY, OP, UNKEY, FIND, BEATS)                                \
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
  }

// ARG_COLS reduces columns of elements of type T, compared as C. Indices are kept as I, which has the size of C.
#define ARG_COLS(NAME, T, C, I, S, LOAD, BEATS)                                                             \
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
    SIMD for (int64_t j = 0; j < n; j++) {                                                                  \
      S v = (S)best[j], last = value[j];                                                                    \
      bool take = (index[j] < 0) | BEATS(v, last);                                                          \
      value[j] = SELECT_##S(take, v, last);                                                                 \
      index[j] = SELECT_int64_t(take, at + row[j], index[j]);                                               \
    }                                                                                                       \
  }

#define INT_COLS(SUFFIX, T, C, I)                                 \
  ARG_COLS(argmax_##SUFFIX, T, C, I, int64_t, LOAD_SAME, GREATER) \
  ARG_COLS(argmin_##SUFFIX, T, C, I, int64_t, LOAD_SAME, LESS)
#define FLOAT_COLS(SUFFIX, T, C, I, LOAD)                    \
  ARG_COLS(argmax_##SUFFIX, T, C, I, double, LOAD, FGREATER) \
  ARG_COLS(argmin_##SUFFIX, T, C, I, double, LOAD, FLESS)
#define HALF_ROWS(SUFFIX)                                                                                                \
  ARG_KEYS(argmax_##SUFFIX, uint16_t, float, uint16_t, 128, double, key_max_##SUFFIX, 0, OP_MAX, key_value_max_##SUFFIX, \
           find_max_##SUFFIX, FGREATER)                                                                                  \
  ARG_KEYS(argmin_##SUFFIX, uint16_t, float, uint16_t, 128, double, key_min_##SUFFIX, 0, OP_MAX, key_value_min_##SUFFIX, \
           find_min_##SUFFIX, FLESS)

#define INT_ROWS(SUFFIX, T, C, L, LOWEST, HIGHEST)                                                               \
  ARG_KEYS(argmax_##SUFFIX, T, C, T, L, int64_t, LOAD_SAME, LOWEST, OP_MAX, LOAD_SAME, find_##SUFFIX, GREATER) \
  ARG_KEYS(argmin_##SUFFIX, T, C, T, L, int64_t, LOAD_SAME, HIGHEST, OP_MIN, LOAD_SAME, find_##SUFFIX, LESS)

INT_ROWS(i8, int8_t, int32_t, 256, INT8_MIN, INT8_MAX)
INT_ROWS(u8, uint8_t, int32_t, 256, 0, UINT8_MAX)
INT_ROWS(i16, int16_t, int32_t, 128, INT16_MIN, INT16_MAX)
INT_ROWS(u16, uint16_t, int32_t, 128, 0, UINT16_MAX)
INT_ROWS(i32, int32_t, int32_t, 64, INT32_MIN, INT32_MAX)
INT_ROWS(u32, uint32_t, int64_t, 64, 0, UINT32_MAX)
ARG_KEYS(argmax_u64, uint64_t, int64_t, uint64_t, 32, int64_t, LOAD_SAME, 0, OP_MAX, PLAIT_ORDERED, find_u64, GREATER)
ARG_KEYS(argmin_u64, uint64_t, int64_t, uint64_t, 32, int64_t, LOAD_SAME, UINT64_MAX, OP_MIN, PLAIT_ORDERED, find_u64, LESS)
INT_ROWS(i64, int64_t, int64_t, 32, INT64_MIN, INT64_MAX)
HALF_ROWS(f16)
HALF_ROWS(bf16)
ARG_FLOATS(argmax_f32, float, int32_t, 32, -INFINITY, OP_MAX, GREATER, FGREATER)
ARG_FLOATS(argmin_f32, float, int32_t, 32, INFINITY, OP_MIN, LESS, FLESS)
ARG_FLOATS(argmax_f64, double, int64_t, 16, -INFINITY, OP_MAX, GREATER, FGREATER)
ARG_FLOATS(argmin_f64, double, int64_t, 16, INFINITY, OP_MIN, LESS, FLESS)

INT_COLS(i8, int8_t, int32_t, int32_t)
INT_COLS(u8, uint8_t, int32_t, int32_t)
INT_COLS(i16, int16_t, int32_t, int32_t)
INT_COLS(u16, uint16_t, int32_t, int32_t)
ARG_COLS(argmax_u64, uint64_t, int64_t, int64_t, int64_t, PLAIT_ORDERED, GREATER)
ARG_COLS(argmin_u64, uint64_t, int64_t, int64_t, int64_t, PLAIT_ORDERED, LESS)
INT_COLS(u32, uint32_t, int64_t, int64_t)
INT_COLS(i32, int32_t, int32_t, int32_t)
INT_COLS(i64, int64_t, int64_t, int64_t)
FLOAT_COLS(f16, uint16_t, float, int32_t, LOAD_F16)
FLOAT_COLS(bf16, uint16_t, float, int32_t, LOAD_BF16)
FLOAT_COLS(f32, float, float, int32_t, LOAD_SAME)
FLOAT_COLS(f64, double, double, int64_t, LOAD_SAME)

const struct leaf *plaitk_reduction_arg_leaf(int op, int dtype) {
  static const struct leaf maxima[] = {PLAIT_BY_DTYPE(LEAF, argmax)};
  static const struct leaf minima[] = {PLAIT_BY_DTYPE(LEAF, argmin)};
  return op == REDUCE_ARGMAX ? &maxima[dtype] : &minima[dtype];
}

// Binary search without branches on elements.
#include "sorting.h"

#if !defined(PLAIT_BASELINE) && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define GATHERS 1
#include <immintrin.h>
#endif

enum { CHUNK = 1 << 10, TOGETHER = 8 };

struct job {
  const struct plaitk_search *s;
  int64_t chunks; // in a row
};

// Finds for each of `count` <= TOGETHER values the first position whose element is not less, or with RIGHT greater. Elements compare as numbers
// of type K, which OF gives. The steps of a search depend on the length of the sequence alone, so that several go on at a time and none has a
// branch on elements.
#define SEARCH_SIDE(NAME, T, K, OF, SIDE, BELOW)                                                                      \
  static void search_##NAME##_##SIDE(int64_t n, const T *sequence, const int64_t *sorter, const T *values,            \
                                     int64_t count, int64_t *at) {                                                    \
    K keys[TOGETHER];                                                                                                 \
    for (int l = 0; l < TOGETHER; l++) keys[l] = OF(values[l < count ? l : 0]), at[l] = 0;                            \
    if (sorter == NULL) {                                                                                             \
      EACH_LANE(LANE_BEGINS, T, K, OF, BELOW)                                                                         \
      for (int64_t half = n / 2; n > 0; n -= half, half = n / 2) {                                                    \
        if (n == 1) half = 1;                                                                                         \
        EACH_LANE(LANE_STEPS, T, K, OF, BELOW)                                                                        \
      }                                                                                                               \
      EACH_LANE(LANE_ENDS, T, K, OF, BELOW)                                                                           \
      return;                                                                                                         \
    }                                                                                                                 \
    while (n > 0) {                                                                                                   \
      int64_t half = n == 1 ? 1 : n / 2;                                                                              \
      for (int l = 0; l < TOGETHER; l++)                                                                              \
        at[l] += half & -(int64_t)(OF(sequence[sorter[at[l] + half - 1]]) BELOW keys[l]);                             \
      n -= half;                                                                                                      \
    }                                                                                                                 \
  }

// Each search has names of its own of its own, so that they stay in registers; arrays of them would be vectors, to which elements are gathered slowly.
#define EACH_LANE(F, ...) \
  F(0, __VA_ARGS__) F(1, __VA_ARGS__) F(2, __VA_ARGS__) F(3, __VA_ARGS__) F(4, __VA_ARGS__) F(5, __VA_ARGS__) F(6, __VA_ARGS__) F(7, __VA_ARGS__)
#define LANE_BEGINS(L, T, K, OF, BELOW) \
  const T *at##L = sequence;            \
  const K key##L = keys[L];
#define LANE_STEPS(L, T, K, OF, BELOW) at##L += half & -(int64_t)(OF(at##L[half - 1]) BELOW key##L);
#define LANE_ENDS(L, T, K, OF, BELOW) at[L] = at##L - sequence;

// NaN is the largest: no element comes before it in the comparisons above, where all but other NaNs do.
#define SEARCH(NAME, T, K, OF)                                                                                 \
  SEARCH_SIDE(NAME, T, K, OF, left, <)                                                                         \
  SEARCH_SIDE(NAME, T, K, OF, right, <=)                                                                       \
  static void search_##NAME(const struct plaitk_search *s, const T *sequence, const int64_t *sorter,           \
                            const T *values, int64_t count, int64_t *at) {                                     \
    (s->right ? search_##NAME##_right : search_##NAME##_left)(s->n, sequence, sorter, values, count, at);      \
    for (int64_t l = 0; l < count; l++) {                                                                      \
      K key = OF(values[l]), element;                                                                          \
      if (key == key) continue;                                                                                \
      int64_t low = 0, n = s->n;                                                                               \
      for (int64_t half = n / 2; n > 0 && !s->right; half = n / 2) {                                           \
        element = OF(sequence[sorter == NULL ? low + half : sorter[low + half]]);                              \
        if (element == element) low += half + 1, n -= half + 1;                                                \
        else n = half;                                                                                         \
      }                                                                                                        \
      at[l] = s->right ? s->n : low;                                                                           \
    }                                                                                                          \
  }

#define ITSELF(x) (x)

SEARCH(u8, uint8_t, uint8_t, ITSELF)
SEARCH(i8, int8_t, int8_t, ITSELF)
SEARCH(i16, int16_t, int16_t, ITSELF)
SEARCH(u16, uint16_t, uint16_t, ITSELF)
SEARCH(u32, uint32_t, uint32_t, ITSELF)
SEARCH(u64, uint64_t, uint64_t, ITSELF)
SEARCH(i32, int32_t, int32_t, ITSELF)
SEARCH(i64, int64_t, int64_t, ITSELF)
SEARCH(f16, uint16_t, uint32_t, key_f16)
SEARCH(bf16, uint16_t, uint32_t, key_bf16)
SEARCH(f32, float, float, ITSELF)
SEARCH(f64, double, double, ITSELF)

#ifdef GATHERS
// Searches for groups of 32 values in vectors, and returns how many values it has found places for: it stops at a group with a NaN.
__attribute__((target("avx512f"))) static int64_t search_vectors(const struct plaitk_search *s, const float *sequence, const float *values,
                                                                  int64_t count, void *out) {
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m512 key[2] = {_mm512_loadu_ps(values + i), _mm512_loadu_ps(values + i + 16)};
    if (_mm512_cmp_ps_mask(key[0], key[0], _CMP_UNORD_Q) | _mm512_cmp_ps_mask(key[1], key[1], _CMP_UNORD_Q)) return i;
    __m512i at[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int64_t n = s->n; n > 0;) {
      int64_t half = n == 1 ? 1 : n / 2;
      __m512i step = _mm512_set1_epi32((int32_t)half);
      for (int v = 0; v < 2; v++) {
        __m512 element = _mm512_i32gather_ps(at[v], sequence + half - 1, 4);
        __mmask16 before = s->right ? _mm512_cmp_ps_mask(element, key[v], _CMP_LE_OQ) : _mm512_cmp_ps_mask(element, key[v], _CMP_LT_OQ);
        at[v] = _mm512_mask_add_epi32(at[v], before, at[v], step);
      }
      n -= half;
    }
    for (int v = 0; v < 2; v++) {
      if (s->out_dtype == PLAIT_I32) {
        _mm512_storeu_si512((int32_t *)out + i + 16 * v, at[v]);
      } else {
        int64_t *to = (int64_t *)out + i + 16 * v;
        _mm512_storeu_si512(to, _mm512_cvtepi32_epi64(_mm512_castsi512_si256(at[v])));
        _mm512_storeu_si512(to + 8, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(at[v], 1)));
      }
    }
  }
  return i;
}
#endif

static void search_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  const struct plaitk_search *s = j->s;
  int64_t row = chunk / j->chunks, lo = chunk % j->chunks * CHUNK;
  int64_t hi = lo + CHUNK < s->per_row ? lo + CHUNK : s->per_row;
  int64_t first = row * s->n, at = row * s->per_row;
  const int64_t *sorter = s->sorter != NULL ? s->sorter + first : NULL;
#ifdef GATHERS
  if (s->dtype == PLAIT_F32 && sorter == NULL && s->n <= INT32_MAX && __builtin_cpu_supports("avx512f")) {
    char *out = (char *)s->out + (at + lo) * plait_dtype_size(s->out_dtype);
    lo += search_vectors(s, (const float *)s->sequence + first, (const float *)s->values + at + lo, hi - lo, out);
  }
#endif
#define RUN(NAME, T)                                                                                                  \
  for (int64_t i = at + lo; i < at + hi; i += TOGETHER) {                                                             \
    int64_t found[TOGETHER], count = at + hi - i < TOGETHER ? at + hi - i : TOGETHER;                                              \
    search_##NAME(s, (const T *)s->sequence + first, sorter, (const T *)s->values + i, count, found);                 \
    for (int64_t l = 0; l < count; l++) {                                                                             \
      if (s->out_dtype == PLAIT_I32) {                                                                                \
        ((int32_t *)s->out)[i + l] = (int32_t)found[l];                                                               \
      } else {                                                                                                        \
        ((int64_t *)s->out)[i + l] = found[l];                                                                        \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  break;
  switch (s->dtype) {
    KEY_EACH_PACKED(RUN)
    KEY_EACH_WIDE(RUN)
  }
#undef RUN
}

int64_t plaitk_sorting_search(plait_pool *pool, const struct plaitk_search *s) {
  for (int64_t i = 0; s->sorter != NULL && i < s->rows * s->n; i++) {
    if (s->sorter[i] < 0 || s->sorter[i] >= s->n) return 1 + i;
  }
  struct job j = {s, (s->per_row + CHUNK - 1) / CHUNK};
  plait_parallel(pool, s->rows * j.chunks, search_chunk, &j);
  return 0;
}

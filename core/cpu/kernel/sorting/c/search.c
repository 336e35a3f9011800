// Binary search without branches on elements.
#include "sorting.h"

enum { CHUNK = 1 << 12, TOGETHER = 8 };

struct job {
  const struct plaitk_search *s;
  int64_t chunks; // in a row
};

// Finds for each of `count` <= TOGETHER values the first position whose element is not less, or with `right` greater. NaN is the largest. The
// steps of a search depend on the length of the sequence alone, so that several go on at a time and none has a branch on elements.
#define SEARCH(NAME, T, K)                                                                                     \
  PLAIT_INLINE K element_##NAME(const T *sequence, const int64_t *sorter, int64_t i) {                         \
    return key_##NAME(sequence[sorter == NULL ? i : sorter[i]]);                                               \
  }                                                                                                            \
  static void search_##NAME(const struct plaitk_search *s, const T *sequence, const int64_t *sorter,           \
                            const T *values, int64_t count, int64_t *at) {                                     \
    K keys[TOGETHER];                                                                                          \
    const bool right = s->right;                                                                               \
    for (int l = 0; l < TOGETHER; l++) keys[l] = key_##NAME(values[l < count ? l : 0]), at[l] = 0;             \
    for (int64_t n = s->n; n > 0;) {                                                                           \
      int64_t half = n == 1 ? 1 : n / 2;                                                                       \
      for (int l = 0; l < TOGETHER; l++) {                                                                     \
        K key = element_##NAME(sequence, sorter, at[l] + half - 1);                                            \
        bool below = (key < keys[l]) | (right & (key == keys[l]));                                             \
        at[l] += half & -(int64_t)below;                                                                       \
      }                                                                                                        \
      n -= half;                                                                                               \
    }                                                                                                          \
  }

SEARCH(u8, uint8_t, uint32_t)
SEARCH(i8, int8_t, uint32_t)
SEARCH(i16, int16_t, uint32_t)
SEARCH(u16, uint16_t, uint32_t)
SEARCH(u32, uint32_t, uint32_t)
SEARCH(u64, uint64_t, uint64_t)
SEARCH(i32, int32_t, uint32_t)
SEARCH(i64, int64_t, uint64_t)
SEARCH(f16, uint16_t, uint32_t)
SEARCH(bf16, uint16_t, uint32_t)
SEARCH(f32, float, uint32_t)
SEARCH(f64, double, uint64_t)

static void search_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  const struct plaitk_search *s = j->s;
  int64_t row = chunk / j->chunks, lo = chunk % j->chunks * CHUNK;
  int64_t hi = lo + CHUNK < s->per_row ? lo + CHUNK : s->per_row;
  int64_t first = row * s->n, at = row * s->per_row;
  const int64_t *sorter = s->sorter != NULL ? s->sorter + first : NULL;
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

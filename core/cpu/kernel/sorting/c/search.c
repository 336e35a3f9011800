// Binary search without branches on elements.
#include "sorting.h"

enum { CHUNK = 1 << 12 };

struct job {
  const struct plaitk_search *s;
  int64_t chunks; // in a row
};

// Finds the first position whose element is not less than the value, or with `right` greater. NaN is the largest.
#define SEARCH(NAME, T, K)                                                                                       \
  static int64_t search_##NAME(const struct plaitk_search *s, const T *sequence, const int64_t *sorter, K value) { \
    int64_t at = 0, n = s->n;                                                                             \
    while (n > 0) {                                                                                       \
      int64_t half = n / 2, mid = at + half;                                                              \
      K key = key_##NAME(sequence[sorter == NULL ? mid : sorter[mid]]);                                          \
      bool below = s->right ? key <= value : key < value;                                                 \
      at = below ? mid + 1 : at;                                                                          \
      n = below ? n - half - 1 : half;                                                                    \
    }                                                                                                     \
    return at;                                                                                            \
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
#define RUN(NAME, T)                                                                                               \
  for (int64_t i = at + lo; i < at + hi; i++) {                                                                    \
    int64_t found = search_##NAME(s, (const T *)s->sequence + first, sorter, key_##NAME(((const T *)s->values)[i])); \
    if (s->out_dtype == PLAIT_I32) {                                                                               \
      ((int32_t *)s->out)[i] = (int32_t)found;                                                                     \
    } else {                                                                                                       \
      ((int64_t *)s->out)[i] = found;                                                                              \
    }                                                                                                              \
  }                                                                                                                \
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

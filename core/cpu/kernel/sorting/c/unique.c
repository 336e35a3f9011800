// Unique elements and unique rows.
#include "sorting.h"

// take writes the element at `index` as result number `to`.
static void take(const struct plaitk_unique *u, uint64_t index, int64_t to) {
  int size = plait_dtype_size(u->dtype);
  memcpy((char *)u->values + to * size, (const char *)u->in + (int64_t)index * size, (size_t)size);
}

#define E packed
#include "unique_impl.h"

#define E wide
#include "unique_impl.h"

int64_t plaitk_sorting_unique_scratch(const struct plaitk_unique *u) {
  if (u->consecutive) return 0;
  int64_t entry = key_is_wide(u->dtype) ? sizeof(wide) : sizeof(packed);
  char *at = NULL;
  plait_carve(&at, u->n * entry);
  plait_carve(&at, u->n * entry);
  plait_carve(&at, order_counters(u->n) * (int64_t)sizeof(uint32_t));
  return (int64_t)(intptr_t)at;
}

// neighbours writes the elements that differ from their predecessors. Vectors find these, a stretch at a time, and most stretches
// have none or no others. In the rest every element is written where the next result goes, and stays there if it is one, so that
// the loop has no branch. Until the end, counts, if any, has the positions of results.
enum { STRETCH = 64 };

#define SAME(v) (v)
#define NEIGHBOURS(name, T, VALUE)                                                                                       \
  PLAIT_CLONES static int64_t neighbours_##name(const T *restrict x, int64_t n, T *restrict values, int64_t *counts,     \
                                                int64_t *inverse) {                                                      \
    int64_t results = 0;                                                                                                 \
    for (int64_t from = 0, size = 1; from < n; from += size, size = n - from < STRETCH ? n - from : STRETCH) {           \
      const T *p = x + from;                                                                                             \
      uint8_t differs[STRETCH], some = 0;                                                                                \
      if (size == STRETCH) {                                                                                             \
        _Pragma("omp simd") for (int i = 0; i < STRETCH; i++) differs[i] = VALUE(p[i]) == VALUE(p[i - 1]) ? 0 : 1;       \
        for (int i = 0; i < STRETCH; i++) some = (uint8_t)(some + differs[i]);                                           \
      } else {                                                                                                           \
        for (int i = 0; i < size; i++) differs[i] = from > 0 && VALUE(p[i]) == VALUE(p[i - 1]) ? 0 : 1;                  \
        some = 1;                                                                                                        \
      }                                                                                                                  \
      if (some == 0 && inverse == NULL) continue;                                                                        \
      if (some == STRETCH && counts == NULL && inverse == NULL) {                                                        \
        memcpy(values + results, p, STRETCH * sizeof *p);                                                                \
        results += STRETCH;                                                                                              \
        continue;                                                                                                        \
      }                                                                                                                  \
      for (int i = 0; i < size; i++) {                                                                                   \
        values[results] = p[i];                                                                                          \
        if (counts != NULL) counts[results] = from + i;                                                                  \
        results += differs[i];                                                                                           \
        if (inverse != NULL) inverse[from + i] = results - 1;                                                            \
      }                                                                                                                  \
    }                                                                                                                    \
    return results;                                                                                                      \
  }
NEIGHBOURS(8, uint8_t, SAME)
NEIGHBOURS(16, uint16_t, SAME)
NEIGHBOURS(32, uint32_t, SAME)
NEIGHBOURS(64, uint64_t, SAME)
NEIGHBOURS(f16, uint16_t, plait_f16_to_f32)
NEIGHBOURS(bf16, uint16_t, plait_bf16_to_f32)
NEIGHBOURS(f32, float, SAME)
NEIGHBOURS(f64, double, SAME)

static int64_t neighbours_of(const struct plaitk_unique *u) {
  switch (u->dtype) {
    case PLAIT_F16: return neighbours_f16(u->in, u->n, u->values, u->counts, u->inverse);
    case PLAIT_BF16: return neighbours_bf16(u->in, u->n, u->values, u->counts, u->inverse);
    case PLAIT_F32: return neighbours_f32(u->in, u->n, u->values, u->counts, u->inverse);
    case PLAIT_F64: return neighbours_f64(u->in, u->n, u->values, u->counts, u->inverse);
  }
  switch (plait_dtype_size(u->dtype)) {
    case 1: return neighbours_8(u->in, u->n, u->values, u->counts, u->inverse);
    case 2: return neighbours_16(u->in, u->n, u->values, u->counts, u->inverse);
    case 4: return neighbours_32(u->in, u->n, u->values, u->counts, u->inverse);
    default: return neighbours_64(u->in, u->n, u->values, u->counts, u->inverse);
  }
}

static void neighbours(const struct plaitk_unique *u) {
  int64_t results = neighbours_of(u), *counts = u->counts;
  for (int64_t r = 0; counts != NULL && r < results; r++) counts[r] = (r + 1 < results ? counts[r + 1] : u->n) - counts[r];
  *u->total = results;
}

void plaitk_sorting_unique(plait_pool *pool, const struct plaitk_unique *u) {
  if (u->consecutive) {
    neighbours(u);
  } else if (key_is_wide(u->dtype)) {
    unique_wide(pool, u);
  } else {
    unique_packed(pool, u);
  }
}

// compare orders rows a and b: negative, 0 or positive. NaNs compare as equal, but then `same` becomes false.
static int compare(const struct plaitk_unique *u, int64_t width, int64_t a, int64_t b, bool *same) {
  *same = false;
  for (int64_t i = 0; i < width; i++) {
    uint64_t x = key_at(u->dtype, u->in, a * width + i), y = key_at(u->dtype, u->in, b * width + i);
    if (x != y) return x < y ? -1 : 1;
    if (plait_is_float(u->dtype) && x == key_nan(u->dtype)) return 0;
  }
  *same = true;
  return 0;
}

// sort_rows sorts the indices of rows by a merge sort.
static int64_t *sort_rows(const struct plaitk_unique *u, int64_t width, int64_t *from, int64_t *to) {
  bool same;
  for (int64_t run = 1; run < u->n; run *= 2) {
    for (int64_t lo = 0; lo < u->n; lo += 2 * run) {
      int64_t mid = lo + run < u->n ? lo + run : u->n, hi = mid + run < u->n ? mid + run : u->n;
      int64_t l = lo, r = mid;
      for (int64_t o = lo; o < hi; o++) {
        bool right = l == mid || (r < hi && compare(u, width, from[r], from[l], &same) < 0);
        to[o] = right ? from[r++] : from[l++];
      }
    }
    int64_t *swap = from;
    from = to;
    to = swap;
  }
  return from;
}

void plaitk_sorting_unique_rows(const struct plaitk_unique *u, int64_t width) {
  int64_t *order = u->scratch, *values = u->values;
  for (int64_t i = 0; i < u->n; i++) order[i] = i;
  if (!u->consecutive) order = sort_rows(u, width, order, order + u->n);
  int64_t results = 0;
  for (int64_t i = 0; i < u->n; i++) {
    bool same = false;
    if (i > 0) compare(u, width, order[i], order[i - 1], &same);
    if (!same) {
      values[results] = order[i];
      if (u->counts != NULL) u->counts[results] = 0;
      results++;
    }
    if (u->counts != NULL) u->counts[results - 1]++;
    if (u->inverse != NULL) u->inverse[order[i]] = results - 1;
  }
  *u->total = results;
}

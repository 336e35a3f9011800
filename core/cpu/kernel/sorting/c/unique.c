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

// neighbours writes the elements that differ from their predecessors. Every element is written where the next result goes,
// and stays there if it is one, so that the loop has no branch. Until the end, counts, if any, has the positions of results.
static void neighbours(const struct plaitk_unique *u) {
  const uint64_t nan = key_nan(u->dtype);
  int64_t results = 0, n = u->n, *counts = u->counts, *inverse = u->inverse;
#define EACH(NAME, T)                                                        \
  {                                                                          \
    const T *x = u->in;                                                      \
    T *values = u->values;                                                   \
    uint64_t last = ~(uint64_t)key_##NAME(x[0]);                             \
    if (plait_is_float(u->dtype)) {                                          \
      WALK(NAME, T, key == nan)                                              \
    } else {                                                                 \
      WALK(NAME, T, false)                                                   \
    }                                                                        \
    break;                                                                   \
  }
#define WALK(NAME, T, ALONE)                                                 \
  for (int64_t i = 0; i < n; i++) {                                          \
    const T v = x[i];                                                        \
    const uint64_t key = key_##NAME(v);                                      \
    values[results] = v;                                                     \
    if (counts != NULL) counts[results] = i;                                 \
    results += (int64_t)((key != last) | (ALONE));                           \
    if (inverse != NULL) inverse[i] = results - 1;                           \
    last = key;                                                              \
  }
  switch (u->dtype) {
    KEY_EACH_PACKED(EACH)
    KEY_EACH_WIDE(EACH)
  }
#undef EACH
#undef WALK
  for (int64_t r = 0; counts != NULL && r < results; r++) counts[r] = (r + 1 < results ? counts[r + 1] : n) - counts[r];
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

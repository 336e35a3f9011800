// A stable sort of index tuples by destination.
#include "indexing.h"

enum { DIGIT = 11, BUCKETS = 1 << DIGIT };

static void insertion(int64_t *keys, int64_t *order, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    int64_t key = keys[i], value = order[i], j = i;
    for (; j > 0 && keys[j - 1] > key; j--) keys[j] = keys[j - 1], order[j] = order[j - 1];
    keys[j] = key, order[j] = value;
  }
}

void plaitk_indexing_sort(int64_t *keys, int64_t *order, int64_t *keys2, int64_t *order2, int64_t n, int64_t limit) {
  for (int64_t i = 0; i < n; i++) order[i] = i;
  if (n <= 64) return insertion(keys, order, n);
  int64_t *k = keys, *o = order, *k2 = keys2, *o2 = order2;
  for (int shift = 0; shift == 0 || (shift < 64 && (limit - 1) >> shift); shift += DIGIT) {
    int64_t at[BUCKETS] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i++) at[(k[i] >> shift) & (BUCKETS - 1)]++;
    for (int64_t b = 0; b < BUCKETS; b++) {
      int64_t count = at[b];
      at[b] = sum, sum += count;
    }
    for (int64_t i = 0; i < n; i++) {
      int64_t to = at[(k[i] >> shift) & (BUCKETS - 1)]++;
      k2[to] = k[i], o2[to] = o[i];
    }
    int64_t *t;
    t = k, k = k2, k2 = t, t = o, o = o2, o2 = t;
  }
  if (k != keys) memcpy(keys, k, (size_t)n * sizeof *k), memcpy(order, o, (size_t)n * sizeof *o);
}

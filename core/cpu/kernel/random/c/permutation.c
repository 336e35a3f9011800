// Random permutations, by sorting random keys.
#include "random.h"
#include "../../../include/plait_philox.h"

typedef struct {
  uint64_t key;
  int64_t index;
} entry;

// Entries are distributed into buckets by the top bits of their keys. Then each bucket is sorted, in the caches.
#define BUCKET_BITS 8
#define BUCKETS (1 << BUCKET_BITS)
#define SMALL 4096 // with fewer entries there is one bucket

typedef struct {
  uint64_t seed, offset;
  entry *from, *to;
  int64_t *out;
  int64_t n;
  int64_t start[BUCKETS + 1];
} permutation_task;

int64_t plaitk_random_permutation_scratch(int64_t n) { return 2 * n * (int64_t)sizeof(entry) + (int64_t)sizeof(permutation_task); }

#define KEYS 16384

// A block of counters, each of which makes two keys.
#define COUNTERS 256

PLAIT_CLONES static void draw(uint64_t seed, uint64_t counter, uint64_t *restrict even, uint64_t *restrict odd) {
  _Pragma("omp simd") for (int64_t i = 0; i < COUNTERS; i++) {
    uint32_t w0, w1, w2, w3;
    plait_philox(seed, counter + (uint64_t)i, &w0, &w1, &w2, &w3);
    even[i] = (uint64_t)w0 << 32 | w1;
    odd[i] = (uint64_t)w2 << 32 | w3;
  }
}

static void keys(void *arg, int64_t chunk) {
  permutation_task *t = arg;
  int64_t first = chunk * KEYS, last = first + KEYS < t->n ? first + KEYS : t->n;
  for (; first < last; first += 2 * COUNTERS) {
    uint64_t drawn[2][COUNTERS];
    draw(t->seed, t->offset + (uint64_t)(first / 2), drawn[0], drawn[1]);
    int64_t n = first + 2 * COUNTERS < last ? 2 * COUNTERS : last - first;
    for (int64_t i = 0; i < n; i++) t->from[first + i] = (entry){drawn[i & 1][i / 2], first + i};
  }
}

// Sorts e with a radix sort by bits after the bucket's bits, so many that few entries agree in them, then by insertion where
// they do. Both sorts are stable, so the result does not depend on how many these are. Returns where it is: e or other.
static entry *sort(entry *e, entry *other, int64_t n) {
  if (n > 16) {
    int bits = n <= 1 << 5 ? 8 : n <= 1 << 13 ? 16 : 32;
    for (int shift = 64 - BUCKET_BITS - bits; shift < 64 - BUCKET_BITS; shift += 8) {
      int64_t at[256] = {0}, sum = 0;
      for (int64_t i = 0; i < n; i++) at[(e[i].key >> shift) & 255]++;
      for (int d = 0; d < 256; d++) {
        int64_t count = at[d];
        at[d] = sum;
        sum += count;
      }
      for (int64_t i = 0; i < n; i++) other[at[(e[i].key >> shift) & 255]++] = e[i];
      entry *swap = e;
      e = other;
      other = swap;
    }
  }
  for (int64_t i = 1; i < n; i++) {
    entry v = e[i];
    int64_t j = i;
    for (; j > 0 && e[j - 1].key > v.key; j--) e[j] = e[j - 1];
    e[j] = v;
  }
  return e;
}

static void sort_bucket(void *arg, int64_t bucket) {
  permutation_task *t = arg;
  int64_t first = t->start[bucket], n = t->start[bucket + 1] - first;
  entry *e = sort(t->to + first, t->from + first, n);
  for (int64_t i = 0; i < n; i++) t->out[first + i] = e[i].index;
}

void plaitk_random_permutation(plait_pool *pool, uint64_t seed, uint64_t offset, int64_t *out, int64_t n, void *scratch) {
  permutation_task *t = scratch;
  *t = (permutation_task){.seed = seed, .offset = offset, .out = out, .n = n};
  t->from = (entry *)(t + 1);
  t->to = t->from + n;
  plait_parallel(pool, (n + KEYS - 1) / KEYS, keys, t);
  int shift = n < SMALL ? 0 : 64 - BUCKET_BITS; // a shift of 64 is undefined: small permutations skip the distribution
  if (shift == 0) {
    // There is one bucket, so the sort must include the top bits.
    entry *e = t->from;
    memcpy(t->to, e, (size_t)n * sizeof *e);
    t->start[1] = n;
    for (int64_t i = 0; i < n; i++) t->to[i].key = e[i].key >> BUCKET_BITS;
    sort_bucket(t, 0);
    return;
  }
  for (int64_t i = 0; i < n; i++) t->start[(t->from[i].key >> shift) + 1]++;
  for (int b = 0; b < BUCKETS; b++) t->start[b + 1] += t->start[b];
  int64_t at[BUCKETS];
  memcpy(at, t->start, sizeof at);
  for (int64_t i = 0; i < n; i++) t->to[at[t->from[i].key >> shift]++] = t->from[i];
  plait_parallel(pool, BUCKETS, sort_bucket, t);
}

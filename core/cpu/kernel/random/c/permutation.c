// Random permutations, by sorting random keys.
#include "random.h"
#include "../../../include/plait_philox.h"

// Entries are distributed into buckets by the top bits of their keys. Then each bucket is sorted, in the caches.
#define BUCKET_BITS 8
#define BUCKETS (1 << BUCKET_BITS)
#define SMALL 1024 // with fewer entries there is one bucket
#define DIGIT_BITS 11

// An entry has the top bits of a key, and below them its index. Where these bits of two keys agree, which is rare, the keys are
// drawn again.
typedef struct {
  uint64_t seed, offset, index; // index: the mask of an entry's index
  uint64_t *from, *to;
  int64_t *out;
  int64_t n;
  int64_t start[BUCKETS + 1];
} permutation_task;

int64_t plaitk_random_permutation_scratch(int64_t n) { return 2 * n * (int64_t)sizeof(uint64_t) + (int64_t)sizeof(permutation_task); }

#define KEYS 16384

// A block of counters, each of which makes two keys.
#define COUNTERS 256

PLAIT_CLONES static void draw(uint64_t seed, uint64_t counter, uint64_t *restrict keys) {
  _Pragma("omp simd") for (int64_t i = 0; i < COUNTERS; i++) {
    uint32_t w0, w1, w2, w3;
    plait_philox(seed, counter + (uint64_t)i, &w0, &w1, &w2, &w3);
    keys[2 * i] = (uint64_t)w0 << 32 | w1;
    keys[2 * i + 1] = (uint64_t)w2 << 32 | w3;
  }
}

static void make_entries(void *arg, int64_t chunk) {
  permutation_task *t = arg;
  int64_t first = chunk * KEYS, last = first + KEYS < t->n ? first + KEYS : t->n;
  for (; first < last; first += 2 * COUNTERS) {
    uint64_t drawn[2 * COUNTERS];
    draw(t->seed, t->offset + (uint64_t)(first / 2), drawn);
    int64_t n = first + 2 * COUNTERS < last ? 2 * COUNTERS : last - first;
    for (int64_t i = 0; i < n; i++) t->from[first + i] = (drawn[i] & ~t->index) | (uint64_t)(first + i);
  }
}

static uint64_t key_of(const permutation_task *t, uint64_t entry) {
  uint64_t at = entry & t->index;
  uint32_t w[4];
  plait_philox(t->seed, t->offset + at / 2, &w[0], &w[1], &w[2], &w[3]);
  return (uint64_t)w[at % 2 * 2] << 32 | w[at % 2 * 2 + 1];
}

// Whether a belongs after b. Equal keys keep the order of their positions.
static bool is_after(const permutation_task *t, uint64_t a, uint64_t b) {
  if ((a ^ b) > t->index) return a > b;
  uint64_t x = key_of(t, a), y = key_of(t, b);
  return x == y ? a > b : x > y;
}

static int width(uint64_t n) { return n == 0 ? 0 : 64 - __builtin_clzll(n); }

// Sorts n entries by the bits after the first `done` of their keys: with a radix sort by so many that few entries agree in
// them, then by insertion where they do. Returns where they are: e or other.
static uint64_t *sort(const permutation_task *t, uint64_t *e, uint64_t *other, int64_t n, int done) {
  int bits = width((uint64_t)n) + 1, passes = (bits + DIGIT_BITS - 1) / DIGIT_BITS, digit = (bits + passes - 1) / passes;
  for (int pass = 0; pass < passes; pass++) {
    uint32_t at[1 << DIGIT_BITS], sum = 0, mask = (1u << digit) - 1;
    int shift = 64 - done - digit * (passes - pass);
    memset(at, 0, sizeof *at << digit);
    for (int64_t i = 0; i < n; i++) at[(e[i] >> shift) & mask]++;
    for (uint32_t d = 0; d <= mask; d++) {
      uint32_t count = at[d];
      at[d] = sum;
      sum += count;
    }
    for (int64_t i = 0; i < n; i++) other[at[(e[i] >> shift) & mask]++] = e[i];
    uint64_t *swap = e;
    e = other;
    other = swap;
  }
  for (int64_t i = 1; i < n; i++) {
    uint64_t v = e[i];
    int64_t j = i;
    for (; j > 0 && is_after(t, e[j - 1], v); j--) e[j] = e[j - 1];
    e[j] = v;
  }
  return e;
}

static void sort_bucket(void *arg, int64_t bucket) {
  permutation_task *t = arg;
  int64_t first = t->start[bucket], n = t->start[bucket + 1] - first;
  uint64_t *e = sort(t, t->to + first, t->from + first, n, BUCKET_BITS);
  for (int64_t i = 0; i < n; i++) t->out[first + i] = (int64_t)(e[i] & t->index);
}

void plaitk_random_permutation(plait_pool *pool, uint64_t seed, uint64_t offset, int64_t *out, int64_t n, void *scratch) {
  permutation_task *t = scratch;
  *t = (permutation_task){.seed = seed, .offset = offset, .out = out, .n = n, .index = (UINT64_C(1) << width((uint64_t)n)) - 1};
  t->from = (uint64_t *)(t + 1);
  t->to = t->from + n;
  plait_parallel(pool, (n + KEYS - 1) / KEYS, make_entries, t);
  if (n < SMALL) {
    uint64_t *e = sort(t, t->from, t->to, n, 0);
    for (int64_t i = 0; i < n; i++) out[i] = (int64_t)(e[i] & t->index);
    return;
  }
  const int shift = 64 - BUCKET_BITS;
  for (int64_t i = 0; i < n; i++) t->start[(t->from[i] >> shift) + 1]++;
  for (int b = 0; b < BUCKETS; b++) t->start[b + 1] += t->start[b];
  int64_t at[BUCKETS];
  memcpy(at, t->start, sizeof at);
  for (int64_t i = 0; i < n; i++) t->to[at[t->from[i] >> shift]++] = t->from[i];
  plait_parallel(pool, BUCKETS, sort_bucket, t);
}

// Random permutations, by sorting random keys.
#include "random.h"
#include "../../../include/plait_philox_words.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define IS_X86
#endif

// Entries are distributed into buckets by the top bits of their keys, in two steps where they are many, so that a bucket has
// some twenty of them. Each of these has as its place the number of smaller ones, which needs no branches.
#define FIRST_BITS 12          // of the first step, where there is one
#define MANY (INT64_C(1) << 17) // from so many on there are two
#define FIRST_BITS_OF_MANY 8
#define NEXT_BITS 11
#define MOST 64  // entries whose places are found in this way
#define LANES 32 // places are found for a multiple of these
#define GROUPS 64 // of buckets, for threads

// An entry has the top bits of a key, and below them its index. Where these bits of two keys agree, which is rare, the keys are
// drawn again.
typedef struct {
  uint64_t seed, offset, index; // index: the mask of an entry's index
  uint64_t *from, *to;
  int64_t *out;
  int64_t n;
  int bits;
  int64_t start[(1 << FIRST_BITS) + 1]; // of each bucket; its end, once its entries are there
} permutation_task;

// Loops read whole vectors, past the last entry.
static int64_t room(int64_t n) { return n + MOST; }

int64_t plaitk_random_permutation_scratch(int64_t n) {
  return 2 * room(n) * (int64_t)sizeof(uint64_t) + (int64_t)sizeof(permutation_task);
}

// A block of counters, each of which makes two keys.
#define COUNTERS 256
#define KEYS (2 * COUNTERS)
#define BLOCKS 32 // for a thread

// Makes the entries of a block of words, the first with the index `at`.
PLAIT_CLONES static void to_entries(const uint32_t *restrict w, uint64_t index, uint64_t at, uint64_t *restrict entries) {
  _Pragma("omp simd") for (int64_t i = 0; i < KEYS; i++) {
    uint64_t key = (uint64_t)w[2 * i] << 32 | w[2 * i + 1];
    entries[i] = (key & ~index) | (at + (uint64_t)i);
  }
}

static void draw(uint64_t seed, uint64_t counter, uint64_t index, uint64_t at, uint64_t *entries) {
  uint32_t w[4 * COUNTERS];
  plait_philox_words(w, COUNTERS, seed, counter);
  to_entries(w, index, at, entries);
}

static void make_entries(void *arg, int64_t chunk) {
  permutation_task *t = arg;
  int64_t first = chunk * BLOCKS * KEYS, last = first + BLOCKS * KEYS < t->n ? first + BLOCKS * KEYS : t->n;
  for (; first < last; first += KEYS) {
    uint64_t counter = t->offset + (uint64_t)(first / 2), end[KEYS], *to = first + KEYS <= last ? t->from + first : end;
    draw(t->seed, counter, t->index, (uint64_t)first, to);
    if (to == end) memcpy(t->from + first, end, (size_t)(last - first) * sizeof *end);
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

// Writes 32 bits of each key, those after the first `done`, and the smallest number behind them up to a multiple of LANES.
PLAIT_CLONES static void take_bits(const uint64_t *restrict e, int n, uint64_t index, int done, int32_t *restrict key) {
  for (int first = 0; first < n; first += LANES) {
    int left = n - first;
    _Pragma("omp simd") for (int i = 0; i < LANES; i++) {
      int32_t k = (int32_t)((uint32_t)((e[first + i] & ~index) << done >> 32) ^ 0x80000000u);
      key[first + i] = i < left ? k : INT32_MIN;
    }
  }
}

// Defines a function that writes the place of each of n keys and returns the sum of the places, which is less than that of
// 0, ..., n-1 if some are equal. It does so for as many keys at a time as fit in the registers, in vectors of a size.
#define PLACES(name, TARGET, BYTES, VECTORS)                                                    \
  TARGET static int32_t name(const int32_t *restrict key, int n, int32_t *restrict place) {    \
    typedef int32_t lanes __attribute__((vector_size(BYTES)));                                  \
    lanes sum = {0};                                                                            \
    for (int first = 0; first < n; first += BYTES / 4 * VECTORS) {                              \
      lanes x[VECTORS], p[VECTORS] = {{0}};                                                     \
      memcpy(x, key + first, sizeof x);                                                         \
      for (int i = 0; i < n; i++) {                                                             \
        lanes k = key[i] - (lanes){0};                                                          \
        for (int v = 0; v < VECTORS; v++) p[v] -= k < x[v]; /* which is -1 where it holds */    \
      }                                                                                         \
      for (int v = 0; v < VECTORS; v++) sum += p[v];                                            \
      memcpy(place + first, p, sizeof p);                                                       \
    }                                                                                           \
    int32_t total = 0;                                                                          \
    for (int i = 0; i < BYTES / 4; i++) total += sum[i];                                        \
    return total;                                                                               \
  }

PLACES(places_16, , 16, 4)
#ifdef IS_X86
PLACES(places_32, __attribute__((target("avx2"))), 32, 4)
PLACES(places_64, __attribute__((target("avx512f"))), 64, 2)
#endif

// Writes the place of each of at most MOST entries by the 32 bits of their keys after the first `done`. Returns false if some of
// these are equal.
static bool places(const uint64_t *restrict e, int n, uint64_t index, int done, int32_t *restrict place) {
  int32_t key[MOST], sum = n * (n - 1) / 2;
  take_bits(e, n, index, done, key);
#ifdef IS_X86
  if (__builtin_cpu_supports("avx512f")) return places_64(key, n, place) == sum;
  if (__builtin_cpu_supports("avx2")) return places_32(key, n, place) == sum;
#endif
  return places_16(key, n, place) == sum;
}

static void insert(const permutation_task *t, uint64_t *e, int64_t n, int64_t *out) {
  for (int64_t i = 1; i < n; i++) {
    uint64_t v = e[i];
    int64_t j = i;
    for (; j > 0 && is_after(t, e[j - 1], v); j--) e[j] = e[j - 1];
    e[j] = v;
  }
  for (int64_t i = 0; i < n; i++) out[i] = (int64_t)(e[i] & t->index);
}

// Writes the indices of n entries, whose keys have the same first `done` bits, in the order of these keys. other has room for
// them.
static void order(const permutation_task *t, uint64_t *e, uint64_t *other, int64_t n, int done, int64_t *out) {
  if (n <= MOST) {
    int32_t place[MOST];
    if (!places(e, (int)n, t->index, done, place)) {
      insert(t, e, n, out);
      return;
    }
    for (int64_t i = 0; i < n; i++) out[place[i]] = (int64_t)(e[i] & t->index);
    return;
  }
  int bits = width((uint64_t)n) - 5 < NEXT_BITS ? width((uint64_t)n) - 5 : NEXT_BITS;
  if (done + bits > 64 - width(t->index)) { // no keys that were drawn have so many bits in common
    insert(t, e, n, out);
    return;
  }
  uint32_t start[(1 << NEXT_BITS) + 1], mask = (1u << bits) - 1;
  int shift = 64 - done - bits;
  memset(start, 0, ((size_t)mask + 2) * sizeof *start);
  for (int64_t i = 0; i < n; i++) start[((e[i] >> shift) & mask) + 1]++;
  for (uint32_t b = 0; b < mask; b++) start[b + 1] += start[b];
  for (int64_t i = 0; i < n; i++) other[start[(e[i] >> shift) & mask]++] = e[i]; // after which start[b] is the end of b
  int64_t first = 0;
  for (uint32_t b = 0; b <= mask; b++) {
    order(t, other + first, e + first, start[b] - first, done + bits, out + first);
    first = start[b];
  }
}

static void order_group(void *arg, int64_t group) {
  permutation_task *t = arg;
  int64_t buckets = (INT64_C(1) << t->bits) / GROUPS;
  for (int64_t b = group * buckets; b < (group + 1) * buckets; b++) {
    int64_t first = b == 0 ? 0 : t->start[b - 1], n = t->start[b] - first;
    order(t, t->to + first, t->from + first, n, t->bits, t->out + first);
  }
}

void plaitk_random_permutation(plait_pool *pool, uint64_t seed, uint64_t offset, int64_t *out, int64_t n, void *scratch) {
  permutation_task *t = scratch;
  t->seed = seed, t->offset = offset, t->out = out, t->n = n, t->index = (UINT64_C(1) << width((uint64_t)n)) - 1;
  t->from = (uint64_t *)(t + 1);
  t->to = t->from + room(n);
  plait_parallel(pool, (n + BLOCKS * KEYS - 1) / (BLOCKS * KEYS), make_entries, t);
  t->bits = n >= MANY ? FIRST_BITS_OF_MANY : width((uint64_t)n) - 5;
  int64_t buckets = INT64_C(1) << (t->bits < 0 ? 0 : t->bits);
  if (buckets < GROUPS) {
    order(t, t->from, t->to, n, 0, out);
    return;
  }
  const int shift = 64 - t->bits;
  int64_t *start = t->start;
  memset(start, 0, (size_t)(buckets + 1) * sizeof *start);
  for (int64_t i = 0; i < n; i++) start[(t->from[i] >> shift) + 1]++;
  for (int64_t b = 0; b < buckets; b++) start[b + 1] += start[b];
  for (int64_t i = 0; i < n; i++) t->to[start[t->from[i] >> shift]++] = t->from[i];
  plait_parallel(pool, GROUPS, order_group, t);
}

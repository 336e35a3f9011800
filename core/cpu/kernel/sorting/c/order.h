// Sorts arrays of entries. An entry is an element's key and its index.
//
// Keys of up to 32 bits share a word with the index (`packed`); longer keys have their own word (`wide`). Indices are
// below 2^32 and ascending in the input. All algorithms keep the order of equal keys, so the result is always that of a
// stable sort.
#ifndef PLAITK_SORTING_ORDER_H
#define PLAITK_SORTING_ORDER_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

typedef uint64_t packed; // key << 32 | index

typedef struct {
  uint64_t key;
  uint64_t index;
} wide;

PLAIT_INLINE uint64_t packed_key(packed e) { return e >> 32; }
PLAIT_INLINE uint64_t packed_index(packed e) { return e & UINT32_MAX; }
PLAIT_INLINE uint64_t wide_key(wide e) { return e.key; }
PLAIT_INLINE uint64_t wide_index(wide e) { return e.index; }

// A long array is split into pieces for the pool. A radix digit has ORDER_DIGITS values.
enum { ORDER_PIECE = 1 << 16, ORDER_DIGITS = 1 << 11 };

// The number of counters that sorting n entries needs.
PLAIT_INLINE int64_t order_counters(int64_t n) { return ((n + ORDER_PIECE - 1) / ORDER_PIECE + 1) * ORDER_DIGITS; }

// plaitk_sorting_sort_* sort a[0..n-1]. tmp has room for n entries, counters for order_counters(n) words.
void plaitk_sorting_sort_packed(plait_pool *pool, packed *a, packed *tmp, int64_t n, uint32_t *counters);
void plaitk_sorting_sort_wide(plait_pool *pool, wide *a, wide *tmp, int64_t n, uint32_t *counters);

// plaitk_sorting_select_* move the k smallest entries to a[0..k-1]. They are not sorted, but entries with equal keys
// keep their order. counters has ORDER_DIGITS words.
void plaitk_sorting_select_packed(packed *a, packed *tmp, int64_t n, int64_t k, uint32_t *counters);
void plaitk_sorting_select_wide(wide *a, wide *tmp, int64_t n, int64_t k, uint32_t *counters);

#endif

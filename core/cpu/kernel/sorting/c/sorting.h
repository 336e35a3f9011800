// Sorting and selecting along a dimension.
//
// A *line* runs along the dimension. Its elements become entries (see order.h), which are sorted or selected. The
// results are the elements at the entries' indices. If there are many lines, threads take them in turn, each with a
// slot of scratch. A few long lines are sorted one by one, by all threads together.
#ifndef PLAITK_SORTING_H
#define PLAITK_SORTING_H

#include "keys.h"
#include "order.h"
#include "../../../include/plait_abreast.h"
#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"
#include "../../../include/plait_slots.h"

enum plaitk_sorting_op {
  SORTING_SORT,      // all elements in order
  SORTING_TOP,       // the first k in order
  SORTING_KTH,       // the k-th in order, counted from 1
  SORTING_MEDIAN,    // the lower median; the first NaN if there is one
  SORTING_NANMEDIAN, // the lower median of the elements that are not NaN
  SORTING_MODE,      // the smallest of the most frequent values, at its last occurrence
};

// Strides are in elements. The dimensions of lines are merged and sorted by descending stride.
struct plaitk_sorting {
  const void *in;
  void *values;     // may be NULL
  int64_t *indices; // has the layout of values
  void *scratch;
  int32_t op, dtype, descending, threads;
  int32_t nk;
  int64_t ksize[PLAIT_MAX_DIMS], kin[PLAIT_MAX_DIMS], kout[PLAIT_MAX_DIMS];
  int64_t lines, n, k, in_stride, out_stride;
  int64_t unit; // lines per chunk; 0 if all threads work on one line at a time
  int32_t abreast; // 1: lines are short, and sorted many at once
};

// plaitk_sorting_scratch returns the bytes of scratch that plaitk_sorting_run needs.
int64_t plaitk_sorting_scratch(const struct plaitk_sorting *s);
void plaitk_sorting_run(plait_pool *pool, const struct plaitk_sorting *s);

// plaitk_sorting_abreast runs an op other than the mode on the lines [first, last), of at most PLAIT_ABREAST_N elements. See
// abreast.c.
void plaitk_sorting_abreast(const struct plaitk_sorting *s, int64_t first, int64_t last, void *scratch);
int64_t plaitk_sorting_abreast_scratch(void);

// The distinct values of n elements. Each NaN is distinct. All arrays are contiguous and have room for n results.
struct plaitk_unique {
  const void *in;
  void *values;
  int64_t *inverse; // for each element the index of its value, or NULL
  int64_t *counts;  // or NULL
  int64_t *total;   // number of values
  void *scratch;
  int32_t dtype;
  int32_t consecutive; // compare neighbours only, without sorting
  int64_t n;
};

int64_t plaitk_sorting_unique_scratch(const struct plaitk_unique *u);
void plaitk_sorting_unique(plait_pool *pool, const struct plaitk_unique *u);

// The same for n rows of `width` elements, which are sorted lexicographically. `values` gets, as int64, the index of
// the first occurrence of each distinct row.
void plaitk_sorting_unique_rows(const struct plaitk_unique *u, int64_t width);

// For each value, the number of elements of a sorted sequence that are smaller, or with `right` not larger. All arrays
// are contiguous. There are `rows` sequences of n elements, each with as many values, or one sequence for all values.
struct plaitk_search {
  const void *sequence, *values;
  const int64_t *sorter; // indices that sort each sequence, or NULL
  void *out;             // int64 or int32
  int32_t dtype, out_dtype, right;
  int64_t rows, n, per_row;
};

// plaitk_sorting_search returns 0. If an index in `sorter` is out of range, it returns 1 + the position of the first
// one.
int64_t plaitk_sorting_search(plait_pool *pool, const struct plaitk_search *s);

// Counts, or sums of weights, for each bin. n elements are split into `parts`, each with `bins` words of scratch if there are several.
struct plaitk_histogram {
  const void *in;
  const double *weights; // or NULL
  void *out;             // int64 counts or double sums
  void *scratch;
  double low, high;      // the range, for floats; the bin of an integer is its value
  int32_t dtype;
  int64_t n, bins, parts;
};

void plaitk_sorting_histogram(plait_pool *pool, const struct plaitk_histogram *h);

// plaitk_sorting_load makes entries of n elements, `stride` elements apart. The first has index `at`, and the next ones are counted
// if count is -1, or have the same if it is 0. If descending, keys are inverted. key_is_wide decides whether a dtype has wide or packed entries.
void plaitk_sorting_load_packed(int dtype, const void *in, int64_t stride, int64_t at, int64_t count, int64_t n,
                                bool descending, packed *a);
void plaitk_sorting_load_wide(int dtype, const void *in, int64_t stride, int64_t at, int64_t count, int64_t n,
                              bool descending, wide *a);

#endif

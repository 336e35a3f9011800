// Sorting and selecting along a dimension.
//
// A *line* runs along the dimension. Its elements become entries (see order.h), which are sorted or selected from; the
// results are the elements that the entries' indices name. Many lines are shared out among threads, each with a slot of
// scratch; a few long ones are sorted by all threads together.
#ifndef PLAITK_SORTING_H
#define PLAITK_SORTING_H

#include "keys.h"
#include "order.h"
#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"
#include "../../../include/plait_slots.h"

enum plaitk_sorting_op {
  SORTING_SORT,      // all elements in order
  SORTING_TOP,       // the first k of them
  SORTING_KTH,       // the k-th of them, counted from 1
  SORTING_MEDIAN,    // the lower of the middle ones; the first NaN if there is one
  SORTING_NANMEDIAN, // the same of the elements that are not NaN
  SORTING_MODE,      // the last of the elements that come most often, the smallest of those
};

// Strides count elements. The lines' dimensions are collapsed, from the largest to the smallest stride.
struct plaitk_sorting {
  const void *in;
  void *values;     // may be NULL
  int64_t *indices; // laid out as values
  void *scratch;
  int32_t op, dtype, descending, threads;
  int32_t nk;
  int64_t ksize[PLAIT_MAX_DIMS], kin[PLAIT_MAX_DIMS], kout[PLAIT_MAX_DIMS];
  int64_t lines, n, k, in_stride, out_stride;
  int64_t unit; // lines per chunk; 0 if all threads work on one line after the other
};

// plaitk_sorting_scratch returns the bytes of scratch that plaitk_sorting_run wants.
int64_t plaitk_sorting_scratch(const struct plaitk_sorting *s);
void plaitk_sorting_run(plait_pool *pool, const struct plaitk_sorting *s);

// What is left of n elements when equal ones (a NaN equals nothing) are counted once. All arrays are contiguous and have
// room for n results.
struct plaitk_unique {
  const void *in;
  void *values;
  int64_t *inverse; // for each element its result
  int64_t *counts;
  int64_t *total;   // of results
  void *scratch;
  int32_t dtype;
  int32_t consecutive; // only neighbours are compared, nothing is sorted
  int64_t n;
};

int64_t plaitk_sorting_unique_scratch(const struct plaitk_unique *u);
void plaitk_sorting_unique(plait_pool *pool, const struct plaitk_unique *u);

// The same of n rows of `width` elements, which are ordered by their first differing element. `values` gets, as int64,
// the index of the first row of each result.
void plaitk_sorting_unique_rows(const struct plaitk_unique *u, int64_t width);

// For each value the number of elements of a sorted sequence that are smaller, or with `right` not larger. All arrays are
// contiguous; there are `rows` sequences of n elements and as many values for each, or one sequence for all values.
struct plaitk_search {
  const void *sequence, *values;
  const int64_t *sorter; // indices that sort each sequence, or NULL
  void *out;             // int64 or int32
  int32_t dtype, out_dtype, right;
  int64_t rows, n, per_row;
};

// plaitk_sorting_search returns 0, or 1 more than the position of the first index in `sorter` that is out of range.
int64_t plaitk_sorting_search(plait_pool *pool, const struct plaitk_search *s);

// Counts, or sums of weights, per bin. n elements are cut into `parts`, each with `bins` words of scratch.
struct plaitk_histogram {
  const void *in;
  const double *weights; // or NULL
  void *out;             // int64 counts or double sums
  void *scratch;
  double low, high;      // of the range, for floats; the bin of an integer is the integer
  int32_t dtype;
  int64_t n, bins, parts;
};

void plaitk_sorting_histogram(plait_pool *pool, const struct plaitk_histogram *h);

// plaitk_sorting_load makes entries of n elements `stride` elements apart, the first of index `at`; their keys are
// inverted if descending is set. The loader of wide entries is for key_is_wide dtypes, the other one for the rest.
void plaitk_sorting_load_packed(int dtype, const void *in, int64_t stride, int64_t at, int64_t n, bool descending,
                                packed *a);
void plaitk_sorting_load_wide(int dtype, const void *in, int64_t stride, int64_t at, int64_t n, bool descending,
                              wide *a);

#endif

// Kernels that read or write at indices and masks.
#ifndef PLAITK_INDEXING_H
#define PLAITK_INDEXING_H

#include <stdatomic.h>

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"
#include "../../../include/plait_view.h"

// How a value is combined with the element that it is written to.
enum plaitk_mode { PLAITK_ASSIGN, PLAITK_ADD, PLAITK_MUL, PLAITK_MAX, PLAITK_MIN, PLAITK_MODES };

// The first index out of range: the index tensor it is in, its row-major position there, and its value.
typedef struct {
  int64_t tensor, position, value;
} plaitk_bad_index;

// Kernels that take indices return 0, or 1 and the first bad index. After an error, no element was accessed out of
// range, and a tensor that the kernel changes in place is unchanged. With `wrap`, negative indices count from the end.

// out[.., j, ..] = in[.., index[.., j, ..], ..] in dimension dim.
int64_t plaitk_indexing_gather(plait_pool *pool, const plait_view *out, const plait_view *in, const plait_view *index,
                               int64_t dim, plaitk_bad_index *bad);

// self[.., index[.., j, ..], ..] = or += or .. src[.., j, ..] in dimension dim, in the order of j. Modes other than
// PLAITK_ASSIGN do not support 16-bit floats.
int64_t plaitk_indexing_scatter(plait_pool *pool, const plait_view *self, const plait_view *index, const plait_view *src,
                                int64_t dim, int64_t mode, plaitk_bad_index *bad);

// out[b.., r..] = in[index_0[b..], .., index_k-1[b..], r..]: the first k dimensions of `in` are indexed by k tensors of
// one shape b. offsets is scratch of one int64 for each element of b.
int64_t plaitk_indexing_select(plait_pool *pool, const plait_view *out, const plait_view *in, int64_t k,
                               const plait_view *index, int64_t wrap, int64_t *offsets, plaitk_bad_index *bad);

// self[index_0[b..], .., index_k-1[b..], r..] = or += or .. values[b.., r..], in the row-major order of b. For 16-bit
// floats and modes other than PLAITK_ASSIGN, the values of each element are combined in float32 and rounded once.
// offsets is scratch of plaitk_indexing_put_scratch() int64s for each element of b.
int64_t plaitk_indexing_put(plait_pool *pool, const plait_view *self, const plait_view *values, int64_t k,
                            const plait_view *index, int64_t wrap, int64_t mode, int64_t *offsets, plaitk_bad_index *bad);
int64_t plaitk_indexing_put_scratch(int64_t dtype, int64_t mode);

// out[v, c] = the sum of grad[b.., c] over all b with index[b..] == v, in row-major order. It is zero where v is
// padding or does not occur. With by_frequency, each sum is divided by its number of terms. With onto, the sums are
// added to out. scratch is 4 int64s for each index.
int64_t plaitk_indexing_embedding_backward(plait_pool *pool, const plait_view *out, const plait_view *grad,
                                           const plait_view *index, int64_t padding, int64_t by_frequency,
                                           int64_t onto, int64_t *scratch, plaitk_bad_index *bad);

// The largest elements of the rows of weight [vocabulary, columns] in each bag of `count` indices, and the numbers of these
// rows, 0 and -1 for a bag without rows: y and, unless it is NULL, rows, both [bags, columns]. Bags begin at the offsets,
// which are in order, or if these are NULL have `size` indices each. The row `padding` counts for nothing. A bag whose
// first row has NaN keeps it, and NaNs of others are skipped.
typedef struct plaitk_bag_max {
  void *y;
  const void *weight;
  const int64_t *index, *offsets;
  int64_t *rows;
  int64_t dtype, bags, columns, count, vocabulary, size, padding;
} plaitk_bag_max;
int64_t plaitk_indexing_bag_max(plait_pool *pool, const plaitk_bag_max *m, plaitk_bad_index *bad);

// The kernels on masks need plaitk_indexing_mask_scratch() int64s of scratch. They return the number of true elements.
int64_t plaitk_indexing_mask_scratch(const plait_view *mask);
int64_t plaitk_indexing_count(plait_pool *pool, const plait_view *mask, int64_t *scratch);

// Writes the index of each true element as a column of the int64 `out` [mask.ndim, count].
int64_t plaitk_indexing_positions(plait_pool *pool, const plait_view *out, const plait_view *mask, int64_t *scratch);

// Writes the elements of `in` where mask is true to the contiguous 1-d `out`. It writes nothing if their number is not
// out's size.
int64_t plaitk_indexing_masked_select(plait_pool *pool, const plait_view *out, const plait_view *in, const plait_view *mask,
                                      int64_t *scratch);

// Writes the elements of the contiguous `source`, in order, to where mask is true. It writes nothing if there are too
// few.
int64_t plaitk_indexing_masked_scatter(plait_pool *pool, const plait_view *self, const plait_view *mask,
                                       const plait_view *source, int64_t *scratch);

// plaitk_indexing_nonzero writes the coordinates of the nonzero elements of a contiguous tensor to out, `ndim` int64s
// each. offsets has an int64 for every NONZERO_CHUNK elements.
enum { NONZERO_CHUNK = 1 << 13 };
void plaitk_indexing_nonzero(plait_pool *pool, const void *in, int32_t dtype, int64_t n, int32_t ndim, const int64_t *shape,
                             int64_t *offsets, int64_t *out);

// Shared by the kernels of this folder.

// Number of elements whose indices are checked before they are used.
enum { PLAITK_BLOCK = 512 };

// plaitk_indexing_outside reports whether one of n indices, `step` apart, is outside [-extra, size).
bool plaitk_indexing_outside(const char *index, int64_t dtype, int64_t step, int64_t n, int64_t size, int64_t extra);

// Converts n indices, `step` elements apart, to offsets: index * stride + i * along, added to the values in offsets if
// `add`. Returns whether an index is outside [0, size); its offset is then undefined.
bool plaitk_indexing_offsets(int64_t *restrict offsets, bool add, const char *index, int64_t dtype, int64_t step, int64_t n,
                             int64_t size, bool wrap, int64_t stride, int64_t along);

// Checks all of an index tensor. Returns 0, or 1 and the first bad index.
int64_t plaitk_indexing_check(plait_pool *pool, const plait_view *index, int64_t size, bool wrap, plaitk_bad_index *bad);

// Finds the first index outside [0, size), or [-size, size) with wrap, in row-major order.
int64_t plaitk_indexing_first_bad(const plait_view *index, int64_t size, bool wrap, plaitk_bad_index *bad);

// Computes the offsets of all index tuples of a select or put. If keys is not NULL, it also writes the tuples'
// row-major positions in the indexed dimensions.
int64_t plaitk_indexing_resolve(plait_pool *pool, const plait_view *indexed, int64_t k, const plait_view *index, bool wrap,
                                int64_t *offsets, int64_t *keys, plaitk_bad_index *bad);

// out[i * os] = in[offsets[i]], for elements of the given size.
void plaitk_indexing_take(int64_t size, char *restrict out, int64_t os, const char *restrict in,
                          const int64_t *restrict offsets, int64_t n);

// Where values go: value i to index[i * index] * stride + i * along.
typedef struct {
  int64_t index, stride, along;
} plaitk_steps;

// Combines values into self at indices, in order, or along a row. Strides are in elements.
typedef struct {
  void (*at)(char *self, const int64_t *index, plaitk_steps at, const char *values, int64_t step, int64_t n);
  void (*row)(char *self, int64_t self_step, const char *values, int64_t step, int64_t n);
} plaitk_combine;

plaitk_combine plaitk_indexing_combine(int64_t mode, int64_t dtype);

// Sorts the indices order = 0..n-1, and keys, by the keys in [0, limit). The sort is stable. The other two arrays are
// scratch.
void plaitk_indexing_sort(int64_t *keys, int64_t *order, int64_t *keys2, int64_t *order2, int64_t n, int64_t limit);

// Iterates over elements first, ..., last-1 of a walk in row-major order, in runs. A run has `count` elements; the
// first is at offset start[k] of operand k and has the number `done`, counted from `first`.
typedef struct {
  const plait_walk *walk;
  plait_cursor cursor;
  int64_t column, left, count, done;
  int64_t start[PLAIT_WALK_OPERANDS];
} plaitk_span;

static inline __attribute__((unused)) bool plaitk_span_next(plaitk_span *s) {
  const plait_walk *w = s->walk;
  if (s->count) {
    s->done += s->count, s->left -= s->count, s->column += s->count;
    if (s->column == plait_walk_inner(w)) s->column = 0, plait_walk_next(w, &s->cursor);
  }
  if (s->left == 0) return false;
  s->count = plait_min64(s->left, plait_walk_inner(w) - s->column);
  for (int64_t k = 0; k < w->operands; k++) s->start[k] = s->cursor.offset[k] + s->column * plait_walk_step(w, k);
  return true;
}

static inline __attribute__((unused)) void plaitk_span_init(plaitk_span *s, const plait_walk *w, int64_t first, int64_t last) {
  s->walk = w;
  s->count = s->done = 0, s->left = last - first;
  s->column = first % plait_walk_inner(w);
  plait_walk_seek(w, &s->cursor, first / plait_walk_inner(w));
}

// Runs fn over chunks. A single chunk runs on the calling thread.
static inline __attribute__((unused)) void plaitk_run(plait_pool *pool, int64_t chunks, plait_task fn, void *arg) {
  if (chunks == 1) {
    fn(arg, 0);
  } else if (chunks > 1) {
    plait_parallel_parts(pool, chunks, fn, arg);
  }
}

#endif

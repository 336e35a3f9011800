// Strided tensors, and iteration over the elements of several of them together.
#ifndef PLAIT_VIEW_H
#define PLAIT_VIEW_H

#include "plait_kernel.h"

// A view is an operand of a kernel. Strides are in elements and may be 0 or negative; data is the element at index 0.
typedef struct {
  char *data;
  int64_t dtype;
  int64_t ndim;
  int64_t shape[PLAIT_MAX_DIMS];
  int64_t stride[PLAIT_MAX_DIMS];
} plait_view;

PLAIT_INLINE int64_t plait_min64(int64_t a, int64_t b) { return a < b ? a : b; }
PLAIT_INLINE int64_t plait_max64(int64_t a, int64_t b) { return a > b ? a : b; }
PLAIT_INLINE int64_t plait_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

PLAIT_INLINE int64_t plait_numel(const plait_view *v) {
  int64_t n = 1;
  for (int64_t d = 0; d < v->ndim; d++) n *= v->shape[d];
  return n;
}

// Reports whether the elements of v are contiguous in row-major order.
PLAIT_INLINE bool plait_contiguous(const plait_view *v) {
  int64_t n = 1;
  for (int64_t d = v->ndim - 1; d >= 0; d--) {
    if (v->shape[d] != 1 && v->stride[d] != n) return false;
    n *= v->shape[d];
  }
  return true;
}

#define PLAIT_WALK_OPERANDS 4

// A walk iterates over up to four operands together, like ATen's TensorIterator. The last dimension is a row; the
// kernel loops over its elements, the walk over the rows. Strides are in elements.
typedef struct {
  int64_t operands, ndim;
  int64_t shape[PLAIT_MAX_DIMS];
  int64_t stride[PLAIT_MAX_DIMS][PLAIT_WALK_OPERANDS];
} plait_walk;

// A cursor is the position of one row in a walk: its index, and its offset in each operand.
typedef struct {
  int64_t at[PLAIT_MAX_DIMS];
  int64_t offset[PLAIT_WALK_OPERANDS];
} plait_cursor;

PLAIT_INLINE void plait_walk_init(plait_walk *w, int64_t operands) {
  w->operands = operands;
  w->ndim = 0;
}

// Adds a dimension inside the ones added before. A dimension of size 1 is dropped. A dimension that is contiguous with
// the last one in every operand is merged into it.
static inline __attribute__((unused)) void plait_walk_add(plait_walk *w, int64_t size, const int64_t *strides) {
  if (size == 1) return;
  if (w->ndim > 0) {
    int64_t *last = w->stride[w->ndim - 1];
    bool joined = true;
    for (int64_t k = 0; k < w->operands; k++) joined &= last[k] == strides[k] * size;
    if (joined) {
      for (int64_t k = 0; k < w->operands; k++) last[k] = strides[k];
      w->shape[w->ndim - 1] *= size;
      return;
    }
  }
  for (int64_t k = 0; k < w->operands; k++) w->stride[w->ndim][k] = strides[k];
  w->shape[w->ndim++] = size;
}

// Sorts the dimensions by descending stride of operand `by`, then merges what can be merged. This changes the order of
// the elements, so use it only where they are independent.
static inline __attribute__((unused)) void plait_walk_sort(plait_walk *w, int64_t by) {
  plait_walk sorted = {.operands = w->operands, .ndim = 0};
  int order[PLAIT_MAX_DIMS];
  for (int d = 0; d < w->ndim; d++) {
    int i = d;
    int64_t s = w->stride[d][by] < 0 ? -w->stride[d][by] : w->stride[d][by];
    for (; i > 0; i--) {
      int64_t t = w->stride[order[i - 1]][by];
      if ((t < 0 ? -t : t) >= s) break;
      order[i] = order[i - 1];
    }
    order[i] = d;
  }
  for (int d = 0; d < w->ndim; d++) plait_walk_add(&sorted, w->shape[order[d]], w->stride[order[d]]);
  *w = sorted;
}

// The length of a row, and the strides along it.
PLAIT_INLINE int64_t plait_walk_inner(const plait_walk *w) { return w->ndim ? w->shape[w->ndim - 1] : 1; }
PLAIT_INLINE int64_t plait_walk_step(const plait_walk *w, int64_t k) {
  return w->ndim ? w->stride[w->ndim - 1][k] : 0;
}

PLAIT_INLINE int64_t plait_walk_rows(const plait_walk *w) {
  int64_t n = 1;
  for (int64_t d = 0; d + 1 < w->ndim; d++) n *= w->shape[d];
  return n;
}

// Moves the cursor to the given row.
static inline __attribute__((unused)) void plait_walk_seek(const plait_walk *w, plait_cursor *c, int64_t row) {
  memset(c, 0, sizeof *c);
  for (int64_t d = w->ndim - 2; d >= 0 && row; d--) {
    c->at[d] = row % w->shape[d];
    row /= w->shape[d];
    for (int64_t k = 0; k < w->operands; k++) c->offset[k] += c->at[d] * w->stride[d][k];
  }
}

// Moves the cursor to the next row.
PLAIT_INLINE void plait_walk_next(const plait_walk *w, plait_cursor *c) {
  for (int64_t d = w->ndim - 2; d >= 0; d--) {
    if (++c->at[d] < w->shape[d]) {
      for (int64_t k = 0; k < w->operands; k++) c->offset[k] += w->stride[d][k];
      return;
    }
    for (int64_t k = 0; k < w->operands; k++) c->offset[k] -= (w->shape[d] - 1) * w->stride[d][k];
    c->at[d] = 0;
  }
}

#endif

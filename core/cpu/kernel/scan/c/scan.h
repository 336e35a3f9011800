// Scans: running reductions along a dimension.
//
// A *line* runs along the scanned dimension. Lines are independent. If lines are adjacent in memory, a vector of lines
// is scanned at a time. Short lines are copied to lie like that. Otherwise four lines are scanned at once, so that their dependency chains overlap. If there are
// only a few long lines, they are split into pieces: one pass computes the state of each piece, and a second pass scans
// each piece from the state before it.
#ifndef PLAITK_SCAN_H
#define PLAITK_SCAN_H

#include "../../../include/plait_abreast.h"
#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"
#include "../../../include/plait_vmath.h"

enum plaitk_scan_op { SCAN_SUM, SCAN_PROD, SCAN_MAX, SCAN_MIN, SCAN_LOGSUMEXP };

enum {
  SCAN_WIDTH = 256, // lines in a block of columns, at most
  SCAN_LINES = 4,   // lines in a group of rows, at most
};

// A scan in normal form: all dimensions except the scanned one, merged and sorted by descending stride. Strides are in
// elements.
struct plaitk_scan {
  const void *in;
  void *out;
  int64_t *index; // of maximum and minimum, with the layout of out; may be NULL
  void *scratch;  // 2 words for each line and piece; used if pieces > 1
  int32_t op, dtype;
  int32_t columns;
  int32_t abreast; // 1: lines are short, and copied to be columns
  int32_t pairs; // 1: elements are pairs, the parts of complex numbers, also in strides
  int32_t nk;
  int64_t ksize[PLAIT_MAX_DIMS], kin[PLAIT_MAX_DIMS], kout[PLAIT_MAX_DIMS];
  int64_t lines, n, in_stride, out_stride;
  int64_t width;         // lines in a group, which are scanned together
  int64_t groups;        // number of groups
  int64_t unit;          // groups per chunk
  int64_t pieces, piece; // number of pieces in a line, and elements in each
};

// The states of some lines:
//   sum, product      a: double or int64
//     of pairs        a: the real part, b: the imaginary part
//   maximum, minimum  a: double or int64, b: int64 index, -1 for none
//   logsumexp         a: maximum m, b: sum of exp(x - m), doubles
struct scan_state {
  void *a, *b;
};

// A leaf scans n positions of `lines` lines from the states s, and updates the states. Line k starts at in + k *
// in_line. `at` is the index of the first position. If `out` is NULL, it only updates the states.
struct scan_part {
  const void *in;
  void *out;
  int64_t *index;
  int64_t lines, n, at;
  int64_t in_stride, out_stride, in_line, out_line;
  struct scan_state s;
};

typedef void (*scan_leaf)(const struct scan_part *p);

// rows takes up to SCAN_LINES lines; columns takes up to SCAN_WIDTH lines with in_line = out_line = 1. few, if it is there, takes short lines
// whose elements are adjacent, and leaves no states.
struct scan_leaves {
  scan_leaf rows, columns, few;
};

const struct scan_leaves *plaitk_scan_sums(int op, int dtype);
const struct scan_leaves *plaitk_scan_pairs(int op, int dtype);
const struct scan_leaves *plaitk_scan_extremes(int op, int dtype);
const struct scan_leaves *plaitk_scan_logsumexp(int dtype);

// A linear recurrence; see linear.c.
struct plaitk_linear {
  const void *a, *b;
  void *y;
  int32_t dtype, reverse, columns, pairs;
  int64_t outer, n, inner;
  int64_t unit; // lines, or blocks of SCAN_WIDTH columns, per chunk
};

int64_t plaitk_scan_linear(plait_pool *pool, const struct plaitk_linear *l);
int64_t plaitk_scan_run(plait_pool *pool, const struct plaitk_scan *s);

#define SIMD _Pragma("omp simd")

#define LOAD_SAME(x) (x)
#define LOAD_F16(x) plait_f16_to_f32(x)
#define LOAD_BF16(x) plait_bf16_to_f32(x)
#define STORE_SAME(x) (x)
#define STORE_F16(x) plait_f32_to_f16((float)(x))
#define STORE_BF16(x) plait_f32_to_bf16((float)(x))

#endif

// Scans: what a reduction would give after each element along a dimension.
//
// A *line* runs along the scanned dimension; lines are independent. Where lines lie side by side in memory they are
// scanned together, a vector at a time; otherwise four at once, so that their chains of operations overlap. A few long
// lines are cut into pieces: one pass finds what each piece comes to, a second one scans it from there.
#ifndef PLAITK_SCAN_H
#define PLAITK_SCAN_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"
#include "../../../include/plait_vmath.h"

enum plaitk_scan_op { SCAN_SUM, SCAN_PROD, SCAN_MAX, SCAN_MIN, SCAN_LOGSUMEXP };

enum {
  SCAN_WIDTH = 256, // lines of a block of columns, at most
  SCAN_LINES = 4,   // lines of a group of rows, at most
};

// A scan in normal form: the dimensions but the scanned one, collapsed, from the largest to the smallest stride. Strides
// count elements.
struct plaitk_scan {
  const void *in;
  void *out;
  int64_t *index; // of maxima and minima, laid out as out; may be NULL
  void *scratch;  // 2 words for each line and piece, where pieces > 1
  int32_t op, dtype;
  int32_t columns;
  int32_t nk;
  int64_t ksize[PLAIT_MAX_DIMS], kin[PLAIT_MAX_DIMS], kout[PLAIT_MAX_DIMS];
  int64_t lines, n, in_stride, out_stride;
  int64_t width;         // lines that are scanned together
  int64_t groups;        // of such lines
  int64_t unit;          // groups per chunk
  int64_t pieces, piece; // of n
};

// The states of some lines:
//   sum, product      a: double or int64
//   maximum, minimum  a: double or int64, b: int64 index, -1 for none
//   logsumexp         a: maximum m, b: sum of exp(x - m), doubles
struct scan_state {
  void *a, *b;
};

// A leaf scans n positions of `lines` lines from the states s, which it updates. Line k starts at in + k * in_line; `at`
// is the index of the first position. Without `out` it only updates the states.
struct scan_part {
  const void *in;
  void *out;
  int64_t *index;
  int64_t lines, n, at;
  int64_t in_stride, out_stride, in_line, out_line;
  struct scan_state s;
};

typedef void (*scan_leaf)(const struct scan_part *p);

// rows takes up to SCAN_LINES lines, columns up to SCAN_WIDTH lines with in_line = out_line = 1.
struct scan_leaves {
  scan_leaf rows, columns;
};

const struct scan_leaves *plaitk_scan_sums(int op, int dtype);
const struct scan_leaves *plaitk_scan_extremes(int op, int dtype);
const struct scan_leaves *plaitk_scan_logsumexp(int dtype);

// A linear recurrence: see linear.c.
struct plaitk_linear {
  const void *a, *b;
  void *y;
  int32_t dtype, reverse, columns;
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

// Elementwise reduction of contiguous arrays of one length.
#ifndef PLAITK_COMBINE_H
#define PLAITK_COMBINE_H

#include "../../../include/plait_kernel.h"

enum plaitk_combine_op {
  PLAITK_COPY = 0,
  PLAITK_SUM,
  PLAITK_PRODUCT,
  PLAITK_MIN,
  PLAITK_MAX,
  PLAITK_BIT_AND,
  PLAITK_BIT_OR,
  PLAITK_BIT_XOR,
  PLAITK_COMBINE_OPS,
};

// Combines the n elements of all sources in order, divides by divisor unless it is 0 (floating-point dtypes only), and
// writes the result to every target. A target may be a source. 16-bit floats are combined in float32 and rounded once.
// NaN wins in minimum and maximum. For bools, a sum is or, and a product is and.
void plaitk_combine(int64_t op, int64_t dtype, int64_t n, const void *const *sources, int64_t n_sources, void *const *targets,
                    int64_t n_targets, double divisor);

// Does so for rows of n elements, which begin strides bytes after each other. It changes sources and targets.
void plaitk_combine_rows(int64_t op, int64_t dtype, int64_t rows, int64_t n, const void **sources, const int64_t *source_strides,
                         int64_t n_sources, void **targets, const int64_t *target_strides, int64_t n_targets, double divisor);

#endif

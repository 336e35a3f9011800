// Joining equally long, contiguous pieces of memory element by element.
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

// Joins the n elements of each of the sources, first with second, the result with third and so on, divides by divisor if it
// is not 0 (floating-point dtypes only), and writes the result to every target. A target may be a source. Half types are
// joined in float32 and rounded once; NaN is the minimum and the maximum of anything with it; of bools, a sum is or, a
// product is and.
void plaitk_combine(int64_t op, int64_t dtype, int64_t n, const void *const *sources, int64_t n_sources, void *const *targets,
                    int64_t n_targets, double divisor);

#endif

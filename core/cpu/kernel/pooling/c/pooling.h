// Pooling over up to three spatial dimensions.
//
// A window is the product of one interval for each dimension. So a row of outputs takes two steps: first combine the
// input rows of its windows column by column, which vectorises, then combine the columns of each window.
#ifndef PLAITK_POOLING_H
#define PLAITK_POOLING_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

// plaitk_pooling_shape describes a pooling. Missing leading dimensions are 1.
typedef struct {
  int64_t dtype, planes;  // number of images times channels
  int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
  int64_t adaptive;       // windows run from floor(o * in / out) to ceil((o + 1) * in / out); the four fields above are not used
  int64_t include_pad;    // averages count padding in the size of a window
  int64_t divisor;        // the divisor of averages; 0 for the size of the window
} plaitk_pooling_shape;

// The bytes of scratch, aligned to 64, that a call needs.
int64_t plaitk_pooling_scratch(const plait_pool *pool, const plaitk_pooling_shape *s);

// y = the maximum of each window. index, which may be NULL, gets its position in the plane. NaN is larger than all
// numbers. Of equal elements the first is taken.
void plaitk_pooling_max(plait_pool *pool, const plaitk_pooling_shape *s, const void *x, void *y, int64_t *index,
                        void *scratch);
// y = the average of each window; floating-point dtypes.
void plaitk_pooling_average(plait_pool *pool, const plaitk_pooling_shape *s, const void *x, void *y, void *scratch);
// dx = the transpose of the averaging applied to dy.
void plaitk_pooling_average_grad(plait_pool *pool, const plaitk_pooling_shape *s, const void *dy, void *dx,
                                 void *scratch);

// Both move elements by indices within a plane. They return -1, or the position of the first index out of range; such
// an element is not moved.
//
// out[p, i] = in[p, index[p, i]], for elements of size bytes.
int64_t plaitk_pooling_gather(plait_pool *pool, int64_t size, int64_t planes, int64_t n_in, int64_t n_index,
                              const void *in, const int64_t *index, void *out);
// out[p, index[p, i]] += in[p, i], starting from zero. If add is 0, the last value stays. add requires a floating-point
// dtype.
int64_t plaitk_pooling_scatter(plait_pool *pool, int64_t dtype, int64_t add, int64_t planes, int64_t n_index,
                               int64_t n_out, const void *in, const int64_t *index, void *out, void *scratch);
int64_t plaitk_pooling_scatter_scratch(const plait_pool *pool, int64_t dtype, int64_t add, int64_t n_out);

#endif

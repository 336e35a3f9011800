// Pooling over up to three spatial dimensions.
//
// A window is the product of one interval for each dimension, so a row of outputs is made in two steps: the rows of the
// input under it are combined column by column, which vectorises, and then the columns of each window.
#ifndef PLAITK_POOLING_H
#define PLAITK_POOLING_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

// plaitk_pooling_shape describes a pooling; missing leading dimensions are 1.
typedef struct {
  int64_t dtype, planes;  // images times channels
  int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
  int64_t adaptive;       // windows from floor(o * in / out) to ceil((o + 1) * in / out); the four above do not count
  int64_t include_pad;    // averages divide by the window's size with padding
  int64_t divisor;        // averages divide by this, if it is not 0
} plaitk_pooling_shape;

// The bytes of scratch, aligned to 64, that a call needs.
int64_t plaitk_pooling_scratch(const plait_pool *pool, const plaitk_pooling_shape *s);

// y = the largest element of each window, index, which may be NULL, its position in the plane. A NaN is larger than
// everything; of equal elements the first is taken.
void plaitk_pooling_max(plait_pool *pool, const plaitk_pooling_shape *s, const void *x, void *y, int64_t *index,
                        void *scratch);
// y = the average of each window; floating-point dtypes.
void plaitk_pooling_average(plait_pool *pool, const plaitk_pooling_shape *s, const void *x, void *y, void *scratch);
// dx = the transpose of the average applied to dy.
void plaitk_pooling_average_grad(plait_pool *pool, const plaitk_pooling_shape *s, const void *dy, void *dx,
                                 void *scratch);

// Both move elements of planes by indices within a plane. They return -1, or the position in index of one that is out of
// range, for which nothing is moved.
//
// out[p, i] = in[p, index[p, i]], for elements of size bytes.
int64_t plaitk_pooling_gather(plait_pool *pool, int64_t size, int64_t planes, int64_t n_in, int64_t n_index,
                              const void *in, const int64_t *index, void *out);
// out[p, index[p, i]] += in[p, i] from zero, or = if add is 0: the last one stays. Dtypes as plait_dtype; for add
// floating-point ones.
int64_t plaitk_pooling_scatter(plait_pool *pool, int64_t dtype, int64_t add, int64_t planes, int64_t n_index,
                               int64_t n_out, const void *in, const int64_t *index, void *out, void *scratch);
int64_t plaitk_pooling_scatter_scratch(const plait_pool *pool, int64_t dtype, int64_t add, int64_t n_out);

#endif

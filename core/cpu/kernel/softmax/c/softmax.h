// Softmax and log-softmax along the middle dimension of a contiguous [outer, n, inner] tensor of a floating dtype.
#ifndef PLAITK_SOFTMAX_H
#define PLAITK_SOFTMAX_H

#include <stdint.h>

#include "../../../include/plait_pool.h"

// y = softmax(x), or log_softmax(x) if log. A row of -inf only gives NaN.
void plaitk_softmax_forward(plait_pool *pool, int dtype, int log, const void *x, void *y, int64_t outer, int64_t n,
                            int64_t inner);

// Computes dx from the forward's result y and the gradient dy.
void plaitk_softmax_backward(plait_pool *pool, int dtype, int log, const void *y, const void *dy, void *dx,
                             int64_t outer, int64_t n, int64_t inner);

#endif

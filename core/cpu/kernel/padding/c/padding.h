// Padding of image planes, and its transpose.
#ifndef PLAITK_PADDING_H
#define PLAITK_PADDING_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

enum { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR };

// plaitk_padding describes a padding of the last nd dimensions.
typedef struct {
  int64_t planes, nd, mode;
  int64_t in[PLAIT_MAX_DIMS], out[PLAIT_MAX_DIMS], left[PLAIT_MAX_DIMS];  // left may be negative, which crops
} plaitk_padding;

int64_t plaitk_padding_scratch(const plait_pool *pool, const plaitk_padding *p, int64_t dtype);
// y = x padded. For PAD_CONSTANT, value is the bits of the added element, of `size` bytes.
void plaitk_padding_forward(plait_pool *pool, const plaitk_padding *p, int64_t size, uint64_t value,
                         const void *x, void *y, void *scratch);
// dx = the transpose of the padding applied to dy, for floating-point dtypes.
void plaitk_padding_backward(plait_pool *pool, const plaitk_padding *p, int64_t dtype, const void *dy,
                              void *dx, void *scratch);

#endif

// Interpolation of image planes, and its transpose.
#ifndef PLAITK_INTERPOLATE_H
#define PLAITK_INTERPOLATE_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

enum { INTERPOLATE_NEAREST, INTERPOLATE_NEAREST_EXACT, INTERPOLATE_LINEAR, INTERPOLATE_CUBIC };

// plaitk_interpolate_shape describes an interpolation. Missing leading dimensions are 1.
typedef struct {
  int64_t dtype, planes;
  int64_t in[3], out[3];
  int64_t mode, align_corners;
  double scale[3];  // of each dimension; 0 to derive it from the sizes
} plaitk_interpolate_shape;

// The bytes of scratch, aligned to 64, that a call needs.
int64_t plaitk_interpolate_scratch(const plait_pool *pool, const plaitk_interpolate_shape *s);
// y = x interpolated.
void plaitk_interpolate_forward(plait_pool *pool, const plaitk_interpolate_shape *s, const void *x, void *y, void *scratch);
// dx = the transpose of the interpolation applied to dy, for floating-point dtypes.
void plaitk_interpolate_backward(plait_pool *pool, const plaitk_interpolate_shape *s, const void *dy, void *dx,
                              void *scratch);

#endif

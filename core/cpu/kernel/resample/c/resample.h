// Interpolation, padding, and patches laid out as columns. All are linear maps of image planes, and each has its
// transpose beside it.
#ifndef PLAITK_RESAMPLE_H
#define PLAITK_RESAMPLE_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

enum { RESAMPLE_NEAREST, RESAMPLE_NEAREST_EXACT, RESAMPLE_LINEAR, RESAMPLE_CUBIC };

// plaitk_resample_shape describes an interpolation; missing leading dimensions are 1.
typedef struct {
  int64_t dtype, planes;
  int64_t in[3], out[3];
  int64_t mode, align_corners;
  double scale[3];  // of each dimension, if it is given and not to be taken from the sizes, otherwise 0
} plaitk_resample_shape;

// The bytes of scratch, aligned to 64, that a call needs.
int64_t plaitk_resample_scratch(const plait_pool *pool, const plaitk_resample_shape *s);
// y = x interpolated.
void plaitk_resample_forward(plait_pool *pool, const plaitk_resample_shape *s, const void *x, void *y, void *scratch);
// dx = the transpose of it, applied to dy; floating-point dtypes.
void plaitk_resample_backward(plait_pool *pool, const plaitk_resample_shape *s, const void *dy, void *dx,
                              void *scratch);

enum { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR };

// plaitk_resample_pad describes a padding of the last nd dimensions.
typedef struct {
  int64_t planes, nd, mode;
  int64_t in[PLAIT_MAX_DIMS], out[PLAIT_MAX_DIMS], left[PLAIT_MAX_DIMS];  // left may be negative
} plaitk_resample_padding;

int64_t plaitk_resample_pad_scratch(const plait_pool *pool, const plaitk_resample_padding *p, int64_t dtype);
// y = x padded; value is the bits of an element, of size bytes, for PAD_CONSTANT.
void plaitk_resample_pad(plait_pool *pool, const plaitk_resample_padding *p, int64_t size, uint64_t value,
                         const void *x, void *y, void *scratch);
// dx = the transpose of it, applied to dy; floating-point dtypes.
void plaitk_resample_pad_grad(plait_pool *pool, const plaitk_resample_padding *p, int64_t dtype, const void *dy,
                              void *dx, void *scratch);

// plaitk_resample_patches describes patches of an image: kernel[0] x kernel[1] elements at out[0] x out[1] places.
typedef struct {
  int64_t dtype, planes;
  int64_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
} plaitk_resample_patches;

// columns[p, k, q] = element k of the patch at place q of plane p, 0 outside the plane.
void plaitk_resample_unfold(plait_pool *pool, const plaitk_resample_patches *s, const void *x, void *columns);
int64_t plaitk_resample_fold_scratch(const plait_pool *pool, const plaitk_resample_patches *s);
// x = the sum of the patches in their places.
void plaitk_resample_fold(plait_pool *pool, const plaitk_resample_patches *s, const void *columns, void *x,
                          void *scratch);

#endif

// im2col: patches of images as columns. col2im: its transpose.
#ifndef PLAITK_CONV_IM2COL_H
#define PLAITK_CONV_IM2COL_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

// plaitk_conv_patches describes the patches of an image: out[0] x out[1] patches of kernel[0] x kernel[1] elements.
typedef struct {
  int64_t dtype, planes;
  int64_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
} plaitk_conv_patches;

// columns[p, k, q] = element k of patch q of plane p, or 0 outside the plane.
void plaitk_conv_im2col(plait_pool *pool, const plaitk_conv_patches *s, const void *x, void *columns);
int64_t plaitk_conv_col2im_scratch(const plait_pool *pool, const plaitk_conv_patches *s);
// x = the sum of all patches, each at its place.
void plaitk_conv_col2im(plait_pool *pool, const plaitk_conv_patches *s, const void *columns, void *x,
                          void *scratch);

#endif

// Convolution over up to three spatial dimensions as an implicit matrix product.
//
// Forward and input gradient are one computation ("taps"): over a lattice of output positions q,
//
//   out[m, q * out_step + out_start] = bias[m] + sum over channels c, taps t of W[m, c, t] * in[c, q * in_step + offset(t)]
//
// The forward pass is a single such lattice. The input gradient with stride s falls apart into one lattice for each
// residue of the position modulo s, each with its own subset of the taps, so that no product with an inserted zero is
// ever made. The weight gradient ("dots") is sum over q of dy[m, q] * in[c, q * in_step + offset(t)].
//
// Both read the input from a zero-padded copy of a block of it, in which the positions of one tap are contiguous and
// taps differ by a constant offset; nothing is expanded by the number of taps unless rows are too short to fill vectors.
#ifndef PLAITK_CONV_H
#define PLAITK_CONV_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

// plaitk_conv_shape describes one convolution by its forward pass x, w -> y; missing leading dimensions are 1.
typedef struct {
  int64_t dtype;
  int64_t n, groups, cin, cout;  // channels of all groups together
  int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
} plaitk_conv_shape;

// The bytes of scratch, aligned to 64, that a call with this pool needs.
int64_t plaitk_conv_forward_scratch(const plait_pool *pool, const plaitk_conv_shape *s);
int64_t plaitk_conv_input_grad_scratch(const plait_pool *pool, const plaitk_conv_shape *s);
int64_t plaitk_conv_weight_grad_scratch(const plait_pool *pool, const plaitk_conv_shape *s);

// bias may be NULL.
void plaitk_conv_forward(plait_pool *pool, const plaitk_conv_shape *s, const void *x, const void *w, const void *bias,
                         void *y, void *scratch);
// bias, one value for each input channel, is for the transposed convolution; it may be NULL.
void plaitk_conv_input_grad(plait_pool *pool, const plaitk_conv_shape *s, const void *dy, const void *w,
                            const void *bias, void *dx, void *scratch);
void plaitk_conv_weight_grad(plait_pool *pool, const plaitk_conv_shape *s, const void *x, const void *dy, void *dw,
                             void *scratch);

// plaitk_conv_isa limits the instructions used from now on, for tests: 0 baseline, 1 AVX2, 2 AVX-512. It returns the
// level that is in use, which the processor may limit further.
int64_t plaitk_conv_isa(int64_t level);

#endif

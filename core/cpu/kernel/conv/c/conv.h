// Convolution over up to three spatial dimensions.
//
// Kernels of one element, and many channels at few positions, are products of matrices, for which the input is unfolded
// ("products"). Channels with a kernel each are computed one after the other ("depthwise"). Kernels of 3 x 3 with stride
// 1 are filtered with fewer multiplications ("winograd"), but for the weight gradient. In bfloat16 a processor that has
// dot products of pairs reads these from a copy of the input, and nothing is unfolded ("pairs"), but for the weight
// gradient, and the input gradient with strides. Elsewhere the products are implicit. Then the forward pass and the input
// gradient are one computation ("taps") over a lattice of positions q:
//
//   out[m, q * out_step + out_start] = bias[m] + sum over channels c, taps t of W[m, c, t] * in[c, q * in_step + offset(t)]
//
// The forward pass is one such lattice. The input gradient with stride s is one lattice for each residue of the
// position modulo s. Each lattice has its own subset of the taps, so no product with an inserted zero is computed. The
// weight gradient ("dots") is the sum over q of dy[m, q] * in[c, q * in_step + offset(t)].
//
// Taps and dots read a zero-padded copy of a block of the input. In the copy the positions of one tap are contiguous,
// and taps differ by a constant offset. So the input is not expanded by the number of taps, except where rows are too short for
// whole vectors.
#ifndef PLAITK_CONV_H
#define PLAITK_CONV_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

// plaitk_conv_shape describes a convolution by its forward pass x, w -> y. Missing leading dimensions are 1.
typedef struct {
  int64_t dtype;
  int64_t n, groups, cin, cout;  // cin and cout are the channels of all groups together
  int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
  int64_t rounded;  // the weight of the forward pass is stored as float32 and rounded to `dtype`, which is PLAIT_BF16
} plaitk_conv_shape;

// The bytes of scratch, aligned to 64, that a call needs with this pool.
int64_t plaitk_conv_forward_scratch(const plait_pool *pool, const plaitk_conv_shape *s);
int64_t plaitk_conv_input_grad_scratch(const plait_pool *pool, const plaitk_conv_shape *s);
int64_t plaitk_conv_weight_grad_scratch(const plait_pool *pool, const plaitk_conv_shape *s);

// bias may be NULL.
void plaitk_conv_forward(plait_pool *pool, const plaitk_conv_shape *s, const void *x, const void *w, const void *bias,
                         void *y, void *scratch);
// bias has a value for each input channel, as a transposed convolution needs; it may be NULL.
void plaitk_conv_input_grad(plait_pool *pool, const plaitk_conv_shape *s, const void *dy, const void *w,
                            const void *bias, void *dx, void *scratch);
void plaitk_conv_weight_grad(plait_pool *pool, const plaitk_conv_shape *s, const void *x, const void *dy, void *dw,
                             void *scratch);

// plaitk_conv_isa limits the instruction set of later calls, for tests: 0 baseline, 1 AVX2, 2 AVX-512. It returns the
// one in use, which also depends on the processor.
int64_t plaitk_conv_isa(int64_t level);

#endif

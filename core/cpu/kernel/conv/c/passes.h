// The ways to compute the passes of a convolution.
#ifndef PLAITK_CONV_PASSES_H
#define PLAITK_CONV_PASSES_H

#include "conv.h"

typedef enum { CONV_FORWARD, CONV_INPUT_GRAD, CONV_WEIGHT_GRAD } plaitk_conv_pass;

// Taps compute the forward pass and the input gradient: `out` from x or dy and the weight.
int64_t plaitk_conv_taps_scratch(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass);
void plaitk_conv_by_taps(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *in,
                         const void *w, const void *bias, void *out, void *scratch);

// Dots compute the weight gradient.
int64_t plaitk_conv_dots_scratch(const plait_pool *pool, const plaitk_conv_shape *s);
void plaitk_conv_by_dots(plait_pool *pool, const plaitk_conv_shape *s, const void *x, const void *dy, void *dw,
                         void *scratch);

// Convolutions with a kernel for each channel have a way of their own for every pass: `to` from x or dy and the weight,
// or for the weight gradient from x and dy, which is the argument in the place of the weight.
// plaitk_conv_suits_depthwise reports whether it serves. It depends on the shape alone.
int plaitk_conv_suits_depthwise(const plaitk_conv_shape *s, plaitk_conv_pass pass);
int64_t plaitk_conv_depthwise_scratch(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass);
void plaitk_conv_by_depthwise(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *from,
                              const void *w, const void *bias, void *to, void *scratch);

// Matrix products compute every pass: y, dx or dw, which is the argument in the place of y, x or w, from the other two.
// plaitk_conv_suits_products reports whether they are the faster way. It depends on the shape alone.
int plaitk_conv_suits_products(const plaitk_conv_shape *s, plaitk_conv_pass pass);
int64_t plaitk_conv_products_scratch(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass);
void plaitk_conv_by_products(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *x,
                             const void *w, const void *bias, const void *y, void *scratch);

// Minimal filtering computes the forward pass and the input gradient of 3 x 3 kernels with stride 1: `to` from x or dy
// and the weight. plaitk_conv_suits_winograd reports whether it is the fastest way. It depends on the shape alone.
int plaitk_conv_suits_winograd(const plaitk_conv_shape *s, plaitk_conv_pass pass);
int64_t plaitk_conv_winograd_scratch(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass);
void plaitk_conv_by_winograd(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *from,
                             const void *w, const void *bias, void *to, void *scratch);

// Dot products of pairs of elements compute the forward pass in bfloat16, and the input gradient with stride 1: `to` from
// x or dy and the weight. plaitk_conv_suits_pairs reports whether they are the fastest way. It depends on the shape and the
// instruction set.
int plaitk_conv_suits_pairs(const plaitk_conv_shape *s, plaitk_conv_pass pass);
int64_t plaitk_conv_pairs_scratch(const plaitk_conv_shape *s, plaitk_conv_pass pass);
void plaitk_conv_by_pairs(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *from,
                          const void *w, const void *bias, void *to, void *scratch);

#endif

// Package conv computes convolutions over one to three spatial dimensions and their gradients on the CPU.
//
// Kernels of one element, and many channels at few positions, are products of matrices, for which blocks of the input are
// unfolded. Elsewhere micro-kernels read the positions of a tap straight from a padded copy of a block of the input (see
// conv.h). Transposed convolutions are the input gradient.
package conv

/*
#include "c/conv.h"
*/
import "C"

import (
	"unsafe"

	_ "github.com/plait-ml/plait/core/cpu/gemm" // defines plaitk_gemm_batched
)

// A geometry describes a convolution by its forward pass. Missing leading dimensions are 1. It has the layout of
// plaitk_conv_shape.
type geometry struct {
	dtype, n, groups, cin, cout                int64
	in, out, kernel, stride, padding, dilation [3]int64
	rounded                                    int64 // the weight is float32, and rounded
}

func (g *geometry) c() *C.plaitk_conv_shape { return (*C.plaitk_conv_shape)(unsafe.Pointer(g)) }

func (g *geometry) forwardScratch(pool unsafe.Pointer) int {
	return int(C.plaitk_conv_forward_scratch((*C.plait_pool)(pool), g.c()))
}

func (g *geometry) inputGradScratch(pool unsafe.Pointer) int {
	return int(C.plaitk_conv_input_grad_scratch((*C.plait_pool)(pool), g.c()))
}

func (g *geometry) weightGradScratch(pool unsafe.Pointer) int {
	return int(C.plaitk_conv_weight_grad_scratch((*C.plait_pool)(pool), g.c()))
}

func (g *geometry) forward(pool, x, w, bias, y, scratch unsafe.Pointer) {
	C.plaitk_conv_forward((*C.plait_pool)(pool), g.c(), x, w, bias, y, scratch)
}

func (g *geometry) inputGrad(pool, dy, w, bias, dx, scratch unsafe.Pointer) {
	C.plaitk_conv_input_grad((*C.plait_pool)(pool), g.c(), dy, w, bias, dx, scratch)
}

func (g *geometry) weightGrad(pool, x, dy, dw, scratch unsafe.Pointer) {
	C.plaitk_conv_weight_grad((*C.plait_pool)(pool), g.c(), x, dy, dw, scratch)
}

// limitISA limits the instruction set for tests: 0 baseline, 1 AVX2, 2 AVX-512. It returns the one in use.
func limitISA(level int) int { return int(C.plaitk_conv_isa(C.int64_t(level))) }

// Package gemm multiplies matrices on a CPU: any strides, float16, bfloat16, float32 and float64, one product or a
// batch of them, on the workers of a pool.
//
// A large product packs both operands into panels, as Goto and van de Geijn do in "Anatomy of High-Performance Matrix
// Multiplication" (2008), and runs a micro kernel over them for AVX-512, AVX2 or the baseline. For bfloat16 there are two
// more: for the tile registers of AMX, where Linux lets the process use them, and for the dot products of AVX-512 BF16.
// They take subnormal numbers for zero. Small products, products with a few rows, and products that are deep but small
// have ways of their own. Other kernels call the C interface in plait_gemm.h.
package gemm

/*
#include "../include/plait_kernel.h"
#include "../include/plait_gemm.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	_ "github.com/plait-ml/plait/core/cpu/pool" // defines plait_parallel
)

// MaxDims bounds the batch dimensions of a product.
const MaxDims = C.PLAIT_MAX_DIMS

// initialScratch is the scratch memory that a product asks for at first. Most small products need no more.
const initialScratch = 32 << 10

// A Memory provides a product's scratch memory: at least n bytes, aligned to 64, valid until the next call. It should
// keep at least 32 KiB cached.
type Memory interface {
	Scratch(n int) (unsafe.Pointer, error)
}

// Matrix is an operand: the address of its first element, and its strides in elements.
type Matrix struct {
	Data     unsafe.Pointer
	Row, Col int
}

// Dim is a batch dimension: its size, and the operands' strides along it in elements.
type Dim struct {
	Size, A, B, C int
}

// Product is C = Alpha * A @ B + Beta * C + Bias for every index of Batch. C is [M, N], A [M, K], B [K, N], and Bias
// [N] is added to every row. The memory must be C's, or pinned.
type Product struct {
	M, N, K     int
	A, B, C     Matrix
	In, Out     int // dtypes (core.DType): In of A, B and Bias, Out of C
	Alpha, Beta float64
	Bias        unsafe.Pointer // nil for none
	BiasStep    int
	Rounded     int  // which of A, B and Bias are float32 and rounded to In, which is bfloat16
	Turned      bool // whether B stands for a matrix of complex numbers: see plait_gemm.h
	Batch       []Dim
}

// Operands, as bits of [Product.Rounded].
const (
	OperandA    = C.PLAITK_GEMM_A
	OperandB    = C.PLAITK_GEMM_B
	OperandBias = C.PLAITK_GEMM_BIAS
)

// Run computes the product on the calling thread and the workers of a pool (see pool.Pool.Ptr); a nil pool has no
// workers. The result does not depend on the pool. Errors come from memory.
func (p *Product) Run(pool unsafe.Pointer, memory Memory) error {
	g := C.plaitk_gemm{
		m: C.int64_t(p.M), n: C.int64_t(p.N), k: C.int64_t(p.K),
		a: p.A.Data, a_row: C.int64_t(p.A.Row), a_col: C.int64_t(p.A.Col),
		b: p.B.Data, b_row: C.int64_t(p.B.Row), b_col: C.int64_t(p.B.Col),
		c: p.C.Data, c_row: C.int64_t(p.C.Row), c_col: C.int64_t(p.C.Col),
		in: C.int(p.In), out: C.int(p.Out),
		alpha: C.double(p.Alpha), beta: C.double(p.Beta),
		bias: p.Bias, bias_step: C.int64_t(p.BiasStep),
		rounded: C.int(p.Rounded),
	}
	if p.Turned {
		g.turned = 1
	}
	var dims [MaxDims]C.plaitk_gemm_dim
	if len(p.Batch) > MaxDims {
		return errors.New("too many batch dimensions")
	}
	for i, d := range p.Batch {
		dims[i] = C.plaitk_gemm_dim{C.int64_t(d.Size), C.int64_t(d.A), C.int64_t(d.B), C.int64_t(d.C)}
	}
	for need := C.int64_t(initialScratch); need > 0; {
		scratch, err := memory.Scratch(int(need))
		if err != nil {
			return err
		}
		need = C.plaitk_gemm_batched((*C.plait_pool)(pool), &g, C.int(len(p.Batch)), &dims[0], scratch, need)
	}
	return nil
}

// Variant is an instruction set that the kernels are compiled for.
type Variant int

const (
	Best     Variant = C.PLAITK_GEMM_BEST
	Baseline Variant = C.PLAITK_GEMM_BASELINE
	AVX2     Variant = C.PLAITK_GEMM_AVX2
	AVX512   Variant = C.PLAITK_GEMM_AVX512
	// AVX512BF16 has dot products of bfloat16.
	AVX512BF16 Variant = C.PLAITK_GEMM_AVX512_BF16
	AMX        Variant = C.PLAITK_GEMM_AMX
)

// Current returns the instruction set in use.
func Current() Variant { return Variant(C.plaitk_gemm_variant()) }

// String returns the name of the instruction set.
func (v Variant) String() string {
	switch v {
	case Baseline:
		return "baseline"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	case AVX512BF16:
		return "avx512_bf16"
	case AMX:
		return "amx"
	}
	return "best"
}

// Use selects the instruction set of later products and returns the previous one. If this machine lacks it, ok is false
// and nothing changes. Best is the default.
func Use(v Variant) (former Variant, ok bool) {
	f := Variant(C.plaitk_gemm_use(C.int(v)))
	return f, f >= Best
}

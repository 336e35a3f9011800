package matmul

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// maxLibraryCalls is how many calls of a library a product may take. A call takes a batch with one stride; other dimensions of a batch
	// take a call for each of their elements.
	maxLibraryCalls = 256
	// maxLibraryBatch is the largest batch of a call.
	maxLibraryBatch = 65535
)

// library has the GPU's library compute the product, and reports whether it has. It has not if there is no library, or if the library
// cannot express the product.
func (p *Product) library(r *shader.Recorder) (done bool, err error) {
	if !r.GPU.Library || p.Folded || p.Gather != nil || p.Gap != 0 || min(p.M, p.N, p.K) < 1 || !p.libraryTypes() {
		return false, nil
	}
	along, length := p.longestBatch()
	if p.Batch.Count/length*shader.Ceil(length, maxLibraryBatch) > maxLibraryCalls {
		return false, nil
	}
	var next [3]int
	if along >= 0 {
		for i, s := range p.Batch.Strides {
			next[i] = s[along]
		}
	}
	for number := range p.Batch.Count / length {
		at := p.batchOffsets(number, along)
		for first := 0; first < length; first += maxLibraryBatch {
			q, ok := p.libraryCall(at, next, min(length-first, maxLibraryBatch))
			if !ok {
				return false, nil
			}
			switch taken, err := r.Product(&q); {
			case err != nil:
				return false, err
			case !taken && !done:
				return false, nil
			case !taken:
				return false, core.Errorf(core.DeviceError, "matmul", "the library refused a product of %d x %d x %d after it took another of its batch", p.M, p.N, p.K)
			}
			done = true
			r.Flush()
			for i := range at {
				at[i] += maxLibraryBatch * next[i]
			}
		}
	}
	return done, nil
}

// libraryTypes reports whether a library takes factors and results of these dtypes.
func (p *Product) libraryTypes() bool {
	in, out := p.A.DType, p.Out.DType
	return in == p.B.DType && in.IsFloat() && (out == in || out == core.Float32 && in.IsHalf()) && (p.bias == nil || p.bias.DType == out)
}

// longestBatch returns the longest dimension of the batch, -1 for none, and its length.
func (p *Product) longestBatch() (along, length int) {
	along, length = -1, 1
	for d, n := range p.Batch.Sizes {
		if n > length {
			along, length = d, n
		}
	}
	return along, length
}

// batchOffsets returns the offsets of the output and both factors in elements, for an index into the batch without dimension along.
func (p *Product) batchOffsets(index, along int) (at [3]int) {
	for d := len(p.Batch.Sizes) - 1; d >= 0; d-- {
		if d == along {
			continue
		}
		for i, s := range p.Batch.Strides {
			at[i] += index % p.Batch.Sizes[d] * s[d]
		}
		index /= p.Batch.Sizes[d]
	}
	return at
}

// libraryCall describes a part of the batch to the library. at and next are offsets and strides, in elements, of the output and both
// factors. A result that is stored by columns is computed as the transposed product, which takes no bias.
func (p *Product) libraryCall(at, next [3]int, count int) (q shader.Product, ok bool) {
	if p.bias != nil && p.N > 1 && p.bias.Strides[0] != 1 {
		return q, false
	}
	out, okOut := shader.MatrixOf(shader.Image(p.Out, 1, at[0]), p.M, p.N, p.CRow, p.CCol, next[0])
	a, okA := shader.MatrixOf(shader.Image(p.A, 1, at[1]), p.M, p.K, p.ARow, p.ACol, next[1])
	b, okB := shader.MatrixOf(shader.Image(p.B, 1, at[2]), p.K, p.N, p.BRow, p.BCol, next[2])
	q = shader.Product{M: p.M, N: p.N, K: p.K, Count: count, A: a, B: b, Out: out, Bias: p.bias, Alpha: p.Alpha, Beta: p.Beta, Reduced: p.Reduced}
	if out.Columns {
		q.M, q.N, q.A, q.B, q.Out = q.N, q.M, b.Transposed(), a.Transposed(), out.Transposed()
		okOut = okOut && p.bias == nil
	}
	return q, okOut && okA && okB
}

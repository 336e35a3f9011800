package gpu_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// decompositions are what linalg computes of a matrix, and of a symmetric positive definite one.
var decompositions = []struct {
	name string
	fn   func(x, positive *core.Tensor)
}{
	{"cholesky", func(_, positive *core.Tensor) { op.Cholesky(positive, false, "") }},
	{"lu", func(x, _ *core.Tensor) { op.LUFactor(x) }},
	{"inv", func(x, _ *core.Tensor) { op.Inv(x) }},
	{"solve", func(x, positive *core.Tensor) { op.Solve(x, positive) }},
	{"qr", func(x, _ *core.Tensor) { op.QR(x) }},
	{"eigh", func(_, positive *core.Tensor) { op.Eigh(positive, "") }},
	{"svd", func(x, _ *core.Tensor) { op.SVD(x) }},
}

// BenchmarkLinalg measures decompositions of one matrix, and of many small ones.
func BenchmarkLinalg(b *testing.B) {
	for _, c := range decompositions {
		for _, shape := range [][]int{{64, 64}, {256, 256}, {512, 512}, {1024, 1024}, {4096, 4, 4}, {1024, 32, 32}} {
			name := strconv.Itoa(shape[0])
			if len(shape) > 2 {
				name += "x" + strconv.Itoa(shape[1])
			}
			b.Run(c.name+"/"+name, func(b *testing.B) {
				d := hardwareGPU(b)
				core.ManualSeed(1)
				x := op.ToDevice(op.Randn(shape...), d)
				n := shape[len(shape)-1]
				positive := op.Add(op.MatMul(x, op.Transpose(x, -1, -2)), op.Mul(op.Eye(n, n, op.TensorOptions{Device: d}), core.Num(float64(n))))
				require.NoError(b, d.Synchronize())
				before := d.Traffic().Dispatches
				benchmark(b, d, func() { c.fn(x, positive) })
				b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms")
				b.ReportMetric(float64(d.Traffic().Dispatches-before)/float64(b.N+1), "dispatches")
			})
		}
	}
}

package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

// TestRecurrentBatchSizes checks recurrent steps of small batches, which are one dispatch, and of large ones, which are two. The
// registry's samples are too small for vec4.
func TestRecurrentBatchSizes(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	for _, size := range [][3]int{{17, 41, 0}, {17, 44, 17}} {
		n, hidden := size[0], size[1]
		require.NoError(t, d.Synchronize())
		defer gpu.Tune(device(t), func(f *shader.Tuning) { f.FewSequences = size[2] })()
		for _, gates := range []int{4, 3} {
			core.Tidy(func() {
				leaf := func(shape ...int) *core.Tensor {
					return op.Mul(op.Randn(shape...), core.Num(0.3)).Detach().SetRequiresGrad(true)
				}
				compareWithCPU(t, 1e-4, func(x ...*core.Tensor) []*core.Tensor {
					o := op.RecurrentOptions{Reverse: size[2] == 17}
					var out []*core.Tensor
					if gates == 4 {
						y, h, c := op.LSTMLayer(x[0], x[1], x[2], x[3], x[4], x[5], nil, o)
						out = []*core.Tensor{y, h, c}
					} else {
						y, h := op.GRULayer(x[0], x[1], x[3], x[4], x[5], x[6], o)
						x = append(x[:2:2], x[3:]...)
						out = []*core.Tensor{y, h}
					}
					if gates == 4 {
						x = x[:6]
					}
					ones := make([]*core.Tensor, len(out))
					for i, y := range out {
						ones[i] = op.FullLike(y, core.Num(1), op.TensorOptions{})
					}
					grads, err := autograd.Grad(out, x, ones, autograd.Options{})
					require.NoError(t, err)
					return append(out, grads...)
				}, leaf(3, n, 5), leaf(n, hidden), leaf(n, hidden), leaf(gates*hidden, 5), leaf(gates*hidden, hidden), leaf(gates*hidden), leaf(gates*hidden))
			})
		}
	}
}

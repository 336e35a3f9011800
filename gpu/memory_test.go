package gpu_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/crosscheck"
	"github.com/plait-ml/plait/core/op"
)

// TestOutOfMemoryInOps makes the allocation of a result, of a temporary or of a kernel's scratch fail. The error must be reported
// at the call or when the result is read, and the stream must go on.
func TestOutOfMemoryInOps(t *testing.T) {
	const rank = 79
	d := device(t)
	ctx := core.NewRankContext(rank, d)
	defer ctx.Free()
	for _, name := range []string{"add", "softmax", "matmul", "sort", "index_add", "masked_select", "cross_entropy", "cumsum", "layer_norm",
		"var_mean", "scatter_add", "linalg_inv", "embedding", "max_pool2d"} {
		t.Run(name, func(t *testing.T) {
			r := op.Lookup(name)
			require.NotNil(t, r)
			m := &crosscheck.Maker{Rand: crosscheck.Rand(name, 1), DType: core.Float32, Sliced: true, Device: d}
			_, args := m.Arguments(r.Samples[0])
			var leaves []*core.Tensor
			for _, x := range m.There {
				if x.RequiresGrad() {
					leaves = append(leaves, x)
				}
			}
			core.WithContext(ctx, func() {
				coretest.EachAllocation(t, func() (err error) {
					core.Tidy(func() { err = forwardAndBackward(r.Call(args...), leaves) })
					return err
				}, coretest.Unchanged(t, d, rank, m.There...), rank)
			})
		})
	}
	core.WithContext(ctx, func() {
		x := on(d, 3, 3)
		for _, run := range []func() *core.Tensor{
			func() *core.Tensor { return op.AddInPlace(x, op.Transpose(x, 0, 1)) },
			func() *core.Tensor { return op.CopyInPlace(x, op.Transpose(x, 0, 1)) },
			func() *core.Tensor { return op.AddInPlace(op.Narrow(x, 0, 1, 2), op.Narrow(x, 0, 0, 2)) },
		} {
			coretest.EachAllocation(t, func() (err error) {
				core.Tidy(func() { err = run().Wait() })
				return err
			}, coretest.Unchanged(t, d, rank, x), rank)
		}
	})
}

// forwardAndBackward waits for outputs and for the gradients of leaves, and returns the first error.
func forwardAndBackward(outs, leaves []*core.Tensor) error {
	var ends, seeds []*core.Tensor
	for _, x := range outs {
		if err := x.Wait(); err != nil {
			return err
		}
		if x.RequiresGrad() {
			ends, seeds = append(ends, x), append(seeds, op.OnesLike(x, op.TensorOptions{}))
		}
	}
	if len(ends) == 0 {
		return nil
	}
	grads, err := autograd.Grad(ends, leaves, seeds, autograd.Options{AllowUnused: true})
	for _, g := range grads {
		if g != nil {
			err = cmp.Or(err, g.Wait())
		}
	}
	return err
}

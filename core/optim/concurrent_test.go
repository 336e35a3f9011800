package optim_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

// together runs the functions n times each, at the same time.
func together(n int, fns ...func()) {
	var wg sync.WaitGroup
	for _, fn := range fns {
		wg.Go(func() {
			for range n {
				fn()
			}
		})
	}
	wg.Wait()
}

func TestThreadsThatTrainOneParameter(t *testing.T) {
	p := op.Full([]int{8}, core.Num(1), op.TensorOptions{}).SetRequiresGrad(true)
	opt, err := optim.NewAdam([]*core.Tensor{p}, optim.Hyper{"lr": 1e-3})
	require.NoError(t, err)
	train := func() {
		loss := op.Sum(op.Mul(p, p), nil, false)
		if err := autograd.Backward(loss); err != nil { // another thread has made a step since
			require.ErrorContains(t, err, "modified by an in-place operation")
		}
		loss.Release()
		require.NoError(t, opt.Step())
		opt.ZeroGrad()
	}
	together(40, train, train, train, func() {
		require.NoError(t, opt.Groups()[0].Set("lr", 1e-3))
		optim.ClipGradNorm([]*core.Tensor{p}, 1, optim.ClipOptions{}).Release()
		_, err := opt.StateDict().Groups[0].Hyper["lr"], p.Wait()
		require.NoError(t, err)
	})
	v, err := core.Values[float64](p)
	require.NoError(t, err)
	require.Less(t, v[0], 1.0)
}

func TestALossIsEvaluatedByOneStepAtATime(t *testing.T) {
	p := op.Full([]int{2}, core.Num(1), op.TensorOptions{}).SetRequiresGrad(true)
	opt, err := optim.NewLBFGS([]*core.Tensor{p}, optim.Hyper{"max_iter": 2})
	require.NoError(t, err)
	loss := func() (*core.Tensor, error) {
		opt.ZeroGrad()
		l := op.Sum(op.Mul(p, p), nil, false)
		return l, autograd.Backward(l)
	}
	_, err = opt.StepWith(func() (*core.Tensor, error) {
		_, err := opt.StepWith(loss)
		require.ErrorContains(t, err, "in the midst of a step")
		return loss()
	})
	require.NoError(t, err)
	_, err = opt.StepWith(loss)
	require.NoError(t, err)
}

func TestThreadsThatShareAScaler(t *testing.T) {
	s := optim.NewGradScaler()
	p := op.Full([]int{2}, core.Num(1), op.TensorOptions{}).SetRequiresGrad(true)
	require.NoError(t, autograd.Backward(op.Sum(p, nil, false)))
	keys := make([]func(), 4)
	for k := range keys {
		keys[k] = func() {
			_, _ = s.Check(k, []*core.Tensor{p})
			_ = s.Update()
			_ = s.ScaleLoss(p)
		}
	}
	together(20, keys...)
}

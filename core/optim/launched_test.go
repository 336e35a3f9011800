package optim

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// failLate launches a call without a result in t, and returns the function that makes it fail.
func failLate(t *core.Tensor) (end func()) {
	held := make(chan struct{})
	s := core.CurrentContext().Stream(t.Device())
	c := s.Begin(-1, "late")
	c.Work, c.Fn = math.MaxInt, func() error { <-held; return errors.New("late") }
	s.Launch(c.Out(t))
	return func() { close(held) }
}

// Steps whose gradient fails only after their launch are as if they had never been made, once the parameters are recovered.
func TestSkippedStepsAreTakenBack(t *testing.T) {
	all := map[string][]Hyper{"adafactor": {nil}}
	for name, list := range variants {
		all[name] = list
	}
	for name, list := range all {
		for _, h := range list {
			for good := range 2 { // steps before
				train := func(fail bool) (out [][]float64) {
					params := []*core.Tensor{leaf(core.Float32, start(4), 4), leaf(core.Float32, start(6), 2, 3)}
					o, err := New(name, h, Params{Tensors: params})
					require.NoError(t, err)
					defer o.Release()
					for n := range good + 2 {
						if n == good && fail {
							setGrads(params, 3)
							bad := op.ZerosLike(params[1].Detach(), op.TensorOptions{})
							end := failLate(bad)
							params[1].SetGrad(bad)
							require.NoError(t, o.Step())
							require.NoError(t, o.Step())
							for _, p := range params {
								p.Recover()
							}
							end()
						}
						setGrads(params, 0.5*float64(n+1))
						require.NoError(t, o.Step())
					}
					if fail {
						require.EqualError(t, params[0].Wait(), "late") // the stream's
					}
					for i, p := range params {
						kept, _ := o.State(i)
						out = append(out, values(t, p), []float64{kept.Step, kept.Numbers[o.algorithm.carries]})
						for _, s := range o.algorithm.states(o.groups[0].values()) {
							if x := kept.Tensors[s]; x != nil {
								out = append(out, values(t, x))
							}
						}
					}
					return out
				}
				require.Equal(t, train(false), train(true), "%s %v after %d steps", name, h, good)
			}
		}
	}
}

// A state whose own contents are lost stays failed.
func TestRecoveryLeavesLostStatesFailed(t *testing.T) {
	p := leaf(core.Float32, start(4), 4)
	o, err := NewAdam([]*core.Tensor{p}, nil)
	require.NoError(t, err)
	setGrads([]*core.Tensor{p}, 1)
	require.NoError(t, o.Step())
	kept, _ := o.State(0)
	end := failLate(kept.Tensors["exp_avg"])
	require.NoError(t, o.Step())
	p.Recover()
	end()
	after, _ := o.State(0)
	require.ErrorContains(t, after.Tensors["exp_avg"].Wait(), "late")
	require.NoError(t, after.Tensors["exp_avg_sq"].Wait())
	require.NoError(t, p.Wait())
	require.Equal(t, 1.0, after.Step)
}

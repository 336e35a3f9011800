package optim

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// A step that runs out of memory, at whatever allocation, changes neither parameters nor states; the next one is made.
func TestOutOfMemoryInEveryOptimizer(t *testing.T) {
	const rank = 78
	dev, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	ctx := core.NewRankContext(rank, dev)
	defer ctx.Free()
	for _, name := range Algorithms() {
		t.Run(name, func(t *testing.T) {
			list := append([]Hyper{nil}, variants[name]...)
			if algorithms[name].closure {
				list = []Hyper{{"max_iter": 3}, {"max_iter": 3, "strong_wolfe": 1}}
			}
			if testing.Short() {
				list = list[:1]
			}
			if _, ok := algorithms[name].defaults["master_weights"]; ok {
				list = append(list, Hyper{"master_weights": 1})
			}
			for _, h := range list {
				core.WithContext(ctx, func() { outOfMemory(t, dev, rank, name, h) })
			}
		})
	}
}

func outOfMemory(t *testing.T, dev core.Device, rank int, name string, h Hyper) {
	transposed := op.Transpose(leaf(core.Float32, start(6), 2, 3).Detach(), 0, 1).SetRequiresGrad(true)
	params := []*core.Tensor{leaf(core.Float32, start(6), 2, 3), transposed}
	if name != "lbfgs" { // whose parameters share a dtype
		params = append(params, leaf(core.BFloat16, start(6), 3, 2))
	}
	if name != "lbfgs" && name != "muon" { // which takes matrices
		params = append(params, leaf(core.Float32, start(4), 4))
	}
	o, err := New(name, h, Params{Tensors: params})
	require.NoError(t, err)
	step := o.Step
	if algorithms[name].closure {
		step = func() error {
			_, err := o.StepWith(func() (*core.Tensor, error) {
				o.ZeroGrad()
				var loss *core.Tensor
				core.Tidy(func() {
					loss = op.Sum(op.Pow(op.AddScaled(params[0], op.Transpose(params[1], 0, 1), 0.5), core.Num(4)), nil, false).Keep()
				})
				return loss, errors.Join(loss.Err(), autograd.Backward(loss))
			})
			return err
		}
	} else {
		setGrads(params, 0.5)
		params[0].SetGrad(op.Transpose(op.Clone(op.Transpose(params[0].Grad(), 0, 1)), 0, 1))
		makeSparse(name, params)
	}
	if algorithms[name].apply != nil { // what the products of matrices need is kept from here on
		warm := []*core.Tensor{leaf(core.Float32, start(6), 2, 3)}
		other, err := New(name, h, Params{Tensors: warm})
		require.NoError(t, err)
		setGrads(warm, 0.5)
		require.NoError(t, other.Step())
		other.Release()
	}
	for n := range 2 {
		tensors := slices.Clone(params)
		for i := range params {
			if s, ok := o.State(i); ok {
				for _, k := range slices.Sorted(maps.Keys(s.Tensors)) {
					tensors = append(tensors, s.Tensors[k])
				}
			}
		}
		counted := rank
		if algorithms[name].closure { // the losses and their gradients come and go
			counted = -1
		}
		check, bytes := coretest.Unchanged(t, dev, counted, tensors...), o.StateBytes()
		coretest.EachAllocation(t, func() error {
			if err := step(); err != nil {
				return err
			}
			for _, x := range params {
				if err := x.Wait(); err != nil {
					return err
				}
			}
			return nil
		}, func() {
			check()
			require.Equal(t, bytes, o.StateBytes())
		}, rank)
		if s, ok := o.State(0); ok && !algorithms[name].closure {
			require.Equal(t, float64(n+1), s.Step)
		}
	}
	o.Release()
}

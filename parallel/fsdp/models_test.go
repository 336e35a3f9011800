package fsdp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

// tied is a model with a parameter shared by two units, a unit used twice, frozen parameters and a buffer.
type tied struct {
	nn.Base
	Embed *nn.Linear
	First *nn.Sequential
	Last  *nn.Sequential
	Norm  *nn.BatchNorm
}

func newTied() *tied {
	core.ManualSeed(5)
	m := &tied{Embed: nn.NewLinear(width, 7, nn.LinearOptions{})}
	shared := nn.NewLinear(7, 7, nn.LinearOptions{})
	low := nn.NewLinear(7, 7, nn.LinearOptions{NoBias: true})
	m.First = nn.NewSequential(shared, nn.NewTanh(), low, nn.NewTanh(), low)
	other := nn.NewLinear(7, 7, nn.LinearOptions{})
	other.Weight = shared.Weight
	frozen := nn.NewLinear(7, 3, nn.LinearOptions{})
	nn.SetRequiresGrad(frozen, false)
	m.Last = nn.NewSequential(other, nn.NewTanh(), frozen, nn.NewLinear(3, 2, nn.LinearOptions{}))
	m.Norm = nn.NewBatchNorm1d(7, nn.BatchNormOptions{})
	nn.Eval(m.Norm)
	return m
}

func (m *tied) Forward(x *core.Tensor) *core.Tensor {
	x = nn.Call(m.First, nn.Call(m.Norm, nn.Call(m.Embed, x)))
	return nn.Call(m.Last, nn.Call(m.First, x)) // the second call of m.First
}

// TestCase30AnyModel checks frozen, shared and ignored parameters, nested units, units used twice, and buffers.
func TestCase30AnyModel(t *testing.T) {
	const world, steps = 3, 3
	var want []float64
	in64(t, func() {
		var err error
		want, err = trainOneDevice(newTied(), "adam", steps, 2*world)
		require.NoError(t, err)
	})
	for _, o := range []fsdp.Options{{}, {KeepAfterForward: true}, {NoForwardPrefetch: true, BackwardPrefetch: fsdp.PrefetchNever}, {Slots: 3}} {
		spawn(t, world, func(r *collective.Rank) error {
			m := newTied()
			mean, err := values([]*core.Tensor{m.Norm.RunningMean})
			if err != nil {
				return err
			}
			f, err := fsdp.New(m, r.World, fsdp.ByType(&nn.Sequential{}, &nn.Linear{}), o)
			if err != nil {
				return err
			}
			opt, err := optimisers["adam"](nn.Parameters(m))
			if err != nil {
				return err
			}
			for s := range steps {
				x, y := batch(s, r.Rank*2, (r.Rank+1)*2)
				if _, err := step(f.Forward, opt, x, y); err != nil {
					return err
				}
			}
			got, err := fullParams(f)
			if err != nil {
				return err
			}
			after, err := values([]*core.Tensor{m.Norm.RunningMean})
			return errors.Join(err, near("parameters", got, want, 1e-9), equal("buffer", after, mean), f.Close())
		})
	}
}

// TestCase30Ignored checks that parameters of ignored modules stay full, and that their gradients are not averaged.
func TestCase30Ignored(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m := model()
		last := m.Layers[3].(*nn.Linear)
		f, err := fsdp.New(m, r.World, blocks, fsdp.Options{}, last)
		if err != nil {
			return err
		}
		if got := last.Weight.Shape(); got[0] != 2 {
			return fmt.Errorf("the ignored weight has shape %v", got)
		}
		x, y := batch(0, r.Rank, r.Rank+1)
		l := mse(f.Forward(x), y)
		if err := autograd.Backward(l); err != nil {
			return err
		}
		g, err := values([]*core.Tensor{last.Bias.Grad()})
		if err != nil {
			return err
		}
		all := make([]*core.Tensor, 2)
		for i := range all {
			all[i] = core.FromSlice(make([]float64, 2))
		}
		if err := r.World.AllGather(all, core.FromSlice(g)).Wait(); err != nil {
			return err
		}
		a, _ := values(all[:1])
		b, _ := values(all[1:])
		if equal("", a, b) == nil {
			return errors.New("the gradient of an ignored parameter was averaged")
		}
		return f.Close()
	})
}

// TestCheckpointedUnits checks activation checkpointing inside units and around them.
func TestCheckpointedUnits(t *testing.T) {
	const world = 2
	again := func(l nn.Layer) func(x *core.Tensor) *core.Tensor {
		return func(x *core.Tensor) *core.Tensor {
			return autograd.Checkpoint(func(in []*core.Tensor) []*core.Tensor {
				return []*core.Tensor{nn.Call(l, in[0])}
			}, x)[0]
		}
	}
	var want []float64
	in64(t, func() {
		var err error
		want, err = trainOneDevice(model(), "sgd", 3, 2*world)
		require.NoError(t, err)
	})
	for _, policy := range []fsdp.Policy{nil, blocks, fsdp.ByType(&nn.Linear{}, &scaleLayer{})} {
		spawn(t, world, func(r *collective.Rank) error {
			m := model()
			f, err := fsdp.New(m, r.World, policy, fsdp.Options{})
			if err != nil {
				return err
			}
			opt, err := optimisers["sgd"](nn.Parameters(m))
			if err != nil {
				return err
			}
			forward := func(x *core.Tensor) *core.Tensor {
				out, err := f.Run(func(in []*core.Tensor) []*core.Tensor {
					y := in[0]
					for _, l := range m.Layers {
						y = again(l)(y)
					}
					return []*core.Tensor{y}
				}, x)
				if err != nil {
					return core.ErrorTensor(err)
				}
				return out[0]
			}
			for s := range 3 {
				x, y := batch(s, r.Rank*2, (r.Rank+1)*2)
				if _, err := step(forward, opt, x, y); err != nil {
					return err
				}
			}
			got, err := fullParams(f)
			return errors.Join(err, near("parameters", got, want, 1e-9), f.Close())
		})
	}
}

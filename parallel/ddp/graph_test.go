package ddp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// Gradients are right for two backward passes through one graph, two forward passes with one backward pass, an evaluation between forward and
// backward, and two losses, with a checkpointed and a shared layer.
func TestCase26Graphs(t *testing.T) {
	for name, train := range map[string]func(m nn.Layer, from, to int) error{
		"backward twice": func(m nn.Layer, from, to int) error {
			x, y := batch(0, from, to)
			l := mse(nn.Call(m, x), y)
			if err := autograd.BackwardWith([]*core.Tensor{l}, nil, autograd.Options{RetainGraph: true}); err != nil {
				return err
			}
			return autograd.Backward(l)
		},
		"forward twice": func(m nn.Layer, from, to int) error {
			x, y := batch(0, from, to)
			x2, y2 := batch(1, from, to)
			a := mse(nn.Call(m, x), y)
			return autograd.Backward(op.Add(a, mse(nn.Call(m, x2), y2)))
		},
		"evaluation between": func(m nn.Layer, from, to int) error {
			x, y := batch(0, from, to)
			l := mse(nn.Call(m, x), y)
			core.NoGrad(func() { nn.Call(m, x) })
			return autograd.Backward(l)
		},
		"two losses": func(m nn.Layer, from, to int) error {
			x, y := batch(0, from, to)
			a := mse(nn.Call(m, x), y)
			x2, y2 := batch(1, from, to)
			b := mse(nn.Call(m, x2), y2)
			return errors.Join(autograd.Backward(a), autograd.Backward(b))
		},
	} {
		for variant, options := range variants() {
			t.Run(name+"/"+variant, func(t *testing.T) {
				make := func() *nn.Sequential {
					shared := nn.NewLinear(width, width, nn.LinearOptions{})
					inner := nn.NewSequential(shared, nn.NewTanh(), shared)
					block := &checkpointed{Inner: inner}
					return nn.NewSequential(block, shared, nn.NewLinear(width, 2, nn.LinearOptions{}))
				}
				var want []float64
				in64(t, func() {
					core.ManualSeed(3)
					m := make()
					require.NoError(t, train(m, 0, 4))
					var err error
					want, err = grads(m)
					require.NoError(t, err)
				})
				spawn(t, 2, func(r *collective.Rank) error {
					if r.Rank == 0 {
						core.ManualSeed(3)
					}
					p, err := ddp.New(make(), r.World, options)
					if err != nil {
						return err
					}
					for range 2 {
						nn.ZeroGrad(p)
						if err := train(p, 2*r.Rank, 2*r.Rank+2); err != nil {
							return err
						}
						got, err := grads(p)
						if err != nil {
							return err
						}
						if err := near("gradient", got, want, 1e-9); err != nil {
							return err
						}
					}
					return p.Close()
				})
			})
		}
	}
}

// checkpointed runs a layer with activation checkpointing.
type checkpointed struct {
	nn.Base
	Inner nn.Layer
}

func (c *checkpointed) Forward(x *core.Tensor) *core.Tensor {
	return autograd.Checkpoint(func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{c.Inner.Forward(in[0])} }, x)[0]
}

// If a parameter's gradient becomes final twice in a step, the error names it.
func TestCase26ReadyTwice(t *testing.T) {
	spawn(t, 1, func(r *collective.Rank) error {
		m := newBranches()
		p, err := ddp.New(m, r.World, small)
		if err != nil {
			return err
		}
		x, y := batch(0, 0, 4)
		nn.Call(p, x)
		m.use = "left"
		a := mse(m.Forward(x), y)
		m.use = "right"
		b := mse(m.Forward(x), y)
		err = errors.Join(autograd.Backward(a), autograd.Backward(b))
		if err == nil || !strings.Contains(err.Error(), "parameter common.") || !strings.Contains(err.Error(), "twice") {
			return fmt.Errorf("got %v", err)
		}
		return p.Close()
	})
}

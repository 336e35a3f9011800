package fsdp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

// TestSummonOptions shows full parameters with gradients, on another device, and on the first rank only. Changes must be written
// back, unless the options forbid it.
func TestSummonOptions(t *testing.T) {
	other, err := core.OpenDevice("cpu:3")
	require.NoError(t, err)
	spawn(t, 3, func(r *collective.Rank) error {
		for _, group := range []*collective.Group{r.World, nil} {
			o := fsdp.Options{}
			if group == nil {
				o.Replicas = r.World
			}
			m := model()
			f, err := fsdp.New(m, group, blocks, o)
			if err != nil {
				return err
			}
			x, y := batch(0, r.Rank, r.Rank+1)
			if err := autograd.Backward(mse(f.Forward(x), y)); err != nil {
				return err
			}
			want, err := fullParams(f)
			if err != nil {
				return err
			}
			var grads []float64
			if group != nil {
				if grads, err = fullGradients(f); err != nil {
					return err
				}
			}
			shapes := fmt.Sprint(nn.Parameters(m)[0].Shape())
			for _, dev := range []core.Device{nil, other} {
				err = f.Summon(fsdp.SummonOptions{Gradients: true, Device: dev}, func() error {
					got, err := values(nn.Parameters(m))
					if err := errors.Join(err, equal("parameters", got, want)); err != nil {
						return err
					}
					if d := nn.Parameters(m)[0].Device(); dev != nil && d != dev {
						return fmt.Errorf("shown on %v", d)
					}
					var gs []*core.Tensor
					for _, p := range nn.Parameters(m) {
						gs = append(gs, p.Grad())
					}
					if got, err = values(gs); err != nil {
						return err
					}
					if grads != nil {
						err = equal("gradients", got, grads)
					}
					core.NoGrad(func() {
						for i, p := range nn.Parameters(m) {
							err = errors.Join(err, op.MulInPlace(p, core.Num(2)).Err(), op.MulInPlace(gs[i], core.Num(2)).Err())
						}
					})
					return err
				})
				if err != nil {
					return err
				}
				for i := range want {
					want[i] *= 2
				}
				for i := range grads {
					grads[i] *= 2
				}
				if s := fmt.Sprint(nn.Parameters(m)[0].Shape()); s != shapes {
					return fmt.Errorf("afterwards a shape of %s, want %s", s, shapes)
				}
			}
			if group != nil {
				got, err := fullGradients(f)
				if err := errors.Join(err, equal("gradients written back", got, grads)); err != nil {
					return err
				}
			}
			err = f.Summon(fsdp.SummonOptions{ReadOnly: true, First: true}, func() error {
				if whole := nn.Parameters(m)[0].Parts() == nil; whole != (r.Rank == 0 || group == nil) {
					return fmt.Errorf("rank %d has a shape of %v", r.Rank, nn.Parameters(m)[0].Shape())
				}
				return nil
			})
			if err != nil {
				return err
			}
			after, err := fullParams(f)
			if err := errors.Join(err, equal("parameters", after, want)); err != nil {
				return err
			}
			if err := contains(f.Summon(fsdp.SummonOptions{First: true}, func() error { return nil }), "cannot be written back"); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestSummonWithMixedPrecision checks that full parameters are shown, written back and loaded in the dtype of the shards, not of
// computation. Half precision cannot represent 1 + 2^-20.
func TestSummonWithMixedPrecision(t *testing.T) {
	const fine = 1 + 1.0/(1<<20)
	half := core.BFloat16
	spawn(t, 2, func(r *collective.Rank) error {
		m := &scaled{Weight: op.Full([]int{3}, core.Num(fine), op.TensorOptions{}).Keep().SetRequiresGrad(true)}
		f, err := fsdp.New(m, r.World, nil, fsdp.Options{Precision: fsdp.Precision{Param: &half}})
		if err != nil {
			return err
		}
		is := func(when string, want float64) error {
			v, err := values([]*core.Tensor{m.Weight})
			if m.Weight.DType() != core.Float64 || err != nil || slices.ContainsFunc(v, func(x float64) bool { return x != want }) {
				return fmt.Errorf("%s: %v of %v, want %v of float64: %w", when, v, m.Weight.DType(), want, err)
			}
			return nil
		}
		err = f.Summon(fsdp.SummonOptions{}, func() error {
			err := is("shown", fine)
			core.NoGrad(func() { op.AddInPlace(m.Weight, core.Num(1)) })
			return err
		})
		if err = errors.Join(err, is("written back", fine+1)); err != nil {
			return err
		}
		err = f.Summon(fsdp.SummonOptions{ReadOnly: true, First: true}, func() error {
			if r.Rank > 0 {
				return nil
			}
			return is("on the first rank", fine+1)
		})
		if err != nil {
			return err
		}
		y := f.Forward(op.Ones(3))
		if err := autograd.Backward(op.Sum(y, nil, false)); err != nil || m.weight != half {
			return fmt.Errorf("computed in %v: %w", m.weight, err)
		}
		err = f.Summon(fsdp.SummonOptions{Gradients: true}, func() error {
			return errors.Join(is("after a pass", fine+1), m.Weight.Grad().Err())
		})
		if err != nil {
			return err
		}
		if _, err := f.Load(map[string]*core.Tensor{"weight": op.Full([]int{3}, core.Num(fine+2), op.TensorOptions{})}, true); err != nil {
			return err
		}
		return errors.Join(is("loaded", fine+2), f.Close())
	})
}

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
)

// scaled multiplies by a weight, and remembers the dtypes of the two.
type scaled struct {
	nn.Base
	Weight        *core.Tensor
	input, weight core.DType
}

func (s *scaled) Forward(x *core.Tensor) *core.Tensor {
	s.input, s.weight = x.DType(), s.Weight.DType()
	return op.Mul(x, s.Weight)
}

// Case 28: with mixed precision a unit computes in one dtype and reduces in another, while shards and their gradients keep
// their own. The ranks' gradients are 1 and a number that half precision loses beside 1.
func TestCase28MixedPrecision(t *testing.T) {
	const tiny = 1.0 / 512
	half, single, double := core.BFloat16, core.Float32, core.Float64
	for name, c := range map[string]struct {
		precision             fsdp.Precision
		input, weight, output core.DType
		want                  float64
	}{
		"none":                {fsdp.Precision{}, double, double, double, (1 + tiny) / 2},
		"compute":             {fsdp.Precision{Param: &half}, half, half, half, 0.5},
		"compute, not reduce": {fsdp.Precision{Param: &half, Reduce: &single}, half, half, half, (1 + tiny) / 2},
		"reduce":              {fsdp.Precision{Reduce: &half}, double, double, double, 0.5},
		"outputs":             {fsdp.Precision{Param: &half, Output: &single}, half, half, single, 0.5},
		"inputs stay":         {fsdp.Precision{Param: &half, KeepInputs: true}, double, half, double, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			spawn(t, 2, func(r *collective.Rank) error {
				m := &scaled{Weight: op.Ones(3).Keep().SetRequiresGrad(true)}
				f, err := fsdp.New(m, r.World, nil, fsdp.Options{Precision: c.precision})
				if err != nil {
					return err
				}
				y := f.Forward(op.Full([]int{3}, core.Num([]float64{1, tiny}[r.Rank]), op.TensorOptions{}))
				if err := autograd.Backward(op.Sum(y, nil, false)); err != nil {
					return err
				}
				if m.input != c.input || m.weight != c.weight || y.DType() != c.output {
					return fmt.Errorf("input %v, weight %v and output %v, want %v, %v and %v", m.input, m.weight, y.DType(), c.input, c.weight, c.output)
				}
				g := m.Weight.Grad()
				if m.Weight.DType() != double || g.DType() != double {
					return fmt.Errorf("shard and gradient are %v and %v", m.Weight, g)
				}
				got, err := core.Values[float64](g)
				if err != nil {
					return err
				}
				for _, v := range got {
					if v != c.want {
						return fmt.Errorf("the gradient is %v, want %v", got, c.want)
					}
				}
				return f.Close()
			})
		})
	}
}

// Full parameters are shown, written back and loaded in the dtype of the shards, not in that in which the unit computes: 1 + 2^-20 is
// no number of half precision.
func TestMixedPrecisionShowsWholeParameters(t *testing.T) {
	const fine = 1 + 1.0/(1<<20)
	half := core.BFloat16
	spawn(t, 2, func(r *collective.Rank) error {
		m := &scaled{Weight: op.Full([]int{3}, core.Num(fine), op.TensorOptions{}).Keep().SetRequiresGrad(true)}
		f, err := fsdp.New(m, r.World, nil, fsdp.Options{Precision: fsdp.Precision{Param: &half}})
		if err != nil {
			return err
		}
		is := func(when string, want float64) error {
			v, err := core.Values[float64](m.Weight)
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

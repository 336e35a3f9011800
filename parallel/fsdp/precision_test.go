package fsdp_test

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
)

// scaled multiplies by a weight, and records the dtypes of input and weight.
type scaled struct {
	nn.Base
	Weight        *core.Tensor
	input, weight core.DType
}

func (s *scaled) Forward(x *core.Tensor) *core.Tensor {
	s.input, s.weight = x.DType(), s.Weight.DType()
	return op.Mul(x, s.Weight)
}

// TestCase28MixedPrecision checks the dtypes of computation, of reduction, and of shards and their gradients. The ranks'
// gradients are 1 and a number too small to be added to 1 in half precision.
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
				got, err := values([]*core.Tensor{g})
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

package ddp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// With mixed precision, forward computes in another dtype. Parameters and gradients keep their dtypes, are equal on all ranks, and close to
// those of full precision.
func TestCase14MixedPrecision(t *testing.T) {
	bf16, fp16 := core.BFloat16, core.Float16
	want := trainMixed(t, ddp.Precision{}, core.Float32)
	for name, c := range map[string]struct {
		precision ddp.Precision
		computed  core.DType
	}{
		"parameters and buffers": {ddp.Precision{Param: &bf16, Buffer: &bf16}, bf16},
		"reduction":              {ddp.Precision{Reduce: &fp16}, core.Float32},
		"both":                   {ddp.Precision{Param: &bf16, Reduce: &fp16, Buffer: &bf16}, bf16},
	} {
		got := trainMixed(t, c.precision, c.computed)
		require.Equal(t, got[0], got[1], name) // case 15
		for i, v := range got[0] {
			require.InDelta(t, want[0][i], v, 0.03, name)
		}
		require.NotEqual(t, want[0], got[0], name)
	}
}

// trainMixed returns the parameters of each rank after some steps. It checks that the module computes in the given dtype.
func trainMixed(t *testing.T, precision ddp.Precision, computed core.DType) [2][]float32 {
	var results [2][]float32
	spawn(t, 2, func(r *collective.Rank) error {
		if err := core.CurrentContext().SetDefaultDType(core.Float32); err != nil {
			return err
		}
		core.ManualSeed(4)
		var seen core.DType
		norm := nn.NewBatchNorm1d(8, nn.BatchNormOptions{})
		m := nn.NewSequential(nn.NewLinear(width, 8, nn.LinearOptions{}), norm, nn.NewFunc(func(x *core.Tensor) *core.Tensor {
			seen = x.DType()
			return op.Tanh(x)
		}), nn.NewLinear(8, 2, nn.LinearOptions{}))
		p, err := ddp.New(m, r.World, ddp.Options{Precision: precision})
		if err != nil {
			return err
		}
		defer p.Close()
		if d := precision.Buffer; d != nil && norm.RunningMean.DType() != *d {
			return fmt.Errorf("the running mean is %v", norm.RunningMean)
		}
		o, err := optim.NewSGD(nn.Parameters(m), optim.Hyper{"lr": 0.05})
		if err != nil {
			return err
		}
		for s := range 5 {
			x, y := batch(s, 8*r.Rank, 8*r.Rank+8)
			if _, err := step(p, o, x, y); err != nil {
				return err
			}
		}
		if seen != computed {
			return fmt.Errorf("computed in %v, want %v", seen, computed)
		}
		for _, t := range nn.Parameters(m) {
			if t.Grad().DType() != core.Float32 {
				return fmt.Errorf("a gradient is %v", t.Grad())
			}
			v, err := core.Values[float32](t)
			if err != nil {
				return err
			}
			results[r.Rank] = append(results[r.Rank], v...)
		}
		return nil
	})
	return results
}

// A user's hook replaces the hook of Precision.Reduce. Integer dtypes are an error.
func TestMixedPrecisionWithHook(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		bf16, whole := core.BFloat16, core.Int64
		_, err := ddp.New(mlp(), r.World, ddp.Options{Precision: ddp.Precision{Param: &whole}})
		require.ErrorContains(t, err, "floating-point")
		p, err := ddp.New(mlp(), r.World, ddp.Options{Precision: ddp.Precision{Reduce: &bf16}})
		if err != nil {
			return err
		}
		defer p.Close()
		if err := p.Reducer().RegisterHook(ddp.AllReduceHook); err != nil {
			return err
		}
		require.ErrorContains(t, p.Reducer().RegisterHook(ddp.AllReduceHook), "only one")
		return nil
	})
}

// scaleLayer multiplies by a weight, and reports the dtypes of input and weight.
type scaleLayer struct {
	nn.Base
	Weight  *core.Tensor
	observe func(x, w core.DType)
}

func (s *scaleLayer) Forward(x *core.Tensor) *core.Tensor {
	s.observe(x.DType(), s.Weight.DType())
	return op.Mul(x, s.Weight)
}

// Precision sets the dtypes of computation and reduction. The ranks' gradients are 1 and a number that bfloat16 loses when it is added to 1.
func TestCase14DTypes(t *testing.T) {
	const tiny = 1.0 / 512
	half, single, double := core.BFloat16, core.Float32, core.Float64
	for name, c := range map[string]struct {
		precision     ddp.Precision
		input, weight core.DType
		want          float64
	}{
		"none":                {ddp.Precision{}, double, double, (1 + tiny) / 2},
		"compute":             {ddp.Precision{Param: &half}, half, half, 0.5},
		"compute, not reduce": {ddp.Precision{Param: &half, Reduce: &single}, half, half, (1 + tiny) / 2},
		"reduce":              {ddp.Precision{Reduce: &half}, double, double, 0.5},
		"inputs stay":         {ddp.Precision{Param: &half, KeepInputs: true}, double, half, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			spawn(t, 2, func(r *collective.Rank) error {
				var seen [2]core.DType
				m := &scaleLayer{Weight: op.Ones(3).Keep().SetRequiresGrad(true), observe: func(x, w core.DType) { seen = [2]core.DType{x, w} }}
				p, err := ddp.New(m, r.World, ddp.Options{Precision: c.precision})
				if err != nil {
					return err
				}
				y := p.Forward(op.Full([]int{3}, core.Num([]float64{1, tiny}[r.Rank]), op.TensorOptions{}))
				if err := autograd.Backward(op.Sum(y, nil, false)); err != nil {
					return err
				}
				if want := [2]core.DType{c.input, c.weight}; seen != want {
					return fmt.Errorf("input and weight are %v, want %v", seen, want)
				}
				got, err := grads(m)
				return errors.Join(err, equal("gradient", got, []float64{c.want, c.want, c.want}), p.Close())
			})
		})
	}
}

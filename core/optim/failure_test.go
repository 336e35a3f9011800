package optim

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func TestErrorsOfConstruction(t *testing.T) {
	p := leaf(core.Float32, []float64{1, 2}, 2)
	list := []*core.Tensor{p}
	for want, f := range map[string]func() (*Optimizer, error){
		`sgd: unknown hyperparameter, got "momentun", want one of dampening, lr, master_weights, maximize, momentum, nesterov, weight_decay`: func() (*Optimizer, error) {
			return NewSGD(list, Hyper{"momentun": 1})
		},
		"sgd: lr must be at least 0, got -1":                                                              func() (*Optimizer, error) { return NewSGD(list, Hyper{"lr": -1}) },
		"adam: beta1 must be in [0, 1), got 1":                                                            func() (*Optimizer, error) { return NewAdam(list, Hyper{"beta1": 1}) },
		"adam: eps must be at least 0, got NaN":                                                           func() (*Optimizer, error) { return NewAdam(list, Hyper{"eps": math.NaN()}) },
		"adam: amsgrad must be 0 or 1, got 2":                                                             func() (*Optimizer, error) { return NewAdam(list, Hyper{"amsgrad": 2}) },
		"sgd: nesterov wants a momentum above 0 and no dampening, got momentum 0 and dampening 0":         func() (*Optimizer, error) { return NewSGD(list, Hyper{"nesterov": 1}) },
		"rprop: want 0 < eta_minus < 1 < eta_plus, got 0.5 and 0.9":                                       func() (*Optimizer, error) { return NewRprop(list, Hyper{"eta_plus": 0.9}) },
		"adamw: got an empty list of parameters":                                                          func() (*Optimizer, error) { return NewAdamW(nil, nil) },
		"adamw: parameter 1 of group 0 was given twice":                                                   func() (*Optimizer, error) { return NewAdamW([]*core.Tensor{p, p}, nil) },
		"adamw: parameter 0 of group 0 must be a floating-point or complex tensor, got int64[1] on cpu:0": func() (*Optimizer, error) { return NewAdamW([]*core.Tensor{core.FromSlice([]int64{1})}, nil) },
		"adamw: parameter 0 of group 0 is the result of an operation, want a leaf":                        func() (*Optimizer, error) { return NewAdamW([]*core.Tensor{op.Mul(p, p)}, nil) },
		`optim: unknown algorithm, got "adamm", want one of adadelta, adafactor, adagrad, adam, adamax, adamw, asgd, lbfgs, lion, muon, nadam, radam, rmsprop, rprop, sgd, sparse_adam`: func() (*Optimizer, error) {
			return New("adamm", nil, Params{Tensors: list})
		},
	} {
		_, err := f()
		require.EqualError(t, err, want)
	}
	o, err := NewSGD(list, nil)
	require.NoError(t, err)
	require.EqualError(t, o.AddGroup(Params{Tensors: list}), "sgd: parameter 0 of group 1 was given twice")
	require.EqualError(t, o.Groups()[0].Set("lr", -2), "sgd: lr must be at least 0, got -2")
	require.Equal(t, 1e-3, o.Groups()[0].LR())
}

// A step that cannot be made changes neither parameters nor states, whatever comes before the parameter in question.
func TestFailingStepChangesNothing(t *testing.T) {
	for name := range variants {
		t.Run(name, func(t *testing.T) {
			params := []*core.Tensor{leaf(core.Float32, start(4), 4), leaf(core.Float32, start(6), 2, 3)}
			o, err := New(name, nil, Params{Tensors: params, Names: []string{"weight", "bias"}})
			require.NoError(t, err)
			setGrads(params, 0.5)
			require.NoError(t, o.Step())
			snapshot := func() (out [][]float64) {
				for _, p := range params {
					out = append(out, values(t, p))
				}
				for i := range 2 {
					d := o.StateDict().Params[i]
					out = append(out, []float64{d.Step})
					for _, s := range o.algorithm.states(o.groups[0].values()) {
						out = append(out, values(t, d.Tensors[s]))
					}
				}
				return out
			}
			before, bytes := snapshot(), o.StateBytes()

			params[1].SetGrad(core.ErrorTensor(core.Errorf(core.ShapeError, "matmul", "inner dimensions differ")))
			require.EqualError(t, o.Step(), name+": parameter bias: matmul: inner dimensions differ")
			require.Equal(t, before, snapshot())

			params[1].SetGrad(core.FromSlice(make([]float32, 6), 6))
			require.EqualError(t, o.Step(), name+": parameter bias: the gradient has another shape, got [6], want [2 3]")
			require.Equal(t, before, snapshot())

			params[1].SetGrad(core.FromSlice(make([]float64, 6), 2, 3))
			require.EqualError(t, o.Step(), name+": parameter bias: the gradient has another dtype, got float64, want float32")
			require.Equal(t, before, snapshot())

			// A gradient whose computation fails, with its error known or not when Step is called.
			for range 2 {
				bad := op.Bernoulli(core.FromSlice([]float32{0, 2, 0, 0, 0, 0}, 2, 3), op.RandomOptions{})
				params[1].SetGrad(bad)
				for n := range 2 {
					err = o.Step()
					if n == 1 {
						require.ErrorContains(t, err, "the probability at element 1 is outside [0, 1]")
					}
					_ = bad.Wait()
				}
				for _, p := range params {
					require.NoError(t, p.Wait())
				}
			}
			require.Equal(t, before, snapshot())
			require.Equal(t, bytes, o.StateBytes())
		})
	}
}

var ranks = 1000

// alone runs fn as a rank of its own, so that its memory is counted apart from what other tests have left to the garbage
// collector. usage returns the bytes of a category, or of all if it is negative.
func alone(t *testing.T, fn func(usage func(category int) int)) {
	dev, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	ranks++
	ctx := core.NewRankContext(ranks, dev)
	defer ctx.Free()
	core.WithContext(ctx, func() {
		fn(func(category int) int {
			if category < 0 {
				return core.RankUsage(dev, ctx.Rank()).Current
			}
			return core.RankCategoryUsage(dev, ctx.Rank(), core.Category(category)).Current
		})
	})
}

// A first step that fails leaves no states behind.
func TestFailingFirstStepFreesStates(t *testing.T) {
	alone(t, func(usage func(int) int) {
		params := []*core.Tensor{leaf(core.Float32, start(400), 400), leaf(core.Float32, start(6), 2, 3)}
		o, err := NewAdam(params, nil)
		require.NoError(t, err)
		setGrads(params, 0.5)
		params[1].SetGrad(core.FromSlice(make([]float32, 6), 6))
		require.Error(t, o.Step())
		require.Zero(t, o.StateBytes())
		require.Zero(t, usage(int(core.OptimizerState)))
		setGrads(params, 0.5)
		require.NoError(t, o.Step())
		require.Equal(t, 2*(400+6)*4, o.StateBytes())
		require.Equal(t, 2*(1600+64), usage(int(core.OptimizerState)))
		o.Release()
		require.Zero(t, usage(int(core.OptimizerState)))
	})
}

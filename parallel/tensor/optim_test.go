package tensor_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// A trained model is two parameters, one of which has an empty part on the second of two ranks if it is divided by rows.
var trainedShapes = [][]int{{3, 5}, {1, 4}}

// gradientsOf returns gradients that depend on the step, and values of the parameters to begin with.
func startOf(step int) []*core.Tensor {
	out := make([]*core.Tensor, len(trainedShapes))
	for i, s := range trainedShapes {
		x := op.Reshape(op.Arange(core.Num(1), core.Num(float64(core.Numel(s)+1)), core.Num(1), op.TensorOptions{DType: ptr(core.Float64)}), s...)
		out[i] = op.Sin(op.Mul(x, core.Num(float64(step+1)*1.7)))
	}
	return out
}

func ptr[T any](v T) *T { return &v }

// optimizers returns the algorithms that change parameters element by element.
func optimizers() []string {
	return slices.DeleteFunc(optim.Algorithms(), func(name string) bool {
		return slices.Contains([]string{"adafactor", "lbfgs", "muon"}, name)
	})
}

// distributedAs returns the tensors as leaves with one placement.
func distributedAs(list []*core.Tensor, m *mesh.Mesh, p core.Placement) []*core.Tensor {
	out := make([]*core.Tensor, len(list))
	for i, t := range list {
		out[i] = tensor.Distribute(t, m, []core.Placement{p}).SetRequiresGrad(true)
	}
	return out
}

// steps makes some steps of an optimiser.
func steps(o *optim.Optimizer, params []*core.Tensor, from, to int) error {
	for step := from; step < to; step++ {
		for i, g := range startOf(step) {
			if params[i].Parts() != nil {
				g = tensor.Distribute(g, tensor.Mesh(params[i]), tensor.Placements(params[i]))
			}
			params[i].SetGrad(g)
		}
		if err := o.Step(); err != nil {
			return err
		}
	}
	return nil
}

func full(t *core.Tensor) *core.Tensor {
	if t.Parts() != nil {
		return tensor.Full(t)
	}
	return t
}

// near returns an error unless two tensors, of which each may be distributed, are equal.
func near(what string, got, want *core.Tensor) error {
	got, want = full(got), full(want)
	if !slices.Equal(got.Shape(), want.Shape()) {
		return fmt.Errorf("%s: shape %v, want %v", what, got.Shape(), want.Shape())
	}
	worst := op.Amax(op.Abs(op.Sub(got, want)), nil, false)
	if v, err := worst.Item(); err != nil || !(v <= 1e-12) {
		return fmt.Errorf("%s: %v from the expected values, %w", what, v, err)
	}
	return nil
}

// TestOptimizersOfDistributedParameters trains as one device does; half way a new optimiser, of parameters that lie otherwise, takes over
// the states.
func TestOptimizersOfDistributedParameters(t *testing.T) {
	hyper := optim.Hyper{"lr": 0.1}
	places := []core.Placement{core.Shard(0), core.Shard(1), core.Replicate()}
	for _, name := range optimizers() {
		for n, first := range places {
			then := places[(n+1)%len(places)]
			h := hyper
			if name == "sgd" {
				h = optim.Hyper{"lr": 0.1, "momentum": 0.9}
			}
			t.Run(fmt.Sprintf("%s/%v", name, first), func(t *testing.T) {
				onMesh(t, []int{2}, func(m *mesh.Mesh) error {
					want := startOf(100)
					for i := range want {
						want[i] = want[i].Detach().SetRequiresGrad(true)
					}
					alone, err := optim.New(name, h, optim.Params{Tensors: want})
					if err != nil {
						return err
					}
					if err := steps(alone, want, 0, 2); err != nil {
						return err
					}
					params := distributedAs(startOf(100), m, first)
					o, err := optim.New(name, h, optim.Params{Tensors: params})
					if err != nil {
						return err
					}
					if err := steps(o, params, 0, 2); err != nil {
						return err
					}
					d, one := o.StateDict(), alone.StateDict()
					for i := range params {
						p := d.Params[i]
						for _, state := range slices.Sorted(maps.Keys(p.Tensors)) {
							s := p.Tensors[state]
							if !slices.Equal(tensor.Placements(s), tensor.Placements(params[i])) || tensor.Mesh(s) != m {
								return fmt.Errorf("state %s of parameter %d lies as %v, want %v", state, i, s, params[i])
							}
							if err := near(state, s, one.Params[i].Tensors[state]); err != nil {
								return err
							}
						}
					}
					moved := make([]*core.Tensor, len(params))
					for i, p := range params {
						moved[i] = tensor.Distribute(tensor.Full(p).Detach(), m, []core.Placement{then}).SetRequiresGrad(true)
					}
					next, err := optim.New(name, h, optim.Params{Tensors: moved})
					if err != nil {
						return err
					}
					if err := next.LoadStateDict(d); err != nil {
						return err
					}
					parts := next.StateDict()
					for _, p := range parts.Params {
						for state, s := range p.Tensors {
							p.Tensors[state] = s.Parts().Local().Detach()
						}
					}
					if err := next.LoadStateDict(parts); err != nil {
						return fmt.Errorf("this rank's parts: %w", err)
					}
					if err := steps(next, moved, 2, 4); err != nil {
						return err
					}
					if err := steps(alone, want, 2, 4); err != nil {
						return err
					}
					for i := range want {
						if err := near(fmt.Sprint("parameter ", i), moved[i], want[i]); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}

// TestStatesThatDoNotFit are refused, and change nothing.
func TestStatesThatDoNotFit(t *testing.T) {
	onMesh(t, []int{2}, func(m *mesh.Mesh) error {
		p := tensor.Distribute(op.Ones(4, 2), m, []core.Placement{core.Shard(0)}).SetRequiresGrad(true)
		o, err := optim.New("adam", optim.Hyper{}, optim.Params{Tensors: []*core.Tensor{p}, Names: []string{"w"}})
		if err != nil {
			return err
		}
		p.SetGrad(tensor.Distribute(op.Ones(4, 2), m, nil))
		if err := o.Step(); err != nil {
			return err
		}
		before := tensor.Full(o.StateDict().Params[0].Tensors["exp_avg"])
		for want, bad := range map[string]*core.Tensor{
			"state \"exp_avg\" of parameter w has another shape, got [4 2], want float32[4 2] on cpu:0, [Shard(0)], or this rank's part of it, of shape [2 2]": op.Ones(4, 2),
			"got float32[4 3] on cpu:0, [Shard(0)], want float32[4 2] on cpu:0, [Shard(0)]":                                                                    tensor.Distribute(op.Ones(4, 3), m, []core.Placement{core.Shard(0)}),
		} {
			d := o.StateDict()
			d.Params[0].Tensors["exp_avg"] = bad
			if err := o.LoadStateDict(d); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want an error with %q", err, want)
			}
		}
		ordinary := op.Ones(4, 2).SetRequiresGrad(true)
		alone, err := optim.New("adam", optim.Hyper{}, optim.Params{Tensors: []*core.Tensor{ordinary}})
		if err != nil {
			return err
		}
		if err := alone.LoadStateDict(o.StateDict()); err == nil || !strings.Contains(err.Error(), "want an ordinary tensor of shape [4 2]") {
			return fmt.Errorf("got %v", err)
		}
		return near("exp_avg", o.StateDict().Params[0].Tensors["exp_avg"], before)
	})
}

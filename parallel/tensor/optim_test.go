package tensor_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
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

// optimizers returns the algorithms that make steps from gradients that are not sparse.
func optimizers() []string {
	return slices.DeleteFunc(optim.Algorithms(), func(name string) bool { return name == "lbfgs" || name == "sparse_adam" })
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
							if want := tensor.PlacementsLike(params[i], s.Shape()); !slices.Equal(tensor.Placements(s), want) || tensor.Mesh(s) != m {
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

// powers is a loss of distributed and ordinary parameters: the sums of weighted fourth and second powers of their distance from what they
// shall be.
func powers(params []*core.Tensor) *core.Tensor {
	var loss *core.Tensor
	for i, p := range params {
		goal := startOf(3)[i%len(trainedShapes)]
		if p.Parts() != nil {
			goal = tensor.Redistribute(tensor.FromLocal(goal, tensor.Mesh(p), nil, nil), tensor.Placements(p))
		}
		square := op.Square(op.Sub(p, goal))
		sum := full(op.Add(op.Sum(op.Square(square), nil, false), op.Mul(op.Sum(square, nil, false), core.Num(float64(i+1)))))
		if loss == nil {
			loss = sum
		} else {
			loss = op.Add(loss, sum)
		}
	}
	return loss
}

// descend makes some steps of an L-BFGS.
func descend(o *optim.Optimizer, params []*core.Tensor, n int) (first float64, err error) {
	for range n {
		if first, err = o.StepWith(func() (*core.Tensor, error) {
			o.ZeroGrad()
			loss := powers(params)
			return loss, autograd.Backward(loss)
		}); err != nil {
			return first, err
		}
	}
	return first, nil
}

// TestLBFGSOfDistributedParameters goes where one device goes; half way a new optimiser, of parameters that lie otherwise or are on one
// device, takes over.
func TestLBFGSOfDistributedParameters(t *testing.T) {
	places := []core.Placement{core.Shard(0), core.Shard(1), core.Replicate()}
	for _, search := range []float64{0, 1} {
		h := optim.Hyper{"lr": 0.5, "max_iter": 3, "history_size": 3, "strong_wolfe": search}
		if search == 0 {
			h["lr"] = 0.02
		}
		for n, first := range places {
			t.Run(fmt.Sprintf("%v/%v", search, first), func(t *testing.T) {
				onMesh(t, []int{2}, func(m *mesh.Mesh) error {
					ordinary := func() *core.Tensor { return startOf(50)[0].Detach().SetRequiresGrad(true) }
					lone := func(list []*core.Tensor) []*core.Tensor {
						out := []*core.Tensor{}
						for _, x := range list {
							out = append(out, op.Clone(full(x).Detach()).SetRequiresGrad(true))
						}
						return out
					}
					want := append(lone(startOf(100)), ordinary())
					params := append(distributedAs(startOf(100), m, first), ordinary())
					alone, err := optim.NewLBFGS(want, h)
					if err != nil {
						return err
					}
					o, err := optim.NewLBFGS(params, h)
					if err != nil {
						return err
					}
					for range 2 {
						x, err := descend(alone, want, 1)
						if err != nil {
							return err
						}
						if y, err := descend(o, params, 1); err != nil || math.Abs(x-y) > 1e-9 {
							return fmt.Errorf("the loss is %v, want %v: %w", y, x, err)
						}
					}
					d, one := o.StateDict(), alone.StateDict()
					if len(d.Params[0].Tensors) != len(one.Params[0].Tensors) || len(one.Params[0].Tensors) < 4 {
						return fmt.Errorf("%d vectors, want %d", len(d.Params[0].Tensors), len(one.Params[0].Tensors))
					}
					for _, name := range slices.Sorted(maps.Keys(one.Params[0].Tensors)) {
						if err := near(name, d.Params[0].Tensors[name], one.Params[0].Tensors[name]); err != nil {
							return err
						}
					}
					then := places[(n+1)%len(places)]
					moved := distributedAs(lone(params[:2]), m, then)
					moved = append(moved, op.Clone(params[2].Detach()).SetRequiresGrad(true))
					for _, next := range [][]*core.Tensor{moved, lone(params)} {
						o, err := optim.NewLBFGS(next, h)
						if err != nil {
							return err
						}
						if err := o.LoadStateDict(d); err != nil {
							return err
						}
						if _, err := descend(o, next, 2); err != nil {
							return err
						}
					}
					if _, err := descend(alone, want, 2); err != nil {
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

// TestLBFGSOfRanksThatDisagree says so, on all ranks.
func TestLBFGSOfRanksThatDisagree(t *testing.T) {
	onMesh(t, []int{2}, func(m *mesh.Mesh) error {
		p := distributedAs(startOf(0)[:1], m, core.Shard(0))
		o, err := optim.NewLBFGS(p, optim.Hyper{})
		if err != nil {
			return err
		}
		_, err = o.StepWith(func() (*core.Tensor, error) {
			loss := op.Mul(powers(p), core.Num(float64(1+m.Coordinate()[0])))
			return loss, autograd.Backward(loss)
		})
		if err == nil || !strings.Contains(err.Error(), "the ranks have other losses") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// TestScalerOfDistributedGradients leaves a step out on all ranks if one of them finds a gradient that is not finite.
func TestScalerOfDistributedGradients(t *testing.T) {
	for _, place := range []core.Placement{core.Shard(0), core.Shard(1), core.Replicate()} {
		onMesh(t, []int{2}, func(m *mesh.Mesh) error {
			p := distributedAs(startOf(0), m, place)
			o, err := optim.NewSGD(p, optim.Hyper{"lr": 1})
			if err != nil {
				return err
			}
			s := optim.NewGradScaler()
			s.SetScale(4)
			for step, bad := range []float64{1, math.Inf(1), math.NaN()} {
				for i, x := range p {
					g := op.Full(x.Shape(), core.Num(8), op.TensorOptions{DType: ptr(core.Float64)})
					if i == 0 { // of rank 0 alone, if it is divided
						op.FillInPlace(op.Narrow(op.Narrow(g, 0, 0, 1), 1, 0, 1), core.Num(bad*8))
					}
					x.SetGrad(tensor.Distribute(g, m, []core.Placement{place}))
				}
				before := op.Clone(tensor.Full(p[1]).Detach())
				finite, err := s.Step(o)
				if err != nil || finite != (step == 0) {
					return fmt.Errorf("gradient %v: finite is %v, %w", bad, finite, err)
				}
				want := before
				if finite {
					want = op.Sub(before, core.Num(2))
				}
				if err := near("parameter", p[1], want); err != nil {
					return err
				}
				if err := s.Update(); err != nil {
					return err
				}
			}
			if s.Scale != 1 {
				return fmt.Errorf("the factor is %v, want 1", s.Scale)
			}
			return nil
		})
	}
}

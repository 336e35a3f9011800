package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// backward runs a step's backward on a rank's part of a batch.
func backward(m nn.Layer, r *collective.Rank, s int) error {
	x, y := batch(s, r.Rank*4, r.Rank*4+4)
	return autograd.Backward(mse(nn.Call(m, x), y))
}

func names(p *ddp.DistributedDataParallel) (all [][]string) {
	for _, b := range p.Reducer().Buckets() {
		all = append(all, b.Names())
	}
	return all
}

// crossed uses its second layer first, so that gradients do not come in the order of registration.
type crossed struct {
	nn.Base
	A, B *nn.Linear
	Half *core.Tensor
}

func (c *crossed) Forward(x *core.Tensor) *core.Tensor {
	y := op.Add(c.A.Forward(op.Tanh(c.B.Forward(x))), op.To(c.Half, x.DType()))
	return y
}

func newCrossed() *crossed {
	c := &crossed{A: nn.NewLinear(8, 2, nn.LinearOptions{}), B: nn.NewLinear(width, 8, nn.LinearOptions{})}
	c.Half = op.To(op.Ones(2), core.Float32).Keep().SetRequiresGrad(true)
	return c
}

// Case 16: buckets in reverse order of registration, of the right sizes and dtypes, rebuilt once in the order in which
// gradients come.
func TestCase16Buckets(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m := newCrossed()
		p, err := ddp.New(m, r.World, ddp.Options{FirstBucketBytes: 1, BucketBytes: 16*8 + 1})
		if err != nil {
			return err
		}
		// Half is registered first; bytes: A.weight 128, A.bias 16, B.weight 384, B.bias 64.
		want := [][]string{{"b.bias"}, {"b.weight"}, {"a.bias", "a.weight"}, {"half"}}
		if got := names(p); !slices.EqualFunc(got, want, slices.Equal) {
			return fmt.Errorf("buckets are %v, want %v", got, want)
		}
		sizes := []int{}
		for i, b := range p.Reducer().Buckets() {
			sizes = append(sizes, b.Bytes())
			if b.Index() != i || b.IsLast() != (i == 3) {
				return errors.New("buckets are not numbered")
			}
		}
		if want := []int{64, 384, 144, 8}; !slices.Equal(sizes, want) {
			return fmt.Errorf("sizes are %v, want %v", sizes, want)
		}
		for s := range 3 {
			if err := backward(p, r, s); err != nil {
				return err
			}
		}
		stats := p.Reducer().Stats()
		if stats.Rebuilds != 1 || stats.Passes != 3 || stats.Buckets != 4+2*len(names(p)) {
			return fmt.Errorf("stats are %+v", stats)
		}
		if got := names(p); !slices.Contains(got[0], "half") && !slices.Contains(got[0], "a.bias") {
			return fmt.Errorf("buckets were rebuilt as %v", got)
		}
		return p.Close()
	})
}

// Buckets follow rank 0's order also where another rank's gradients come in another.
func TestCase16RebuiltInTheOrderOfRank0(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		var params []ddp.Named
		for i := range 3 {
			params = append(params, ddp.Named{Name: fmt.Sprint("p", i), Tensor: op.Full([]int{2}, core.Num(1), op.TensorOptions{}).SetRequiresGrad(true)})
		}
		red, err := ddp.NewReducer(r.World, params, ddp.Options{FirstBucketBytes: 1, BucketBytes: 1})
		if err != nil {
			return err
		}
		order := []int{0, 1, 2}
		if r.Rank == 1 {
			order = []int{2, 0, 1}
		}
		for s := range 3 {
			if err := red.Forward(1); err != nil {
				return err
			}
			sum := core.Scalar(0.0)
			for _, i := range order { // the last one used comes first
				sum = op.Add(sum, op.Sum(op.Mul(params[i].Tensor, core.Num(float64(10*s+i+r.Rank))), nil, false))
			}
			if err := autograd.Backward(sum); err != nil {
				return err
			}
			for i, p := range params {
				v, err := core.Values[float64](p.Tensor.Grad())
				if err != nil {
					return err
				}
				if want := float64(10*s+i) + 0.5; v[0] != want || v[1] != want {
					return fmt.Errorf("step %d: the gradient of p%d is %v, want %v", s, i, v, want)
				}
				p.Tensor.SetGrad(nil)
			}
		}
		var got []string
		for _, b := range red.Buckets() {
			got = append(got, b.Names()...)
		}
		if want := []string{"p2", "p1", "p0"}; !slices.Equal(got, want) {
			return fmt.Errorf("buckets hold %v, want %v", got, want)
		}
		return red.Close()
	})
}

// Case 17: the first bucket goes to the group before backward ends.
func TestCase17OverlapsWithBackward(t *testing.T) {
	for _, delay := range []bool{false, true} {
		spawn(t, 2, func(r *collective.Rank) error {
			m := mlp()
			o := small
			o.DelayAllReduce = delay
			p, err := ddp.New(m, r.World, o)
			if err != nil {
				return err
			}
			early := -1
			first := nn.Parameters(m)[0] // whose gradient comes last
			remove := first.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
				early = p.Reducer().Stats().Buckets
				return nil
			}})
			defer remove()
			if err := backward(p, r, 0); err != nil {
				return err
			}
			if all := p.Reducer().Stats().Buckets; all < 3 || early != all-1 && !delay || early != 0 && delay {
				return fmt.Errorf("delay %v: %d of %d buckets went before the last gradient came", delay, early, all)
			}
			return p.Close()
		})
	}
}

// branches uses a part of itself only, as told.
type branches struct {
	nn.Base
	Common, Left, Right *nn.Linear
	use                 string
}

func (b *branches) Forward(x *core.Tensor) *core.Tensor {
	y := op.Tanh(b.Common.Forward(x))
	switch b.use {
	case "left":
		return b.Left.Forward(y)
	case "right":
		return b.Right.Forward(y)
	case "none":
		return op.Narrow(y, 1, 0, 2)
	}
	return op.Add(b.Left.Forward(y), b.Right.Forward(y))
}

func newBranches() *branches {
	return &branches{Common: nn.NewLinear(width, 4, nn.LinearOptions{}), Left: nn.NewLinear(4, 2, nn.LinearOptions{}), Right: nn.NewLinear(4, 2, nn.LinearOptions{})}
}

// Case 20: a parameter without a gradient is an error of the next forward pass, which names it.
func TestCase20UnusedParametersAreNamed(t *testing.T) {
	err := trySpawn(2, func(r *collective.Rank) error {
		m := newBranches()
		p, err := ddp.New(m, r.World, small)
		if err != nil {
			return err
		}
		m.use = "left"
		if err := backward(p, r, 0); err != nil {
			return fmt.Errorf("the first step: %w", err)
		}
		return backward(p, r, 1)
	})
	for r := range 2 {
		require.ErrorContains(t, err, fmt.Sprintf("on rank %d backward gave no gradient to right.weight, right.bias", r))
	}
	require.NotContains(t, err.Error(), "the first step")
}

// Case 20: where that is allowed, ranks may use different parts in each step. What no rank used keeps its gradient.
func TestCase20FindUnused(t *testing.T) {
	uses := [][]string{{"left", "right"}, {"both", "left"}, {"none", "none"}, {"right", "right"}, {"left", "none"}}
	for _, view := range []bool{false, true} {
		var want [][]float64
		in64(t, func() {
			core.ManualSeed(9)
			m := newBranches()
			for s, use := range uses {
				total := map[*core.Tensor][]float64{}
				for r, u := range use {
					nn.ZeroGrad(m)
					m.use = u
					require.NoError(t, backward(m, &collective.Rank{Rank: r}, s))
					for _, p := range nn.Parameters(m) {
						if p.Grad() == nil {
							continue
						}
						v, err := core.Values[float64](p.Grad())
						require.NoError(t, err)
						if total[p] == nil {
							total[p] = make([]float64, len(v))
						}
						for i := range v {
							total[p][i] += v[i] / 2
						}
					}
				}
				nn.ZeroGrad(m)
				for p, v := range total {
					p.SetGrad(core.FromSlice(v, p.Shape()...))
				}
				g, err := grads(m)
				require.NoError(t, err)
				want = append(want, g)
			}
		})
		spawn(t, 2, func(r *collective.Rank) error {
			if r.Rank == 0 {
				core.ManualSeed(9)
			}
			m := newBranches()
			o := small
			o.FindUnused, o.BucketView = true, view
			p, err := ddp.New(m, r.World, o)
			if err != nil {
				return err
			}
			for s, use := range uses {
				nn.ZeroGrad(p)
				m.use = use[r.Rank]
				if err := backward(p, r, s); err != nil {
					return err
				}
				g, err := grads(m)
				if err != nil {
					return err
				}
				if err := near(fmt.Sprint("step ", s), g, want[s], 1e-12); err != nil {
					return err
				}
			}
			return p.Close()
		})
	}
}

// Case 20: with a static graph, the first step finds the unused parameters for all, and a step that uses others is an error.
func TestCase20StaticGraph(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m := newBranches()
		o := small
		o.StaticGraph = true
		p, err := ddp.New(m, r.World, o)
		if err != nil {
			return err
		}
		m.use = "left"
		for s := range 3 {
			nn.ZeroGrad(p)
			if err := backward(p, r, s); err != nil {
				return err
			}
			if m.Right.Weight.Grad() != nil || m.Left.Weight.Grad() == nil {
				return errors.New("the wrong parameters have gradients")
			}
		}
		m.use = "right"
		if err := backward(p, r, 3); err == nil || !strings.Contains(err.Error(), "right.") || !strings.Contains(err.Error(), "static") {
			return fmt.Errorf("another part was used: %v", err)
		}
		return p.Close()
	})
}

// Case 24: gradients are views of the buckets, which saves their memory, and stay so when they are dropped and come again.
func TestCase24BucketView(t *testing.T) {
	held := map[bool]int{}
	for _, view := range []bool{true, false} {
		spawn(t, 1, func(r *collective.Rank) error {
			m := nn.NewSequential(nn.NewLinear(width, 200, nn.LinearOptions{}), nn.NewLinear(200, 2, nn.LinearOptions{}))
			p, err := ddp.New(m, r.World, ddp.Options{BucketView: view})
			if err != nil {
				return err
			}
			if !view { // buffers beside the gradients
				if err := p.Reducer().RegisterHook(ddp.AllReduceHook); err != nil {
					return err
				}
			}
			for s := range 3 {
				nn.ZeroGrad(p)
				if err := backward(p, r, s); err != nil {
					return err
				}
				storage := map[*core.Storage]bool{}
				for _, q := range nn.Parameters(p) {
					storage[q.Grad().Storage()] = true
				}
				if shared := len(storage) == 1; shared != view {
					return fmt.Errorf("step %d: gradients share memory: %v", s, shared)
				}
			}
			all := map[*core.Storage]bool{}
			for _, q := range nn.Parameters(p) {
				all[q.Grad().Storage()] = true
			}
			for _, b := range p.Reducer().Buckets() {
				all[b.Buffer().Storage()] = true
			}
			for s := range all {
				held[view] += s.Size()
			}
			return p.Close()
		})
	}
	require.Less(t, held[true], held[false]*6/10)
}

// Case 25: ranks whose models differ all get an error that says where.
func TestCase25DifferentModels(t *testing.T) {
	for _, c := range []struct {
		make func(rank int) nn.Module
		o    func(rank int) ddp.Options
		want string
	}{
		{func(rank int) nn.Module {
			return nn.NewSequential(nn.NewLinear(3, 4, nn.LinearOptions{}), nn.NewLinear(4, 2+rank/2, nn.LinearOptions{}))
		}, nil, `parameter 2, "1.weight", is float64[2 4] on ranks [0 1], float64[3 4] on rank 2`},
		{func(rank int) nn.Module {
			l := []nn.Layer{nn.NewLinear(3, 3, nn.LinearOptions{})}
			if rank == 1 {
				l = append(l, nn.NewLinear(3, 3, nn.LinearOptions{}))
			}
			return nn.NewSequential(l...)
		}, nil, `2 parameters on ranks [0 2], 4 parameters on rank 1; the first that some lack is "1.weight"`},
		{func(rank int) nn.Module {
			if rank == 1 {
				core.CurrentContext().SetDefaultDType(core.Float32)
			}
			return nn.NewLinear(3, 3, nn.LinearOptions{})
		}, nil, `parameter 0, "weight", is float64[3 3] on ranks [0 2], float32[3 3] on rank 1`},
		{func(rank int) nn.Module {
			l := nn.NewLinear(3, 3, nn.LinearOptions{})
			l.Bias.SetRequiresGrad(rank != 2)
			return l
		}, nil, `"bias", is float64[3] on ranks [0 1], float64[3] without a gradient on rank 2`},
		{func(rank int) nn.Module {
			l := nn.NewLinear(3, 3, nn.LinearOptions{})
			nn.SetRequiresGrad(l, rank != 1)
			return l
		}, nil, `none of the 2 parameters requires a gradient`},
		{func(rank int) nn.Module { return nn.NewLinear(3, 3, nn.LinearOptions{}) },
			func(rank int) ddp.Options { return ddp.Options{FindUnused: rank == 0} }, "the ranks' options differ"},
	} {
		err := trySpawn(3, func(r *collective.Rank) error {
			o := ddp.Options{}
			if c.o != nil {
				o = c.o(r.Rank)
			}
			if _, err := ddp.New(c.make(r.Rank), r.World, o); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("got %v, want %s", err, c.want)
			}
			return nil
		})
		require.NoError(t, err)
	}
	_, err := ddp.New(nn.NewLinear(1, 1, nn.LinearOptions{}), nil, ddp.Options{})
	require.ErrorContains(t, err, "no group")
}

// Case 26: two backward passes through one graph, two forward passes for one backward, checkpointed and shared layers.
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

type checkpointed struct {
	nn.Base
	Inner nn.Layer
}

func (c *checkpointed) Forward(x *core.Tensor) *core.Tensor {
	return autograd.Checkpoint(func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{c.Inner.Forward(in[0])} }, x)[0]
}

// Case 26: a gradient that is final twice in one step is an error that names it.
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

// Case 27: state dicts with and without the prefix load into the parallel module and into the plain one.
func TestCase27StateDicts(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m := mlp()
		p, err := ddp.New(m, r.World, ddp.Options{})
		if err != nil {
			return err
		}
		state := nn.StateDict(p)
		for name := range state {
			if !strings.HasPrefix(name, ddp.Prefix) {
				return fmt.Errorf("%q has no prefix", name)
			}
		}
		other := mlp()
		if _, err := nn.LoadStateDict(other, ddp.WithoutPrefix(state), true); err != nil {
			return err
		}
		for _, p := range nn.Parameters(other) {
			op.AddInPlace(p.Detach(), core.Num(float64(1)))
		}
		want, err := values(other)
		if err != nil {
			return err
		}
		for _, state := range []map[string]*core.Tensor{nn.StateDict(other), state} {
			if _, err := p.Load(state, true); err != nil {
				return err
			}
			if _, err := p.Load(map[string]*core.Tensor{"module.x": core.Scalar(1.0)}, true); err == nil {
				return errors.New("an unknown name was loaded")
			}
		}
		if _, err := p.Load(nn.StateDict(other), true); err != nil {
			return err
		}
		got, err := values(p)
		if err != nil {
			return err
		}
		// It goes on training after it is taken apart.
		if err := errors.Join(equal("loaded", got, want), p.Close()); err != nil {
			return err
		}
		o, err := optim.NewSGD(nn.Parameters(m), optim.Hyper{"lr": 0.1})
		if err != nil {
			return err
		}
		x, y := batch(r.Rank, 0, 4)
		before := r.World.Stats().Total()
		if _, err := step(m, o, x, y); err != nil {
			return err
		}
		if r.World.Stats().Total() != before {
			return errors.New("a closed reducer sent something")
		}
		return nil
	})
}

package autograd_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// additions returns the number of add calls that fn runs.
func additions(t *testing.T, fn func()) (n int) {
	t.Helper()
	d, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	require.NoError(t, d.Synchronize())
	p, err := core.StartProfile(false)
	require.NoError(t, err)
	defer p.Stop()
	fn()
	require.NoError(t, d.Synchronize())
	for _, e := range p.Stop() {
		if e.Op == "add" || e.Op == "add_" {
			n++
		}
	}
	return n
}

// watch registers hooks on the input gradients of every node behind y, so that no derivative may include an arrived gradient.
func watch(t *testing.T, y *core.Tensor) {
	t.Helper()
	require.NoError(t, y.Err())
	seen := map[*core.Node]bool{}
	work := []*core.Node{y.AutogradMeta().Edge().Node}
	work[0].Release()
	for len(work) > 0 {
		n := work[0]
		work = work[1:]
		if n == nil || seen[n] || n.Leaf() != nil {
			continue
		}
		seen[n] = true
		n.PostHooks().Add(core.NodeHook{Fn: func(_, _ []*core.Tensor) []*core.Tensor { return nil }})
		for _, e := range n.Edges() {
			work = append(work, e.Node)
		}
	}
}

// A shared is a graph in which several gradients flow to the same tensor.
type shared struct {
	loss     func(x *core.Tensor, w []*core.Tensor) *core.Tensor
	separate int // remaining additions
	watched  int // additions if hooks look at each derivative's own gradients
	loose    bool
}

func total(list ...*core.Tensor) *core.Tensor {
	sum := op.Mul(op.Sum(op.Sin(list[0]), nil, false), core.Num(1))
	for _, t := range list[1:] {
		sum = op.Add(sum, op.Sum(op.Sin(t), nil, false))
	}
	return sum
}

// parameters are two matrices and two vectors.
func parameters() []*core.Tensor {
	w := []*core.Tensor{op.Rand(4, 4), op.Rand(4, 4), op.Rand(4), op.Rand(4)}
	for _, t := range w {
		t.SetRequiresGrad(true)
	}
	return w
}

func norm(x, weight *core.Tensor) *core.Tensor { return op.LayerNorm(x, []int{4}, weight, nil, 1e-5) }

var rows = core.FromSlice([]int64{1, 3, 1, 0, 1}).Keep()

var sharedGraphs = map[string]shared{
	"a residual block": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		return total(op.Add(x, op.Linear(norm(x, w[2]), w[0], nil)))
	}, 0, 1, false},
	"two residual blocks": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		y := op.Add(x, op.Linear(op.Tanh(norm(x, w[2])), w[0], w[3]))
		return total(op.Add(y, op.Linear(op.RMSNorm(y, []int{4}, w[3], 1e-5), w[1], nil)))
	}, 1, 3, false}, // the bias of one is the weight of the other
	"a norm of a norm": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		return total(op.Add(x, norm(norm(x, w[2]), w[3])))
	}, 0, 1, false},
	"three norms": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		return total(norm(x, w[2]), op.RMSNorm(x, []int{4}, w[3], 1e-5), norm(x, nil))
	}, 0, 2, false},
	"a norm and a sum, whose gradient is expanded": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		return op.Add(op.Sum(x, nil, false), total(norm(x, w[2])))
	}, 1, 1, false},
	"an embedding and a product": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		return total(op.Linear(op.Tanh(op.Embedding(rows, w[0], op.EmbeddingOptions{})), w[0], nil))
	}, 0, 1, false},
	"two embeddings": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		one := 1
		return total(op.Embedding(rows, w[0], op.EmbeddingOptions{PaddingIdx: &one}), op.Embedding(rows, w[0], op.EmbeddingOptions{ScaleGradByFreq: true}))
	}, 0, 1, false},
	"three products of one tensor": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		return total(op.Linear(x, w[0], nil), op.Linear(x, w[1], nil), op.MatMul(x, w[1]))
	}, 0, 3, true},
	"a product with itself": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		return total(op.MatMul(w[0], w[0]), w[0])
	}, 1, 2, true},
	"a stack, of which factors are shared": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		y := op.Expand(x, 2, 3, 4)
		return total(op.MatMul(y, w[0]), op.MatMul(y, op.Expand(w[1], 2, 4, 4)))
	}, 0, 1, true},
	"a checkpoint": {func(x *core.Tensor, w []*core.Tensor) *core.Tensor {
		f := func(in []*core.Tensor) []*core.Tensor {
			return []*core.Tensor{op.Add(in[0], op.Linear(norm(in[0], w[2]), w[0], nil))}
		}
		return total(autograd.Checkpoint(f, op.Tanh(x))...)
	}, 0, 1, false},
}

// TestGradientsThatMeet compares with a pass whose hooks look at each derivative's own gradients, so that they are added separately.
func TestGradientsThatMeet(t *testing.T) {
	for name, g := range sharedGraphs {
		for _, dtype := range []core.DType{core.Float32, core.Float64, core.BFloat16} {
			t.Run(fmt.Sprint(name, " ", dtype), func(t *testing.T) {
				core.ManualSeed(4)
				w := parameters()
				leaves := append(w, op.Rand(3, 4))
				for i, p := range leaves {
					leaves[i] = op.To(p.Detach(), dtype).Detach().SetRequiresGrad(true)
				}
				var grads [2][][]float64
				for i, want := range []int{g.watched, g.separate} {
					loss := g.loss(leaves[4], leaves[:4])
					if i == 0 {
						watch(t, loss)
					}
					n := additions(t, func() { require.NoError(t, autograd.Backward(loss)) })
					if name == "a checkpoint" {
						n-- // of the recomputed block
					}
					require.Equal(t, want, n)
					for _, p := range leaves {
						var v []float64
						if p.Grad() != nil {
							v = values(t, p.Grad())
						}
						grads[i] = append(grads[i], v)
						p.SetGrad(nil)
					}
				}
				if !g.loose {
					require.Equal(t, grads[0], grads[1])
					return
				}
				for i := range leaves {
					require.InDeltaSlice(t, grads[0][i], grads[1][i], map[core.DType]float64{core.Float32: 1e-5, core.Float64: 1e-13, core.BFloat16: 0.1}[dtype])
				}
			})
		}
	}
}

func TestGradientsThatMeetAgainstDifferences(t *testing.T) {
	coretest.SkipUnderRace(t)
	for name, g := range sharedGraphs {
		if name == "two embeddings" || name == "a checkpoint" {
			continue // the first is no derivative, the second cannot be differentiated twice
		}
		t.Run(name, func(t *testing.T) {
			core.ManualSeed(4)
			leaves := append(parameters(), op.Rand(3, 4))
			for i, p := range leaves {
				leaves[i] = op.To(p.Detach(), core.Float64).Detach().SetRequiresGrad(true)
			}
			f := func(in []*core.Tensor) []*core.Tensor {
				loss := g.loss(in[4], in[:4])
				for _, t := range in {
					loss = op.Add(loss, op.Mul(op.Sum(t, nil, false), core.Num(0.5))) // so that the loss depends on all
				}
				return []*core.Tensor{loss}
			}
			require.NoError(t, autograd.Check(f, leaves, 1e-6, 1e-5, 1e-4))
			require.NoError(t, autograd.CheckDouble(f, leaves, 1e-6, 1e-5, 1e-4))
		})
	}
}

// TestWhoLooksSeesTheSum looks at the input gradient of a residual block in every possible way.
func TestWhoLooksSeesTheSum(t *testing.T) {
	w := parameters()
	leaf := op.Rand(3, 4).SetRequiresGrad(true)
	graph := func() (x, loss *core.Tensor) {
		x = op.Tanh(leaf)
		return x, sharedGraphs["a residual block"].loss(x, w)
	}
	x, loss := graph()
	watch(t, loss)
	x.RetainGrad()
	require.NoError(t, autograd.Backward(loss))
	want := values(t, x.Grad())

	x, loss = graph()
	got, err := autograd.Grad([]*core.Tensor{loss}, []*core.Tensor{x, leaf}, nil, autograd.Options{RetainGraph: true})
	require.NoError(t, err)
	require.Equal(t, want, values(t, got[0]), "what the caller gets")
	x.RetainGrad()
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{loss}, nil, autograd.Options{RetainGraph: true}))
	require.Equal(t, want, values(t, x.Grad()), "what the tensor keeps")
	require.Equal(t, want, values(t, got[0]), "still")
	x.SetGrad(nil)
	runs := 0
	x.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
		runs++
		require.Equal(t, want, values(t, g))
		return op.Mul(g, core.Num(2))
	}})
	leaf.SetGrad(nil)
	require.NoError(t, autograd.Backward(loss))
	require.Equal(t, 1, runs)
	require.Equal(t, values(t, op.Mul(got[1], core.Num(2))), values(t, leaf.Grad()))
}

// TestWhatSomebodyHoldsIsNotOverwritten: gradients kept by a hook, and gradients passed by the caller, do not change.
func TestWhatSomebodyHoldsIsNotOverwritten(t *testing.T) {
	w := op.Rand(4, 4).SetRequiresGrad(true)
	x := op.Rand(3, 4).SetRequiresGrad(true)
	y := op.Linear(x, w, nil)
	seed := op.Rand(4, 4)
	before := values(t, seed)
	v := op.Mul(w, core.Num(1))
	z := op.Linear(y, v, nil)
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{z, v}, []*core.Tensor{op.Rand(3, 4), seed}, autograd.Options{}))
	require.Equal(t, before, values(t, seed))

	var held *core.Tensor
	var then []float64
	a := op.Mul(w, core.Num(1))
	first := op.Mul(a, core.Num(3)) // its derivative runs last
	last := op.Neg(a)
	a2 := op.Linear(x, a, nil)
	last.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
		held, then = g.Alias(false).Keep(), values(t, g)
		return nil
	}})
	require.NoError(t, autograd.Backward(total(first, a2, last)))
	require.Equal(t, then, values(t, held))
}

// TestGradientsThatMeetOnOtherStreams: the gradient of an operation on another stream is added on that stream.
func TestGradientsThatMeetOnOtherStreams(t *testing.T) {
	dev, s := streams(t, 2)
	leaf := op.Rand(3, 4).SetRequiresGrad(true)
	for additionsLeft, of := range s {
		var x, h, loss *core.Tensor
		core.WithStream(of, func() { x = op.Tanh(leaf) })
		core.WithStream(s[0], func() {
			h = norm(x, nil)
			loss = total(op.Add(x, h))
		})
		h.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor { linger(dev); return nil }})
		core.WithStream(s[1], func() {
			require.Equal(t, additionsLeft, additions(t, func() { require.NoError(t, autograd.Backward(loss)) }))
		})
		got := values(t, leaf.Grad())
		leaf.SetGrad(nil)
		x = op.Tanh(leaf)
		require.NoError(t, autograd.Backward(total(op.Add(x, norm(x, nil)))))
		require.Equal(t, values(t, leaf.Grad()), got)
		leaf.SetGrad(nil)
	}
}

// TestGradientsThatMeetInDividedWalks: residual blocks in a pass with two parts, input gradients first and weights later.
func TestGradientsThatMeetInDividedWalks(t *testing.T) {
	for name, g := range sharedGraphs {
		t.Run(name, func(t *testing.T) {
			w := parameters()
			x := op.Rand(3, 4).SetRequiresGrad(true)
			leaves := append(w, x)
			require.NoError(t, autograd.Backward(g.loss(op.Tanh(x), w)))
			var want [][]float64
			for _, p := range leaves {
				if p.Grad() == nil {
					want = append(want, nil)
					continue
				}
				want = append(want, values(t, p.Grad()))
				p.SetGrad(nil)
			}
			r, err := autograd.NewRun([]*core.Tensor{g.loss(op.Tanh(x), w)}, nil, autograd.Options{First: []*core.Tensor{x}})
			require.NoError(t, err)
			defer r.Close()
			for range 2 {
				q, err := r.Step()
				require.NoError(t, err)
				require.Nil(t, q)
				r.Rest()
			}
			for i, p := range leaves {
				if want[i] == nil {
					require.Nil(t, p.Grad())
					continue
				}
				require.InDeltaSlice(t, want[i], values(t, p.Grad()), 1e-6)
			}
		})
	}
}

// TestAnErrorAfterSomethingArrived: derivatives that include an arrived gradient, or later ones, fail and leak no memory.
func TestAnErrorAfterSomethingArrived(t *testing.T) {
	dev, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	x := op.Rand(3, 4).SetRequiresGrad(true)
	boom := errors.New("boom")
	custom := func(in *core.Tensor, deriv core.Deriv) *core.Tensor {
		y := op.Clone(in.Detach())
		n := core.NewNode(core.CurrentMode(), "custom", deriv, in)
		n.AttachLast(y, 0)
		return y
	}
	for want, deriv := range map[string]core.Deriv{
		"boom": func(ctx *core.BackwardContext) {
			g, alone := ctx.Arrived(0)
			if !alone {
				t.Error("somebody else sees the gradient")
			}
			ctx.SetSum(0, op.AddInPlace(g, ctx.Grad()))
			ctx.Fail(boom)
		},
		"internal error": func(ctx *core.BackwardContext) {
			g, _ := ctx.Arrived(0)
			ctx.SetSum(0, op.Add(g, ctx.Grad()))
			panic("boom")
		},
		"want [3 4]": func(ctx *core.BackwardContext) {
			g, _ := ctx.Arrived(0)
			ctx.SetSum(0, op.Sum(g, nil, false))
		},
		"": func(ctx *core.BackwardContext) {
			g, _ := ctx.Arrived(0)
			ctx.SetSum(0, op.AddInPlace(g, ctx.Grad()))
		},
		"nothing arrived": func(ctx *core.BackwardContext) { ctx.SetSum(0, ctx.Grad()) },
	} {
		run := func() {
			core.Tidy(func() {
				y := op.Tanh(x)
				z := custom(y, deriv)
				if want == "nothing arrived" {
					require.NoError(t, autograd.Backward(op.Sum(z, nil, false)))
				} else if err := autograd.Backward(op.Add(op.Sum(op.Exp(y), nil, false), op.Sum(z, nil, false))); want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, want)
				}
			})
			x.SetGrad(nil)
		}
		run()
		before := coretest.Settle(t, dev)
		for range 3 {
			run()
		}
		require.Equal(t, before, core.MemoryUsage(dev).Current, want)
	}
}

// TestAGradientIsOfferedOnce: a derivative whose two inputs are the same tensor; only the first may include the arrived gradient.
func TestAGradientIsOfferedOnce(t *testing.T) {
	x := leaf(1, 2, 3)
	y := op.Mul(x, core.Num(1))
	n := core.NewNode(core.CurrentMode(), "twice", func(ctx *core.BackwardContext) {
		second, _ := ctx.Arrived(1)
		require.Nil(t, second)
		g, alone := ctx.Arrived(0)
		require.True(t, alone)
		require.Equal(t, []float64{1, 4, 9}, values(t, g))
		ctx.SetSum(0, op.AddInPlace(g, core.Num(100)))
		ctx.SetSum(1, core.FromSlice([]float64{1000, 1000, 1000}))
	}, y, y)
	z := core.FromSlice([]float64{1})
	n.AttachLast(z, 0)
	loss := op.Add(z, op.Sum(op.Mul(op.Pow(y, core.Num(3)), core.Num(1.0/3)), nil, false))
	require.NoError(t, autograd.Backward(op.Sum(loss, nil, false)))
	require.InDeltaSlice(t, []float64{1101, 1104, 1109}, values(t, x.Grad()), 1e-9)
}

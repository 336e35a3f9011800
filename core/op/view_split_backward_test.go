package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// joinsIn returns how often fn joins tensors; it must wait for what it launches.
func joinsIn(t *testing.T, fn func()) int {
	t.Helper()
	p, err := core.StartProfile(false)
	require.NoError(t, err)
	defer p.Stop()
	fn()
	n := 0
	for _, e := range p.Stop() {
		if e.Kernel == core.Kernel("cat") {
			n++
		}
	}
	return n
}

// heads returns [batch, length, heads, dim] or what reshapes to it as [batch, heads, length, dim].
func heads(x *core.Tensor, n int) *core.Tensor {
	return op.Transpose(op.Reshape(x, x.Size(0), x.Size(1), n, -1), 1, 2)
}

func headsOfAll(parts []*core.Tensor, n ...int) []*core.Tensor {
	out := make([]*core.Tensor, len(parts))
	for i, p := range parts {
		out[i] = heads(p, n[i])
	}
	return out
}

// An ofParts is a way to split q, k and v off one tensor, and how many joins its gradient takes.
type ofParts struct {
	shape []int
	split func(h *core.Tensor) []*core.Tensor
	joins int
}

var partsCases = map[string]ofParts{
	"split": {[]int{2, 5, 36}, func(h *core.Tensor) []*core.Tensor { return headsOfAll(op.Split(h, 12, 2), 3, 3, 3) }, 0},
	"chunk, in another order": {[]int{2, 5, 36}, func(h *core.Tensor) []*core.Tensor {
		p := headsOfAll(op.Chunk(h, 3, -1), 3, 3, 3)
		return []*core.Tensor{p[1], p[0], p[2]}
	}, 0},
	"tensor_split": {[]int{2, 5, 24}, func(h *core.Tensor) []*core.Tensor { return headsOfAll(op.TensorSplit(h, 3, 2), 2, 2, 2) }, 0},
	"unbind":       {[]int{2, 5, 3, 2, 4}, func(h *core.Tensor) []*core.Tensor { return headsOfAll(op.Unbind(h, 2), 2, 2, 2) }, 0},
	"unbind of a permuted tensor": {[]int{2, 5, 24}, func(h *core.Tensor) []*core.Tensor {
		return op.Unbind(op.Permute(op.Reshape(h, 2, 5, 3, 2, 4), 2, 0, 3, 1, 4), 0)
	}, 0},
	"unbind of the first dimension": {[]int{3, 2, 2, 5, 4}, func(h *core.Tensor) []*core.Tensor { return op.Unbind(h, 0) }, 0},
	"chunk of heads":                {[]int{2, 6, 5, 4}, func(h *core.Tensor) []*core.Tensor { return op.Chunk(h, 3, 1) }, 0},
	"chunk and squeeze": {[]int{2, 5, 3, 2, 4}, func(h *core.Tensor) []*core.Tensor {
		p := op.Chunk(h, 3, 2)
		for i := range p {
			p[i] = op.Transpose(op.Squeeze(p[i], 2), 1, 2)
		}
		return p
	}, 0},
	"longer values": {[]int{2, 5, 28}, func(h *core.Tensor) []*core.Tensor { return headsOfAll(op.SplitSizes(h, []int{8, 8, 12}, 2), 2, 2, 2) }, 0},
	"grouped":       {[]int{2, 5, 32}, func(h *core.Tensor) []*core.Tensor { return headsOfAll(op.SplitSizes(h, []int{16, 8, 8}, 2), 4, 2, 2) }, 0},
	"one key head":  {[]int{2, 5, 18}, func(h *core.Tensor) []*core.Tensor { return headsOfAll(op.SplitSizes(h, []int{12, 3, 3}, 2), 4, 1, 1) }, 0},
	"one query":     {[]int{1, 1, 24}, func(h *core.Tensor) []*core.Tensor { return headsOfAll(op.Split(h, 8, 2), 2, 2, 2) }, 0},
	"vectors of one": {[]int{2, 5, 6}, func(h *core.Tensor) []*core.Tensor {
		return headsOfAll(op.Split(h, 2, 2), 2, 2, 2)
	}, 0},
	"keys and values": {[]int{2, 7, 24}, func(h *core.Tensor) []*core.Tensor {
		return append([]*core.Tensor{op.To(uniform(3, 2, 2, 5, 6), h.DType())}, headsOfAll(op.Split(h, 12, 2), 2, 2)...)
	}, 0},
	"keys and queries, values of another": {[]int{2, 5, 24}, func(h *core.Tensor) []*core.Tensor {
		v := heads(op.Mul(op.Narrow(h, 2, 0, 12), core.Num(0.5)), 2)
		return append(headsOfAll(op.Split(h, 12, 2), 2, 2), v)
	}, 0},

	"columns": {[]int{2, 3, 2, 4, 5}, func(h *core.Tensor) []*core.Tensor {
		p := op.Unbind(h, 1)
		for i := range p {
			p[i] = op.Transpose(p[i], 2, 3)
		}
		return p
	}, 1},
	"a part that nobody uses": {[]int{2, 5, 48}, func(h *core.Tensor) []*core.Tensor { return headsOfAll(op.Split(h, 12, 2)[:3], 3, 3, 3) }, 1},
	"a part between that nobody uses": {[]int{4, 2, 2, 5, 4}, func(h *core.Tensor) []*core.Tensor {
		p := op.Unbind(h, 0)
		return []*core.Tensor{p[0], p[1], p[3]}
	}, 1},
	"a part used twice": {[]int{2, 5, 16}, func(h *core.Tensor) []*core.Tensor {
		p := headsOfAll(op.Split(h, 8, 2), 2, 2)
		return append(p, p[1])
	}, 1},
	"a part used elsewhere": {[]int{2, 5, 24}, func(h *core.Tensor) []*core.Tensor {
		p := op.Split(h, 8, 2)
		q := headsOfAll(p, 2, 2, 2)
		q[0] = op.Add(q[0], heads(op.Tanh(p[2]), 2))
		return q
	}, 1},
	"parts cut further": {[]int{2, 5, 24}, func(h *core.Tensor) []*core.Tensor {
		p := headsOfAll(op.Split(h, 8, 2), 2, 2, 2)
		p[0] = op.Mul(p[0], core.Num(2))
		return p
	}, 1},
}

// backward returns the bytes of the gradient of a tensor from which q, k and v are split off, and how many joins it takes. see is
// called with the tensor and its parts before.
func (c ofParts) backward(t *testing.T, d core.DType, see func(h *core.Tensor, parts []*core.Tensor)) (grad []byte, joins int) {
	t.Helper()
	x := op.To(uniform(1, c.shape...), d).Detach().SetRequiresGrad(true)
	h := op.Mul(x, core.Num(1.5))
	p := c.split(h)
	if see != nil {
		see(h, p)
	}
	y := op.ScaledDotProductAttention(p[0], p[1], p[2], op.AttentionOptions{Causal: true, EnableGQA: true})
	require.NoError(t, y.Err())
	dy := op.To(uniform(2, y.Shape()...), d)
	joins = joinsIn(t, func() {
		require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, []*core.Tensor{dy}, autograd.Options{RetainGraph: true}))
		require.NoError(t, x.Grad().Wait())
	})
	require.True(t, x.Grad().Contiguous())
	grad, err := x.Grad().Bytes()
	require.NoError(t, err)
	return grad, joins
}

// Gradients of parts that attention wrote beside one another are the gradient of the whole, without a join and with the same bits.
func TestGradientOfPartsOfAttention(t *testing.T) {
	for name, c := range partsCases {
		for _, d := range []core.DType{core.Float32, core.Float64, core.BFloat16} {
			t.Run(name+"/"+d.String(), func(t *testing.T) {
				inRank(t, func() {
					keep := func(_ *core.Tensor, parts []*core.Tensor) {
						for _, p := range parts {
							p.RetainGrad()
						}
					}
					want, joins := c.backward(t, d, keep)
					require.Equal(t, 1, joins, "gradients that are seen lie apart")
					got, joins := c.backward(t, d, nil)
					require.Equal(t, want, got)
					require.Equal(t, c.joins, joins)
				})
			})
		}
	}
}

// What users see of the gradients of parts and whole has no memory in common, and what they do to it reaches nothing else.
func TestGradientsOfPartsThatAreSeen(t *testing.T) {
	split := func(see func(h *core.Tensor, parts []*core.Tensor)) ofParts {
		return ofParts{[]int{2, 5, 36}, func(h *core.Tensor) []*core.Tensor {
			p := op.Split(h, 12, 2)
			see(h, p)
			return headsOfAll(p, 3, 3, 3)
		}, 0}
	}
	inRank(t, func() {
		want, _ := partsCases["split"].backward(t, core.Float32, nil)
		var seen []*core.Tensor
		look := core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
			seen = append(seen, g.Detach().Keep())
			return nil
		}}
		for name, see := range map[string]struct {
			fn    func(h *core.Tensor, p []*core.Tensor)
			joins int
		}{
			"all keep":          {func(h *core.Tensor, p []*core.Tensor) { h.RetainGrad(); p[0].RetainGrad(); p[2].RetainGrad() }, 1},
			"the whole keeps":   {func(h *core.Tensor, p []*core.Tensor) { h.RetainGrad() }, 0},
			"a part keeps":      {func(h *core.Tensor, p []*core.Tensor) { p[1].RetainGrad() }, 1},
			"hook on a part":    {func(h *core.Tensor, p []*core.Tensor) { p[1].TensorHooks().Add(look) }, 1},
			"hooks on all":      {func(h *core.Tensor, p []*core.Tensor) { h.TensorHooks().Add(look); p[0].TensorHooks().Add(look) }, 1},
			"hook on the whole": {func(h *core.Tensor, p []*core.Tensor) { h.TensorHooks().Add(look) }, 0},
			"hook after the split": {func(h *core.Tensor, p []*core.Tensor) {
				e := p[0].AutogradMeta().Edge()
				defer e.Node.Release()
				e.Node.PostHooks().Add(core.NodeHook{Fn: func(grads, after []*core.Tensor) []*core.Tensor {
					for _, g := range append(after, grads...) {
						seen = append(seen, g.Detach().Keep())
					}
					return nil
				}})
			}, 1},
		} {
			t.Run(name, func(t *testing.T) {
				seen = nil
				defer func() {
					for _, g := range seen {
						g.Release()
					}
				}()
				var h *core.Tensor
				var parts []*core.Tensor
				got, joins := split(func(whole *core.Tensor, p []*core.Tensor) {
					see.fn(whole, p)
					h, parts = whole, p
				}).backward(t, core.Float32, nil)
				require.Equal(t, want, got)
				require.Equal(t, see.joins, joins)
				if h.RetainsGrad() {
					require.True(t, h.Grad().Contiguous())
					seen = append(seen, h.Grad())
				}
				for _, p := range parts {
					if p.RetainsGrad() {
						require.True(t, p.Grad().Contiguous())
						seen = append(seen, p.Grad())
					}
				}
				require.NotEmpty(t, seen)
				for i, g := range seen {
					before, err := g.Bytes()
					require.NoError(t, err)
					for j, other := range seen {
						if j != i {
							require.NoError(t, op.MulInPlace(other, core.Num(3)).Err())
						}
					}
					after, err := g.Bytes()
					require.NoError(t, err)
					require.Equal(t, before, after, "gradient %d of %d changed with another", i, len(seen))
				}
			})
		}
	})
}

// A leaf takes the memory over that its parts' gradients were written to; a second pass adds to it.
func TestGradientOfALeafThatWasSplit(t *testing.T) {
	inRank(t, func() {
		x := leaf(uniform(1, 2, 5, 36))
		p := headsOfAll(op.Split(x, 12, 2), 3, 3, 3)
		y := op.ScaledDotProductAttention(p[0], p[1], p[2], op.AttentionOptions{})
		dy := uniform(2, y.Shape()...)
		pass := func() {
			require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, []*core.Tensor{dy}, autograd.Options{RetainGraph: true}))
			require.NoError(t, x.Grad().Wait())
		}
		require.Zero(t, joinsIn(t, pass))
		g := x.Grad()
		require.Equal(t, 1, g.Storage().Refs())
		require.Equal(t, 8*g.Numel(), g.Storage().Size())
		once := values(t, g)
		pass()
		require.Same(t, g, x.Grad())
		for i, v := range values(t, g) {
			require.Equal(t, 2*once[i], v)
		}
		// One part's gradient asked for beside the whole's.
		parts := op.Split(x, 12, 2)
		p = headsOfAll(parts, 3, 3, 3)
		y = op.ScaledDotProductAttention(p[0], p[1], p[2], op.AttentionOptions{})
		got := gradients(t, y, dy, x, parts[1])
		require.Equal(t, once, values(t, got[0]))
		require.Equal(t, values(t, op.Narrow(got[0], 2, 12, 12)), values(t, got[1]))
		require.NotSame(t, got[0].Storage(), got[1].Storage())
		// Gradients that are recorded.
		y = op.ScaledDotProductAttention(p[0], p[1], p[2], op.AttentionOptions{})
		recorded, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, []*core.Tensor{dy}, autograd.Options{CreateGraph: true})
		require.NoError(t, err)
		requireValues(t, once, values(t, recorded[0]), 1e-12)
	})
}

func TestSecondDerivativesOfPartsOfAttention(t *testing.T) {
	f := func(in []*core.Tensor) []*core.Tensor {
		p := headsOfAll(op.Split(op.Tanh(in[0]), 4, 2), 2, 2, 2)
		return []*core.Tensor{op.ScaledDotProductAttention(p[0], p[1], p[2], op.AttentionOptions{})}
	}
	inRank(t, func() {
		in := []*core.Tensor{leaf(uniform(1, 1, 3, 12))}
		require.NoError(t, autograd.Check(f, in, 1e-6, 1e-6, 1e-5))
		require.NoError(t, autograd.CheckDouble(f, in, 1e-6, 1e-5, 1e-4))
	})
}

// Parts that are joined again hand views of one gradient back. It is the whole's without a copy, unless somebody else has it.
func TestGradientOfPartsThatAreJoined(t *testing.T) {
	inRank(t, func() {
		x := leaf(uniform(1, 4, 6))
		dy := uniform(2, 4, 6)
		y := op.Cat(op.Split(x, 2, 1), 1)
		var g *core.Tensor
		recorded, err := autograd.Grad([]*core.Tensor{op.Mul(op.Cat(op.Split(x, 2, 1), 1), core.Num(2))}, []*core.Tensor{x},
			[]*core.Tensor{leaf(dy)}, autograd.Options{CreateGraph: true})
		require.NoError(t, err)
		require.True(t, recorded[0].RequiresGrad())
		require.Equal(t, 1, joinsIn(t, func() {
			g = gradients(t, y, dy, x)[0]
			require.NoError(t, g.Wait())
		}))
		require.NotSame(t, dy.Storage(), g.Storage())
		require.Equal(t, values(t, dy), values(t, g))
		for name, f := range map[string]func() *core.Tensor{
			"split":       func() *core.Tensor { return op.Cat(op.Split(x, 2, 1), 1) },
			"split again": func() *core.Tensor { return op.Cat(op.SplitSizes(x, []int{1, 3}, 0), 0) },
			"unbind":      func() *core.Tensor { return op.Stack(op.Unbind(x, 1), 1) },
			"one part":    func() *core.Tensor { return op.Cat(op.Split(x, 6, 1), 1) },
		} {
			y := op.Mul(f(), core.Num(2))
			require.Zero(t, joinsIn(t, func() {
				g = gradients(t, y, dy, x)[0]
				require.NoError(t, g.Wait())
			}), name)
			require.True(t, g.Contiguous(), name)
			require.Equal(t, values(t, op.Mul(dy, core.Num(2))), values(t, g), name)
		}
		p := op.Split(x, 2, 1)
		e := p[0].AutogradMeta().Edge()
		defer e.Node.Release()
		e.Node.PostHooks().Add(core.NodeHook{Fn: func(whole, parts []*core.Tensor) []*core.Tensor {
			require.NoError(t, op.MulInPlace(parts[0], core.Num(0)).Err())
			return nil
		}})
		g = gradients(t, op.Mul(op.Cat(p, 1), core.Num(2)), dy, x)[0]
		require.Equal(t, values(t, op.Mul(dy, core.Num(2))), values(t, g), "a hook changed a part")
		// What lies otherwise than users expect is joined where they see it, and so is a part of what others have the rest of.
		wide := op.Transpose(op.Mul(x, core.Num(3)), 0, 1)
		wide.RetainGrad()
		rows := op.Mul(op.Stack(op.Unbind(wide, 0), 1), core.Num(2))
		more := op.Mul(op.Cat(append(op.Split(x, 2, 0), dy), 0), core.Num(2))
		for _, y := range []*core.Tensor{rows, more} {
			require.Equal(t, 1, joinsIn(t, func() {
				g = gradients(t, y, op.OnesLike(y, op.TensorOptions{}), x)[0]
				require.NoError(t, g.Wait())
			}))
			require.Equal(t, 8*g.Numel(), g.Storage().Size())
		}
		require.True(t, wide.Grad().Contiguous())
		wide = op.Transpose(op.Mul(x, core.Num(3)), 0, 1)
		rows = op.Mul(op.Stack(op.Unbind(wide, 0), 1), core.Num(2))
		require.Zero(t, joinsIn(t, func() {
			g = gradients(t, rows, dy, x)[0]
			require.NoError(t, g.Wait())
		}))
		requireValues(t, values(t, op.Mul(dy, core.Num(6))), values(t, g), 0)
		for name, f := range map[string]func(x *core.Tensor) *core.Tensor{
			"in order": func(x *core.Tensor) *core.Tensor { return op.Cat(op.Split(x, 2, 1), 1) },
			"another order": func(x *core.Tensor) *core.Tensor {
				p := op.Split(x, 2, 1)
				return op.Cat([]*core.Tensor{p[1], p[0], p[2]}, 1)
			},
			"rotated": func(x *core.Tensor) *core.Tensor {
				p := op.Split(x, 2, 1)
				return op.Cat([]*core.Tensor{p[2], p[0], p[1]}, 1)
			},
			"one transposed": func(x *core.Tensor) *core.Tensor {
				p := op.SplitSizes(x, []int{2, 4}, 1)
				return op.Cat([]*core.Tensor{p[0], op.Transpose(p[1], 0, 1)}, 1)
			},
			"two gradients": func(x *core.Tensor) *core.Tensor {
				z := op.Narrow(op.Tanh(x), 1, 0, 4)
				p := op.SplitSizes(x, []int{2, 4}, 1)
				return op.Add(op.Exp(op.Cat([]*core.Tensor{p[0], z}, 1)), op.Exp(op.Cat([]*core.Tensor{uniform(3, 4, 2), p[1]}, 1)))
			},
			"along another": func(x *core.Tensor) *core.Tensor { return op.Cat(op.Split(x, 2, 1), 0) },
			"transposed":    func(x *core.Tensor) *core.Tensor { return op.Transpose(op.Stack(op.Unbind(x, 1), 0), 0, 1) },
			"one twice": func(x *core.Tensor) *core.Tensor {
				p := op.Split(x, 3, 1)
				return op.Cat([]*core.Tensor{p[0], p[1], p[1]}, 1)
			},
			"more of them": func(x *core.Tensor) *core.Tensor { return op.Cat(append(op.Split(x, 3, 1), uniform(3, 4, 2)), 1) },
			"sums":         func(x *core.Tensor) *core.Tensor { p := op.Split(x, 3, 1); return op.Add(p[0], p[1]) },
			"nothing":      func(x *core.Tensor) *core.Tensor { return op.Cat(op.SplitSizes(x, []int{0, 6}, 1), 1) },
		} {
			tanh := func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{op.Tanh(f(in[0]))} }
			require.NoError(t, autograd.Check(tanh, []*core.Tensor{x}, 1e-6, 1e-6, 1e-5), name)
			require.NoError(t, autograd.CheckDouble(tanh, []*core.Tensor{x}, 1e-6, 1e-5, 1e-4), name)
		}
	})
}

// TestGradientsOfHalves: those of operations of two halves are written to one memory, without a join, unless somebody sees them before.
func TestGradientsOfHalves(t *testing.T) {
	core.Tidy(func() {
		for name, c := range map[string]struct {
			fn    func(x *core.Tensor) *core.Tensor
			joins int
		}{
			"glu":            {func(x *core.Tensor) *core.Tensor { return op.Glu(x, -1) }, 0},
			"glu along rows": {func(x *core.Tensor) *core.Tensor { return op.Glu(x, 0) }, 0},
			"product":        {func(x *core.Tensor) *core.Tensor { p := op.Chunk(x, 2, 1); return op.Mul(p[1], p[0]) }, 0},
			"transposed": {func(x *core.Tensor) *core.Tensor {
				p := op.Chunk(op.Transpose(x, 0, 1), 2, 0)
				return op.Atan2(p[1], p[0])
			}, 0},
			"one of thirds": {func(x *core.Tensor) *core.Tensor { p := op.Split(x, 2, 1); return op.Add(op.Mul(p[1], p[0]), p[2]) }, 1},
			"broadcast":     {func(x *core.Tensor) *core.Tensor { p := op.SplitSizes(x, []int{1, 5}, 1); return op.Mul(p[1], p[0]) }, 1},
			"the same half": {func(x *core.Tensor) *core.Tensor { p := op.Chunk(x, 2, 1); return op.Mul(p[0], p[0]) }, 1},
			"of other dtypes": {func(x *core.Tensor) *core.Tensor {
				p := op.Chunk(x, 2, 1)
				return op.Mul(op.To(p[0], core.Float32), p[1])
			}, 1},
		} {
			x := op.To(uniform(3, 4, 6), core.Float64)
			grad := func(record bool) *core.Tensor {
				leaf := x.Detach().SetRequiresGrad(true)
				y := c.fn(leaf)
				g := op.To(op.Reshape(op.Arange(nil, core.Num(float64(y.Numel())), nil, op.TensorOptions{}), y.Shape()...), y.DType())
				grads, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{leaf}, []*core.Tensor{g}, autograd.Options{CreateGraph: record})
				require.NoError(t, err)
				return grads[0]
			}
			requireClose(t, grad(true), grad(false))
			require.Equal(t, c.joins, joinsIn(t, func() { values(t, grad(false)) }), name)
			require.True(t, grad(false).Contiguous(), name)
		}
	})
}

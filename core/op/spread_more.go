package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// moreRules returns the rules of ops that programs seldom distribute.
func moreRules() map[string]*Rule {
	out := map[string]*Rule{}
	add := func(r *Rule, names ...string) {
		for _, n := range names {
			out[n] = r
		}
	}
	// Another name has the rule of the first.
	out["sgn"], out["true_divide"] = each, rules["div"]
	// What an op is composed of has rules.
	composed := &Rule{}
	add(composed, "allclose", "fliplr", "flipud", "msort", "atleast_1d", "atleast_2d", "atleast_3d", "tile")
	// Creation takes no tensors, or their shapes alone, and random numbers are those of the whole tensor.
	add(composed, "fft_fftfreq", "fft_rfftfreq")
	add(composed, "arange", "empty", "eye", "full", "linspace", "logspace", "ones", "zeros", "tril_indices", "triu_indices",
		"rand", "randint", "randn", "randperm", "rand_like", "randn_like", "randint_like", "poisson",
		"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "trunc_normal_", "uniform_",
		"dropout", "dropout1d", "dropout2d", "dropout3d")
	// Other ops compose these where their tensors need no more than that.
	as := func(f func(u *Use) *core.Tensor) *Rule {
		return &Rule{Compose: func(u *Use) []*core.Tensor {
			if t := f(u); t != nil {
				return []*core.Tensor{t}
			}
			return nil
		}}
	}
	shapeOf := func(f func(t *core.Tensor, shape ...int) *core.Tensor) *Rule {
		return as(func(u *Use) *core.Tensor { return f(u.Tensors[0], u.Tensors[1].Shape()...) })
	}
	out["reshape_as"], out["view_as"], out["expand_as"] = shapeOf(Reshape), shapeOf(View), shapeOf(Expand)
	join := func(least, dim int) *Rule {
		return as(func(u *Use) *core.Tensor {
			if slices.ContainsFunc(u.Tensors, func(t *core.Tensor) bool { return t.Dim() < least }) {
				return nil
			}
			return Cat(u.Tensors, dim)
		})
	}
	out["vstack"], out["hstack"], out["column_stack"], out["dstack"] = join(2, 0), join(2, 1), join(2, 1), join(3, 2)
	split := func(dim, least int) *Rule {
		return &Rule{Compose: func(u *Use) []*core.Tensor {
			t, sections := u.Tensors[0], argument[int](u, 1)
			if t.Dim() < least || sections < 1 || t.Size(dim) == 0 || t.Size(dim)%sections != 0 {
				return nil
			}
			return Split(t, t.Size(dim)/sections, dim)
		}}
	}
	out["vsplit"], out["hsplit"], out["dsplit"] = split(0, 2), split(1, 2), split(2, 3)
	add(as(func(u *Use) *core.Tensor {
		t := u.Tensors[0]
		for _, next := range u.Tensors[1:] {
			t = MatMul(t, next)
		}
		return t
	}), "multi_dot", "chain_matmul")
	out["take_along_dim"] = as(func(u *Use) *core.Tensor {
		x, index := u.Tensors[0], u.Tensors[1]
		dim, _ := u.Args[2].(*int)
		if dim == nil || x.Dim() != index.Dim() {
			return nil
		}
		at := dimOf(*dim, x.Dim())
		for d := range x.Shape() {
			if at < 0 || d != at && x.Size(d) != index.Size(d) {
				return nil
			}
		}
		return Gather(x, at, index)
	})
	out["equal"] = as(func(u *Use) *core.Tensor {
		x, y := u.Tensors[0], u.Tensors[1]
		if !slices.Equal(x.Shape(), y.Shape()) || x.DType() != y.DType() {
			return nil
		}
		return All(Eq(x, y), nil, false)
	})
	out["dist"] = as(func(u *Use) *core.Tensor {
		return VectorNorm(Sub(u.Tensors[0], u.Tensors[1]), argument[float64](u, 2), nil, ReduceOptions{})
	})
	out["trace"] = as(func(u *Use) *core.Tensor {
		if u.Tensors[0].Dim() != 2 {
			return nil
		}
		return Sum(Diagonal(u.Tensors[0], 0, 0, 1), nil, false)
	})
	out["renorm"] = dims(func(u *Use, shape []int) []int {
		to := make([]int, len(shape))
		for d := range to {
			if to[d] = -1; d == dimOf(argument[int](u, 2), len(shape)) {
				to[d] = d
			}
		}
		return to
	})
	integrated := func(keeps bool) *Rule {
		along := without(3, func(*Use) bool { return keeps })
		return &Rule{Strategies: func(u *Use) []Strategy {
			if x := u.Tensors[1]; x != nil && x.Dim() > 1 {
				return nil
			}
			return along.Strategies(u)
		}}
	}
	out["trapezoid"], out["cumulative_trapezoid"] = integrated(false), integrated(true)
	// Pairs of rows.
	out["cdist"] = notation("...pM,...rM->...pr")
	out["pdist"] = notation("...NM->...P")
	out["bilinear"] = notation("...I,...J,oIJ,o->...o")
	out["addbmm"] = addedProduct("mn", "bmk*", "bkn*")
	out["pairwise_distance"] = &Rule{Strategies: func(u *Use) []Strategy {
		result := "..."
		if argument[bool](u, 4) {
			result = "...D"
		}
		return index(u, []string{"...D"}, []string{result})
	}}
	out["cross"] = pairsAlong(2, true)
	out["linalg_cross"] = out["cross"]
	out["cosine_similarity"] = pairsAlong(2, false)
	out["searchsorted"] = &Rule{Strategies: func(u *Use) []Strategy {
		if u.Tensors[0].Dim() != 1 {
			return nil
		}
		return index(u, []string{"S", "...", "S"}, []string{"..."})
	}}
	add(notation("...,S->..."), "bucketize")
	rows := func(result string) *Rule {
		return &Rule{Strategies: func(u *Use) []Strategy {
			m, b := u.Tensors[0], u.Tensors[len(u.Tensors)-1]
			if m.Dim() != b.Dim() || m.Dim() < 2 {
				return nil
			}
			return index(u, []string{"...MM"}, []string{result})
		}}
	}
	add(rows("...MK"), "linalg_solve", "linalg_solve_triangular")
	out["broadcast_tensors"] = each
	// Writing along a dimension.
	add(written(1), "index_add", "index_copy", "index_reduce", "index_fill", "scatter", "scatter_add", "scatter_reduce")
	out["select_scatter"] = &Rule{Strategies: func(u *Use) (list []Strategy) {
		x := u.Tensors[0]
		at := dimOf(argument[int](u, 2), x.Dim())
		for d, n := range x.Shape() {
			if d == at || n <= 1 || at < 0 {
				continue
			}
			s := Strategy{In: []core.Placement{core.Shard(d), core.Shard(d)}, Out: []core.Placement{core.Shard(d)}, Size: n}
			if d > at {
				s.In[1].Dim--
			}
			list = append(list, s)
		}
		return list
	}}
	out["slice_scatter"] = &Rule{Strategies: func(u *Use) (list []Strategy) {
		x := u.Tensors[0]
		at := dimOf(argument[int](u, 2), x.Dim())
		for d, n := range x.Shape() {
			if d != at && n > 1 {
				list = append(list, Strategy{In: []core.Placement{core.Shard(d), core.Shard(d)}, Out: []core.Placement{core.Shard(d)}, Size: n})
			}
		}
		return list
	}}
	out["embedding_renorm_"] = &Rule{Changes: true, Compose: func(u *Use) []*core.Tensor {
		return []*core.Tensor{renormSpread(u.Tensors[0], u.Tensors[1], argument[float64](u, 2), argument[float64](u, 3))}
	}}
	// Views.
	out["diagonal"] = linear(dims(func(u *Use, shape []int) []int {
		d1, d2 := dimOf(argument[int](u, 2), len(shape)), dimOf(argument[int](u, 3), len(shape))
		to, at := make([]int, len(shape)), 0
		for d := range to {
			if to[d] = -1; d != d1 && d != d2 {
				to[d] = at
				at++
			}
		}
		return to
	}))
	out["repeat"] = linear(dims(func(u *Use, shape []int) []int {
		repeats := argument[[]int](u, 1)
		more := len(repeats) - len(shape)
		to := make([]int, len(shape))
		for d := range to {
			if to[d] = -1; more >= 0 && repeats[d+more] == 1 {
				to[d] = d + more
			}
		}
		return to
	}))
	out["channel_shuffle"] = notation("n->n")
	// Losses.
	out["gaussian_nll_loss"] = loss(&Rule{Strategies: func(u *Use) []Strategy {
		if u.Tensors[2].Dim() != u.Tensors[0].Dim() {
			return nil // the variances lack the last dimension
		}
		return each.Strategies(u)
	}})
	out["cosine_embedding_loss"] = loss(&Rule{Strategies: func(u *Use) []Strategy {
		if u.Tensors[0].Dim() != 2 {
			return nil
		}
		return index(u, []string{"n"}, []string{"n"})
	}})
	out["triplet_margin_loss"] = loss(notation("...D->..."))
	add(loss(&Rule{Strategies: func(u *Use) []Strategy {
		if u.Tensors[0].Dim() != 2 {
			return nil
		}
		return index(u, []string{"n", "n", ""}, []string{"n"})
	}}), "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss")
	return out
}

// pairsAlong is the rule of an op on two tensors of one shape along the dimension that argument i says, which the result has or not.
func pairsAlong(i int, keeps bool) *Rule {
	return &Rule{Strategies: func(u *Use) (list []Strategy) {
		x, y := u.Tensors[0], u.Tensors[1]
		at := dimOf(argument[int](u, i), x.Dim())
		if !slices.Equal(x.Shape(), y.Shape()) || at < 0 {
			return nil
		}
		for d, n := range x.Shape() {
			if d == at || n <= 1 {
				continue
			}
			s := Strategy{In: []core.Placement{core.Shard(d), core.Shard(d)}, Out: []core.Placement{core.Shard(d)}, Size: n}
			if !keeps && d > at {
				s.Out[0].Dim--
			}
			list = append(list, s)
		}
		return list
	}}
}

// written is the rule of an op that writes where indices say along the dimension that argument i says: it can be divided along the others.
// Indices with one dimension are the same everywhere; those with as many as the tensor, and the values, are divided as it is.
func written(i int) *Rule {
	return &Rule{Strategies: func(u *Use) (list []Strategy) {
		x := u.Tensors[0]
		at := dimOf(argument[int](u, i), x.Dim())
		if at < 0 {
			return nil
		}
	dims:
		for d, n := range x.Shape() {
			if d == at || n <= 1 {
				continue
			}
			s := Strategy{In: u.replicated(), Out: []core.Placement{core.Shard(d)}, Size: n}
			s.In[0] = core.Shard(d)
			for j, t := range u.Tensors[1:] {
				switch {
				case t == nil || t.IsNumber() || t.Dim() == 0 || j == 0 && t.Dim() == 1 && x.Dim() > 1:
				case t.Dim() != x.Dim() || t.Shape()[d] != n:
					continue dims
				default:
					s.In[j+1] = core.Shard(d)
				}
			}
			list = append(list, s)
		}
		return list
	}}
}

// renormSpread is [EmbeddingRenormInPlace] for a matrix whose rows or columns ranks share: they all look at the norms of all rows, and each scales
// what it has.
func renormSpread(weight, input *core.Tensor, maxNorm, order float64) *core.Tensor {
	op := begin("renorm")
	if op.renorm(weight, order, maxNorm); op.err != nil {
		return op.fail()
	}
	var err error
	core.WithMode(func(m core.Mode) core.Mode { return m.WithReplicates(true) }, func() {
		core.Tidy(func() {
			if p := input.Parts(); p != nil {
				input = p.Whole()
			}
			long := core.Int64
			rows := TensorOptions{Device: input.Device(), DType: &long}
			used := Gt(Reshape(IndexFillInPlace(ZerosWith([]int{weight.Size(0)}, rows), 0, Ravel(input), core.IntNum(1)), -1, 1), core.Num(0))
			norm := VectorNorm(weight, order, []int{1}, keep)
			scale := Where(LogicalAnd(Gt(norm, core.Num(maxNorm)), used), Div(core.Num(maxNorm), Add(norm, core.Num(1e-7))), core.Num(1))
			err = MulInPlace(weight, scale).Err()
		})
	})
	if err != nil {
		return core.ErrorTensor(err)
	}
	return weight
}

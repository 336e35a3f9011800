package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// viewRules returns the rules of views and of what else moves elements.
func viewRules() map[string]*Rule {
	move := func(to func(u *Use, shape []int) []int) *Rule { return linear(dims(to)) }
	// except is for ops that keep all dimensions, and work along some.
	except := func(i ...int) *Rule { return linear(worksAlong(i...)) }
	out := map[string]*Rule{
		"slice": except(1), "narrow": except(1), "narrow_copy": except(1), "chunk": except(2), "split": except(2), "split_with_sizes": except(2),
		"tensor_split": except(2), "tensor_split_at": except(2), "unfold": except(1), "rot90": except(2),
		"select": linear(without(1, func(*Use) bool { return false })),
		"unbind": linear(without(1, func(*Use) bool { return false })),
	}
	all := func(u *Use, start, length, step int) []*core.Tensor {
		x := u.Tensors[0]
		if d := dimOf(argument[int](u, 1), x.Dim()); d < 0 || x.Dim() == 0 || start != 0 || step != 1 || length != x.Shape()[d] {
			return nil
		}
		return []*core.Tensor{Reshape(x, x.Shape()...)} // wherever the ranks' parts lie
	}
	out["slice"].Compose = func(u *Use) []*core.Tensor {
		step, d := argument[int](u, 4), dimOf(argument[int](u, 1), u.Tensors[0].Dim())
		if d < 0 || step != 1 || u.Tensors[0].Dim() == 0 {
			return nil
		}
		start, length := sliceBounds(argument[int](u, 2), argument[int](u, 3), step, u.Tensors[0].Shape()[d])
		return all(u, start, length, step)
	}
	out["narrow"].Compose = func(u *Use) []*core.Tensor { return all(u, argument[int](u, 2), argument[int](u, 3), 1) }
	out["unsqueeze"] = move(func(u *Use, shape []int) []int {
		at := dimOf(argument[int](u, 1), len(shape)+1)
		to := same(len(shape))
		for d := range to {
			if d >= at {
				to[d]++
			}
		}
		return to
	})
	out["squeeze"] = move(func(u *Use, shape []int) []int {
		gone := reduced(u, 1, len(shape))
		to, at := make([]int, len(shape)), 0
		for d, n := range shape {
			if to[d] = at; n != 1 || !slices.Contains(gone, d) {
				at++
			}
		}
		return to
	})
	out["squeeze"].Compose = func(u *Use) []*core.Tensor {
		x, given := u.Tensors[0], argument[[]int](u, 1)
		var ones []int
		for _, d := range reduced(u, 1, x.Dim()) {
			if x.Shape()[d] == 1 {
				ones = append(ones, d)
			}
		}
		switch {
		case len(ones) == 0:
			return []*core.Tensor{x.Alias(true)}
		case len(ones) == len(given):
			return nil
		}
		return []*core.Tensor{Squeeze(x, ones...)} // a part may have one element where the whole has more
	}
	permuted := func(order []int) []int {
		to := make([]int, len(order))
		for e, d := range order {
			if d = dimOf(d, len(order)); d >= 0 {
				to[d] = e
			}
		}
		return to
	}
	out["permute"] = move(func(u *Use, shape []int) []int {
		if order := argument[[]int](u, 1); len(order) == len(shape) {
			return permuted(order)
		}
		return nil
	})
	swap := func(d, e int, n int) []int {
		to := same(n)
		if d, e = dimOf(d, n), dimOf(e, n); d < 0 || e < 0 || n == 0 {
			return nil
		}
		to[d], to[e] = e, d
		return to
	}
	out["transpose"] = move(func(u *Use, shape []int) []int { return swap(argument[int](u, 1), argument[int](u, 2), len(shape)) })
	out["swapaxes"] = out["transpose"]
	out["t"] = move(func(_ *Use, shape []int) []int {
		if len(shape) < 2 {
			return same(len(shape))
		}
		return swap(0, 1, len(shape))
	})
	out["mT"] = move(func(_ *Use, shape []int) []int { return swap(-2, -1, len(shape)) })
	out["movedim"] = move(func(u *Use, shape []int) []int {
		from, to := argument[[]int](u, 1), argument[[]int](u, 2)
		n := len(shape)
		order := make([]int, n)
		for i := range order {
			order[i] = -1
		}
		used := make([]bool, n)
		if len(from) != len(to) {
			return nil
		}
		for i := range from {
			f, t := dimOf(from[i], n), dimOf(to[i], n)
			if f < 0 || t < 0 {
				return nil
			}
			order[t], used[f] = f, true
		}
		next := 0
		for i := range order {
			if order[i] >= 0 {
				continue
			}
			for used[next] {
				next++
			}
			order[i] = next
			next++
		}
		return permuted(order)
	})
	// Shapes.
	view := func(to func(u *Use, shape []int) []int) *Rule {
		return &Rule{View: func(u *Use) []int { return to(u, u.Tensors[0].Shape()) }}
	}
	reshape := view(func(u *Use, shape []int) []int { return SizesFor(argument[[]int](u, 1), core.Numel(shape)) })
	reshape.Shape, reshape.Rest = 2, true
	out["reshape"], out["view"] = reshape, reshape
	out["flatten"] = view(func(u *Use, shape []int) []int {
		n := len(shape)
		start, end := dimOf(argument[int](u, 1), n), dimOf(argument[int](u, 2), n)
		if start < 0 || end < start || n == 0 {
			return nil
		}
		return slices.Concat(shape[:start], []int{core.Numel(shape[start : end+1])}, shape[end+1:])
	})
	out["ravel"] = view(func(_ *Use, shape []int) []int { return []int{core.Numel(shape)} })
	out["unflatten"] = &Rule{Compose: func(u *Use) []*core.Tensor {
		x := u.Tensors[0]
		shape := x.Shape()
		at := dimOf(argument[int](u, 1), len(shape))
		if at < 0 || len(shape) == 0 {
			return nil
		}
		sizes := SizesFor(argument[[]int](u, 2), shape[at])
		if sizes == nil {
			return nil // the op says what is wrong
		}
		return []*core.Tensor{Reshape(x, slices.Concat(shape[:at], sizes, shape[at+1:])...)}
	}}
	out["expand"] = move(func(u *Use, shape []int) []int {
		to := same(len(shape))
		for d := range to {
			to[d] += len(argument[[]int](u, 1)) - len(shape)
		}
		return to
	})
	out["expand"].Shape = 2
	out["broadcast_to"] = out["expand"]
	return out
}

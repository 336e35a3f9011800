package vmap

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// viewRules are those of views and of what else moves elements.
func viewRules(add func(r rule, names string)) {
	add(along(1), "slice narrow narrow_copy select unbind unfold")
	add(along(2), "chunk split split_with_sizes tensor_split tensor_split_at rot90")
	add(along(1, 2), "transpose swapaxes movedim")
	add(along(2, 3), "diagonal")
	add(where{args: []int{1}, more: 1}.rule, "unsqueeze")
	add(where{args: []int{2, 3}, more: 1}.rule, "diag_embed")
	add(unflattened, "unflatten")
	add(composed(func(u *use) *core.Tensor {
		t, ones := u.tensors[0], []int(nil)
		given := argument[[]int](u, 1)
		for d, n := range t.Shape() {
			if n == 1 && (len(given) == 0 || slices.ContainsFunc(given, func(g int) bool { return g == d || g == d-t.Dim() })) {
				ones = append(ones, d+1)
			}
		}
		for _, g := range given {
			if _, err := core.WrapDim(u.Op, g, t.Dim()); err != nil {
				return core.ErrorTensor(err)
			}
		}
		if len(ones) == 0 {
			return t.Alias(true)
		}
		return u.with(op.Squeeze(u.whole[0], ones...))
	}), "squeeze")
	add(composed(func(u *use) *core.Tensor {
		switch t := u.whole[0]; t.Dim() {
		case 3:
			return u.with(op.Transpose(t, 1, 2))
		case 1, 2:
			return u.with(t.Alias(true))
		}
		return nil
	}), "t")
	add(composed(func(u *use) *core.Tensor {
		order := slices.Clone(argument[[]int](u, 1))
		if len(order) != u.tensors[0].Dim() {
			return nil
		}
		for i := range order {
			d, err := u.shifted(order[i], max(len(order), 1))
			if err != nil {
				return core.ErrorTensor(err)
			}
			order[i] = d
		}
		return u.with(op.Permute(u.whole[0], append([]int{0}, order...)...))
	}), "permute")
	add(composed(func(u *use) *core.Tensor {
		shape := op.SizesFor(argument[[]int](u, 1), u.tensors[0].Numel())
		if shape == nil {
			return nil
		}
		shape = append([]int{u.size}, shape...)
		if u.Op == "view" {
			return u.with(op.View(u.whole[0], shape...))
		}
		return u.with(op.Reshape(u.whole[0], shape...))
	}), "reshape view")
	add(composed(func(u *use) *core.Tensor { return op.Reshape(u.tensors[0], u.tensors[1].Shape()...) }), "reshape_as")
	add(composed(func(u *use) *core.Tensor { return op.View(u.tensors[0], u.tensors[1].Shape()...) }), "view_as")
	add(composed(func(u *use) *core.Tensor { return op.Expand(u.tensors[0], u.tensors[1].Shape()...) }), "expand_as")
	add(composed(func(u *use) *core.Tensor {
		shape := argument[[]int](u, 1)
		if u.tensors[0].Dim() > len(shape) {
			return nil
		}
		return u.with(op.Expand(widened(u.whole[0], len(shape)), append([]int{u.size}, shape...)...))
	}), "expand broadcast_to")
	add(func(u *use) []*core.Tensor {
		shape, err := common(u.Op, u.tensors)
		if err != nil {
			return []*core.Tensor{core.ErrorTensor(err)}
		}
		out := make([]*core.Tensor, len(u.tensors))
		for i := range out {
			if u.batched[i] {
				out[i] = op.Expand(u.tensors[i], shape...)
			} else {
				out[i] = u.with(op.Expand(u.repeated(u.tensors[i]), append([]int{u.size}, shape...)...))
				if u.tensors[i].Dim() < len(shape) {
					out[i] = op.Expand(u.with(u.repeated(u.tensors[i])), shape...)
				}
			}
		}
		return out
	}, "broadcast_tensors")
	add(composed(func(u *use) *core.Tensor { return u.with(op.Reshape(u.whole[0], u.size, -1)) }), "ravel")
	add(func(u *use) []*core.Tensor {
		if u.tensors[0].Dim() == 0 {
			return []*core.Tensor{u.with(op.Unsqueeze(u.whole[0], 1))}
		}
		return along(1, 2)(u)
	}, "flatten")
	add(composed(func(u *use) *core.Tensor {
		repeats := argument[[]int](u, 1)
		if len(repeats) < u.tensors[0].Dim() {
			return nil
		}
		return u.with(op.Repeat(widened(u.whole[0], len(repeats)), append([]int{1}, repeats...)...))
	}), "repeat")
	add(composed(func(u *use) *core.Tensor {
		t := u.tensors[0]
		if len(argument[[]int](u, 2)) == 0 {
			flat := op.Reshape(u.whole[0], u.size, -1)
			return u.with(op.Reshape(op.Roll(flat, argument[[]int](u, 1), []int{1}), u.whole[0].Shape()...))
		}
		if t.Dim() == 0 {
			return nil
		}
		return along(2)(u)[0]
	}), "roll")
	add(composed(func(u *use) *core.Tensor {
		t := u.whole[0]
		stride := u.tensors[0].Numel()
		if t.Parts() == nil {
			if !core.IsContiguous(t.Shape()[1:], t.Strides()[1:]) {
				return core.ErrorTensor(core.Errorf(core.NotImplemented, u.Op, "not possible inside vmap for a tensor whose parts do not lie row by row in memory: clone it first"))
			}
			stride = t.Strides()[0]
		}
		lead := func(v int, list []int) []int { return append([]int{v}, list...) }
		return u.with(op.AsStrided(t, lead(u.size, argument[[]int](u, 1)), lead(stride, argument[[]int](u, 2)), argument[int](u, 3)))
	}), "as_strided")
	add(joined(0), "cat")
	add(joined(1), "stack")
	sections := func(dim func(t *core.Tensor) int) rule {
		return func(u *use) []*core.Tensor {
			t, n := u.tensors[0], argument[int](u, 1)
			d := dim(t)
			if d < 0 || n < 1 || t.Size(d)%n != 0 || t.Size(d) == 0 {
				return nil
			}
			return op.Split(t, t.Size(d)/n, d)
		}
	}
	least := func(n, d int) func(t *core.Tensor) int {
		return func(t *core.Tensor) int {
			if t.Dim() < n {
				return -1
			}
			return d
		}
	}
	add(sections(least(2, 0)), "vsplit")
	add(sections(least(2, 1)), "hsplit")
	add(sections(least(3, 2)), "dsplit")
	// Tensors with fewer dimensions get some: each list says where the sizes stand in the shape, by how many there are.
	stack := func(rank, dim int, fewer ...[]int) rule {
		return composed(func(u *use) *core.Tensor {
			list := slices.Clone(u.tensors)
			for i, t := range list {
				if n := t.Dim(); n < rank {
					shape := slices.Clone(fewer[n])
					for j, at := range shape {
						if at > 0 {
							shape[j] = t.Size(at - 1)
						} else {
							shape[j] = 1
						}
					}
					list[i] = op.Reshape(t, shape...)
				}
			}
			return op.Cat(list, dim)
		})
	}
	add(stack(2, 0, []int{0, 0}, []int{0, 1}), "vstack")
	add(stack(2, 1, []int{0, 0}, []int{1, 0}), "column_stack")
	add(stack(3, 2, []int{0, 0, 0}, []int{0, 1, 0}, []int{1, 2, 0}), "dstack")
	add(func(u *use) []*core.Tensor {
		if slices.ContainsFunc(u.tensors, func(t *core.Tensor) bool { return t.Dim() > 1 }) {
			return stack(2, 1, []int{0, 0}, []int{1, 0})(u)
		}
		return stack(1, 0, []int{0})(u)
	}, "hstack")
}

// common returns the shape to which tensors broadcast.
func common(name string, tensors []*core.Tensor) ([]int, error) {
	var shape []int
	for _, t := range tensors {
		own := t.Shape()
		if len(own) > len(shape) {
			shape = append(slices.Repeat([]int{1}, len(own)-len(shape)), shape...)
		}
		for i, n := range own {
			switch at := &shape[len(shape)-len(own)+i]; {
			case *at == 1:
				*at = n
			case n != 1 && n != *at:
				return nil, core.Errorf(core.ShapeError, name, "shapes do not broadcast, got %v and %v", shape, own)
			}
		}
	}
	return shape, nil
}

// unflattened is for unflatten.
func unflattened(u *use) []*core.Tensor {
	if u.tensors[0].Dim() == 0 {
		return nil
	}
	return along(1)(u)
}

// joined is the rule of operations that join tensors along a dimension, one of more than the tensors have.
func joined(more int) rule {
	return func(u *use) []*core.Tensor {
		for _, t := range u.tensors {
			if t.Dim() != u.tensors[0].Dim() {
				return nil
			}
		}
		if more == 0 && u.rank() == 0 {
			return nil
		}
		return where{args: []int{1}, more: more}.rule(u)
	}
}

package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// A labelled tensor has a name for each of its dimensions. Dimensions of two tensors with the same name have the same
// size, or size 1 and broadcast.
type labelled struct {
	*core.Tensor
	labels []int
}

// only splits x's labels into those that keep accepts and the others.
func (x labelled) split(keep func(label int) bool) (yes, no []int) {
	for _, l := range x.labels {
		if keep(l) {
			yes = append(yes, l)
		} else {
			no = append(no, l)
		}
	}
	return yes, no
}

func (x labelled) dim(label int) int { return slices.Index(x.labels, label) }

func (x labelled) has(label int) bool { return slices.Contains(x.labels, label) }

func (x labelled) size(label int) int { return x.Size(x.dim(label)) }

func (x labelled) sizes(labels []int) []int {
	s := make([]int, len(labels))
	for i, l := range labels {
		s[i] = x.size(l)
	}
	return s
}

// sumOver sums over the dimensions with the given labels. Sums of integers are int64, as [Sum]'s are.
func (x labelled) sumOver(labels []int) labelled {
	if len(labels) == 0 {
		return x
	}
	dims := make([]int, len(labels))
	for i, l := range labels {
		dims[i] = x.dim(l)
	}
	_, rest := x.split(func(l int) bool { return slices.Contains(labels, l) })
	return labelled{Sum(x.Tensor, dims, false), rest}
}

// dropOnes takes the dimensions of size 1 away that broadcast to a larger one of other.
func (x labelled) dropOnes(other labelled) labelled {
	drop := func(l int) bool { return x.size(l) == 1 && other.has(l) && other.size(l) != 1 }
	gone, rest := x.split(drop)
	if len(gone) == 0 {
		return x
	}
	return labelled{Reshape(x.Tensor, x.sizes(rest)...), rest}
}

// order returns x with its dimensions in the order of labels.
func (x labelled) order(labels []int) *core.Tensor {
	if slices.Equal(labels, x.labels) {
		return x.Tensor
	}
	dims := make([]int, len(labels))
	for i, l := range labels {
		dims[i] = x.dim(l)
	}
	return Permute(x.Tensor, dims...)
}

// joins reports whether groups of x's dimensions can be made one each without a copy.
func (x labelled) joins(groups ...[]int) bool {
	var shape, strides, joined []int
	for _, g := range groups {
		n := 1
		for _, l := range g {
			d := x.dim(l)
			shape, strides = append(shape, x.Shape()[d]), append(strides, x.Strides()[d])
			n *= x.Shape()[d]
		}
		joined = append(joined, n)
	}
	_, ok := viewStrides(shape, strides, joined)
	return ok
}

// stack returns x as a stack of matrices: the dimensions of each group made one.
func (x labelled) stack(groups ...[]int) *core.Tensor {
	var shape, all []int
	for _, g := range groups {
		shape = append(shape, core.Numel(x.sizes(g)))
		all = append(all, g...)
	}
	return Reshape(x.order(all), shape...)
}

// contraction multiplies x and y and sums over the labels that keep does not accept. The result's labels are those of both
// first, then those of x, then those of y.
func contraction(x, y labelled, keep func(label int) bool) labelled {
	for _, t := range []labelled{x, y} {
		if t.Err() != nil {
			return t
		}
	}
	x, y = x.dropOnes(y), y.dropOnes(x)
	if x.Err() != nil || y.Err() != nil {
		return labelled{core.ErrorTensor(firstError(x.Tensor, y.Tensor)), nil}
	}
	_, alone := x.split(func(l int) bool { return keep(l) || y.has(l) })
	x = x.sumOver(alone)
	_, alone = y.split(func(l int) bool { return keep(l) || x.has(l) })
	y = y.sumOver(alone)
	if x.Err() == nil && y.Err() == nil { // one of which may be a sum
		d := core.Promote(x.DType(), y.DType())
		x.Tensor, y.Tensor = castTo(x.Tensor, d), castTo(y.Tensor, d)
	}
	if x.Err() != nil || y.Err() != nil {
		return labelled{core.ErrorTensor(firstError(x.Tensor, y.Tensor)), nil}
	}
	both, left := x.split(y.has)
	batch, summed := labelled{x.Tensor, both}.split(keep)
	_, right := y.split(x.has)
	labels := slices.Concat(batch, left, right)
	shape := slices.Concat(x.sizes(batch), x.sizes(left), y.sizes(right))
	if len(summed) == 0 {
		ones := func(n int) []int { return slices.Repeat([]int{1}, n) }
		xs := Reshape(x.order(slices.Concat(batch, left)), slices.Concat(x.sizes(batch), x.sizes(left), ones(len(right)))...)
		ys := Reshape(y.order(slices.Concat(batch, right)), slices.Concat(y.sizes(batch), ones(len(left)), y.sizes(right))...)
		return labelled{Mul(xs, ys), labels}
	}
	// Either operand may be taken transposed, if that saves copying it.
	f := plainForms[0]
	f.ta = !x.joins(batch, left, summed) && x.joins(batch, summed, left)
	f.tb = !y.joins(batch, summed, right) && y.joins(batch, right, summed)
	var xs, ys *core.Tensor
	if f.ta {
		xs = x.stack(batch, summed, left)
	} else {
		xs = x.stack(batch, left, summed)
	}
	if f.tb {
		ys = y.stack(batch, right, summed)
	} else {
		ys = y.stack(batch, summed, right)
	}
	return labelled{Reshape(product("matmul", xs, ys, f), shape...), labels}
}

func firstError(tensors ...*core.Tensor) error {
	for _, t := range tensors {
		if err := t.Err(); err != nil {
			return err
		}
	}
	return nil
}

// TensorDot returns the sum of the products of x's and y's elements over pairs of dimensions: dimsX[i] of x with dimsY[i]
// of y. The result has the other dimensions of x, then those of y.
func TensorDot(x, y *core.Tensor, dimsX, dimsY []int) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "tensordot", x, y, dimsX, dimsY)
	}
	op := begin("tensordot", &x, &y)
	op.multipliable(x, y)
	if op.err == nil && len(dimsX) != len(dimsY) {
		op.failf(core.ShapeError, "got %d dimensions %v of the first tensor and %d %v of the second", len(dimsX), dimsX, len(dimsY), dimsY)
	}
	if op.err != nil {
		return op.fail()
	}
	xl, yl := labelled{x, make([]int, x.Dim())}, labelled{y, make([]int, y.Dim())}
	for i := range xl.labels {
		xl.labels[i] = i
	}
	for i := range yl.labels {
		yl.labels[i] = x.Dim() + i
	}
	seenX, seenY := map[int]bool{}, map[int]bool{}
	for i := range dimsX {
		dx, dy := op.dim(dimsX[i], x), op.dim(dimsY[i], y)
		switch {
		case op.err != nil:
			return op.fail()
		case x.Dim() == 0 || y.Dim() == 0:
			op.failf(core.ShapeError, "a tensor without dimensions has none to sum over, got shapes %s", shapes(x, y))
			return op.fail()
		case seenX[dx] || seenY[dy]:
			op.failf(core.ValueError, "a dimension appears twice in %v or %v", dimsX, dimsY)
		case x.Size(dx) != y.Size(dy) && x.Size(dx) != 1 && y.Size(dy) != 1:
			op.failf(core.ShapeError, "dimension %d of %v does not fit dimension %d of %v", dx, x.Shape(), dy, y.Shape())
		}
		seenX[dx], seenY[dy] = true, true
		yl.labels[dy] = dx
	}
	return op.compose(func() *core.Tensor {
		return castTo(contraction(xl, yl, func(l int) bool { return l >= x.Dim() || !seenX[l] }).Tensor, x.DType())
	})
}

package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A selection is the use of index tensors on some dimensions of a tensor. Their shapes broadcast; the dimensions of the
// common shape take the place of the indexed ones in the result.
type selection struct {
	name  string
	dims  []int // the indexed dimensions
	index []*core.Tensor
	at    int   // where the dimensions of the indices begin in the result
	shape []int // the common shape of the indices
	wrap  bool  // whether negative indices count from the end
}

// with returns the selection with other index tensors, of the same shapes.
func (s *selection) with(ctx *core.BackwardContext) *selection {
	c := *s
	c.index = make([]*core.Tensor, len(s.dims))
	for i := range c.index {
		c.index[i] = ctx.Saved(i)
	}
	return &c
}

// saved returns what a node keeps of the selection, whose tensors it saves.
func (s *selection) saved() *selection {
	c := *s
	c.index = nil
	return &c
}

// rest returns the dimensions of x that are not indexed.
func (s *selection) rest(x *core.Tensor) []int {
	out := make([]int, 0, x.Dim())
	for d := range x.Shape() {
		if !slices.Contains(s.dims, d) {
			out = append(out, d)
		}
	}
	return out
}

// result returns the shape of x indexed.
func (s *selection) result(x *core.Tensor) []int {
	rest := s.rest(x)
	out := make([]int, 0, len(rest)+len(s.shape))
	for _, d := range rest[:s.at] {
		out = append(out, x.Shape()[d])
	}
	out = append(out, s.shape...)
	for _, d := range rest[s.at:] {
		out = append(out, x.Shape()[d])
	}
	return out
}

// order returns the dimensions of a result with those of the indices in front.
func (s *selection) order(dims int) []int {
	n := len(s.shape)
	out := make([]int, 0, dims)
	for i := range n {
		out = append(out, s.at+i)
	}
	for i := range dims {
		if i < s.at || i >= s.at+n {
			out = append(out, i)
		}
	}
	return out
}

// reordered returns a tensor over t's memory with its dimensions in the given order, outside the graph.
func (op *opContext) reordered(t *core.Tensor, order []int) *core.Tensor {
	shape, strides := make([]int, len(order)), make([]int, len(order))
	for i, d := range order {
		shape[i], strides[i] = t.Shape()[d], t.Strides()[d]
	}
	return core.WrapTensor(op.mode, t.Storage(), t.DType(), shape, strides, t.Offset())
}

// repeated returns a tensor over t's memory broadcast to shape, outside the graph.
func (op *opContext) repeated(t *core.Tensor, shape []int) *core.Tensor {
	return core.WrapTensor(op.mode, t.Storage(), t.DType(), shape, core.ExpandStrides(t.Shape(), t.Strides(), shape), t.Offset())
}

// launch runs a kernel on x and a tensor of the result's shape, or a number. Dimensions move so that the indexed ones,
// and those of the indices, are in front.
func (s *selection) launch(op *opContext, x, result *core.Tensor, fill func(x, result *core.Tensor) *core.Call) {
	temps := []*core.Tensor{op.reordered(x, append(slices.Clone(s.dims), s.rest(x)...))}
	if !result.IsNumber() {
		result = op.reordered(result, s.order(result.Dim()))
		temps = append(temps, result)
	}
	first := len(temps)
	for _, t := range s.index {
		temps = append(temps, op.repeated(t, s.shape))
	}
	c := fill(temps[0], result)
	for _, t := range temps[first:] {
		c.In(t)
	}
	c.Work = 2*core.Numel(s.shape) + result.Numel()
	op.launch(c)
	for _, t := range temps {
		t.Release()
	}
}

// check fails unless the index tensors can index x. begin was given them.
func (s *selection) check(op *opContext, x *core.Tensor) {
	for _, t := range s.index {
		op.indexDType(t)
	}
	shape := op.broadcast(s.index...)
	if op.err != nil {
		return
	}
	s.shape = shape
	result := s.result(x)
	if _, err := core.CheckShape(op.name, result, x.DType()); err != nil {
		op.check(err)
		return
	}
	if core.Numel(shape) == 0 {
		return
	}
	for _, d := range s.dims {
		if x.Shape()[d] == 0 {
			op.failf(core.IndexError, "dimension %d of shape %v has no elements to index", d, x.Shape())
		}
	}
}

// read returns x indexed.
func (s *selection) read(x *core.Tensor) *core.Tensor {
	op := begin(s.name).with(append([]*core.Tensor{x}, s.index...)...)
	s.check(&op, x)
	if op.err != nil {
		return op.fail()
	}
	out := op.out(x.DType(), s.result(x))
	if op.err != nil {
		return op.fail()
	}
	s.launch(&op, x, out, func(x, out *core.Tensor) *core.Call {
		return contract.SetIndex(op.call(contract.Index).Out(out).In(x), s.wrap, s.dims)
	})
	if op.grad {
		n := op.node(indexDeriv, x).Save(s.index...)
		n.Any = s.saved()
		op.attach(n, out)
	}
	return op.done(out)
}

func indexDeriv(ctx *core.BackwardContext) {
	g := ctx.Grad()
	s := ctx.Node.Any.(*selection).with(ctx)
	ctx.Set(0, s.writeInPlace(zerosFor(g, g.DType(), ctx.InputShape(0)), g, contract.ScatterAdd))
}

// values fails unless v, a number or a tensor of x's dtype, broadcasts to the result.
func (s *selection) values(op *opContext, x, v *core.Tensor) {
	if op.err != nil || v.IsNumber() {
		return
	}
	if v.DType() != x.DType() {
		op.failf(core.DTypeError, "the values must be %v like the tensor, got %v", x.DType(), v.DType())
		return
	}
	want := s.result(x)
	if shape, err := core.Broadcast(op.name, want, v.Shape()); err != nil || !slices.Equal(shape, want) {
		op.failf(core.ShapeError, "values of shape %v do not broadcast to the indexed shape %v", v.Shape(), want)
	}
}

// write returns x with values written, or combined, to where the indices say.
func (s *selection) write(x, v *core.Tensor, mode contract.ScatterMode) *core.Tensor {
	op := begin(s.name).with(append([]*core.Tensor{x, v}, s.index...)...)
	op.given(x, v)
	s.check(&op, x)
	v = op.asComplex(x, v)
	s.values(&op, x, v)
	if op.err != nil {
		return op.fail()
	}
	out := op.out(x.DType(), x.Shape())
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.Copy).Out(out).In(x))
	s.put(&op, out, v, mode, false)
	if op.grad && x.DType().Differentiable() {
		op.attach(s.putNode(&op, x, v, mode), out)
	}
	return op.done(out)
}

// writeInPlace changes x as write does and returns it.
func (s *selection) writeInPlace(x, v *core.Tensor, mode contract.ScatterMode) *core.Tensor {
	op := begin(s.name + "_").with(append([]*core.Tensor{x, v}, s.index...)...)
	op.given(x, v)
	s.check(&op, x)
	v = op.asComplex(x, v)
	s.values(&op, x, v)
	op.inPlace(x)
	if op.err != nil {
		return op.fail()
	}
	v = op.apart(x, v)
	for i, t := range s.index {
		s.index[i] = op.apart(x, t)
	}
	if op.err != nil {
		return op.fail()
	}
	s.put(&op, x, v, mode, true)
	op.changed(x)
	if op.grad && x.DType().Differentiable() {
		op.rebase(s.putNode(&op, x, v, mode), x)
	}
	return op.changedTo(x)
}

// put runs the kernel. A failure must fail a new tensor, but leave one that is changed in place as it was.
func (s *selection) put(op *opContext, x, v *core.Tensor, mode contract.ScatterMode, inPlace bool) {
	if !v.IsNumber() {
		v = op.repeated(v, s.result(x))
		defer v.Release()
	}
	if x.DType().IsComplex() && mode != contract.ScatterAssign && mode != contract.ScatterAdd {
		op.failf(core.DTypeError, "not defined for %v", x.DType())
	}
	s.launch(op, x, v, func(x, v *core.Tensor) *core.Call {
		c := contract.SetIndexPut(op.call(contract.IndexPut).Out(x).In(v), s.wrap, mode, s.dims)
		c.InPlace = inPlace
		return c
	})
}

func (s *selection) putNode(op *opContext, x, v *core.Tensor, mode contract.ScatterMode) *core.Node {
	if v.IsNumber() {
		v = nil
	}
	n := op.node(putDeriv, x, v).Save(s.index...)
	n.Any, n.Ints = s.saved(), []int{int(mode)}
	return n
}

func putDeriv(ctx *core.BackwardContext) {
	s, mode := ctx.Node.Any.(*selection).with(ctx), contract.ScatterMode(ctx.Node.Ints[0])
	if ctx.Needs(0) {
		if mode == contract.ScatterAdd {
			ctx.Set(0, ctx.Grad())
		} else {
			ctx.Set(0, s.write(ctx.Grad(), core.IntNum(0), contract.ScatterAssign))
		}
	}
	if ctx.Needs(1) {
		g := ctx.Grad()
		if mode == contract.ScatterAssign && core.Numel(ctx.InputShape(1)) == 1 {
			// One value that several indices write to the same place is there once.
			ctx.Set(1, sumTo(Sub(g, s.write(g, core.IntNum(0), contract.ScatterAssign)), ctx.InputShape(1)))
			return
		}
		ctx.Set(1, sumTo(s.read(g), ctx.InputShape(1)))
	}
}

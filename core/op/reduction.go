package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A reduction is what a reducing operation reduces over: the dimensions, counted from the front and sorted, and the
// shape that is left.
type reduction struct{ dims, shape []int }

// reduction returns the reduction of x over dims; none means all.
func (op *opContext) reduction(x *core.Tensor, dims []int, keepdim bool) reduction {
	dims = op.dims(dims, x)
	if op.err != nil {
		return reduction{}
	}
	shape := make([]int, 0, x.Dim())
	rest := dims
	for i, n := range x.Shape() {
		switch {
		case len(rest) == 0 || rest[0] != i:
			shape = append(shape, n)
			continue
		case keepdim:
			shape = append(shape, 1)
		}
		rest = rest[1:]
	}
	return reduction{dims, shape}
}

// count returns the number of elements of x that each result is made from.
func (r reduction) count(x *core.Tensor) int {
	n := 1
	for _, d := range r.dims {
		n *= x.Shape()[d]
	}
	return n
}

// nonempty fails if there is a result that would be made from no element at all.
func (op *opContext) nonempty(x *core.Tensor, r reduction) {
	if op.err == nil && core.Numel(r.shape) > 0 && r.count(x) == 0 {
		op.failf(core.IndexError, "no element to choose from in dimensions %v of shape %v", r.dims, x.Shape())
	}
}

// reduce launches kernel k on x and returns its result of dtype d.
func (op *opContext) reduce(k core.KernelID, x *core.Tensor, r reduction, d core.DType, attrs ...float64) *core.Tensor {
	out := op.outApart(d, r.shape, x)
	if op.err == nil {
		c := op.call(k).Out(out).In(x).Dims(r.dims).Float(attrs...)
		if (k == contract.Sum || k == contract.Mean) && out.Numel() == 1 && x.Contiguous() {
			c.Work /= 8 // nothing is written, and additions take less time than other functions
		}
		op.launch(c)
	}
	return out
}

// spread returns a view of t, reduced from a tensor of the given shape over dims, with its elements repeated to that
// shape.
func spread(t *core.Tensor, shape, dims []int) *core.Tensor {
	op := begin("expand", &t)
	if op.err != nil {
		return op.fail()
	}
	keepdim := t.Dim() == len(shape)
	strides := make([]int, len(shape))
	from, rest := 0, dims
	for i := range shape {
		if len(rest) > 0 && rest[0] == i {
			rest = rest[1:]
			if keepdim {
				from++
			}
			continue
		}
		strides[i] = t.Strides()[from]
		from++
	}
	return op.view(t, shape, strides, t.Offset(), spreadDeriv, func(n *core.Node) { n.Ints = dims })
}

func spreadDeriv(ctx *core.BackwardContext) {
	g := ctx.Grad()
	ctx.Set(0, sumRepeated(g, ctx.Node.Ints, ReduceOptions{KeepDim: g.Dim() == len(ctx.InputShape(0))}))
}

// sumTo returns t summed to shape, which broadcasts to t's.
func sumTo(t *core.Tensor, shape []int) *core.Tensor { return sumToAs(t, shape, nil) }

// sumToAs is sumTo with a result of dtype d, if it is not nil.
func sumToAs(t *core.Tensor, shape []int, d *core.DType) *core.Tensor {
	if t.Err() != nil || slices.Equal(t.Shape(), shape) {
		if d != nil {
			return castTo(t, *d)
		}
		return t
	}
	lead := t.Dim() - len(shape)
	dims := make([]int, 0, t.Dim())
	for i, n := range t.Shape() {
		if i < lead || shape[i-lead] != n {
			dims = append(dims, i)
		}
	}
	s := sumRepeated(t, dims, ReduceOptions{KeepDim: lead == 0, DType: d})
	if lead > 0 && s.Err() == nil && s.Dim() != len(shape) {
		return Reshape(s, shape...)
	}
	return s
}

// sumRepeated is SumWith for gradients, which often repeat one number, or one row, as expanded tensors do: what repeats is read once.
func sumRepeated(t *core.Tensor, dims []int, o ReduceOptions) *core.Tensor {
	if t.Err() != nil || t.Parts() != nil || !t.DType().IsFloat() {
		return SumWith(t, dims, o)
	}
	times, strides := 1, t.Strides()
	for _, d := range dims {
		if n := t.Size(d); n > 1 && strides[d] == 0 {
			t = Narrow(t, d, 0, 1)
			times *= n
		}
	}
	s := SumWith(t, dims, o)
	if times > 1 {
		s = Mul(s, core.IntNum(int64(times)))
	}
	return s
}

// keep makes a reduction leave dimensions of size 1.
var keep = ReduceOptions{KeepDim: true}

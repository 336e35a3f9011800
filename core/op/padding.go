package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// PadOptions are the options of [Pad].
type PadOptions struct {
	// Mode is "constant" (the default), "reflect", which mirrors at the border element without repeating it, "replicate",
	// which repeats it, or "circular", which goes on at the other end.
	Mode  string
	Value float64 // of constant padding
}

var padModes = map[string]contract.PadMode{"": contract.PadConstant, "constant": contract.PadConstant, "reflect": contract.PadReflect,
	"replicate": contract.PadReplicate, "circular": contract.PadCircular}

// A padding extends the last dimensions, of sizes in, to sizes out.
type padding struct {
	in, out, left []int
	mode          contract.PadMode
}

// Pad returns x with its last dimensions extended: pad has the number of elements in front of and behind the last
// dimension, then those of the one before it, and so on. Negative numbers cut elements off.
func Pad(x *core.Tensor, pad []int, o PadOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "pad", x, pad, o)
	}
	op := begin("pad").with(x)
	if o.Mode != "" && o.Mode != "constant" { // of which autocast casts the input
		op = begin("pad", &x)
	}
	p := op.padding(x, pad, o)
	if op.err == nil {
		op.check(holds("pad", x.DType(), core.Num(o.Value)))
	}
	if op.err != nil {
		return op.fail()
	}
	if o.Mode == "circular" && slices.ContainsFunc(pad, func(n int) bool { return n < 0 }) {
		return op.compose(func() *core.Tensor { return p.cropThenPad(x, pad, o) })
	}
	if x.DType().IsComplex() {
		if o.Value != 0 {
			return op.compose(func() *core.Tensor { return Complex(Pad(Real(x), pad, o), Pad(Imag(x), pad, PadOptions{Mode: o.Mode})) })
		}
		return op.compose(func() *core.Tensor {
			return onParts(x, func(parts *core.Tensor) *core.Tensor { return Pad(parts, append([]int{0, 0}, pad...), o) })
		})
	}
	return op.passOn(p.apply("pad", contract.Pad, x, p.out, o.Value))
}

// cropThenPad pads what negative numbers leave: circular padding repeats only that.
func (p *padding) cropThenPad(x *core.Tensor, pad []int, o PadOptions) *core.Tensor {
	rest := slices.Clone(pad)
	for i, n := range p.in {
		at := 2 * (len(p.in) - 1 - i)
		left, right := max(-pad[at], 0), max(-pad[at+1], 0)
		x = Narrow(x, i-len(p.in), left, n-left-right)
		rest[at], rest[at+1] = max(pad[at], 0), max(pad[at+1], 0)
	}
	return Pad(x, rest, o)
}

func (op *opContext) padding(x *core.Tensor, pad []int, o PadOptions) *padding {
	if op.err == nil && (x == nil || x.IsNumber()) {
		op.failf(core.TypeError, "want a tensor as the input")
	}
	mode, known := padModes[o.Mode]
	if !known {
		op.failf(core.ValueError, "unknown mode %q, want constant, reflect, replicate or circular", o.Mode)
	}
	if op.err != nil {
		return nil
	}
	nd := len(pad) / 2
	if len(pad)%2 != 0 || nd > x.Dim() {
		op.failf(core.ValueError, "pad is %v, want two numbers for each of at most %d dimensions", pad, x.Dim())
		return nil
	}
	p := &padding{in: slices.Clone(x.Shape()[x.Dim()-nd:]), out: make([]int, nd), left: make([]int, nd), mode: mode}
	for i, n := range p.in {
		left, right := pad[2*(nd-1-i)], pad[2*(nd-1-i)+1]
		p.left[i], p.out[i] = left, n+left+right
		switch {
		case p.out[i] < 0 || left < -n || right < -n:
			op.failf(core.ShapeError, "pad %v cuts more off than dimension %d of shape %v has", pad, i-nd, x.Shape())
		case mode == 1 && max(left, right) >= max(n, 1),
			mode == 2 && n == 0 && max(left, right) > 0,
			mode == 3 && max(left, right) > n:
			op.failf(core.ShapeError, "%s padding of %d and %d is too large for dimension %d of shape %v", o.Mode, left, right, i-nd, x.Shape())
		}
	}
	return p
}

func (p *padding) apply(name string, k core.KernelID, x *core.Tensor, sizes []int, value float64) *core.Tensor {
	op := begin(name).with(x)
	if op.err != nil {
		return op.fail()
	}
	if len(sizes) == 0 {
		return Clone(x)
	}
	y := op.out(x.DType(), resize(x, sizes))
	in := op.dense(x)
	if op.err != nil {
		return op.fail()
	}
	op.launch(contract.SetPad(op.call(k).Out(y).In(in).In(core.Num(value)), p.mode, p.left))
	if op.grad {
		deriv := padDeriv
		if k == contract.PadGrad {
			deriv = padGradDeriv
		}
		n := op.node(deriv, x)
		n.Any = p
		op.attach(n, y)
	}
	return op.done(y)
}

func padDeriv(ctx *core.BackwardContext) {
	p := ctx.Node.Any.(*padding)
	if p.mode != contract.PadConstant {
		ctx.Set(0, p.apply("pad_grad", contract.PadGrad, ctx.Grad(), p.in, 0))
		return
	}
	// The gradient of a constant padding is the opposite padding.
	back := &padding{in: p.out, out: p.in, left: make([]int, len(p.left))}
	for i, n := range p.left {
		back.left[i] = -n
	}
	ctx.Set(0, back.apply("pad_grad", contract.Pad, ctx.Grad(), back.out, 0))
}

func padGradDeriv(ctx *core.BackwardContext) {
	p := ctx.Node.Any.(*padding)
	ctx.Set(0, p.apply("pad", contract.Pad, ctx.Grad(), p.out, 0))
}

func init() {
	register("padding", Row{
		Name: "pad",
		Doc:  "The input with its last dimensions extended by elements in front and behind.",
		Func: Pad,
		Args: []Arg{
			{Name: "input"}, {Name: "pad", Doc: "how many elements in front of and behind the last dimension, then the one before it, and so on"},
			{Name: "mode", Field: "Mode", Default: "constant", Doc: "constant, reflect, replicate or circular"},
			{Name: "value", Field: "Value", Default: 0.0},
		},
		Memory: true,
		Samples: []Sample{
			{Name: "constant", Args: []any{Shaped(2, 3, 4), []int{1, 2}, PadOptions{Value: 0.5}}},
			{Name: "constant, all dimensions", Args: []any{Shaped(2, 3, 1, 2), []int{1, 0, 0, 2, 1, 1, 0, 3}, PadOptions{}}},
			{Name: "constant, cutting", Args: []any{Shaped(3, 5), []int{-1, 2, 1, -2}, PadOptions{}}},
			{Name: "reflect", Args: []any{Shaped(2, 3, 4), []int{3, 2, 1, 2}, PadOptions{Mode: "reflect"}}},
			{Name: "reflect, 1-d", Args: []any{Shaped(4), []int{2, -1}, PadOptions{Mode: "reflect"}}},
			{Name: "replicate", Args: []any{Shaped(1, 2, 3, 2), []int{2, 1, 0, 3, 1, 1}, PadOptions{Mode: "replicate"}}},
			{Name: "circular", Args: []any{Shaped(2, 3, 4), []int{4, 2, 1, 3}, PadOptions{Mode: "circular"}}},
			{Name: "nothing", Args: []any{Shaped(2, 3), []int{}, PadOptions{}}},
			{Name: "empty", Args: []any{Shaped(2, 0), []int{1, 2}, PadOptions{Value: 3}}},
		},
	})
}

package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
)

// An Elementwise is an operation that applies one program to every element of its inputs, which broadcast against one
// another. Bodies and derivatives are written in the language of package expr; the devices' kernels are generated from
// them.
type Elementwise struct {
	Name        string
	inPlaceName string
	outName     string // of the function whose result it makes, for [OfferOut]
	kernel      *expr.Kernel
	ids         [3]core.KernelID // of the kernel's instances, by compute type
	wraps       bool             // whether it computes uint64 as int64
	grads       []*gradient      // by input; nil where no gradient passes
	uses        []variant        // by the set of inputs that need a gradient
	complex     *complexForm     // nil if the operation is not defined for complex numbers
}

// A variant is an elementwise operation as recorded when a certain set of inputs needs a gradient.
type variant struct {
	op     *Elementwise
	saves  []int // the inputs that derivatives use; len(inputs) stands for the output
	output bool  // whether the output is among them
	again  bool  // whether derivatives compute the output again, from the input
}

// values returns the inputs and the output as far as derivatives use them, in slots. After an error the derivative has failed.
func (v *variant) values(ctx *core.BackwardContext, slots []*core.Tensor) ([]*core.Tensor, error) {
	values := slots[:len(v.op.kernel.In)+1]
	for slot, i := range v.saves {
		values[i] = ctx.Saved(slot)
		if err := values[i].Err(); err != nil {
			return nil, err
		}
	}
	if v.again {
		out := v.op.apply(nil, values[0])
		if err := out.Err(); err != nil {
			ctx.Fail(err)
			return nil, err
		}
		values[len(values)-1] = out
	}
	return values, nil
}

// fromInput returns the operation of one input with derivatives that need the input, not the output: that may be changed in place.
func (e *Elementwise) fromInput() *Elementwise {
	c, f := *e, *e.complex
	c.uses = []variant{{op: &c}, {op: &c, saves: []int{0}, again: true}}
	f.uses, c.complex = c.uses, &f
	return &c
}

// elementwise makes an operation. The signature and body are those of [expr.NewKernel]. grads holds the derivative for each
// input, a program over the inputs, the attributes, the output "out" and its gradient "grad"; "" where none passes. A
// mistake in one of them is a panic when the package is loaded.
func elementwise(name, signature, body string, grads ...string) *Elementwise {
	k, err := expr.NewKernel(name, signature, body)
	if err != nil {
		panic(err)
	}
	e := &Elementwise{Name: name, inPlaceName: name + "_", outName: name, kernel: k, grads: make([]*gradient, len(k.In))}
	e.ids, e.wraps = kernelIDs(k), k.Program.Wraps()
	for _, id := range e.ids {
		elementwiseKernels[id] = true
	}
	for i, src := range grads {
		if src == "" {
			continue
		}
		if e.grads[i], err = newGradient(k, k.In[i].Name, src); err != nil {
			panic(err)
		}
	}
	e.uses = e.variants(e.grads)
	elementwiseOps[name] = e
	return e
}

// elementwiseKernels has the kernels of operations, and those of copies.
var elementwiseKernels = map[core.KernelID]bool{contract.Copy: true, contract.Fill: true}

// IsElementwise reports whether an element that the kernel writes depends on nothing but the inputs' elements in its place.
func IsElementwise(k core.KernelID) bool { return elementwiseKernels[k] }

// elementwiseOps finds the operations that the functions of derivatives stand for.
var elementwiseOps = map[string]*Elementwise{}

func kernelIDs(k *expr.Kernel) (ids [3]core.KernelID) {
	for _, t := range []expr.Type{expr.F32, expr.F64, expr.I64} {
		ids[t] = core.Kernel(k.Instance(t))
	}
	return ids
}

// variants returns what the operation saves for derivatives, by the set of inputs that need a gradient.
func (e *Elementwise) variants(grads []*gradient) []variant {
	list := make([]variant, 1<<len(e.kernel.In))
	for set := range list {
		list[set] = e.variant(grads, set)
	}
	return list
}

func (e *Elementwise) variant(grads []*gradient, set int) variant {
	v := variant{op: e}
	uses := func(name string) bool {
		return slices.ContainsFunc(grads, func(g *gradient) bool {
			return g != nil && set>>g.input&1 != 0 && g.program.Uses(name)
		})
	}
	for i, p := range e.kernel.In {
		if uses(p.Name) {
			v.saves = append(v.saves, i)
		}
	}
	if v.output = uses("out"); v.output {
		v.saves = append(v.saves, len(e.kernel.In))
	}
	return v
}

// Kernels returns the kernels of the operation and of its derivatives.
func (e *Elementwise) Kernels() []*expr.Kernel {
	list := []*expr.Kernel{e.kernel}
	for _, g := range e.grads {
		if g != nil && g.kernel != nil {
			list = append(list, g.kernel)
		}
	}
	if e.complex != nil {
		list = append(list, e.complex.kernel)
	}
	return list
}

// ElementwiseAttributes returns the names of the numbers, which are not tensors, that operations on elements take, by their names.
func ElementwiseAttributes() map[string][]string {
	out := map[string][]string{}
	for name, e := range elementwiseOps {
		out[name] = e.kernel.Attrs
	}
	return out
}

// Body returns the program that the operation applies, as source.
func (e *Elementwise) Body() string { return e.kernel.Program.String() }

// apply applies the operation out of place.
func (e *Elementwise) apply(attrs []float64, in ...*core.Tensor) *core.Tensor {
	if parts := distributed(in...); parts != nil {
		return parts.Apply(core.Application{Op: e.Name, Args: anys(in), Each: true, Attrs: attrs, Call: func(args []any) []*core.Tensor {
			return []*core.Tensor{e.apply(attrs, tensorsOf(args)...)}
		}})[0]
	}
	op := begin(e.Name)
	in = op.castList(in)
	op = op.each(in...)
	return e.run(&op, attrs, in)
}

// run is the rest of apply, for an op that has begun.
func (e *Elementwise) run(op *opContext, attrs []float64, in []*core.Tensor) *core.Tensor {
	if op.err == nil && isComplex(in...) {
		if in = e.truths(op, in); isComplex(in...) {
			return e.runComplex(op, attrs, in)
		}
	}
	d := e.dtype(op, in)
	e.fit(op, d, attrs)
	result := d
	if e.kernel.Program.Results[0].Kind() == expr.Logic {
		result, in = core.Bool, op.rounded(d, in)
	}
	out := op.outOfEach(e.outName, result, op.commonShape(in), in)
	if op.err != nil {
		return op.fail()
	}
	c := op.call(e.ids[computeType(d)]).Out(out)
	e.fill(c, d, attrs, in)
	op.launch(c)
	if op.grad {
		if n := e.record(op, attrs, in, in, out); n != nil {
			op.attach(n, out)
		}
	}
	return op.done(out)
}

// applyInPlace applies the operation and puts the result in t, its first input.
func (e *Elementwise) applyInPlace(attrs []float64, t *core.Tensor, others ...*core.Tensor) *core.Tensor {
	in := append([]*core.Tensor{t}, others...)
	if parts := distributed(in...); parts != nil {
		return parts.Apply(core.Application{Op: e.inPlaceName, Args: anys(in), Each: true, Attrs: attrs, Call: func(args []any) []*core.Tensor {
			in := tensorsOf(args)
			return []*core.Tensor{e.applyInPlace(attrs, in[0], in[1:]...)}
		}})[0]
	}
	if isComplex(in...) && !e.staysComplex(in) {
		return replace(e.inPlaceName, func(x *core.Tensor) *core.Tensor {
			return e.apply(attrs, append([]*core.Tensor{x}, others...)...)
		}, t, others...)
	}
	op := begin(e.inPlaceName).each(in...)
	if isComplex(in...) {
		return e.runComplexInPlace(&op, attrs, in)
	}
	op.inPlace(t)
	d := e.dtype(&op, in)
	e.fit(&op, d, attrs)
	op.holds(t, op.commonShape(in))
	if op.err == nil && class(d) > class(t.DType()) {
		op.failf(core.DTypeError, "a result of %v can't be cast to %v, the tensor's dtype", d, t.DType())
	}
	if op.err != nil {
		return op.fail()
	}
	if e.kernel.Program.Results[0].Kind() == expr.Logic {
		in = op.rounded(d, in)
	}
	values := op.aside(in, e.grads, e.uses)
	if op.err != nil {
		return op.fail()
	}
	c := op.call(e.ids[computeType(d)]).Out(t)
	c.InPlace = true
	e.fill(c, d, attrs, in)
	op.launch(c)
	op.changed(t)
	if op.grad {
		if n := e.record(&op, attrs, in, values, t); n != nil {
			op.rebase(n, t)
		}
	}
	return op.done(t)
}

// holds fails unless t has the shape of what is to be written to it.
func (op *opContext) holds(t *core.Tensor, shape []int) {
	if op.err == nil && !slices.Equal(shape, t.Shape()) {
		op.failf(core.ShapeError, "a tensor of shape %v cannot hold the result of shape %v", t.Shape(), shape)
	}
}

// aside prepares the inputs of an operation that writes to the first of them: those that lie in its memory in another way become copies,
// since the kernel must not read what it has already written. It returns the values that the derivative sees.
func (op *opContext) aside(in []*core.Tensor, grads []*gradient, uses []variant) []*core.Tensor {
	t := in[0]
	for i, x := range in[1:] {
		if !x.IsNumber() && x.Storage() == t.Storage() && !(x.Offset() == t.Offset() && x.DType() == t.DType() && x.SameLayout(t)) {
			in[i+1] = op.own(Clone(x))
		}
	}
	if op.err != nil || !op.grad {
		return in
	}
	var old *core.Tensor
	values := in
	for _, i := range uses[needs(grads, in)].saves {
		if i == len(in) || in[i].IsNumber() || in[i].Storage() != t.Storage() {
			continue
		}
		if old == nil {
			old, values = op.own(Clone(t)), slices.Clone(in)
		}
		values[i] = old
	}
	return values
}

// fit fails where integers are to be computed with a fraction.
func (e *Elementwise) fit(op *opContext, d core.DType, attrs []float64) {
	if op.err != nil || d.IsFloat() {
		return
	}
	for i, v := range attrs {
		if v != math.Trunc(v) {
			op.failf(core.DTypeError, "got %s = %v for %v, want a whole number, or a floating-point dtype", e.kernel.Attrs[i], v, d)
			return
		}
	}
}

// fill adds inputs and attributes to a call of the kernel computed for dtype d.
func (e *Elementwise) fill(c *core.Call, d core.DType, attrs []float64, in []*core.Tensor) {
	for _, x := range in {
		c.In(x)
	}
	fillAttrs(c, d, attrs)
}

func fillAttrs(c *core.Call, d core.DType, attrs []float64) {
	if d.IsFloat() {
		c.Float(attrs...)
		return
	}
	for _, v := range attrs {
		c.Int(int64(v))
	}
}

// record returns the node of an op, or nil if no gradient passes. values are what its derivative takes for the
// inputs.
func (e *Elementwise) record(op *opContext, attrs []float64, in, values []*core.Tensor, out *core.Tensor) *core.Node {
	return e.recordAs(op, e.grads, e.uses, elementwiseDeriv, attrs, in, values, out)
}

// recordAs is record with the given derivatives.
func (e *Elementwise) recordAs(op *opContext, grads []*gradient, uses []variant, deriv core.Deriv, attrs []float64, in, values []*core.Tensor, out *core.Tensor) *core.Node {
	set := needs(grads, in)
	if set == 0 {
		return nil
	}
	n := op.node(deriv, in...)
	v := &uses[set]
	n.Any = v
	if len(attrs) > 0 {
		n.Floats = slices.Clone(attrs)
	}
	for _, i := range v.saves {
		if i == len(in) {
			n.SaveOutput(out, 0)
		} else {
			n.Save(values[i])
		}
	}
	return n
}

// needs returns the set of inputs that need a gradient and can have one.
func needs(grads []*gradient, in []*core.Tensor) int {
	set := 0
	for i, x := range in {
		if grads[i] != nil && derived(x) {
			set |= 1 << i
		}
	}
	return set
}

// dtype returns the dtype that the inputs promote to, which says in which type the kernel computes. Functions of real
// numbers take integers as the default dtype.
func (e *Elementwise) dtype(op *opContext, in []*core.Tensor) core.DType {
	if op.err != nil {
		return 0
	}
	var numbers [8]*core.Tensor
	list := numbers[:0]
	for i, x := range in {
		if e.kernel.In[i].Kind == expr.Number {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return core.Bool
	}
	d := core.ResultType(list...)
	domain := e.kernel.Domain
	switch {
	case !d.Valid():
		op.common(d, list...)
		return 0
	case d == core.Uint64 && domain&expr.Ints != 0 && !e.wraps:
		op.failf(core.DTypeError, "not defined for %v", d)
	case d.IsFloat() && domain&expr.Floats == 0:
		op.failf(core.DTypeError, "got %v, want an integer dtype", d)
	case !d.IsFloat() && domain&expr.Ints == 0:
		d = op.mode.Context().DefaultDType()
	}
	return d
}

// computeType returns the type in which kernels compute for d.
func computeType(d core.DType) expr.Type {
	switch {
	case !d.IsFloat():
		return expr.I64
	case d == core.Float64:
		return expr.F64
	}
	return expr.F32
}

// class orders dtypes by what they can hold: truth values, integers, floats, complex numbers.
func class(d core.DType) int {
	switch {
	case d.IsComplex():
		return 3
	case d.IsFloat():
		return 2
	case d.IsInt():
		return 1
	}
	return 0
}

// commonShape is broadcast for the usual case that all shapes are equal.
func (op *opContext) commonShape(in []*core.Tensor) []int {
	if op.err != nil {
		return nil
	}
	var shape []int
	for _, x := range in {
		switch {
		case x.IsNumber():
		case shape == nil:
			shape = x.Shape()
		case !slices.Equal(shape, x.Shape()):
			return op.broadcast(in...)
		}
	}
	return shape
}

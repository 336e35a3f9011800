// Package elementwise generates the GPU programs of elementwise operations from their bodies in the registry.
package elementwise

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	seen := map[string]bool{}
	for _, row := range op.Rows() {
		for _, e := range row.Elementwise {
			for _, k := range e.Kernels() {
				for _, t := range []expr.Type{expr.F32, expr.F64, expr.I64} {
					name := k.Instance(t)
					if !slices.Contains(k.Types(), t) || seen[name] {
						continue
					}
					seen[name] = true
					m := New(k, t, name)
					id := core.Kernel(name)
					kernel.Register(id, m.Run)
					elementwiseKernels = append(elementwiseKernels, make([]*Kernel, max(int(id)+1-len(elementwiseKernels), 0))...)
					elementwiseKernels[id] = m
				}
			}
		}
	}
}

// A Kernel is an elementwise operation that is computed in one type.
type Kernel struct {
	kernel  *expr.Kernel
	Compute expr.Type
	name    string
	Serial  uint16 // a unique number
	Faults  bool   // it reports integer division by zero
}

// elementwiseKernels are the registered kernels, by kernel ID.
var elementwiseKernels []*Kernel

// KernelOf returns the kernel with an ID, or nil if it is not elementwise.
func KernelOf(id core.KernelID) *Kernel {
	if id < 0 || int(id) >= len(elementwiseKernels) {
		return nil
	}
	return elementwiseKernels[id]
}

var elementwiseCount uint16

// New returns the kernel of an operation that computes in type t.
func New(k *expr.Kernel, t expr.Type, name string) *Kernel {
	elementwiseCount++
	return &Kernel{
		kernel: k, Compute: t, name: name, Serial: elementwiseCount, Faults: t == expr.I64 && len(k.Program.Divisors()) > 0,
	}
}

// Run implements [kernel.Func]. The program is specialised on the operands' dtypes and on the form of its loop.
func (m *Kernel) Run(r *shader.Recorder, c *core.Call) error {
	ins, outs := len(c.Ins), len(c.Outs)
	all := make([]*core.Operand, 0, ins+outs)
	for i := range c.Ins {
		all = append(all, &c.Ins[i])
	}
	for i := range c.Outs {
		all = append(all, &c.Outs[i])
	}
	shape := c.Outs[0].Shape
	l := shader.NewLoop(shape, all...)
	if l.Count == 0 {
		return nil
	}
	key := shader.Key{Name: m.name}
	buffers := 0
	mems := &r.Mems
	for i, o := range all {
		if o.IsNumber {
			key.Bits[0] |= 0xf << (4 * i)
			continue
		}
		key.Bits[0] |= uint64(o.DType) << (4 * i)
		if buffers == shader.MaxBuffers {
			return core.Errorf(core.NotImplemented, c.Op, "%d operands are more than a program binds", len(all))
		}
		mems[buffers] = o.Memory
		buffers++
	}
	faults := m.Faults
	repeated, form := LoopFormOf(&l, all, faults)
	key.Bits[1] = repeated
	key.Bits[2] = uint64(form.Rank)
	if form.Vec4 {
		key.Bits[2] |= 1 << 8
	}
	w := append(r.Begin(), uint32(l.Count))
	for _, o := range all {
		if !o.IsNumber {
			w = append(w, shader.Base(o))
		}
	}
	w = m.Scalars(r, w, c)
	if faults {
		mem, word, err := r.Check(c, func(c *core.Call, _ uint32) error {
			return core.Errorf(core.ValueError, c.Op, "integer division by zero")
		})
		if err != nil {
			return err
		}
		w = append(w, word)
		mems[buffers] = mem
		buffers++
	}
	if form.Rank > 0 {
		kept := shader.Loop{Sizes: l.Sizes}
		for i, o := range all {
			if !o.IsNumber {
				kept.Strides = append(kept.Strides, l.Strides[i])
			}
		}
		w = kept.Words(w)
	}
	r.Words = w
	p, err := r.Program(key, buffers, func(w *shader.Text) { m.write(w, all, repeated, form, faults) })
	if err != nil {
		return err
	}
	return r.Dispatch(p, form.Groups(l.Count), w, mems[:buffers]...)
}

// A LoopForm is how a program iterates over elements: one at a time or as vec4, over a flat index or over Rank dimensions. vec4 are along
// the innermost dimension.
type LoopForm struct {
	Rank int
	Vec4 bool
}

// Groups returns how many workgroups iterate over a number of elements.
func (s LoopForm) Groups(count int) int {
	if s.Vec4 {
		count = (count + 3) / 4
	}
	return shader.GroupsFor(count)
}

// LoopFormOf returns how a program iterates over l, whose operands are all. single rules out vec4. repeated has a bit for each operand that
// has the same element throughout a loop over vec4. If vec4 are along a dimension, l becomes a loop over vec4.
func LoopFormOf(l *shader.Loop, all []*core.Operand, single bool) (repeated uint64, form LoopForm) {
	form.Rank = len(l.Sizes)
	if single || elementsCoalesce(all) {
		return 0, form
	}
	vec4 := l.Flat()
	for i, o := range all {
		if o.IsNumber {
			continue
		}
		if l.Repeats(i) && l.Count > 1 {
			repeated |= 1 << i
		} else if shader.Base(o)%4 != 0 {
			vec4 = false
		}
	}
	if vec4 {
		return repeated, LoopForm{Vec4: true}
	}
	repeated, form.Vec4 = l.Vec4Rows(all)
	return repeated, form
}

// elementsCoalesce reports whether neighbouring invocations should have neighbouring elements, not four each: there is a dtype of 64 bits, of
// which four would be four accesses apart from the neighbours', and none that shares words.
func elementsCoalesce(all []*core.Operand) bool {
	wide := false
	for _, o := range all {
		if o.IsNumber {
			continue
		}
		if shader.PerWord(o.DType) > 1 {
			return false
		}
		wide = wide || o.DType.Size() == 8
	}
	return wide
}

// ScalarWords returns how many words Scalars appends.
func (m *Kernel) ScalarWords(c *core.Call) int {
	n := len(c.Floats) + len(c.Ints)
	for i := range c.Ins {
		if c.Ins[i].IsNumber {
			n++
		}
	}
	if m.Compute == expr.I64 {
		n *= 2
	}
	return n
}

// Scalars appends the words of a call's number inputs and attributes.
func (m *Kernel) Scalars(r *shader.Recorder, w []uint32, c *core.Call) []uint32 {
	for i := range c.Ins {
		if o := &c.Ins[i]; o.IsNumber {
			w = m.scalar(r, w, o.Number.Float, o.Number.Int)
		}
	}
	for _, v := range c.Floats {
		w = m.scalar(r, w, v, int64(v))
	}
	for _, v := range c.Ints {
		w = m.scalar(r, w, float64(v), v)
	}
	return w
}

// scalar appends the words of a number in the kernel's type.
func (m *Kernel) scalar(r *shader.Recorder, w []uint32, f float64, i int64) []uint32 {
	if m.Compute == expr.I64 {
		low, high := shader.IntWords(i)
		return append(w, low, high)
	}
	return r.RealWords(w, f)
}

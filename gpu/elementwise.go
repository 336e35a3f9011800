package gpu

import (
	"slices"
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/op/expr"
)

func itoa(n int) string { return strconv.Itoa(n) }

func init() {
	seen := map[string]bool{}
	for _, row := range op.Rows() {
		for _, e := range row.Elementwise {
			for _, k := range e.Kernels() {
				for _, t := range []expr.Type{expr.F32, expr.I64} {
					name := k.Instance(t)
					if !slices.Contains(k.Types(), t) || seen[name] {
						continue
					}
					seen[name] = true
					m := newElementwise(k, t, name)
					register(name, m.run)
					id := int(core.Kernel(name))
					elementwiseKernels = append(elementwiseKernels, make([]*elementwise, max(id+1-len(elementwiseKernels), 0))...)
					elementwiseKernels[id] = m
				}
			}
		}
	}
}

// An elementwise is a kernel that is generated from an operation's program.
type elementwise struct {
	kernel  *expr.Kernel
	compute expr.Type
	name    string
	serial  uint16 // among all
	faults  bool   // it may find that it divides by zero
}

// elementwiseKernels has those that are registered, by their kernels' numbers.
var elementwiseKernels []*elementwise

var elementwiseCount uint16

func newElementwise(k *expr.Kernel, t expr.Type, name string) *elementwise {
	elementwiseCount++
	return &elementwise{
		kernel: k, compute: t, name: name, serial: elementwiseCount, faults: t == expr.I64 && len(k.Program.Divisors()) > 0,
	}
}

// The threads of a workgroup.
const threads = 256

// run implements [kernelFunc]. A program specialises on the operands' dtypes and on the loop: flat, four elements for each
// invocation, or of some rank, one.
func (m *elementwise) run(r *recorder, c *core.Call) error {
	ins, outs := len(c.Ins), len(c.Outs)
	all := make([]*core.Operand, 0, ins+outs)
	for i := range c.Ins {
		all = append(all, &c.Ins[i])
	}
	for i := range c.Outs {
		all = append(all, &c.Outs[i])
	}
	shape := c.Outs[0].Shape
	l := newLayout(shape, all...)
	if l.count == 0 {
		return nil
	}
	key := programKey{name: m.name}
	buffers := 0
	var mems [maxBuffers]core.Memory
	for i, o := range all {
		if o.IsNumber {
			key.bits[0] |= 0xf << (4 * i)
			continue
		}
		key.bits[0] |= uint64(o.DType) << (4 * i)
		if buffers == maxBuffers {
			return core.Errorf(core.NotImplemented, c.Op, "%d operands are more than a program binds", len(all))
		}
		mems[buffers] = o.Memory
		buffers++
	}
	faults := m.faults
	repeated, shapeOf := elementwiseLoop(&l, all, faults)
	key.bits[1] = repeated
	key.bits[2] = uint64(shapeOf.rank)
	if shapeOf.four {
		key.bits[2] |= 1 << 8
	}
	w := append(r.begin(), uint32(l.count))
	for _, o := range all {
		if !o.IsNumber {
			w = append(w, base(o))
		}
	}
	w = m.scalars(w, c)
	if faults {
		mem, word, err := r.check(c, func(c *core.Call, _ uint32) error {
			return core.Errorf(core.ValueError, c.Op, "integer division by zero")
		})
		if err != nil {
			return err
		}
		w = append(w, word)
		mems[buffers] = mem
		buffers++
	}
	if shapeOf.rank > 0 {
		kept := layout{sizes: l.sizes}
		for i, o := range all {
			if !o.IsNumber {
				kept.strides = append(kept.strides, l.strides[i])
			}
		}
		w = kept.words(w)
	}
	r.words = w
	p, err := r.program(key, buffers, func() string { return m.source(c, all, repeated, shapeOf, faults) })
	if err != nil {
		return err
	}
	return r.dispatch(p, shapeOf.groups(l.count), w, mems[:buffers]...)
}

// An elementwiseShape is how a program loops: in four elements at a time or one, flat or, where rank says so, through
// dimensions. Fours of dimensions lie in the innermost.
type elementwiseShape struct {
	rank int
	four bool
}

// groups returns how many workgroups loop over so many elements.
func (s elementwiseShape) groups(count int) int {
	if s.four {
		count = (count + 3) / 4
	}
	return groupsFor(count)
}

// elementwiseLoop returns how a program loops over l, whose operands are all; with single, an element at a time. repeated has a
// bit for each operand of which a loop over fours repeats one element. Fours of dimensions change l.
func elementwiseLoop(l *layout, all []*core.Operand, single bool) (repeated uint64, shape elementwiseShape) {
	shape.rank = len(l.sizes)
	if single {
		return 0, shape
	}
	four := l.flat()
	for i, o := range all {
		if o.IsNumber {
			continue
		}
		if l.repeats(i) && l.count > 1 {
			repeated |= 1 << i
		} else if base(o)%4 != 0 {
			four = false
		}
	}
	if four {
		return repeated, elementwiseShape{four: true}
	}
	repeated, shape.four = l.rowsOfFours(all)
	return repeated, shape
}

// rowsOfFours reports whether the innermost dimension divides into fours that lie aligned in every operand or repeat one
// element of it; repeated has a bit for each of the latter. The loop is then over fours.
func (l *layout) rowsOfFours(all []*core.Operand) (repeated uint64, ok bool) {
	last := len(l.sizes) - 1
	if last < 1 || l.sizes[last]%4 != 0 {
		return 0, false
	}
	for i, o := range all {
		if o.IsNumber {
			continue
		}
		switch l.strides[i][last] {
		case 0:
			repeated |= 1 << i
			continue
		case 1:
		default:
			return 0, false
		}
		if base(o)%4 != 0 {
			return 0, false
		}
		for _, s := range l.strides[i][:last] {
			if s%4 != 0 {
				return 0, false
			}
		}
	}
	l.sizes[last] /= 4
	for i := range l.strides {
		l.strides[i][last] *= 4
	}
	return repeated, true
}

// scalarWords returns how many words scalars appends.
func (m *elementwise) scalarWords(c *core.Call) int {
	n := len(c.Floats) + len(c.Ints)
	for i := range c.Ins {
		if c.Ins[i].IsNumber {
			n++
		}
	}
	if m.compute == expr.I64 {
		n *= 2
	}
	return n
}

// scalars appends the numbers among the call's inputs, and its attributes.
func (m *elementwise) scalars(w []uint32, c *core.Call) []uint32 {
	for i := range c.Ins {
		if o := &c.Ins[i]; o.IsNumber {
			w = m.scalar(w, o.Number.Float, o.Number.Int)
		}
	}
	for _, v := range c.Floats {
		w = m.scalar(w, v, int64(v))
	}
	for _, v := range c.Ints {
		w = m.scalar(w, float64(v), v)
	}
	return w
}

// scalar appends a number of the compute type.
func (m *elementwise) scalar(w []uint32, f float64, i int64) []uint32 {
	if m.compute == expr.I64 {
		low, high := intWords(i)
		return append(w, low, high)
	}
	return append(w, floatWord(f))
}

package meta

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
)

// Materialize returns a tensor on dev with the values that t, of the meta device, would have; one of another device it
// copies. What was never written is undefined.
//
// Errors: values that do not follow from calls alone.
func Materialize(t *core.Tensor, dev core.Device) *core.Tensor {
	v, j, err := valueOf(t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	if v == nil {
		return op.ToDevice(t.Detach(), dev)
	}
	r := &replay{stream: core.CurrentContext().Stream(dev), memory: map[*value]*core.Tensor{}}
	return r.run(j.plan(v), v, func(memory *core.Tensor) *core.Tensor {
		out := core.WrapTensor(core.CurrentMode(), memory.Storage(), t.DType(), t.Shape(), t.Strides(), t.Offset())
		if t.Numel()*t.DType().Size() < v.bytes {
			return op.Clone(out)
		}
		return out
	})
}

// Part returns elements [from, to) of what [Materialize] would return of a contiguous tensor, in one dimension. Where each
// element follows from the same place of other tensors, and from random draws, it makes no others.
func Part(t *core.Tensor, from, to int, dev core.Device) *core.Tensor {
	v, j, err := valueOf(t)
	if err == nil && (from < 0 || to < from || to > t.Numel()) {
		err = core.Errorf(core.IndexError, "materialize", "got elements [%d, %d) of %d", from, to, t.Numel())
	}
	if err != nil {
		return core.ErrorTensor(err)
	}
	if v == nil || !t.Contiguous() || t.Offset() != 0 || t.Numel()*t.DType().Size() != v.bytes {
		return op.Clone(op.Narrow(op.Reshape(Materialize(t, dev), -1), 0, from, to-from))
	}
	r := &replay{stream: core.CurrentContext().Stream(dev), memory: map[*value]*core.Tensor{}}
	plan := j.plan(v)
	first := 0 // of the elements that are made
	if n := t.Numel(); n > 0 && local(plan, n) {
		first = from &^ 3 // a counter is four words, an element one or two
		r.elements, r.first, r.count = n, first, to-first
	}
	return r.run(plan, v, func(memory *core.Tensor) *core.Tensor {
		whole := core.WrapTensor(core.CurrentMode(), memory.Storage(), t.DType(), []int{memory.Numel() / t.DType().Size()}, []int{1}, 0)
		if from == first && to-first == whole.Numel() {
			return whole
		}
		return op.Clone(op.Narrow(whole, 0, from-first, to-from))
	})
}

// valueOf returns what lies in t's memory; nil if that is not on the meta device.
func valueOf(t *core.Tensor) (*value, *journal, error) {
	if err := t.Usable("materialize"); err != nil {
		return nil, nil, err
	}
	d, ok := t.Device().(*device)
	if !ok {
		return nil, nil, nil
	}
	j := &d.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.values[t.Storage().Memory().Handle], j, nil
}

// local reports whether all that the steps touch are whole tensors of n elements, of which they combine those in the same
// places.
func local(steps []*step, n int) bool {
	for _, s := range steps {
		if s.data != nil || s.problem != "" || len(s.outs) != 1 || !contract.DrawsByPosition(s.kernel) && !op.IsElementwise(s.kernel) {
			return false
		}
		for _, list := range [][]operand{s.outs, s.ins} {
			for _, o := range list {
				if o.value != nil && !(o.fills(o.value) && core.Numel(o.shape) == n) {
					return false
				}
			}
		}
	}
	return true
}

// A replay makes the calls of a plan.
type replay struct {
	stream core.Stream
	memory map[*value]*core.Tensor // of bytes
	// With elements set, each value has so many, of which count are made, from first on.
	elements, first, count int
}

// run makes the steps and returns what of them makes of the memory of a value, kept.
func (r *replay) run(steps []*step, v *value, of func(memory *core.Tensor) *core.Tensor) *core.Tensor {
	var out *core.Tensor
	core.NoGrad(func() {
		out = core.RunScope(func() []*core.Tensor {
			for _, s := range steps {
				if err := r.step(s); err != nil {
					return []*core.Tensor{core.ErrorTensor(err)}
				}
			}
			memory := r.of(v)
			if memory.Err() != nil {
				return []*core.Tensor{memory}
			}
			return []*core.Tensor{of(memory)}
		})[0]
	})
	return out
}

// of returns the memory of a value.
func (r *replay) of(v *value) *core.Tensor {
	t := r.memory[v]
	if t == nil {
		bytes := v.bytes
		if r.elements > 0 {
			bytes = v.bytes / r.elements * r.count
		}
		t = core.NewTensor(core.CurrentMode(), r.stream, core.Uint8, []int{bytes})
		r.memory[v] = t
	}
	return t
}

// step makes one call.
func (r *replay) step(s *step) error {
	if s.problem != "" {
		return core.Errorf(core.ValueError, "materialize", "%s on the meta device cannot be repeated: %s", s.op, s.problem)
	}
	if s.data != nil {
		to := r.of(s.outs[0].value)
		if to.Err() == nil {
			r.stream.Upload(to.Storage().Memory(), s.outs[0].offset, s.data)
		}
		return to.Err()
	}
	outs, err := r.operands(s.outs)
	if err != nil {
		return err
	}
	ins, err := r.operands(s.ins)
	if err != nil {
		return err
	}
	c := r.stream.Begin(s.kernel, s.op)
	for _, t := range outs {
		c.Out(t)
	}
	for i, t := range ins {
		c.In(t)
		if t != nil && t.IsNumber() {
			o := &c.Ins[len(c.Ins)-1]
			o.Number, o.DType = s.ins[i].number, s.ins[i].dtype
		}
	}
	c.Int(s.ints...).Float(s.floats...)
	c.InPlace, c.Work = s.inPlace, s.work
	if r.elements > 0 && contract.DrawsByPosition(s.kernel) {
		words := 1
		if s.kernel == contract.RandomIntegers || s.kernel == contract.Random && s.outs[0].dtype == core.Float64 {
			words = 2
		}
		contract.MoveOffset(c, int64(r.first*words/4))
	}
	return core.Launch(r.stream, c)
}

func (r *replay) operands(list []operand) ([]*core.Tensor, error) {
	tensors := make([]*core.Tensor, len(list))
	for i, o := range list {
		switch {
		case !o.present:
		case o.value == nil:
			tensors[i] = core.Num(0) // whose value the call gets
		default:
			memory := r.of(o.value)
			if err := memory.Err(); err != nil {
				return nil, err
			}
			shape, strides, offset := o.shape, o.strides, o.offset
			if r.elements > 0 {
				shape, strides, offset = []int{r.count}, []int{1}, 0
			}
			tensors[i] = core.WrapTensor(core.CurrentMode(), memory.Storage(), o.dtype, shape, strides, offset)
		}
	}
	return tensors, nil
}

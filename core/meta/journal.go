package meta

import (
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
)

// longest is how many calls on one piece of memory are remembered. What new memory is made of is remembered without a limit.
const longest = 1 << 12

// A journal knows what every tensor's values follow from.
type journal struct {
	mu     sync.Mutex
	values map[uint64]*value // of the memory that is in use
	last   uint64            // handle given
	seq    int               // steps so far
}

// A value is what would lie in one piece of memory.
type value struct {
	bytes int
	steps []*step // that wrote to it, in order
}

// A step is a call, or a copy from elsewhere, that was not made.
type step struct {
	seq       int
	kernel    core.KernelID
	op        string
	outs, ins []operand
	ints      []int64
	floats    []float64
	work      int
	inPlace   bool

	data    []byte // copied to the first output, from outs[0].offset, a number of bytes, on
	problem string // why it cannot be made
}

// An operand is a [core.Operand] without memory.
type operand struct {
	value          *value // nil for a number, or an absent one
	present        bool
	number         core.Number
	dtype          core.DType
	shape, strides []int
	offset         int
}

// begin returns a handle for new memory.
func (j *journal) begin(bytes int) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	j.values[j.last] = &value{bytes: bytes}
	return j.last
}

// end forgets memory, but for what other values follow from.
func (j *journal) end(handle uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.values, handle)
}

// record writes a call down.
func (j *journal) record(c *core.Call) {
	if c.Mark != nil { // computes nothing
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s := &step{kernel: c.Kernel, op: c.Op, work: c.Work, inPlace: c.InPlace, ints: slices.Clone(c.Ints), floats: slices.Clone(c.Floats)}
	if c.Fn != nil {
		s.problem = "it is the work of a function"
	}
	for i := range c.Outs {
		s.outs = append(s.outs, j.operand(&c.Outs[i]))
	}
	for i := range c.Ins {
		s.ins = append(s.ins, j.operand(&c.Ins[i]))
	}
	j.add(s)
}

// upload writes down that bytes from elsewhere, nil for ones that are not known, are copied to m.
func (j *journal) upload(m core.Memory, offset int, src []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := &step{op: "to", outs: []operand{{value: j.values[m.Handle], present: true, offset: offset}}}
	if len(src) > core.MetaKept || src == nil {
		s.problem = "its values lay on another device"
	} else {
		s.data = slices.Clone(src)
	}
	j.add(s)
}

func (j *journal) add(s *step) {
	j.seq++
	s.seq = j.seq
	for _, o := range s.outs {
		if o.value == nil {
			continue
		}
		kept := s
		if len(o.value.steps) >= longest {
			kept = &step{seq: s.seq, op: s.op, problem: "it was changed too often", outs: s.outs}
			o.value.steps = nil
		}
		o.value.steps = append(o.value.steps, kept)
	}
}

func (j *journal) operand(o *core.Operand) operand {
	r := operand{present: o.Present(), dtype: o.DType, shape: slices.Clone(o.Shape), strides: slices.Clone(o.Strides), offset: o.Offset}
	switch {
	case !r.present:
	case o.IsNumber:
		r.number = o.Number
	default:
		r.value = j.values[o.Memory.Handle]
	}
	return r
}

// plan returns, in order, the steps that a value follows from.
func (j *journal) plan(of *value) []*step {
	j.mu.Lock()
	defer j.mu.Unlock()
	needed := map[*step]bool{}
	type want struct {
		value  *value
		before int // this step
	}
	seen := map[want]bool{}
	for todo := []want{{of, j.seq + 1}}; len(todo) > 0; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if w.value == nil || seen[w] {
			continue
		}
		seen[w] = true
		for i := len(w.value.steps) - 1; i >= 0; i-- {
			s := w.value.steps[i]
			if s.seq >= w.before {
				continue
			}
			if !needed[s] {
				needed[s] = true
				for _, in := range s.ins {
					todo = append(todo, want{in.value, s.seq})
				}
				for _, out := range s.outs {
					if s.inPlace && out.value != w.value {
						todo = append(todo, want{out.value, s.seq})
					}
				}
			}
			if s.overwrites(w.value) {
				break
			}
		}
	}
	steps := make([]*step, 0, len(needed))
	for s := range needed {
		steps = append(steps, s)
	}
	slices.SortFunc(steps, func(a, b *step) int { return a.seq - b.seq })
	return steps
}

// overwrites reports whether nothing of what v was before s is left.
func (s *step) overwrites(v *value) bool {
	if s.problem != "" || s.data != nil || len(s.outs) != 1 || !s.outs[0].fills(v) {
		return false
	}
	for _, in := range s.ins {
		if in.value == v {
			return false
		}
	}
	return !s.inPlace || contract.DrawsByPosition(s.kernel) || op.IsElementwise(s.kernel)
}

// fills reports whether an operand is all of a piece of memory, in order.
func (o operand) fills(v *value) bool {
	return o.value == v && o.offset == 0 && core.IsContiguous(o.shape, o.strides) && core.Numel(o.shape)*o.dtype.Size() == v.bytes
}

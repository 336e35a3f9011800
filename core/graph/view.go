package graph

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// memory is what tensors share. Operations in place change the value that it holds.
type memory struct {
	value   int // of a tensor that has all of it
	changes int
	frozen  bool // they must not
}

// A view is a part of memory, or all of it.
type view struct {
	memory  *memory
	steps   []*step // that lead from all of the memory to the part
	value   int     // after so many changes:
	changes int
}

// A step is an operation whose result shares memory with one of its inputs.
type step struct {
	use        core.Application
	refs       []any // what the tensors among its arguments stand for
	input      int   // which of them shares memory
	output     int   // with which result
	outs       []Value
	from       Value
	same       bool // the result is the input as it is
	sliced     int  // the dimension along which the result is a part of the input, one behind the other; or -1
	start, end int
}

// newStep returns the step from an input to a result.
func newStep(u core.Application, refs []any, input int, outs []*core.Tensor, output int, from *core.Tensor) *step {
	to := outs[output]
	s := &step{use: u, refs: refs, input: input, output: output, from: Value{from.DType().String(), slices.Clone(from.Shape())}, sliced: -1}
	for _, t := range outs {
		s.outs = append(s.outs, Value{t.DType().String(), slices.Clone(t.Shape())})
	}
	s.same = to.DType() == from.DType() && to.SameLayout(from) && to.Offset() == from.Offset()
	if s.same || to.DType() != from.DType() || !slices.Equal(to.Strides(), from.Strides()) {
		return s
	}
	for d, n := range to.Shape() {
		if n == from.Size(d) {
			continue
		}
		if s.sliced >= 0 {
			s.sliced = -1
			return s
		}
		s.sliced = d
	}
	if d := s.sliced; d >= 0 {
		s.start = (to.Offset() - from.Offset()) / max(from.Strides()[d], 1)
		s.end = s.start + to.Size(d)
	}
	return s
}

// read returns the value of the part. If the memory has changed since, the steps are taken again.
func (v *view) read(g *Graph) (int, error) {
	if v.changes != v.memory.changes {
		values, err := v.walk(g)
		if err != nil {
			return 0, err
		}
		v.value, v.changes = values[len(v.steps)], v.memory.changes
	}
	return v.value, nil
}

// walk takes the steps and returns the values on the way, that of all of the memory first.
func (v *view) walk(g *Graph) ([]int, error) {
	values := []int{v.memory.value}
	for i, s := range v.steps {
		refs := slices.Clone(s.refs)
		refs[s.input] = Ref{values[i]}
		outs, err := g.node(s.use, refs, s.outs)
		if err != nil {
			return nil, err
		}
		values = append(values, outs[s.output])
	}
	return values, nil
}

// write makes value what the part holds.
func (v *view) write(g *Graph, name string, value int) error {
	whole := value
	if len(v.steps) > 0 {
		values, err := v.walk(g)
		if err != nil {
			return err
		}
		for i, s := range slices.Backward(v.steps) {
			if whole, err = s.undo(g, name, values[i], whole); err != nil {
				return err
			}
		}
	}
	v.memory.value = whole
	v.memory.changes++
	v.value, v.changes = value, v.memory.changes
	return nil
}

// undo returns what the input of the step becomes, of which base is the value, when its result becomes part.
func (s *step) undo(g *Graph, name string, base, part int) (int, error) {
	make1 := func(op string, args ...any) (int, error) {
		refs := []any{Ref{base}, Ref{part}}
		if op == "reshape" || op == "permute" {
			refs = refs[1:]
		}
		var list []any
		for range refs {
			list = append(list, (*core.Tensor)(nil))
		}
		outs, err := g.node(core.Application{Op: op, Args: append(list, args...)}, refs, []Value{s.from})
		if err != nil {
			return 0, err
		}
		return outs[0], nil
	}
	integer := func(i int) int { v, _ := s.use.Args[i].(int); return v }
	if s.same {
		return part, nil
	}
	if s.sliced >= 0 {
		return make1("slice_scatter", s.sliced, s.start, s.end, 1)
	}
	switch s.use.Op {
	case "select":
		return make1("select_scatter", integer(1), integer(2))
	case "unbind":
		return make1("select_scatter", integer(1), s.output)
	case "slice":
		return make1("slice_scatter", integer(1), integer(2), integer(3), integer(4))
	case "diagonal":
		return make1("diagonal_scatter", integer(1), integer(2), integer(3))
	case "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as", "ravel", "atleast_1d", "atleast_2d", "atleast_3d":
		return make1("reshape", s.from.Shape)
	case "permute", "transpose", "t", "mT", "movedim", "swapaxes":
		dims, err := s.permutation()
		if err != nil {
			return 0, err
		}
		return make1("permute", dims)
	}
	return 0, core.Errorf(core.NotImplemented, name, "an operation in place on what %s returns, which shares memory with its input, cannot be recorded: "+
		"change a clone of it", s.use.Op)
}

// permutation returns the dimensions that undo the step, an operation that permutes.
func (s *step) permutation() ([]int, error) {
	sizes := make([]int, len(s.from.Shape))
	for i := range sizes {
		sizes[i] = i
	}
	args := slices.Clone(s.use.Args)
	args[0] = op.Empty(sizes...)
	out := s.use.Call(args)[0]
	if err := out.Err(); err != nil {
		return nil, err
	}
	dims := make([]int, len(sizes))
	for i, d := range out.Shape() {
		dims[d] = i
	}
	return dims, nil
}

// changes reports whether an operation changes its first tensor.
func changes(name string) bool { return strings.HasSuffix(name, "_") }

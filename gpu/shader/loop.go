package shader

import (
	"slices"
	"strconv"

	"github.com/plait-ml/plait/core"
)

// Vec4Rows makes the loop one over vec4 along the innermost dimension, and reports whether that is possible. Each operand must be dense and
// aligned there, or repeat one element; repeated has the bits of the latter operands.
func (l *Loop) Vec4Rows(all []*core.Operand) (repeated uint64, ok bool) {
	last := len(l.Sizes) - 1
	if last < 1 || l.Sizes[last]%4 != 0 {
		return 0, false
	}
	for i, o := range all {
		if o.IsNumber {
			continue
		}
		switch l.Strides[i][last] {
		case 0:
			repeated |= 1 << i
			continue
		case 1:
		default:
			return 0, false
		}
		if Base(o)%4 != 0 {
			return 0, false
		}
		for _, s := range l.Strides[i][:last] {
			if s%4 != 0 {
				return 0, false
			}
		}
	}
	l.Sizes[last] /= 4
	for i := range l.Strides {
		l.Strides[i][last] *= 4
	}
	return repeated, true
}

// All reports whether ok is true for every number of a list.
func All(list []int, ok func(int) bool) bool {
	return !slices.ContainsFunc(list, func(n int) bool { return !ok(n) })
}

// ByVec4 returns the loop over vec4 along the innermost dimension.
func (l *Loop) ByVec4() Loop {
	q := Loop{Sizes: slices.Clone(l.Sizes), Count: l.Count / 4}
	last := len(q.Sizes) - 1
	q.Sizes[last] /= 4
	for _, s := range l.Strides {
		s = slices.Clone(s)
		s[last] *= 4
		q.Strides = append(q.Strides, s)
	}
	return q
}

// A Loop is an iteration over the elements of several operands of one shape: its sizes, and the strides of each operand in elements.
// Adjacent dimensions that are contiguous in every operand are merged.
type Loop struct {
	Sizes   []int
	Strides [][]int // by operand
	Count   int
}

// NewLoop returns the loop over a shape, to which the operands broadcast. Numbers have strides of 0.
func NewLoop(shape []int, operands ...*core.Operand) Loop {
	l := Loop{Count: core.Numel(shape), Strides: make([][]int, len(operands))}
	var steps [MaxBuffers + 8]int
	for d, n := range shape {
		for i, o := range operands {
			steps[i] = StrideOf(o, shape, d)
		}
		l.Push(n, steps[:len(operands)]...)
	}
	return l
}

// Push adds an innermost dimension with its size and the stride of each operand.
func (l *Loop) Push(size int, steps ...int) {
	if size == 1 {
		return
	}
	last := len(l.Sizes) - 1
	merge := last >= 0
	for i, s := range steps {
		merge = merge && l.Strides[i][last] == s*size
	}
	if merge {
		l.Sizes[last] *= size
	} else {
		l.Sizes = append(l.Sizes, size)
	}
	for i, s := range steps {
		if merge {
			l.Strides[i][last] = s
		} else {
			l.Strides[i] = append(l.Strides[i], s)
		}
	}
}

// StrideOf returns the stride of an operand along dimension d of the shape that it broadcasts to.
func StrideOf(o *core.Operand, shape []int, d int) int {
	i := d - (len(shape) - len(o.Shape))
	if o.IsNumber || i < 0 || o.Shape[i] == 1 && shape[d] != 1 {
		return 0
	}
	return o.Strides[i]
}

// Flat reports whether the loop has at most one dimension, along which every operand is dense or repeats one element.
func (l *Loop) Flat() bool {
	if len(l.Sizes) > 1 {
		return false
	}
	for _, s := range l.Strides {
		if len(s) > 0 && s[0] != 1 && s[0] != 0 {
			return false
		}
	}
	return true
}

// Repeats reports whether operand i has the same element in every iteration.
func (l *Loop) Repeats(i int) bool {
	for _, s := range l.Strides[i] {
		if s != 0 {
			return false
		}
	}
	return true
}

// Words appends the loop's parameters: all sizes, then the strides of each operand.
func (l *Loop) Words(w []uint32) []uint32 {
	for _, n := range l.Sizes {
		w = append(w, uint32(n))
	}
	for _, s := range l.Strides {
		for _, n := range s {
			w = append(w, uint32(n))
		}
	}
	return w
}

// Walk returns statements that turn the linear index i into at_0, at_1, ..., the positions of n operands. The loop's sizes and strides are
// the parameters from index first on; base has the expression for each operand's first position.
func Walk(rank, n, first int, base []string) string { return WalkAs("at_", "i", rank, n, first, base) }

// WalkAs is [Walk] with another linear index, and another prefix than at_.
func WalkAs(name, index string, rank, n, first int, base []string) string {
	text := ""
	for k := range n {
		text += "  var " + name + strconv.Itoa(k) + " = " + base[k] + ";\n"
	}
	if rank == 0 {
		return text
	}
	rest := name + "rest"
	text += "  var " + rest + " = " + index + ";\n"
	for d := rank - 1; d >= 0; d-- {
		c := rest
		if d > 0 {
			c = name + "c" + strconv.Itoa(d)
			up, size := name+"up"+strconv.Itoa(d), Param(first+d)
			text += "  let " + up + " = " + rest + " / " + size + ";\n  let " + c + " = " + rest + " - " + up + " * " + size + ";\n  " + rest + " = " + up + ";\n"
		}
		for k := range n {
			text += "  " + name + strconv.Itoa(k) + " = " + name + strconv.Itoa(k) + " + " + c + " * " + Param(first+rank*(1+k)+d) + ";\n"
		}
	}
	return text
}

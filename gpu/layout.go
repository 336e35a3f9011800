package gpu

import "github.com/plait-ml/plait/core"

// A layout is a loop over the elements of several operands of one shape: sizes, and each operand's strides in elements.
// Dimensions that are dense with respect to one another in every operand are one.
type layout struct {
	sizes   []int
	strides [][]int // by operand
	count   int
}

// newLayout returns the loop over shape, to which the operands broadcast. Operands that are numbers have strides of 0.
func newLayout(shape []int, operands ...*core.Operand) layout {
	l := layout{count: core.Numel(shape), strides: make([][]int, len(operands))}
	var steps [maxBuffers + 8]int
	for d, n := range shape {
		for i, o := range operands {
			steps[i] = strideOf(o, shape, d)
		}
		l.push(n, steps[:len(operands)]...)
	}
	return l
}

// push adds a dimension inside the others: its size, and each operand's stride.
func (l *layout) push(size int, steps ...int) {
	if size == 1 {
		return
	}
	last := len(l.sizes) - 1
	merge := last >= 0
	for i, s := range steps {
		merge = merge && l.strides[i][last] == s*size
	}
	if merge {
		l.sizes[last] *= size
	} else {
		l.sizes = append(l.sizes, size)
	}
	for i, s := range steps {
		if merge {
			l.strides[i][last] = s
		} else {
			l.strides[i] = append(l.strides[i], s)
		}
	}
}

// strideOf returns the stride of an operand along dimension d of the shape that it broadcasts to.
func strideOf(o *core.Operand, shape []int, d int) int {
	i := d - (len(shape) - len(o.Shape))
	if o.IsNumber || i < 0 || o.Shape[i] == 1 && shape[d] != 1 {
		return 0
	}
	return o.Strides[i]
}

// flat reports whether the loop has one dimension along which every operand is dense or, where repeats says so, the same.
func (l *layout) flat() bool {
	if len(l.sizes) > 1 {
		return false
	}
	for _, s := range l.strides {
		if len(s) > 0 && s[0] != 1 && s[0] != 0 {
			return false
		}
	}
	return true
}

// repeats reports whether operand i is the same everywhere.
func (l *layout) repeats(i int) bool {
	for _, s := range l.strides[i] {
		if s != 0 {
			return false
		}
	}
	return true
}

// words appends sizes and strides as parameters: all sizes, then each operand's strides.
func (l *layout) words(w []uint32) []uint32 {
	for _, n := range l.sizes {
		w = append(w, uint32(n))
	}
	for _, s := range l.strides {
		for _, n := range s {
			w = append(w, uint32(n))
		}
	}
	return w
}

// walk returns statements that turn the linear index i into the positions at_0, at_1, ... of n operands: what words wrote
// from parameter first on, for a loop of the given rank. base holds each operand's first element.
func walk(rank, n, first int, base []string) string { return walkAs("at_", "i", rank, n, first, base) }

// walkAs is walk for another linear index and other names.
func walkAs(name, index string, rank, n, first int, base []string) string {
	text := ""
	for k := range n {
		text += "  var " + name + itoa(k) + " = " + base[k] + ";\n"
	}
	if rank == 0 {
		return text
	}
	rest := name + "rest"
	text += "  var " + rest + " = " + index + ";\n"
	for d := rank - 1; d >= 0; d-- {
		c := rest
		if d > 0 {
			c = name + "c" + itoa(d)
			text += "  let " + c + " = " + rest + " % " + param(first+d) + ";\n  " + rest + " = " + rest + " / " + param(first+d) + ";\n"
		}
		for k := range n {
			text += "  " + name + itoa(k) + " = " + name + itoa(k) + " + " + c + " * " + param(first+rank*(1+k)+d) + ";\n"
		}
	}
	return text
}

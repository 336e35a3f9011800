package combine

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// Sums of large pieces are computed in vectors of 16 bytes. An invocation loads several vectors of each piece before it adds any, because
// the memory of another GPU is far away.

const (
	vectorBytes = 16
	// unrolled is how many vectors of each piece an invocation has on the way at once.
	unrolled = 4
)

// tile returns how many elements a workgroup sums at a time.
func tile(c *core.Call) int { return shader.Threads * unrolled * vectorBytes / c.Ins[0].DType.Size() }

// vectors reports whether the operands of a sum can be accessed as vectors.
func vectors(c *core.Call) bool {
	switch c.Ins[0].DType {
	case core.Float32, core.Float16, core.BFloat16, core.Int32:
	default:
		return false
	}
	for _, list := range [][]core.Operand{c.Ins, c.Outs} {
		for i := range list {
			if byteOf(&list[i])%vectorBytes != 0 {
				return false
			}
		}
	}
	return true
}

// byteOf returns the offset of an operand in its slab.
func byteOf(o *core.Operand) int {
	return int(o.Memory.Handle&shader.OffsetMask) + o.Offset*o.DType.Size()
}

// sumVectors sums the first n elements, a multiple of a tile. Fewer workgroups than tiles leave the rest of the GPU to other work.
func sumVectors(r *shader.Recorder, c *core.Call, divisor float64, n int) error {
	if n == 0 {
		return nil
	}
	d := c.Ins[0].DType
	s := shader.New(r, "combine.vectors")
	s.Specialize(int(d))
	s.Specialize(len(c.Ins))
	s.Specialize(len(c.Outs))
	groups := min(n/tile(c), r.GPU.CombineGroups)
	tiles, step := s.Uint(n/tile(c)), s.Uint(groups)
	var bound slabs
	find := func(o *core.Operand) place {
		number, added := bound.find(o)
		s.Specialize(number)
		p := place{buffer: fmt.Sprint("x", number), first: s.Uint(byteOf(o) / vectorBytes)}
		if added {
			s.Vec4Of(p.buffer, o.Memory)
		}
		return p
	}
	ins, outs := places(c, find)
	quotient := divide(s, divisor)
	return s.Run(r, groups, func(w *shader.Text) {
		w.Main(shader.Threads)
		w.Add("  for (var t = group; t < %s; t += %s) {\n    let at = t * %du + li;", tiles, step, shader.Threads*unrolled)
		for u := range unrolled {
			for k, p := range ins {
				w.Add("    let x%d_%d = %s[%s + at + %du];", k, u, p.buffer, p.first, u*shader.Threads)
			}
		}
		for u := range unrolled {
			w.Put(sum(d, len(ins), u, quotient))
			for _, p := range outs {
				w.Add("    %s[%s + at + %du] = s_%d;", p.buffer, p.first, u*shader.Threads, u)
			}
		}
		w.Add("  }")
	})
}

// sum returns statements that define s_U, the quotient of the sum of the vectors x0_U, x1_U and so on.
func sum(d core.DType, count, u int, quotient func(value string) string) string {
	var b strings.Builder
	if d == core.Int32 {
		fmt.Fprintf(&b, "    let s_%d = x0_%d", u, u)
		for k := 1; k < count; k++ {
			fmt.Fprintf(&b, " + x%d_%d", k, u)
		}
		b.WriteString(";\n")
		return b.String()
	}
	halves := 1
	if d != core.Float32 {
		halves = 2
	}
	for h := range halves {
		fmt.Fprintf(&b, "    var r%d_%d = %s;\n", h, u, reals(d, fmt.Sprintf("x0_%d", u), h))
		for k := 1; k < count; k++ {
			fmt.Fprintf(&b, "    r%d_%d = r%d_%d + %s;\n", h, u, h, u, reals(d, fmt.Sprintf("x%d_%d", k, u), h))
		}
		fmt.Fprintf(&b, "    r%d_%d = %s;\n", h, u, quotient(fmt.Sprintf("r%d_%d", h, u)))
	}
	if d == core.Float32 {
		fmt.Fprintf(&b, "    let s_%d = bitcast<int4>(r0_%d);\n", u, u)
		return b.String()
	}
	var words []string
	for i := range 4 {
		v := fmt.Sprintf("r%d_%d", i/2, u)
		low, high := shader.Encode(v+"."+shader.Component(i%2*2), d, 0, 0), shader.Encode(v+"."+shader.Component(i%2*2+1), d, 0, 0)
		words = append(words, fmt.Sprintf("%s | (%s << 16u)", low, high))
	}
	fmt.Fprintf(&b, "    let s_%d = bitcast<int4>(word4(%s));\n", u, strings.Join(words, ", "))
	return b.String()
}

// reals returns the expression for four of a vector's elements: the first or, for dtypes of 16 bits, the first or last four.
func reals(d core.DType, x string, half int) string {
	word := func(i int) string { return "bitcast<u32>(" + x + "." + shader.Component(2*half+i) + ")" }
	switch d {
	case core.Float16:
		return fmt.Sprintf("real4(unpack2x16float(%s), unpack2x16float(%s))", word(0), word(1))
	case core.BFloat16:
		return fmt.Sprintf("bitcast<real4>(word4(%s << 16u, %s & 0xffff0000u, %s << 16u, %s & 0xffff0000u))", word(0), word(0), word(1), word(1))
	}
	return "bitcast<real4>(" + x + ")"
}

package combine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/shader"
)

// Pieces are summed, and the pieces of several segments copied, in vectors of 16 bytes. An invocation loads several vectors of each piece
// before it joins any, because the memory of another GPU is far away. One program joins several segments: to begin a program costs more than
// a small one takes.

const (
	vectorBytes = 16
	// unrolled is how many vectors of each piece an invocation has on the way at once.
	unrolled = 4
	// tile is how many vectors of a segment a workgroup joins at a time.
	tile = shader.Threads * unrolled
	// fixedWords bounds the words of parameters beside those of segments.
	fixedWords = 8
)

// countVectors returns how many vectors of a segment can be joined as such.
func (g *segment) countVectors(o contract.CombineOp) int {
	d := g.ins[0].DType
	switch d {
	case core.Float32, core.Float16, core.BFloat16, core.Int32:
	default:
		if o != contract.CombineCopy {
			return 0
		}
	}
	for _, list := range [][]core.Operand{g.ins, g.outs} {
		for i := range list {
			if byteOf(&list[i])%vectorBytes != 0 {
				return 0
			}
		}
	}
	return g.ins[0].Numel() * d.Size() / vectorBytes
}

// byteOf returns the offset of an operand in its slab.
func byteOf(o *core.Operand) int {
	return int(o.Memory.Handle&shader.OffsetMask) + o.Offset*o.DType.Size()
}

// slabs returns the slabs of a segment's operands.
func (g *segment) slabs() (list []int) {
	for _, operands := range [][]core.Operand{g.ins, g.outs} {
		for i := range operands {
			list = append(list, shader.Slab(operands[i].Memory))
		}
	}
	return list
}

// runVectors joins the vectors of segments: those in the same slabs in one program, as far as its parameters have room.
func runVectors(r *shader.Recorder, list []segment, a contract.CombineAttrs) error {
	left := slices.DeleteFunc(slices.Clone(list), func(g segment) bool { return g.vectors == 0 })
	for len(left) > 0 {
		slabs := left[0].slabs()
		room := (shader.MaxParamBytes/4 - fixedWords) / (2 + len(slabs))
		var together, others []segment
		for _, g := range left {
			if len(together) < room && slices.Equal(g.slabs(), slabs) {
				together = append(together, g)
			} else {
				others = append(others, g)
			}
		}
		if err := runTogether(r, together, a); err != nil {
			return err
		}
		left = others
	}
	return nil
}

// runTogether joins the vectors of segments in the same slabs. Fewer workgroups than tiles leave the rest of the GPU to other work.
func runTogether(r *shader.Recorder, list []segment, a contract.CombineAttrs) error {
	first := &list[0]
	d, tiles := first.ins[0].DType, 0
	for i := range list {
		tiles += shader.Ceil(list[i].vectors, tile)
	}
	s := shader.New(r, "combine.vectors")
	s.Specialize(int(a.Op))
	s.Specialize(int(d))
	s.Specialize(len(first.ins))
	s.Specialize(len(first.outs))
	groups := min(tiles, r.GPU.CombineGroups)
	count, step := s.Uint(tiles), s.Uint(groups)
	quotient := divide(s, a.Divisor)
	var bound slabs
	role := 0
	ins, outs := first.places(func(o *core.Operand) place {
		number, added := bound.find(o)
		s.Specialize(number)
		if added {
			s.Vec4Of(fmt.Sprint("x", number), o.Memory)
		}
		role++
		return place{buffer: fmt.Sprint("x", number), first: fmt.Sprintf("word(row + %du)", 1+role)}
	})
	table := s.Specialize(len(s.Words))
	end := 0
	for i := range list {
		g := &list[i]
		end += shader.Ceil(g.vectors, tile)
		s.Uint(end)
		s.Uint(g.vectors)
		for _, operands := range [][]core.Operand{g.ins, g.outs} {
			for k := range operands {
				s.Uint(byteOf(&operands[k]) / vectorBytes)
			}
		}
	}
	return s.Run(r, groups, func(w *shader.Text) {
		w.Func("word(i: u32) -> u32", "return p[i >> 2u][i & 3u];")
		w.Main(shader.Threads)
		w.Add(`  var row = %du;
  var before = 0u;
  for (var t = group; t < %s; t += %s) {
    while (t >= word(row)) {
      before = word(row);
      row += %du;
    }
    let vectors = word(row + 1u);
    let at = (t - before) * %du + li;`, table, count, step, 2+role, tile)
		for u := range unrolled {
			w.Add("    let at_%d = min(at + %du, vectors - 1u);", u, u*shader.Threads)
			for k, p := range ins {
				w.Add("    let x%d_%d = %s[%s + at_%d];", k, u, p.buffer, p.first, u)
			}
		}
		for u := range unrolled {
			if a.Op == contract.CombineCopy {
				w.Add("    let s_%d = x0_%d;", u, u)
			} else {
				w.Put(sum(d, len(ins), u, quotient))
			}
			w.Add("    if (at + %du < vectors) {", u*shader.Threads)
			for _, p := range outs {
				w.Add("      %s[%s + at_%d] = s_%d;", p.buffer, p.first, u, u)
			}
			w.Add("    }")
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

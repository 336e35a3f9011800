// Package combine has the GPU kernel of collectives. It joins pieces of several ranks' memory in rank order. The pieces may be on other GPUs
// that the GPU reaches.
package combine

import (
	"fmt"
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.Combine, combine) }

func combine(r *shader.Recorder, c *core.Call) error {
	a := contract.CombineOf(c)
	segments := max(int(a.Segments), 1)
	ins, outs := len(c.Ins)/segments, len(c.Outs)/segments
	var list []segment
	for i := range segments {
		s := segment{op: c.Op, ins: c.Ins[i*ins : (i+1)*ins], outs: c.Outs[i*outs : (i+1)*outs]}
		if a.Op == contract.CombineSum || a.Op == contract.CombineCopy && segments > 1 {
			s.vectors = s.countVectors(a.Op)
		}
		list = append(list, s)
	}
	if err := runVectors(r, list, a); err != nil {
		return err
	}
	for i := range list {
		s := &list[i]
		var err error
		if a.Op == contract.CombineCopy {
			err = s.copyRest(r)
		} else {
			err = s.joinRest(r, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A segment is pieces of one length that are joined.
type segment struct {
	op        string
	ins, outs []core.Operand
	vectors   int // how many vectors of 16 bytes [runVectors] joins; the rest is joined one by one
}

// done returns how many elements are joined as vectors.
func (g *segment) done() int { return g.vectors * vectorBytes / g.ins[0].DType.Size() }

// copyRest copies what is left of the input to all outputs.
func (g *segment) copyRest(r *shader.Recorder) error {
	in := rest(&g.ins[0], g.done())
	if in.Numel() == 0 {
		return nil
	}
	for i := range g.outs {
		out := rest(&g.outs[i], g.done())
		if out.Memory.Handle == in.Memory.Handle && out.Offset == in.Offset {
			continue
		}
		if err := copying.Copy(r, &core.Call{Op: g.op, Outs: []core.Operand{out}, Ins: []core.Operand{in}}); err != nil {
			return err
		}
	}
	return nil
}

// rest returns an operand without its first elements.
func rest(o *core.Operand, without int) core.Operand {
	part := *o
	part.Offset += without
	part.Shape = []int{o.Numel() - without}
	return part
}

// slabs are the slabs that a program binds. Operands in one slab share a binding.
type slabs []int

// find returns the number of an operand's binding, and whether it is new.
func (s *slabs) find(o *core.Operand) (number int, added bool) {
	number = slices.Index(*s, shader.Slab(o.Memory))
	if number < 0 {
		number = len(*s)
		*s = append(*s, shader.Slab(o.Memory))
		return number, true
	}
	return number, false
}

// A place is where a program finds an operand.
type place struct {
	buffer string // name of the binding
	first  string // index of the operand's first element
}

// places finds all operands of a segment.
func (g *segment) places(find func(o *core.Operand) place) (ins, outs []place) {
	for i := range g.ins {
		ins = append(ins, find(&g.ins[i]))
	}
	for i := range g.outs {
		outs = append(outs, find(&g.outs[i]))
	}
	return ins, outs
}

// divide returns the function that writes the quotient of a value and the divisor, which is the value itself if that is 0. A product with
// 1/2, 1/4 and so on is exact also where quotients are not.
func divide(s *shader.Builder, divisor float64) func(value string) string {
	fraction, _ := math.Frexp(divisor)
	switch {
	case s.Flag(divisor == 0):
		return func(value string) string { return value }
	case s.Flag(fraction == 0.5):
		by := s.Float(1 / divisor)
		return func(value string) string { return value + " * " + by }
	}
	by := s.Float(divisor)
	return func(value string) string { return value + " / " + by }
}

// joinRest combines what is left of a segment, one by one.
func (g *segment) joinRest(r *shader.Recorder, a contract.CombineAttrs) error {
	d, from := g.ins[0].DType, g.done()
	n := g.ins[0].Numel() - from
	if n == 0 {
		return nil
	}
	t := shader.ComputeType(d)
	s := shader.New(r, "combine")
	s.Specialize(int(a.Op))
	count := s.Uint(n)
	var bound slabs
	find := func(o *core.Operand) place {
		part := *o
		part.Offset += from
		number, added := bound.find(o)
		s.Specialize(number)
		p := place{buffer: fmt.Sprint("x", number)}
		if added {
			p.first = s.InOut(p.buffer, &part, t)
		} else {
			p.first = s.Uint(int(shader.Base(&part)))
		}
		return p
	}
	s.Specialize(len(g.ins))
	s.Specialize(len(g.outs))
	ins, outs := g.places(find)
	value := "v"
	if t == expr.F32 {
		value = divide(s, a.Divisor)(value)
	}
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add("  var v = ld_%s(%s + i);", ins[0].buffer, ins[0].first)
		for _, p := range ins[1:] {
			w.Add("  v = %s;", joined(a.Op, t, "v", fmt.Sprintf("ld_%s(%s + i)", p.buffer, p.first)))
		}
		w.Add("  let out = %s;", value)
		for _, p := range outs {
			w.Add("  st_%s(%s + i, out);", p.buffer, p.first)
		}
	})
}

// joined returns the expression that combines a with the next rank's b. Of two equal numbers, minimum and maximum keep a.
func joined(o contract.CombineOp, t expr.Type, a, b string) string {
	type key struct {
		op contract.CombineOp
		t  expr.Type
	}
	format := map[key]string{
		{contract.CombineSum, expr.F32}:     "%s + %s",
		{contract.CombineProduct, expr.F32}: "%s * %s",
		{contract.CombineMin, expr.F32}:     "plait_min_f32(%[2]s, %[1]s)",
		{contract.CombineMax, expr.F32}:     "plait_max_f32(%[2]s, %[1]s)",
		{contract.CombineSum, expr.I64}:     "plait_add_i64(%s, %s)",
		{contract.CombineProduct, expr.I64}: "plait_mul_i64(%s, %s)",
		{contract.CombineMin, expr.I64}:     "plait_min_i64(%s, %s)",
		{contract.CombineMax, expr.I64}:     "plait_max_i64(%s, %s)",
		{contract.CombineBitAnd, expr.I64}:  "%s & %s",
		{contract.CombineBitOr, expr.I64}:   "%s | %s",
		{contract.CombineBitXor, expr.I64}:  "%s ^ %s",
	}[key{o, t}]
	return fmt.Sprintf(format, a, b)
}

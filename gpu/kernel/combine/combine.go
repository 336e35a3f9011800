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
	a, n := contract.CombineOf(c), c.Ins[0].Numel()
	if a.Op == contract.CombineCopy {
		return copyAll(r, c)
	}
	done := 0
	if a.Op == contract.CombineSum && vectors(c) {
		done = n / tile(c) * tile(c)
		if err := sumVectors(r, c, a.Divisor, done); err != nil {
			return err
		}
	}
	return join(r, c, a, done)
}

// copyAll copies the input to all outputs.
func copyAll(r *shader.Recorder, c *core.Call) error {
	in := &c.Ins[0]
	for i := range c.Outs {
		out := &c.Outs[i]
		if out.Memory.Handle == in.Memory.Handle && out.Offset == in.Offset {
			continue
		}
		if err := copying.Copy(r, &core.Call{Op: c.Op, Outs: c.Outs[i : i+1], Ins: c.Ins}); err != nil {
			return err
		}
	}
	return nil
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

// places finds all operands of a call.
func places(c *core.Call, find func(o *core.Operand) place) (ins, outs []place) {
	for i := range c.Ins {
		ins = append(ins, find(&c.Ins[i]))
	}
	for i := range c.Outs {
		outs = append(outs, find(&c.Outs[i]))
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

// join combines the elements from index from on, one by one.
func join(r *shader.Recorder, c *core.Call, a contract.CombineAttrs, from int) error {
	d, n := c.Ins[0].DType, c.Ins[0].Numel()-from
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
	s.Specialize(len(c.Ins))
	s.Specialize(len(c.Outs))
	ins, outs := places(c, find)
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

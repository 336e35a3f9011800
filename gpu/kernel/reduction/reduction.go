// Package reduction has the GPU kernels of reductions over dimensions. A [Fold] defines the reduction, and plan.go divides the work.
package reduction

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	for _, k := range []core.KernelID{contract.Sum, contract.Mean, contract.Prod, contract.Amax, contract.Amin, contract.Any, contract.All,
		contract.CountNonzero, contract.LogSumExp, contract.NanSum, contract.Var, contract.Std, contract.ArgMax, contract.ArgMin} {
		name := k.String()
		kernel.Register(k, func(r *shader.Recorder, c *core.Call) error { return reduceCall(r, c, name) })
	}
	kernel.Register(contract.Norm, func(r *shader.Recorder, c *core.Call) error {
		name := "norm"
		switch p := contract.ReductionParam(c); {
		case p == 0:
			name = "norm0"
		case p == 1:
			name = "norm1"
		case p == 2:
			name = "norm2"
		case math.IsInf(p, 1):
			name = "normmax"
		case math.IsInf(p, -1):
			name = "normmin"
		}
		return reduceCall(r, c, name)
	})
}

func reduceCall(r *shader.Recorder, c *core.Call, name string) error {
	in, x := &c.Ins[0], contract.ReductionParam(c)
	f, ok := Of(name, in.DType.IsFloat(), x)
	if !ok {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", in.DType)
	}
	outs := make([]*core.Operand, 0, 2)
	for i := range c.Outs {
		if c.Outs[i].Present() {
			outs = append(outs, &c.Outs[i])
		}
	}
	return f.Run(r, name, in, outs, contract.Dims(c), x)
}

// Run reduces in over dims to outs. x is the parameter of the reduction.
func (f *Fold) Run(r *shader.Recorder, name string, in *core.Operand, outs []*core.Operand, dims []int64, x float64) error {
	p := f.divide(r.GPU, in, outs, dims)
	if p.kept.Count == 0 {
		return nil
	}
	n, width, side := p.reduced.Count, p.width, p.side
	var states core.Memory
	if p.pieces > 1 {
		var err error
		if states, err = r.Temp(4 * f.words(r.Float64) * p.pieces * p.kept.Count); err != nil {
			return err
		}
	}
	s := shader.New(r, name)
	t := expr.F32
	if !in.DType.IsFloat() {
		t = expr.I64
	}
	from := s.In("x", in, t, f.kind)
	s.Bindings[0].Vec4 = s.Flag(p.vec4)
	kept, reduced, total := p.kept, p.reduced, n
	lanes := 1 // results of each invocation
	switch {
	case p.vec4 && width > 1 && side == 1:
		reduced, total = reduced.ByVec4(), n/4
	case p.vec4:
		kept, lanes = kept.ByVec4(), 4
	}
	totalWord, count, chunkWord, results, piecesWord := s.Uint(total), s.Uint(n), s.Uint(p.chunk), s.Uint(kept.Count), s.Uint(p.pieces)
	number := s.Float(x)
	var to, steps []string
	second := s.Flag(p.pieces > 1)
	s.Specialize(width / 64)
	s.Specialize(side)
	if second {
		to = []string{s.WordsOf("states", states)}
	} else {
		for i, o := range outs {
			to = append(to, s.Out("y"+strconv.Itoa(i), o, f.typeOf(i, t), f.kindOf(i)))
			if lanes > 1 {
				steps = append(steps, s.Uint(p.kept.Strides[1+i][len(kept.Sizes)-1]))
			}
		}
	}
	s.Specialize(len(kept.Sizes))
	s.Specialize(len(reduced.Sizes))
	keptAt, reducedAt := s.Loop(&kept), s.Loop(&reduced)
	unroll := s.Flag(p.chunk >= 8*width)
	ahead := 4 // loads in flight at a time
	if s.Flag(side > 1 && p.chunk >= 16*width) {
		ahead = 8
	}
	groups := kept.Count / side * p.pieces
	if width == 1 {
		groups = shader.GroupsFor(groups)
	}
	err := s.Run(r, groups, func(w *shader.Text) {
		f.functions(w, number, count)
		f.open(w, width, side, lanes, results, piecesWord)
		w.Put(shader.WalkAs("at_", "row", len(kept.Sizes), 1+len(outs), keptAt, append([]string{from}, starts(to, len(outs), second)...)))
		w.Add(`  let first = piece * %s;
  let last = min(first + %s, %s);`, chunkWord, chunkWord, totalWord)
		for l := range lanes {
			w.Add("  var a%d = zero();", l)
		}
		load, element := "ld_x(in_0)", shader.WalkAs("in_", "j", len(reduced.Sizes), 1, reducedAt, []string{"at_0"})
		if p.vec4 {
			load = "ld4_x(in_0 >> 2u)"
		}
		// add adds the loaded value v with index j to the states.
		add := func(v, j string) {
			switch {
			case lanes > 1:
				for l := range lanes {
					w.Add("    a%d = add(a%d, %s.%s, %s);", l, l, v, shader.Component(l), j)
				}
			case p.vec4:
				for l := range 4 {
					w.Add("    a0 = add(a0, %s.%s, (%s) * 4u + %du);", v, shader.Component(l), j, l)
				}
			default:
				w.Add("    a0 = add(a0, %s, %s);", v, j)
			}
		}
		w.Add("  var i0 = first + lane;")
		if unroll {
			w.Add("  for (; i0 + %du < last; i0 += %du) {", (ahead-1)*width, ahead*width)
			for k := range ahead {
				w.Add(`    var v%d = %s;
    {
    let j = i0 + %du;`, k, strings.Replace(load, "in_0", "0u", 1), k*width)
				w.Add(`%s    v%d = %s;
    }`, element, k, load)
			}
			for k := range ahead {
				add(fmt.Sprint("v", k), fmt.Sprintf("i0 + %du", k*width))
			}
			w.Add("  }")
		}
		w.Add(`  for (; i0 < last; i0 += %du) {
    let j = i0;
%s    let v = %s;`, width, element, load)
		add("v", "j")
		w.Add("  }")
		states := make([]string, lanes)
		for l := range states {
			states[l] = "a" + strconv.Itoa(l)
		}
		f.tree(w, states, width, side)
		for l := range lanes {
			w.Add(`  {
  let a = a%d;`, l)
			if second {
				f.storeState(w, r.Float64, to[0], fmt.Sprintf("(piece * %s + row) * %du + %du", results, lanes, l))
			} else {
				f.finish(w, func(i int) string {
					if lanes == 1 {
						return fmt.Sprintf("at_%d", i+1)
					}
					return fmt.Sprintf("at_%d + %du * %s", i+1, l, steps[i])
				}, len(outs))
			}
			w.Add("  }")
		}
	})
	if err != nil || p.pieces == 1 {
		return err
	}
	return f.joinStates(r, name, states, p.pieces, p.kept, outs, t, x, n)
}

// starts returns the indices of the outputs' first elements, or zeros if states are stored instead.
func starts(to []string, n int, states bool) []string {
	if !states {
		return to
	}
	out := make([]string, n)
	for i := range out {
		out[i] = "0u"
	}
	return out
}

// joinStates combines the states of pieces in a second dispatch. If there are many results, a workgroup has several neighbouring ones, so
// that reads are coalesced.
func (f *Fold) joinStates(r *shader.Recorder, name string, states core.Memory, pieces int, kept shader.Loop, outs []*core.Operand, t expr.Type, x float64, n int) error {
	s := shader.New(r, name+" (join)")
	from := s.WordsOf("states", states)
	count, results, piecesWord := s.Uint(n), s.Uint(kept.Count), s.Uint(pieces)
	number := s.Float(x)
	var to []string
	for i, o := range outs {
		to = append(to, s.Out("y"+strconv.Itoa(i), o, f.typeOf(i, t), f.kindOf(i)))
	}
	if t == expr.F32 {
		s.Specialize(1)
	}
	s.Specialize(len(kept.Sizes))
	outer := shader.Loop{Sizes: kept.Sizes, Strides: kept.Strides[1:]}
	at := s.Loop(&outer)
	side := 1 // results of each workgroup
	if kept.Count >= 16 {
		side = 16
	}
	s.Specialize(side)
	return s.Run(r, shader.Ceil(kept.Count, side), func(w *shader.Text) {
		const width = shader.Threads
		f.functions(w, number, count)
		f.share(w, width)
		w.Main(width)
		w.Add(`  if (group * %du >= %s) { return; }
  let lane = li / %du;`, side, results, side)
		w.Add("  let row = min(group * %du + li %% %du, %s - 1u);", side, side, results)
		w.Put(shader.WalkAs("to_", "row", len(outer.Sizes), len(outs), at, to))
		w.Add(`  var a = zero();
  for (var j = lane; j < %s; j += %du) {`, piecesWord, width/side)
		w.Add(`    let slot = %s + (j * %s + row) * %du;
    var b: state;`, from, results, f.words(r.Float64))
		at := 0
		for i, t := range f.fields {
			value := fmt.Sprintf("states[slot + %du]", at)
			if fieldWords(t, r.Float64) == 2 {
				value = fmt.Sprintf("pair(%s, states[slot + %du])", value, at+1)
			}
			if t == shader.Real {
				value = "bitcast<real>(" + value + ")"
			}
			w.Add("    b.f%d = %s;", i, value)
			at += fieldWords(t, r.Float64)
		}
		w.Add(`    a = join(a, b);
  }`)
		f.tree(w, []string{"a"}, width/side, side)
		w.Add("  if (group * %du + li >= %s) { return; }", side, results)
		f.finish(w, func(i int) string { return fmt.Sprintf("to_%d", i) }, len(outs))
	})
}

// open opens the main function. It defines row, the number of the result; piece, the part of its elements; and lane, the invocation's
// number among those that share the result. A workgroup has side neighbouring results, or vec4 of results.
func (f *Fold) open(w *shader.Text, width, side, lanes int, results, pieces string) {
	if width == 1 {
		w.Main(shader.Threads)
		w.Add(`  let i = group * %du + li;
  if (i >= %s * %s) { return; }`, shader.Threads, results, pieces)
		w.Add(`  let row = i %% %s;
  let piece = i / %s;
  let lane = 0u;`, results, results)
		return
	}
	f.share(w, width*side*lanes)
	w.Main(width * side)
	if side > 1 {
		w.Add("  if (group * %du >= %s) { return; }", side, results)
		w.Add(`  let row = group * %[1]du + li %% %[1]du;
  let piece = 0u;
  let lane = li / %[1]du;`, side)
		return
	}
	w.Add("  if (group >= %s * %s) { return; }", results, pieces)
	w.Add(`  let row = group %% %s;
  let piece = group / %s;
  let lane = li;`, results, results)
}

// share declares the workgroup memory of tree, for a number of states.
func (f *Fold) share(w *shader.Text, states int) {
	for i, t := range f.fields {
		w.Shared(fmt.Sprintf("shared_%d", i), t, states)
	}
}

// tree combines the states of all lanes by a tree reduction in workgroup memory. states are the names of the states of each lane, and side
// is the number of results in the workgroup. Lane 0 gets the total; the other lanes return.
func (f *Fold) tree(w *shader.Text, states []string, lanes, side int) {
	if lanes == 1 {
		return
	}
	put := func() {
		for s, name := range states {
			for i := range f.fields {
				w.Add("  shared_%d[li + %du] = %s.f%d;", i, s*lanes*side, name, i)
			}
		}
	}
	put()
	w.Barrier()
	for step := lanes / 2; step > 0; step /= 2 {
		w.Add("  if (lane < %du) {", step)
		for s, name := range states {
			var fields []string
			for i := range f.fields {
				fields = append(fields, fmt.Sprintf("shared_%d[li + %du]", i, s*lanes*side+step*side))
			}
			w.Add("  %[1]s = join(%[1]s, state(%[2]s));", name, strings.Join(fields, ", "))
		}
		put()
		w.Add("  }")
		w.Barrier()
	}
	w.Add("  if (lane > 0u) { return; }")
}

// storeState writes the state to scratch memory for joinStates. place is the expression for its number there.
func (f *Fold) storeState(w *shader.Text, double bool, to, place string) {
	w.Add("  let slot = %s + (%s) * %du;", to, place, f.words(double))
	at := 0
	for i, t := range f.fields {
		switch words := fieldWords(t, double); {
		case words == 2:
			value := fmt.Sprintf("a.f%d", i)
			if t == shader.Real {
				value = "bitcast<pair>(" + value + ")"
			}
			w.Add(`  let bits%[1]d = %[2]s;
  states[slot + %[3]du] = bits%[1]d.x;
  states[slot + %[4]du] = bits%[1]d.y;`, i, value, at, at+1)
		case t == shader.Real:
			w.Add("  states[slot + %du] = bitcast<u32>(a.f%d);", at, i)
		default:
			w.Add("  states[slot + %du] = a.f%d;", at, i)
		}
		at += fieldWords(t, double)
	}
}

// finish stores the results. position returns the expression for the index of output i.
func (f *Fold) finish(w *shader.Text, position func(i int) string, outs int) {
	for i := range outs {
		w.Add("  st_y%d(%s, result_%d(a));", i, position(i), i)
	}
}

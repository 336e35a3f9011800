package elementwise

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// write writes the program. Bit i of repeated says that operand i has the same value for all elements.
func (m *Kernel) write(w *shader.Text, all []*core.Operand, repeated uint64, form LoopForm, faults bool) {
	k, t := m.kernel, m.Compute
	accesses := make([]*shader.Access, len(all))
	bases := make([]string, len(all))
	binding, next := 1, 1
	kind := m.Kind
	for i, o := range all {
		if o.IsNumber {
			continue
		}
		a := &shader.Access{Name: "x" + strconv.Itoa(i), DType: o.DType, Vec4: form.Vec4 && repeated>>i&1 == 0}
		a.Shared = i >= len(k.In) && !form.Vec4 && shader.PerWord(o.DType) > 1
		accesses[i] = a
		a.Declare(w, binding)
		if i < len(k.In) {
			a.Loader(w, t, kind(i))
		} else {
			a.Storer(w, t, kind(i))
		}
		bases[i] = shader.Param(next)
		binding++
		next++
	}
	var names []string
	for i, o := range all[:len(k.In)] {
		if !o.IsNumber {
			names = append(names, "x"+strconv.Itoa(i))
		}
	}
	next = m.Function(w, "", func(i int) bool { return all[i].IsNumber }, next, faults)
	if faults {
		w.Words(binding, "faults")
	}
	w.Main(shader.Threads)
	w.Add("  let i = group * %du + li;\n  let n = %s;", shader.Threads, shader.Param(0))
	if form.Vec4 {
		if form.Rank > 0 {
			w.Add("  if (i * 4u >= n) { return; }")
			var first []string
			for i, a := range accesses {
				if a != nil {
					first = append(first, bases[i])
				}
			}
			w.Put(shader.Walk(form.Rank, len(first), next, first))
			at := 0
			for i, a := range accesses {
				if a != nil {
					bases[i] = "at_" + strconv.Itoa(at)
					at++
				}
			}
		}
		m.writeVec4(w, accesses, bases, names, repeated, form.Rank > 0)
	} else {
		w.Add("  if (i >= n) { return; }")
		var used []*shader.Access
		var first []string
		for i, a := range accesses {
			if a != nil {
				used = append(used, a)
				first = append(first, bases[i])
			}
		}
		w.Put(shader.Walk(form.Rank, len(used), next, first))
		var args []string
		position := map[string]string{}
		for j, a := range used {
			position[a.Name] = "at_" + strconv.Itoa(j)
		}
		for _, n := range names {
			args = append(args, "ld_"+n+"("+position[n]+")")
		}
		w.Add("  let out = apply(%s);", strings.Join(args, ", "))
		for j := range k.Program.Results {
			name := accesses[len(k.In)+j].Name
			w.Add("  st_%s(%s, out.r%d);", name, position[name], j)
		}
	}
}

// Kind returns the kind of operand i; outputs follow inputs.
func (m *Kernel) Kind(i int) expr.Kind {
	if ins := m.kernel.In; i < len(ins) {
		return ins[i].Kind
	}
	return m.kernel.Program.Results[i-len(m.kernel.In)].Kind()
}

// Function declares the operation as a function apply of its inputs that are not numbers, and its result type results. suffix is appended
// to both names. The parameters from index next on are numbers, attributes and, with faults, the index of the fault word. Function returns
// the index of the parameter behind them.
func (m *Kernel) Function(w *shader.Text, suffix string, isNumber func(i int) bool, next int, faults bool) int {
	k, t := m.kernel, m.Compute
	scalar := func(k expr.Kind) string {
		if t == expr.I64 {
			next += 2
			v := "pair(" + shader.Param(next-2) + ", " + shader.Param(next-1) + ")"
			if k == expr.Logic {
				return "any(" + v + " != pair(0u, 0u))"
			}
			return v
		}
		v, words := w.RealParam(next)
		next += words
		if k == expr.Logic {
			return "!(" + v + " == 0.0)"
		}
		return v
	}
	constants := ""
	var formals []string
	for i, p := range k.In {
		if isNumber(i) {
			constants += fmt.Sprintf("  let %s_ = %s;\n", p.Name, scalar(p.Kind))
		} else {
			formals = append(formals, p.Name+"_: "+shader.TypeName(t, p.Kind))
		}
	}
	for _, name := range k.Attrs {
		constants += fmt.Sprintf("  let %s_ = %s;\n", name, scalar(expr.Number))
	}
	var fields []string
	for i := range k.Program.Results {
		fields = append(fields, fmt.Sprintf("r%d: %s", i, shader.TypeName(t, m.Kind(len(k.In)+i))))
	}
	w.Struct("results"+suffix, fields...)
	body := fmt.Sprintf(`%s  var out: results%s;
%s`, constants, suffix, k.Program.WGSL(t, func(i int, value string) string { return fmt.Sprintf("  out.r%d = %s;", i, value) }))
	if faults {
		for _, d := range k.Program.Divisors() {
			divisor := &expr.Program{Lets: k.Program.Lets, Results: []expr.Expr{d}}
			body += fmt.Sprintf(`
  {
%s
  }`, divisor.WGSL(t, func(_ int, value string) string {
				return "    if (all((" + value + ") == pair(0u, 0u))) { faults[" + shader.Param(next) + "] = 1u; }"
			}))
		}
		next++
	}
	w.Func("apply"+suffix+"("+strings.Join(formals, ", ")+") -> results"+suffix, "%s\n  return out;", body)
	return next
}

// writeVec4 writes the part of the program that processes four elements at once and, in a flat loop, the remaining elements one by one. In
// a loop over dimensions, bases are the indices of the vec4.
func (m *Kernel) writeVec4(w *shader.Text, accesses []*shader.Access, bases, names []string, repeated uint64, dimensions bool) {
	k, t, kind := m.kernel, m.Compute, m.Kind
	index := func(name string) int { n, _ := strconv.Atoi(name[1:]); return n }
	if dimensions {
		w.Add(`  let e = 0u;
  {`)
	} else {
		w.Add(`  let e = i * 4u;
  if (e + 3u < n) {`)
	}
	for _, n := range names {
		i := index(n)
		if repeated>>i&1 == 1 {
			w.Add("    let %s_0 = ld_%s(%s);", n, n, bases[i])
			continue
		}
		w.Put(accesses[i].LoadVec4(w, t, kind(i), bases[i]+" + e"))
	}
	for v := range 4 {
		var args []string
		for _, n := range names {
			element := v
			if repeated>>index(n)&1 == 1 {
				element = 0
			}
			args = append(args, fmt.Sprintf("%s_%d", n, element))
		}
		w.Add("    let out_%d = apply(%s);", v, strings.Join(args, ", "))
	}
	for j := range k.Program.Results {
		i := len(k.In) + j
		var values [4]string
		for v := range values {
			values[v] = fmt.Sprintf("out_%d.r%d", v, j)
		}
		w.Put(accesses[i].StoreVec4(w, t, kind(i), bases[i]+" + e", values))
	}
	if dimensions {
		w.Add("  }")
		return
	}
	w.Add(`    return;
  }
  for (var j = e; j < n; j++) {`)
	var args []string
	for _, n := range names {
		at := bases[index(n)]
		if repeated>>index(n)&1 == 0 {
			at += " + j"
		}
		args = append(args, "ld_"+n+"("+at+")")
	}
	w.Add("    let out = apply(%s);", strings.Join(args, ", "))
	for j := range k.Program.Results {
		i := len(k.In) + j
		w.Add("    st_%s(%s + j, out.r%d);", accesses[i].Name, bases[i], j)
	}
	w.Add("  }")
}

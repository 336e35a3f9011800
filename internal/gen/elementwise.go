package main

import (
	"bytes"
	"fmt"
	"go/format"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/op/expr"
)

// elementwiseKernels writes the inner loops of elementwise operations and of their derivatives: a C file per family with
// the loops and their table, and a Go file that registers the tables.
func elementwiseKernels(root string) error {
	dir := filepath.Join(root, "core", "cpu", "kernel", "elementwise")
	loops := filepath.Join(dir, "c")
	kernels := map[string][]*expr.Kernel{}
	var families []string
	for _, r := range op.Rows() {
		if r.Elementwise != nil && kernels[r.Family] == nil {
			families = append(families, r.Family)
		}
		for _, e := range r.Elementwise {
			kernels[r.Family] = append(kernels[r.Family], e.Kernels()...)
		}
	}
	slices.Sort(families)
	keep := map[string]bool{}
	var writers []*loopWriter
	for _, family := range families {
		w := newLoopWriter("plaitk_elementwise_" + family)
		for _, k := range kernels[family] {
			for _, t := range k.Types() {
				w.instance(k, t)
			}
		}
		name := "gen_" + family + ".c"
		keep[name] = true
		if err := write(w.bytes(), loops, name); err != nil {
			return err
		}
		writers = append(writers, w)
	}
	registration, err := registration(writers)
	if err != nil {
		return err
	}
	if err := write(registration, dir, "gen_tables.go"); err != nil {
		return err
	}
	return removeExcept(keep, loops, "gen_*")
}

// A loopWriter writes one C file of loops. Instances with the same text share a loop.
type loopWriter struct {
	table string
	loops bytes.Buffer
	rows  bytes.Buffer
	names []string
	known map[string]string // the loop of each anonymous text
}

func newLoopWriter(table string) *loopWriter {
	return &loopWriter{table: table, known: map[string]string{}}
}

// instance adds k computed in t.
func (w *loopWriter) instance(k *expr.Kernel, t expr.Type) {
	name := k.Instance(t)
	loop, pairs, scalars := w.loop(k, strings.ReplaceAll(name, ".", "_"), loopText(k, t, elements)), "NULL", "NULL"
	masked := slices.ContainsFunc(k.In, func(p expr.Param) bool { return p.Kind == expr.Logic }) // which compilers do not vectorise
	if k.Pairs && !masked && k.Program.Cheap() {
		pairs = w.loop(k, loop+"_pairs", loopText(k, t, inPairs))
	}
	scalar := 0
	for i, p := range k.In {
		if p.Scalar {
			scalar |= 1 << i
		}
	}
	if scalar != 0 {
		scalars = w.loop(k, loop+"_scalars", loopText(k, t, withScalars))
	}
	var types []string
	for _, p := range k.In {
		types = append(types, dtypeCode(t, p.Kind))
	}
	for _, r := range k.Program.Results {
		types = append(types, dtypeCode(t, r.Kind()))
	}
	w.names = append(w.names, name)
	fmt.Fprintf(&w.rows, "    {%s, %s, %s, %d, %d, %d, {%s}},\n", loop, pairs, scalars, scalar, len(k.In), len(k.Program.Results), strings.Join(types, ", "))
}

// loop returns the name of a loop of k with the given text, which has that name unless there is one already.
func (w *loopWriter) loop(k *expr.Kernel, name, text string) string {
	key := anonymous(k, text)
	if loop, ok := w.known[key]; ok {
		return loop
	}
	w.known[key] = name
	fmt.Fprintf(&w.loops, "\n// %s\n%s", k.Program, strings.Replace(text, "$", name, 1))
	return name
}

// anonymous returns the text of k's loop with its operands and attributes named by position.
func anonymous(k *expr.Kernel, text string) string {
	for i, p := range k.In {
		text = regexp.MustCompile(`\b`+p.Name+`_\b`).ReplaceAllString(text, fmt.Sprintf("#%d", i))
	}
	for i, name := range k.Attrs {
		text = regexp.MustCompile(`\b`+name+`_\b`).ReplaceAllString(text, fmt.Sprintf("#attr%d", i))
	}
	return text
}

func (w *loopWriter) bytes() []byte {
	var b bytes.Buffer
	b.WriteString("// " + generated + "#include \"simd.h\"\n#include \"scalar.h\"\n")
	b.Write(w.loops.Bytes())
	fmt.Fprintf(&b, "\nconst plaitk_elementwise_kernel %s[%d] = {\n%s};\n", w.table, len(w.names), w.rows.String())
	return b.Bytes()
}

// registration returns the Go file that registers the tables. It is one file because cgo runs the compiler several times for
// each.
func registration(writers []*loopWriter) ([]byte, error) {
	var tables, calls bytes.Buffer
	for _, w := range writers {
		fmt.Fprintf(&tables, "extern const plaitk_elementwise_kernel %s[%d];\n", w.table, len(w.names))
		fmt.Fprintf(&calls, "\tfamily(unsafe.Pointer(&C.%s),\n", w.table)
		for _, name := range w.names {
			fmt.Fprintf(&calls, "\t\t%q,\n", name)
		}
		calls.WriteString("\t)\n")
	}
	return format.Source(fmt.Appendf(nil, "// %s\npackage elementwise\n\n/*\n#include \"c/elementwise.h\"\n%s*/\nimport \"C\"\n\n"+
		"import \"unsafe\"\n\nfunc init() {\n%s}\n", generated, tables.Bytes(), calls.Bytes()))
}

// dtypeCode returns the C name of the dtype that values of kind k have in loops computed in t.
func dtypeCode(t expr.Type, k expr.Kind) string {
	if k == expr.Logic {
		return "PLAIT_BOOL"
	}
	return map[expr.Type]string{expr.F32: "PLAIT_F32", expr.F64: "PLAIT_F64", expr.I64: "PLAIT_I64"}[t]
}

// memoryType returns the C type of elements of kind k in memory.
func memoryType(t expr.Type, k expr.Kind) string {
	if k == expr.Logic {
		return "uint8_t"
	}
	return expr.CType(t, k)
}

// A form is how the operands of a loop lie in memory.
type form int

const (
	elements    form = iota // as an element each
	inPairs                 // as the parts of complex numbers
	withScalars             // as an element each, but those that are often numbers as one
)

// loopText returns the C function of k computed in t, under the name $. All inputs are read before an output is
// written, since an output may be an input.
func loopText(k *expr.Kernel, t expr.Type, form form) string {
	pairs := form == inPairs
	var head, body []string
	clones, simd := "PLAIT_CLONES ", "#pragma omp simd"
	var divisors []expr.Expr
	if t == expr.I64 {
		divisors = k.Program.Divisors()
	}
	near, vectorises := k.Program.Near(t), k.Program.Vectorises(t)
	if !vectorises && len(near) == 0 {
		clones, simd = "", ""
	} else if len(divisors) > 0 {
		simd += " reduction(| : bad)"
	}
	ins, outs := places("in", kinds(k.In, func(p expr.Param) expr.Kind { return p.Kind }), pairs),
		places("out", kinds(k.Program.Results, expr.Expr.Kind), pairs && len(k.Program.Results) > 1)
	for i, p := range k.In {
		if ins[i].first {
			head = append(head, fmt.Sprintf("const %s *in%d = in[%d];", memoryType(t, p.Kind), ins[i].operand, ins[i].operand))
		}
		read := ins[i].element
		if p.Kind == expr.Logic {
			read += " != 0"
		}
		if form == withScalars && p.Scalar {
			if k.Program.Uses(p.Name) {
				head = append(head, fmt.Sprintf("const %s %s_ = in%d[0];", expr.CType(t, p.Kind), p.Name, i))
			}
			body = append(body, "")
			continue
		}
		body = append(body, fmt.Sprintf("const %s %s_ = %s;", expr.CType(t, p.Kind), p.Name, read))
	}
	for i, r := range k.Program.Results {
		if outs[i].first {
			head = append(head, fmt.Sprintf("%s *out%d = out[%d];", memoryType(t, r.Kind()), outs[i].operand, outs[i].operand))
		}
	}
	for i, name := range k.Attrs {
		if !k.Program.Uses(name) {
			continue
		}
		field := "f"
		if t == expr.I64 {
			field = "i"
		}
		ctype := expr.CType(t, expr.Number)
		head = append(head, fmt.Sprintf("const %s %s_ = (%s)attr[%d].%s;", ctype, name, ctype, i, field))
	}
	status := "0"
	if len(divisors) > 0 {
		status = "bad"
		head = append(head, "int64_t bad = 0;")
	}
	results := len(k.Program.Results)
	checked := &expr.Program{Lets: k.Program.Lets, Results: append(k.Program.Results[:results:results], divisors...)}
	emit := func(i int, value string) string {
		if i >= results {
			return fmt.Sprintf("bad |= %s == 0;", value)
		}
		return fmt.Sprintf("%s = %s;", outs[i].element, value)
	}
	first, end := "0", "n"
	loop := func(b *strings.Builder, indent, simd, text string) { // over the lines of text, after those that read what these use
		if simd != "" {
			fmt.Fprintln(b, simd)
		}
		fmt.Fprintf(b, "%sfor (int64_t i = %s; i < %s; i++) {\n", indent, first, end)
		for i, line := range body {
			if line != "" && regexp.MustCompile(`\b`+k.In[i].Name+`_\b`).MatchString(text) {
				fmt.Fprintf(b, "%s  %s\n", indent, line)
			}
		}
		for line := range strings.SplitSeq(text, "\n") {
			fmt.Fprintf(b, "%s  %s\n", indent, line)
		}
		fmt.Fprintf(b, "%s}\n", indent)
	}

	var b strings.Builder
	fmt.Fprintf(&b, "%sPLAITK_ELEMENTWISE_LOOP($) {\n", clones)
	for _, line := range head {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if len(near) > 0 {
		var tests []string
		for _, c := range near {
			if test := "far |= " + c.FarC(t) + ";"; !slices.Contains(tests, test) {
				tests = append(tests, test)
			}
		}
		first, end = "at", "end"
		fmt.Fprintf(&b, "  for (int64_t at = 0, end; at < n; at = end) {\n    end = n - at < PLAITK_ELEMENTWISE_PART ? n : at + PLAITK_ELEMENTWISE_PART;\n")
		fmt.Fprintf(&b, "    uint%d_t far = 0;\n", map[expr.Type]int{expr.F32: 32, expr.F64: 64}[t])
		loop(&b, "    ", simd+" reduction(| : far)", strings.Join(tests, "\n"))
		fmt.Fprintln(&b, "    if (far == 0) {")
		loop(&b, "      ", simd, checked.NearC(t, emit))
		fmt.Fprintln(&b, "      continue;\n    }")
	}
	if !vectorises {
		simd = ""
	}
	if len(near) > 0 {
		loop(&b, "    ", simd, checked.C(t, emit))
		fmt.Fprintln(&b, "  }")
	} else {
		loop(&b, "  ", simd, checked.C(t, emit))
	}
	fmt.Fprintf(&b, "  return %s;\n}\n", status)
	return b.String()
}

// A place is where a loop finds a value of its program: the operand, and the element of it.
type place struct {
	operand int
	first   bool // whether it is the operand's first value
	element string
}

// places returns the places of values of the given kinds: each has an operand, or with pairs, two numbers in turn share one.
func places(name string, kinds []expr.Kind, pairs bool) []place {
	var list []place
	operand, second := 0, false
	for _, k := range kinds {
		p := place{operand: operand, first: !second, element: fmt.Sprintf("%s%d[i]", name, operand)}
		switch {
		case !pairs || k == expr.Logic:
			operand++
		case second:
			p.element = fmt.Sprintf("%s%d[2 * i + 1]", name, operand)
			operand, second = operand+1, false
		default:
			p.element = fmt.Sprintf("%s%d[2 * i]", name, operand)
			second = true
		}
		list = append(list, p)
	}
	return list
}

func kinds[T any](list []T, kind func(T) expr.Kind) []expr.Kind {
	out := make([]expr.Kind, len(list))
	for i, v := range list {
		out[i] = kind(v)
	}
	return out
}

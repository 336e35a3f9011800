package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/op/expr"
)

func itoa(n int) string { return strconv.Itoa(n) }

func init() {
	seen := map[string]bool{}
	for _, row := range op.Rows() {
		for _, e := range row.Elementwise {
			for _, k := range e.Kernels() {
				for _, t := range []expr.Type{expr.F32, expr.I64} {
					name := k.Instance(t)
					if !slices.Contains(k.Types(), t) || seen[name] {
						continue
					}
					seen[name] = true
					m := &elementwise{kernel: k, compute: t, name: name}
					register(name, m.run)
				}
			}
		}
	}
}

// An elementwise is a kernel that is generated from an operation's program.
type elementwise struct {
	kernel  *expr.Kernel
	compute expr.Type
	name    string
}

// The threads of a workgroup.
const threads = 256

// run implements [kernelFunc]. A program specialises on the operands' dtypes and on the loop: flat, four elements for each
// invocation, or of some rank, one.
func (m *elementwise) run(r *recorder, c *core.Call) error {
	ins, outs := len(c.Ins), len(c.Outs)
	all := make([]*core.Operand, 0, ins+outs)
	for i := range c.Ins {
		all = append(all, &c.Ins[i])
	}
	for i := range c.Outs {
		all = append(all, &c.Outs[i])
	}
	shape := c.Outs[0].Shape
	l := newLayout(shape, all...)
	if l.count == 0 {
		return nil
	}
	key := programKey{name: m.name}
	faults := m.compute == expr.I64 && len(m.kernel.Program.Divisors()) > 0
	four := l.flat() && !faults
	buffers := 0
	var mems [maxBuffers]core.Memory
	for i, o := range all {
		if o.IsNumber {
			key.bits[0] |= 0xf << (4 * i)
			continue
		}
		key.bits[0] |= uint64(o.DType) << (4 * i)
		if l.repeats(i) && l.count > 1 {
			key.bits[1] |= 1 << i
		} else if base(o)%4 != 0 {
			four = false
		}
		if buffers == maxBuffers {
			return core.Errorf(core.NotImplemented, c.Op, "%d operands are more than a program binds", len(all))
		}
		mems[buffers] = o.Memory
		buffers++
	}
	shapeOf := elementwiseShape{rank: len(l.sizes), four: four}
	switch {
	case four:
		shapeOf.rank = 0
	case faults:
		key.bits[1] = 0
	default:
		key.bits[1], shapeOf.four = l.rowsOfFours(all)
	}
	key.bits[2] = uint64(shapeOf.rank)
	if shapeOf.four {
		key.bits[2] |= 1 << 8
	}
	w := append(r.begin(), uint32(l.count))
	for _, o := range all {
		if !o.IsNumber {
			w = append(w, base(o))
		}
	}
	for _, o := range c.Ins {
		if o.IsNumber {
			w = m.scalar(w, o.Number.Float, o.Number.Int)
		}
	}
	for _, v := range c.Floats {
		w = m.scalar(w, v, int64(v))
	}
	for _, v := range c.Ints {
		w = m.scalar(w, float64(v), v)
	}
	if faults {
		mem, word, err := r.check(c, func(c *core.Call, _ uint32) error {
			return core.Errorf(core.ValueError, c.Op, "integer division by zero")
		})
		if err != nil {
			return err
		}
		w = append(w, word)
		mems[buffers] = mem
		buffers++
	}
	if shapeOf.rank > 0 || !shapeOf.four {
		kept := layout{sizes: l.sizes}
		for i, o := range all {
			if !o.IsNumber {
				kept.strides = append(kept.strides, l.strides[i])
			}
		}
		w = kept.words(w)
	}
	r.words = w
	p, err := r.program(key, buffers, func() string { return m.source(c, all, key.bits[1], shapeOf, faults) })
	if err != nil {
		return err
	}
	n := l.count
	if shapeOf.four {
		n = (n + 3) / 4
	}
	return r.dispatch(p, (n+threads-1)/threads, w, mems[:buffers]...)
}

// An elementwiseShape is how a program loops: in four elements at a time or one, flat or, where rank says so, through
// dimensions. Fours of dimensions lie in the innermost.
type elementwiseShape struct {
	rank int
	four bool
}

// rowsOfFours reports whether the innermost dimension divides into fours that lie aligned in every operand or repeat one
// element of it; repeated has a bit for each of the latter. The loop is then over fours.
func (l *layout) rowsOfFours(all []*core.Operand) (repeated uint64, ok bool) {
	last := len(l.sizes) - 1
	if last < 1 || l.sizes[last]%4 != 0 {
		return 0, false
	}
	for i, o := range all {
		if o.IsNumber {
			continue
		}
		switch l.strides[i][last] {
		case 0:
			repeated |= 1 << i
			continue
		case 1:
		default:
			return 0, false
		}
		if base(o)%4 != 0 {
			return 0, false
		}
		for _, s := range l.strides[i][:last] {
			if s%4 != 0 {
				return 0, false
			}
		}
	}
	l.sizes[last] /= 4
	for i := range l.strides {
		l.strides[i][last] *= 4
	}
	return repeated, true
}

// scalar appends a number of the compute type.
func (m *elementwise) scalar(w []uint32, f float64, i int64) []uint32 {
	if m.compute == expr.I64 {
		low, high := intWords(i)
		return append(w, low, high)
	}
	return append(w, floatWord(f))
}

// source writes the program. repeated has a bit for each operand that is the same everywhere in a flat loop.
func (m *elementwise) source(c *core.Call, all []*core.Operand, repeated uint64, shape elementwiseShape, faults bool) string {
	var b strings.Builder
	k, t := m.kernel, m.compute
	b.WriteString(paramsDeclaration)
	accesses := make([]*access, len(all))
	bases := make([]string, len(all))
	binding, next := 1, 1
	kind := func(i int) expr.Kind {
		if i < len(k.In) {
			return k.In[i].Kind
		}
		return k.Program.Results[i-len(k.In)].Kind()
	}
	for i, o := range all {
		if o.IsNumber {
			continue
		}
		a := &access{name: "x" + itoa(i), dtype: o.DType, four: shape.four && repeated>>i&1 == 0}
		a.shared = i >= len(k.In) && !shape.four && packed(o.DType) > 1
		accesses[i] = a
		b.WriteString(a.declare(binding))
		if i < len(k.In) {
			b.WriteString(a.loader(t, kind(i)))
		} else {
			b.WriteString(a.storer(t, kind(i)))
		}
		bases[i] = param(next)
		binding++
		next++
	}
	scalar := func(k expr.Kind) string {
		if t == expr.I64 {
			next += 2
			v := "vec2<u32>(" + param(next-2) + ", " + param(next-1) + ")"
			if k == expr.Logic {
				return "any(" + v + " != vec2<u32>(0u, 0u))"
			}
			return v
		}
		next++
		v := "bitcast<f32>(" + param(next-1) + ")"
		if k == expr.Logic {
			return "!(" + v + " == 0.0)"
		}
		return v
	}
	numbers := make([]string, len(k.In))
	for i := range k.In {
		if all[i].IsNumber {
			numbers[i] = scalar(k.In[i].Kind)
		}
	}
	attrs := ""
	for _, name := range k.Attrs {
		attrs += "  let " + name + "_ = " + scalar(expr.Number) + ";\n"
	}
	if faults {
		fmt.Fprintf(&b, "@group(0) @binding(%d) var<storage, read_write> faults: array<u32>;\n", binding)
		next++
	}
	// The operation: a function of its inputs that are not numbers.
	var names, formals []string
	for i, p := range k.In {
		if numbers[i] != "" {
			attrs += "  let " + p.Name + "_ = " + numbers[i] + ";\n"
			continue
		}
		formals = append(formals, p.Name+"_: "+wgslType(t, p.Kind))
		names = append(names, "x"+itoa(i))
	}
	b.WriteString("struct results {\n")
	for i := range k.Program.Results {
		fmt.Fprintf(&b, "  r%d: %s,\n", i, wgslType(t, kind(len(k.In)+i)))
	}
	fmt.Fprintf(&b, "}\nfn apply(%s) -> results {\n%s  var out: results;\n", strings.Join(formals, ", "), attrs)
	b.WriteString(k.Program.WGSL(t, func(i int, value string) string { return fmt.Sprintf("  out.r%d = %s;", i, value) }))
	if faults {
		for _, d := range k.Program.Divisors() {
			divisor := &expr.Program{Lets: k.Program.Lets, Results: []expr.Expr{d}}
			b.WriteString("\n  {\n" + divisor.WGSL(t, func(_ int, value string) string {
				return "    if (all((" + value + ") == vec2<u32>(0u, 0u))) { faults[" + param(next-1) + "] = 1u; }"
			}) + "\n  }")
		}
	}
	b.WriteString("\n  return out;\n}\n")

	fmt.Fprintf(&b, entry, threads)
	fmt.Fprintf(&b, "  let i = group * %du + li;\n  let n = %s;\n", threads, param(0))
	if shape.four {
		if shape.rank > 0 {
			b.WriteString("  if (i * 4u >= n) { return; }\n")
			var first []string
			for i, a := range accesses {
				if a != nil {
					first = append(first, bases[i])
				}
			}
			b.WriteString(walk(shape.rank, len(first), next, first))
			at := 0
			for i, a := range accesses {
				if a != nil {
					bases[i] = "at_" + itoa(at)
					at++
				}
			}
		}
		m.fours(&b, accesses, bases, names, repeated, kind, shape.rank > 0)
	} else {
		b.WriteString("  if (i >= n) { return; }\n")
		var used []*access
		var first []string
		for i, a := range accesses {
			if a != nil {
				used = append(used, a)
				first = append(first, bases[i])
			}
		}
		b.WriteString(walk(shape.rank, len(used), next, first))
		var args []string
		position := map[string]string{}
		for j, a := range used {
			position[a.name] = "at_" + itoa(j)
		}
		for _, n := range names {
			args = append(args, "ld_"+n+"("+position[n]+")")
		}
		fmt.Fprintf(&b, "  let out = apply(%s);\n", strings.Join(args, ", "))
		for j := range k.Program.Results {
			name := accesses[len(k.In)+j].name
			fmt.Fprintf(&b, "  st_%s(%s, out.r%d);\n", name, position[name], j)
		}
	}
	b.WriteString("}\n")
	return withLibrary(b.String())
}

// fours writes four elements at once and, in a flat loop, those left over one by one. Fours of dimensions begin at bases.
func (m *elementwise) fours(b *strings.Builder, accesses []*access, bases, names []string, repeated uint64, kind func(int) expr.Kind, dimensions bool) {
	k, t := m.kernel, m.compute
	index := func(name string) int { n, _ := strconv.Atoi(name[1:]); return n }
	if dimensions {
		b.WriteString("  let e = 0u;\n  {\n")
	} else {
		b.WriteString("  let e = i * 4u;\n  if (e + 3u < n) {\n")
	}
	for _, n := range names {
		i := index(n)
		if repeated>>i&1 == 1 {
			fmt.Fprintf(b, "    let %s_0 = ld_%s(%s);\n", n, n, bases[i])
			continue
		}
		b.WriteString(accesses[i].loadFour(t, kind(i), bases[i]+" + e"))
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
		fmt.Fprintf(b, "    let out_%d = apply(%s);\n", v, strings.Join(args, ", "))
	}
	for j := range k.Program.Results {
		i := len(k.In) + j
		var values [4]string
		for v := range values {
			values[v] = fmt.Sprintf("out_%d.r%d", v, j)
		}
		b.WriteString(accesses[i].storeFour(t, kind(i), bases[i]+" + e", values))
	}
	if dimensions {
		b.WriteString("  }\n")
		return
	}
	b.WriteString("    return;\n  }\n  for (var j = e; j < n; j++) {\n")
	var args []string
	for _, n := range names {
		at := bases[index(n)]
		if repeated>>index(n)&1 == 0 {
			at += " + j"
		}
		args = append(args, "ld_"+n+"("+at+")")
	}
	fmt.Fprintf(b, "    let out = apply(%s);\n", strings.Join(args, ", "))
	for j := range k.Program.Results {
		i := len(k.In) + j
		fmt.Fprintf(b, "    st_%s(%s + j, out.r%d);\n", accesses[i].name, bases[i], j)
	}
	b.WriteString("  }\n")
}

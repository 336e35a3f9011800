package fusion

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/kernel/elementwise"
	"github.com/plait-ml/plait/gpu/shader"
)

// In a fusion's program, a value is the bits that memory of its dtype would hold: a u32, or a pair of words for 64-bit dtypes. This rounds
// each value to its dtype, as memory would. The compiler must not see through it, because it could then contract a product and a sum of two
// members to one rounding. Therefore each member XORs the bits of floating-point inputs with a parameter that is 0. Results then have the
// same bits as without fusion, on every GPU.

// write writes the program of a fusion. Its sites must have bindings.
func (f *Fusion) write(w *shader.Text, repeated uint64, form elementwise.LoopForm) {
	var bound []*site
	for i := range f.sites {
		if p := &f.sites[i]; p.bound >= 0 {
			bound = append(bound, p)
			rawOf(w, p, form.Vec4 && repeated>>p.bound&1 == 0).declare(p.bound + 1)
		}
	}
	f.chain(w, bound)
	w.Main(shader.Threads)
	w.Add("  let i = group * %du + li;\n  let n = %s;", shader.Threads, shader.Param(0))
	bases := make([]string, len(bound))
	for k := range bound {
		bases[k] = shader.Param(1 + k)
	}
	first := 1 + len(bound) + f.N + f.scalars // index of the first size
	at := func(k int) string { return "at_" + strconv.Itoa(k) }
	switch {
	case form.Vec4 && form.Rank == 0:
		w.Add("  let e = i * 4u;\n  if (e + 3u < n) {")
		shifted := func(by string) func(int) string {
			return func(k int) string {
				if repeated>>k&1 == 1 {
					return bases[k]
				}
				return bases[k] + by
			}
		}
		writeVec4(w, bound, repeated, shifted(" + e"))
		w.Add("    return;\n  }\n  for (var j = e; j < n; j++) {")
		writeOne(w, bound, repeated, true, shifted(" + j"))
		w.Add("  }")
	case form.Vec4:
		w.Add("  if (i * 4u >= n) { return; }")
		w.Put(shader.Walk(form.Rank, len(bound), first, bases))
		writeVec4(w, bound, repeated, at)
	default:
		w.Add("  if (i >= n) { return; }")
		w.Put(shader.Walk(form.Rank, len(bound), first, bases))
		writeOne(w, bound, repeated, false, at)
	}
}

// chain declares a function for each member, and the function chain, which calls them in order. It takes the bits of the inputs and returns
// the bits of the outputs.
func (f *Fusion) chain(w *shader.Text, bound []*site) {
	next := 1 + len(bound) + f.N
	var body strings.Builder
	made := 0
	for i := range f.Members[:f.N] {
		x := &f.Members[i]
		m := x.kernel
		next = m.Function(w, "_"+strconv.Itoa(i), func(j int) bool { return x.ins[j].number }, next, false)
		zero := shader.Param(1 + len(bound) + i)
		var args []string
		for j := range x.Call.Ins {
			switch s := x.ins[j]; {
			case s.number:
			case s.value:
				args = append(args, decode("v"+strconv.Itoa(int(s.at)), f.values[s.at].DType, zero, m, j))
			default:
				p := &f.sites[s.at]
				args = append(args, decode("x"+strconv.Itoa(p.bound), p.DType, zero, m, j))
			}
		}
		fmt.Fprintf(&body, "  let m%d = apply_%d(%s);\n", i, i, strings.Join(args, ", "))
		for j := range x.Call.Outs {
			v := shader.Encode(fmt.Sprintf("m%d.r%d", i, j), f.values[made].DType, m.Compute, m.Kind(len(x.Call.Ins)+j))
			switch f.values[made].DType {
			case core.Float32, core.Int32:
				v = "bitcast<u32>(" + v + ")"
			}
			fmt.Fprintf(&body, "  let v%d = %s;\n", made, v)
			made++
		}
	}
	var formals, fields []string
	for _, p := range bound {
		if p.read {
			formals = append(formals, "x"+strconv.Itoa(p.bound)+": "+bitsType(p.DType))
		}
		if p.stored() {
			fields = append(fields, fmt.Sprintf("w%d: %s", p.bound, bitsType(p.DType)))
			fmt.Fprintf(&body, "  out.w%d = v%d;\n", p.bound, p.value)
		}
	}
	w.Struct("written", fields...)
	w.Func("chain("+strings.Join(formals, ", ")+") -> written", "var out: written;\n%s  return out;", body.String())
}

// decode returns the expression for input j of a member, from its bits.
func decode(bits string, d core.DType, zero string, m *elementwise.Kernel, j int) string {
	switch d {
	case core.Float32:
		bits = "bitcast<real>(" + bits + " ^ " + zero + ")"
	case core.Float16:
		bits = "unpack2x16float(" + bits + " ^ " + zero + ").x"
	case core.BFloat16:
		bits = "bitcast<real>((" + bits + " ^ " + zero + ") << 16u)"
	case core.Int32:
		bits = "bitcast<i32>(" + bits + ")"
	case core.Int8, core.Int16:
		bits = shader.FromBits(bits, d)
	}
	return shader.Convert(bits, d, m.Compute, m.Kind(j))
}

func bitsType(d core.DType) string {
	if d.Size() == 8 {
		return shader.Pair
	}
	return "u32"
}

// A rawAccess reads and writes the bits of a site's elements.
type rawAccess struct {
	*site
	w    *shader.Text
	name string
	vec4 bool // the buffer is an array of vec4
	// shared says that other invocations may write to the same word.
	shared bool
}

func rawOf(w *shader.Text, p *site, vec4 bool) *rawAccess {
	return &rawAccess{site: p, w: w, name: "b" + strconv.Itoa(p.bound), vec4: vec4, shared: p.stored() && !vec4 && shader.PerWord(p.DType) > 1}
}

// narrow returns the element type of the buffer if the language has elements smaller than a word, or "".
func (x *rawAccess) narrow() string {
	if shader.PerWord(x.DType) == 1 {
		return ""
	}
	return x.w.Narrow(x.DType.Size())
}

func (x *rawAccess) declare(binding int) {
	element := bitsType(x.DType)
	switch {
	case x.narrow() != "":
		element = x.narrow()
	case x.shared:
		element = shader.AtomicWord
	case x.vec4 && x.DType.Size() == 4:
		element = shader.Word4
	}
	x.w.Put(x.w.Buffer(binding, x.name, element))
}

// load returns the expression for the bits of element e.
func (x *rawAccess) load(e string) string {
	n := shader.PerWord(x.DType)
	switch {
	case x.vec4 && x.DType.Size() == 4:
		return fmt.Sprintf("%s[(%s) >> 2u][(%s) & 3u]", x.name, e, e)
	case n == 1:
		return x.name + "[" + e + "]"
	case x.narrow() != "":
		return "u32(" + x.name + "[" + e + "])"
	}
	word := fmt.Sprintf("%s[(%s) / %du]", x.name, e, n)
	if x.shared {
		word = x.w.AtomicLoad(word)
	}
	return fmt.Sprintf("((%s >> (((%s) %% %du) * %du)) & %s)", word, e, n, 32/n, mask(n))
}

// mask returns the mask of an element in a word that holds n.
func mask(n int) string { return fmt.Sprintf("%#xu", 1<<(32/n)-1) }

// store returns a statement that stores the bits of element e.
func (x *rawAccess) store(e, v string) string {
	n := shader.PerWord(x.DType)
	switch {
	case x.vec4 && x.DType.Size() == 4:
		return fmt.Sprintf("%s[(%s) >> 2u][(%s) & 3u] = %s;\n", x.name, e, e, v)
	case n == 1:
		return fmt.Sprintf("%s[%s] = %s;\n", x.name, e, v)
	case x.narrow() != "":
		return fmt.Sprintf("%s[%s] = %s(%s);\n", x.name, e, x.narrow(), v)
	}
	word := fmt.Sprintf("%s[(%s) / %du]", x.name, e, n)
	shift := fmt.Sprintf("(((%s) %% %du) * %du)", e, n, 32/n)
	if x.shared {
		return fmt.Sprintf(`%s;
    %s;
`, x.w.AtomicAnd(word, "~("+mask(n)+" << "+shift+")"), x.w.AtomicOr(word, v+" << "+shift))
	}
	return fmt.Sprintf("%s = (%s & ~(%s << %s)) | (%s << %s);\n", word, word, mask(n), shift, v, shift)
}

// loadVec4 returns a statement that loads the words of four elements from e on, and expressions for the bits of each.
func (x *rawAccess) loadVec4(e string) (statement string, elements [4]string) {
	q := "q" + x.name
	switch n := shader.PerWord(x.DType); {
	case n == 1 && x.DType.Size() == 8:
		for i := range elements {
			elements[i] = fmt.Sprintf("%s[%s + %du]", x.name, e, i)
		}
		return "", elements
	case n == 1:
		for i := range elements {
			elements[i] = q + "." + shader.Component(i)
		}
		return fmt.Sprintf("    let %s = %s[(%s) >> 2u];\n", q, x.name, e), elements
	case x.narrow() != "":
		for i := range elements {
			elements[i] = q + "." + shader.Component(i)
		}
		return fmt.Sprintf("    let %s = %s;\n", q, x.w.LoadNarrow4(x.name, e)), elements
	case n == 2:
		for i := range elements {
			elements[i] = fmt.Sprintf("((%s.%c >> %du) & 0xffffu)", q, "xy"[i/2], i%2*16)
		}
		return fmt.Sprintf("    let %s = pair(%s[(%s) >> 1u], %s[((%s) >> 1u) + 1u]);\n", q, x.name, e, x.name, e), elements
	}
	for i := range elements {
		elements[i] = fmt.Sprintf("((%s >> %du) & 0xffu)", q, 8*i)
	}
	return fmt.Sprintf("    let %s = %s[(%s) >> 2u];\n", q, x.name, e), elements
}

// storeVec4 returns statements that store the bits of four elements from e on.
func (x *rawAccess) storeVec4(e string, v [4]string) string {
	switch n := shader.PerWord(x.DType); {
	case n == 1 && x.DType.Size() == 8:
		text := ""
		for i := range v {
			text += fmt.Sprintf("    %s[%s + %du] = %s;\n", x.name, e, i, v[i])
		}
		return text
	case n == 1:
		return fmt.Sprintf("    %s[(%s) >> 2u] = word4(%s);\n", x.name, e, strings.Join(v[:], ", "))
	case x.narrow() != "":
		return fmt.Sprintf("    %s;\n", x.w.StoreNarrow4(x.name, e, v))
	case n == 2:
		return fmt.Sprintf("    %s[(%s) >> 1u] = %s | (%s << 16u);\n    %s[((%s) >> 1u) + 1u] = %s | (%s << 16u);\n",
			x.name, e, v[0], v[1], x.name, e, v[2], v[3])
	}
	return fmt.Sprintf("    %s[(%s) >> 2u] = %s | (%s << 8u) | (%s << 16u) | (%s << 24u);\n", x.name, e, v[0], v[1], v[2], v[3])
}

// writeVec4 writes an iteration over four elements. at returns the index of a site's first.
func writeVec4(w *shader.Text, bound []*site, repeated uint64, at func(int) string) {
	var args [4][]string
	for k, p := range bound {
		if !p.read {
			continue
		}
		if repeated>>k&1 == 1 {
			w.Add("    let r%d = %s;", k, rawOf(w, p, false).load(at(k)))
			for v := range args {
				args[v] = append(args[v], "r"+strconv.Itoa(k))
			}
			continue
		}
		statement, elements := rawOf(w, p, true).loadVec4(at(k))
		w.Put(statement)
		for v := range args {
			args[v] = append(args[v], elements[v])
		}
	}
	for v := range args {
		w.Add("    let o%d = chain(%s);", v, strings.Join(args[v], ", "))
	}
	for k, p := range bound {
		if !p.stored() {
			continue
		}
		var values [4]string
		for v := range values {
			values[v] = fmt.Sprintf("o%d.w%d", v, k)
		}
		w.Put(rawOf(w, p, true).storeVec4(at(k), values))
	}
}

// writeOne writes an iteration over one element. vec4 says that the buffers may be arrays of vec4.
func writeOne(w *shader.Text, bound []*site, repeated uint64, vec4 bool, at func(int) string) {
	access := func(k int) *rawAccess { return rawOf(w, bound[k], vec4 && repeated>>k&1 == 0) }
	var args []string
	for k, p := range bound {
		if p.read {
			args = append(args, access(k).load(at(k)))
		}
	}
	w.Add("    let o = chain(%s);", strings.Join(args, ", "))
	for k, p := range bound {
		if p.stored() {
			w.Add("    %s", access(k).store(at(k), "o.w"+strconv.Itoa(k)))
		}
	}
}

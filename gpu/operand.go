package gpu

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// param returns WGSL for word i of the parameters. Kernels ask for it in every call, and texts are written once.
func param(i int) string {
	if i < len(paramNames) {
		return paramNames[i]
	}
	return paramName(i)
}

func paramName(i int) string { return fmt.Sprintf("p[%d].%c", i/4, "xyzw"[i%4]) }

var paramNames = func() (names [paramsWindow / 4]string) {
	for i := range names {
		names[i] = paramName(i)
	}
	return names
}()

const paramsDeclaration = "@group(0) @binding(0) var<uniform> p: array<vec4<u32>, 32>;\n"

// entry opens the main function of a program whose workgroups lie in a row, in rows.
const entry = `@compute @workgroup_size(%d)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) li: u32) {
  let group = wg.y * grid.x + wg.x;
`

// rolled returns WGSL in main for the rounds of a loop that lavapipe must not write out one after the other, since it then compiles
// for long: n, which its compiler cannot know.
func rolled(n int) string { return fmt.Sprintf("select(%du, 0u, grid.x == 0u)", n) }

// An access is how a program sees an operand: a binding of a dtype, element by element or four at once.
type access struct {
	name   string
	dtype  core.DType
	four   bool // elements come in aligned fours
	shared bool // other invocations may write to the same 32-bit word
}

// compute types in WGSL.
func wgslType(t expr.Type, k expr.Kind) string {
	switch {
	case k == expr.Logic:
		return "bool"
	case t == expr.I64:
		return "vec2<u32>"
	case t == expr.I32:
		return "i32"
	}
	return "f32"
}

// packed returns how many elements of the dtype a word holds.
func packed(d core.DType) int { return max(4/d.Size(), 1) }

// declare returns the declaration of the operand at a binding.
func (a *access) declare(binding int) string {
	element := map[core.DType]string{
		core.Float32: "f32", core.Int32: "i32", core.Int64: "vec2<u32>", core.Float64: "vec2<u32>",
	}[a.dtype]
	switch {
	case element == "" && a.shared:
		element = "atomic<u32>"
	case element == "":
		element = "u32"
	case a.four && a.dtype.Size() == 4:
		element = "vec4<" + element + ">"
	}
	return fmt.Sprintf("@group(0) @binding(%d) var<storage, read_write> %s: array<%s>;\n", binding, a.name, element)
}

// loader returns the function ld_NAME, which reads an element as a number or truth value of t.
func (a *access) loader(t expr.Type, k expr.Kind) string {
	result := wgslType(t, k)
	at := a.name + "[e_]"
	if a.four && a.dtype.Size() == 4 {
		at = a.name + "[e_ >> 2u][e_ & 3u]"
	}
	word := func(bits string) string {
		w := a.name + "[e_ >> " + bits + "]"
		if a.shared {
			w = "atomicLoad(&" + w + ")"
		}
		return w
	}
	var value string
	switch a.dtype {
	case core.Float32:
		value = at
	case core.Float16:
		value = "unpack2x16float(" + word("1u") + " >> ((e_ & 1u) * 16u)).x"
	case core.BFloat16:
		value = "bitcast<f32>((" + word("1u") + " >> ((e_ & 1u) * 16u)) << 16u)"
	case core.Int32:
		value = at
	case core.Int64, core.Float64:
		value = at
	default:
		value = "((" + word("2u") + " >> ((e_ & 3u) * 8u)) & 255u)"
	}
	return fmt.Sprintf("fn ld_%s(e_: u32) -> %s { return %s; }\n", a.name, result, convert(value, a.dtype, t, k))
}

// convert returns the value of a dtype, as loader reads it, as a number or truth value of t.
func convert(value string, from core.DType, t expr.Type, k expr.Kind) string {
	switch {
	case k == expr.Logic:
		switch {
		case from == core.Int64:
			return "any(" + value + " != vec2<u32>(0u, 0u))"
		case from.IsFloat():
			return "!(" + value + " == 0.0)"
		case from == core.Int32:
			return value + " != 0i"
		}
		return value + " != 0u"
	case t == expr.F32 && from == core.Int64:
		return "plait_f32_of_i64(" + value + ")"
	case t == expr.F32 && !from.IsFloat():
		return "f32(" + value + ")"
	case t == expr.I64 && from.IsFloat() && from != core.Float64:
		return "plait_i64_of_f32(" + value + ")"
	case t == expr.I64 && from == core.Int32:
		return "plait_i64_of_i32(" + value + ")"
	case t == expr.I64 && from.Size() == 1:
		return "vec2<u32>(" + value + ", 0u)"
	}
	return value
}

// encode returns what memory of the dtype holds for a value of t: a word's bits for packed dtypes.
func encode(value string, to core.DType, t expr.Type, k expr.Kind) string {
	if k == expr.Logic {
		switch to {
		case core.Float32:
			return "select(0.0, 1.0, " + value + ")"
		case core.Float16:
			return "select(0u, 0x3c00u, " + value + ")"
		case core.BFloat16:
			return "select(0u, 0x3f80u, " + value + ")"
		case core.Int32:
			return "select(0i, 1i, " + value + ")"
		case core.Int64:
			return "vec2<u32>(select(0u, 1u, " + value + "), 0u)"
		}
		return "select(0u, 1u, " + value + ")"
	}
	if t == expr.F32 {
		switch to {
		case core.Float32:
			return value
		case core.Float16:
			return "plait_f16(" + value + ")"
		case core.BFloat16:
			return "plait_bf16(" + value + ")"
		case core.Int32:
			return "bitcast<i32>(plait_i64_of_f32(" + value + ").x)"
		case core.Int64:
			return "plait_i64_of_f32(" + value + ")"
		case core.Bool:
			return "select(1u, 0u, " + value + " == 0.0)"
		}
		return "(plait_i64_of_f32(" + value + ").x & 255u)"
	}
	switch to {
	case core.Float32:
		return "plait_f32_of_i64(" + value + ")"
	case core.Float16:
		return "plait_f16(plait_f32_of_i64(" + value + "))"
	case core.BFloat16:
		return "plait_bf16(plait_f32_of_i64(" + value + "))"
	case core.Int32:
		return "bitcast<i32>(" + value + ".x)"
	case core.Int64, core.Float64:
		return value
	case core.Bool:
		return "select(0u, 1u, any(" + value + " != vec2<u32>(0u, 0u)))"
	}
	return "(" + value + ".x & 255u)"
}

// storer returns the function st_NAME, which writes an element. Its own names end in an underscore, to meet no operand's. Where words hold several elements and other invocations
// may write to them, it clears and sets bits atomically.
func (a *access) storer(t expr.Type, k expr.Kind) string {
	head := fmt.Sprintf("fn st_%s(e_: u32, v_: %s) {", a.name, wgslType(t, k))
	value := encode("v_", a.dtype, t, k)
	switch n := packed(a.dtype); {
	case n == 1 && a.four && a.dtype.Size() == 4:
		return fmt.Sprintf("%s %s[e_ >> 2u][e_ & 3u] = %s; }\n", head, a.name, value)
	case n == 1:
		return fmt.Sprintf("%s %s[e_] = %s; }\n", head, a.name, value)
	default:
		shift, mask, bits := "1u", "0xffffu", 16
		if n == 4 {
			shift, mask, bits = "2u", "0xffu", 8
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s\n  let s_ = (e_ & %du) * %du;\n  let w_ = e_ >> %s;\n  let bits_ = %s;\n", head, n-1, bits, shift, value)
		if a.shared {
			fmt.Fprintf(&b, "  atomicAnd(&%s[w_], ~(%s << s_));\n  atomicOr(&%s[w_], bits_ << s_);\n}\n", a.name, mask, a.name)
		} else {
			fmt.Fprintf(&b, "  %s[w_] = (%s[w_] & ~(%s << s_)) | (bits_ << s_);\n}\n", a.name, a.name, mask)
		}
		return b.String()
	}
}

// loadFour returns statements that define NAME_0 to NAME_3, the elements from e on, a multiple of four.
func (a *access) loadFour(t expr.Type, k expr.Kind, e string) string {
	var b strings.Builder
	var values [4]string
	switch n := packed(a.dtype); {
	case n == 1 && a.dtype.Size() == 4:
		fmt.Fprintf(&b, "    let v_%s = %s[(%s) >> 2u];\n", a.name, a.name, e)
		for i := range values {
			values[i] = fmt.Sprintf("v_%s.%c", a.name, "xyzw"[i])
		}
	case n == 1:
		for i := range values {
			values[i] = fmt.Sprintf("%s[%s + %du]", a.name, e, i)
		}
	case n == 2:
		fmt.Fprintf(&b, "    let u_%s = %s[(%s) >> 1u];\n    let v_%s = %s[((%s) >> 1u) + 1u];\n", a.name, a.name, e, a.name, a.name, e)
		for i := range values {
			w := fmt.Sprintf("%c_%s", "uv"[i/2], a.name)
			switch {
			case a.dtype == core.Float16:
				values[i] = fmt.Sprintf("unpack2x16float(%s).%c", w, "xy"[i%2])
			case i%2 == 0:
				values[i] = "bitcast<f32>(" + w + " << 16u)"
			default:
				values[i] = "bitcast<f32>(" + w + " & 0xffff0000u)"
			}
		}
	default:
		fmt.Fprintf(&b, "    let v_%s = %s[(%s) >> 2u];\n", a.name, a.name, e)
		for i := range values {
			values[i] = fmt.Sprintf("((v_%s >> %du) & 255u)", a.name, 8*i)
		}
	}
	for i, v := range values {
		fmt.Fprintf(&b, "    let %s_%d = %s;\n", a.name, i, convert(v, a.dtype, t, k))
	}
	return b.String()
}

// storeFour returns statements that write four values from e on, a multiple of four.
func (a *access) storeFour(t expr.Type, k expr.Kind, e string, values [4]string) string {
	var v [4]string
	for i := range v {
		v[i] = encode(values[i], a.dtype, t, k)
	}
	switch n := packed(a.dtype); {
	case n == 1 && a.dtype.Size() == 4:
		element := map[core.DType]string{core.Float32: "f32", core.Int32: "i32"}[a.dtype]
		return fmt.Sprintf("    %s[(%s) >> 2u] = vec4<%s>(%s);\n", a.name, e, element, strings.Join(v[:], ", "))
	case n == 1:
		var b strings.Builder
		for i := range v {
			fmt.Fprintf(&b, "    %s[%s + %du] = %s;\n", a.name, e, i, v[i])
		}
		return b.String()
	case n == 2:
		return fmt.Sprintf("    %s[(%s) >> 1u] = %s | (%s << 16u);\n    %s[((%s) >> 1u) + 1u] = %s | (%s << 16u);\n",
			a.name, e, v[0], v[1], a.name, e, v[2], v[3])
	}
	return fmt.Sprintf("    %s[(%s) >> 2u] = %s | (%s << 8u) | (%s << 16u) | (%s << 24u);\n", a.name, e, v[0], v[1], v[2], v[3])
}

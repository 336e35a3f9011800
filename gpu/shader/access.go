package shader

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// Ceil returns a / b, rounded up.
func Ceil(a, b int) int { return (a + b - 1) / b }

// Aligned reports whether an operand of type [Real] can be accessed as vec4 along its dimension of stride 1. steps are its other strides.
func (r *Recorder) Aligned(o *core.Operand, steps ...int) bool {
	if o.DType != r.RealType() || Base(o)%4 != 0 {
		return false
	}
	for _, s := range steps {
		if s%4 != 0 {
			return false
		}
	}
	return true
}

// Param returns the expression for word i of the parameters. It is called on every launch, so the common expressions are made once.
func Param(i int) string {
	if i < len(paramNames) {
		return paramNames[i]
	}
	return paramName(i)
}

func paramName(i int) string { return fmt.Sprintf("p[%d].%s", i/4, Component(i%4)) }

var paramNames = func() (names [MaxParamBytes / 4]string) {
	for i := range names {
		names[i] = paramName(i)
	}
	return names
}()

// NoUnroll returns an expression for n that no compiler recognises as a constant. It keeps loops of n iterations from being unrolled;
// lavapipe takes long to compile the unrolled loop.
func NoUnroll(n int) string { return fmt.Sprintf("select(%du, 0u, grid.x == 0u)", n) }

// An Access is how a program reads and writes an operand: a binding with a dtype.
type Access struct {
	Name   string
	DType  core.DType
	Vec4   bool // the buffer is declared as an array of vec4
	Shared bool // other invocations may write to the same 32-bit word
	words  bool // the buffer is an array of words, whatever the dtype
}

// TypeName returns the name of the type that values of type t and kind k are computed in.
func TypeName(t expr.Type, k expr.Kind) string {
	switch {
	case k == expr.Logic:
		return "bool"
	case t == expr.I64:
		return Pair
	case t == expr.I32:
		return "i32"
	}
	return Real
}

// PerWord returns how many elements of a dtype a 32-bit word holds, at least 1.
func PerWord(d core.DType) int { return max(4/d.Size(), 1) }

// narrow returns the element type of the buffer if the language has elements smaller than a word, or "".
func (a *Access) narrow(w *Text) string {
	if a.words || PerWord(a.DType) == 1 {
		return ""
	}
	return w.Narrow(a.DType.Size())
}

// whole4 reports whether the buffer is an array of vec4 of the dtype.
func (a *Access) whole4() bool { return a.Vec4 && (a.DType.Size() == 4 || a.DType == core.Float64) }

// real4 reports whether the buffer is an array of [Real4].
func (a *Access) real4(w *Text) bool {
	return a.Vec4 && (a.DType == core.Float64 || a.DType == core.Float32 && !w.double)
}

// paired reports whether the buffer is an array of pairs of words, each with four elements of 16 bits, so that these are one access.
func (a *Access) paired(w *Text) bool {
	return a.Vec4 && PerWord(a.DType) == 2 && !a.Shared && a.narrow(w) == ""
}

// Declare writes the declaration of the operand at a binding.
func (a *Access) Declare(w *Text, binding int) {
	if element := a.narrow(w); element != "" {
		w.text.WriteString(w.Buffer(binding, a.Name, element))
		return
	}
	element := map[core.DType]string{core.Float32: "f32", core.Float64: Real, core.Int32: "i32", core.Int64: Pair, core.Uint64: Pair}[a.DType]
	switch {
	case a.real4(w):
		element = Real4
	case element == "" && a.Shared:
		element = AtomicWord
	case a.paired(w):
		element = Pair
	case a.Vec4 && a.DType == core.Uint32:
		element = Word4
	case element == "":
		element = "u32"
	case a.Vec4 && a.DType == core.Float32:
		element = "vec4<f32>"
	case a.Vec4 && a.DType == core.Int32:
		element = Int4
	}
	w.text.WriteString(w.Buffer(binding, a.Name, element))
}

// Loader writes the function ld_NAME, which reads an element and converts it to t.
func (a *Access) Loader(w *Text, t expr.Type, k expr.Kind) {
	at := a.Name + "[e_]"
	if a.whole4() {
		at = a.Name + "[e_ >> 2u][e_ & 3u]"
	}
	// bits returns the bits of the element, in a word whose upper bits are those of other elements if there are any.
	narrow := a.narrow(w)
	bits := func(shift string, n int) string {
		if narrow != "" {
			return "u32(" + at + ")"
		}
		place := a.Name + "[e_ >> " + shift + "]"
		if a.paired(w) {
			place = a.Name + "[e_ >> 2u][(e_ >> 1u) & 1u]"
		}
		if a.Shared {
			place = w.AtomicLoad(place)
		}
		return fmt.Sprintf("%s >> ((e_ & %du) * %du)", place, n-1, 32/n)
	}
	value := at
	switch PerWord(a.DType) {
	case 2:
		value = FromBits(bits("1u", 2), a.DType)
	case 4:
		value = FromBits(bits("2u", 4), a.DType)
	}
	w.Func("ld_"+a.Name+"(e_: u32) -> "+TypeName(t, k), "return %s;", Convert(value, a.DType, t, k))
}

// FromBits returns the expression for the value of a dtype smaller than a word, in a form that [Convert] takes, from a word whose lowest bits it is.
func FromBits(bits string, d core.DType) string {
	switch d {
	case core.Float16:
		return "unpack2x16float(" + bits + ").x"
	case core.BFloat16:
		return "bitcast<f32>((" + bits + ") << 16u)"
	}
	if shift := 32 - 8*d.Size(); d.IsSigned() {
		return fmt.Sprintf("(bitcast<i32>((%s) << %du) >> %du)", bits, shift, shift)
	}
	return "((" + bits + ") & " + mask(d) + ")"
}

// mask returns the literal that has the bits of an element smaller than a word.
func mask(d core.DType) string { return fmt.Sprintf("%#xu", 1<<(8*d.Size())-1) }

// signed reports whether values of a dtype are i32 in programs.
func signed(d core.DType) bool { return d.IsInt() && d.IsSigned() && d.Size() <= 4 }

// Convert returns the expression that converts a value of a dtype to t. The value is in the form that a load from memory has.
func Convert(value string, from core.DType, t expr.Type, k expr.Kind) string {
	switch {
	case k == expr.Logic:
		switch {
		case from.IsInt() && from.Size() == 8:
			return "any(" + value + " != pair(0u, 0u))"
		case from.IsFloat():
			return "!(" + value + " == 0.0)"
		case signed(from):
			return value + " != 0i"
		}
		return value + " != 0u"
	case t.Float() && from == core.Int64:
		return "plait_f32_of_i64(" + value + ")"
	case t.Float():
		return "real(" + value + ")"
	case t == expr.I64 && from.IsFloat():
		return "plait_i64_of_f32(" + value + ")"
	case t == expr.I64 && signed(from):
		return "plait_i64_of_i32(" + value + ")"
	case t == expr.I64 && from.Size() <= 4:
		return "pair(" + value + ", 0u)"
	}
	return value
}

// Encode returns the expression that converts a value of t to what memory of the dtype holds; for dtypes smaller than a word, its bits in a
// word.
func Encode(value string, to core.DType, t expr.Type, k expr.Kind) string {
	if k == expr.Logic {
		switch to {
		case core.Float32, core.Float64:
			return "select(0.0, 1.0, " + value + ")"
		case core.Float16:
			return "select(0u, 0x3c00u, " + value + ")"
		case core.BFloat16:
			return "select(0u, 0x3f80u, " + value + ")"
		case core.Int32:
			return "select(0i, 1i, " + value + ")"
		case core.Int64, core.Uint64:
			return "pair(select(0u, 1u, " + value + "), 0u)"
		}
		return "select(0u, 1u, " + value + ")"
	}
	if t.Float() {
		switch to {
		case core.Float32:
			return "f32(" + value + ")"
		case core.Float64:
			return value
		case core.Float16:
			return "plait_f16(" + value + ")"
		case core.BFloat16:
			return "plait_bf16(" + value + ")"
		case core.Int32:
			return "bitcast<i32>(plait_i64_of_f32(" + value + ").x)"
		case core.Int64, core.Uint64:
			return "plait_i64_of_f32(" + value + ")"
		case core.Bool:
			return "select(1u, 0u, " + value + " == 0.0)"
		case core.Uint32:
			return "plait_i64_of_f32(" + value + ").x"
		}
		return "(plait_i64_of_f32(" + value + ").x & " + mask(to) + ")"
	}
	switch to {
	case core.Float32, core.Float64:
		return "plait_f32_of_i64(" + value + ")"
	case core.Float16:
		return "plait_f16(plait_f32_of_i64(" + value + "))"
	case core.BFloat16:
		return "plait_bf16(plait_f32_of_i64(" + value + "))"
	case core.Int32:
		return "bitcast<i32>(" + value + ".x)"
	case core.Int64, core.Uint64:
		return value
	case core.Bool:
		return "select(0u, 1u, any(" + value + " != pair(0u, 0u)))"
	case core.Uint32:
		return value + ".x"
	}
	return "(" + value + ".x & " + mask(to) + ")"
}

// Storer writes the function st_NAME, which stores an element. Its local names end in an underscore, so that they differ from the names of
// operands. If other invocations may write to the same word, the bits are cleared and set atomically.
func (a *Access) Storer(w *Text, t expr.Type, k expr.Kind) {
	sign := "st_" + a.Name + "(e_: u32, v_: " + TypeName(t, k) + ")"
	value := Encode("v_", a.DType, t, k)
	n := PerWord(a.DType)
	switch {
	case a.whole4():
		w.Func(sign, "%s[e_ >> 2u][e_ & 3u] = %s;", a.Name, value)
		return
	case n == 1:
		w.Func(sign, "%s[e_] = %s;", a.Name, value)
		return
	}
	if narrow := a.narrow(w); narrow != "" {
		w.Func(sign, "%s[e_] = %s(%s);", a.Name, narrow, value)
		return
	}
	shift, bits := "1u", 16
	if n == 4 {
		shift, bits = "2u", 8
	}
	place, keep := a.Name+"[w_]", "~("+mask(a.DType)+" << s_)"
	if a.paired(w) {
		place = a.Name + "[w_ >> 1u][w_ & 1u]"
	}
	store := place + " = (" + place + " & " + keep + ") | (bits_ << s_);"
	if a.Shared {
		store = w.AtomicAnd(place, keep) + ";\n  " + w.AtomicOr(place, "bits_ << s_") + ";"
	}
	w.Func(sign, "let s_ = (e_ & %du) * %du;\n  let w_ = e_ >> %s;\n  let bits_ = %s;\n  %s", n-1, bits, shift, value, store)
}

// LoadVec4 returns statements that define NAME_0 to NAME_3, the four elements from index e on. e is a multiple of four.
func (a *Access) LoadVec4(w *Text, t expr.Type, k expr.Kind, e string) string {
	var b strings.Builder
	var values [4]string
	switch n := PerWord(a.DType); {
	case a.whole4():
		fmt.Fprintf(&b, "    let v_%s = %s[(%s) >> 2u];\n", a.Name, a.Name, e)
		for i := range values {
			values[i] = "v_" + a.Name + "." + Component(i)
		}
	case n == 1:
		for i := range values {
			values[i] = fmt.Sprintf("%s[%s + %du]", a.Name, e, i)
		}
	case a.narrow(w) != "":
		fmt.Fprintf(&b, "    let v_%s = %s;\n", a.Name, w.LoadNarrow4(a.Name, e))
		for i := range values {
			values[i] = FromBits("v_"+a.Name+"."+Component(i), a.DType)
		}
	case n == 2:
		if a.paired(w) {
			fmt.Fprintf(&b, "    let pair_%s = %s[(%s) >> 2u];\n    let u_%s = pair_%s.x;\n    let v_%s = pair_%s.y;\n", a.Name, a.Name, e, a.Name, a.Name, a.Name, a.Name)
		} else {
			fmt.Fprintf(&b, "    let u_%s = %s[(%s) >> 1u];\n    let v_%s = %s[((%s) >> 1u) + 1u];\n", a.Name, a.Name, e, a.Name, a.Name, e)
		}
		for i := range values {
			word := fmt.Sprintf("%c_%s", "uv"[i/2], a.Name)
			switch {
			case a.DType == core.Float16:
				values[i] = "unpack2x16float(" + word + ")." + Component(i%2)
			case a.DType == core.BFloat16 && i%2 == 1:
				values[i] = "bitcast<f32>(" + word + " & 0xffff0000u)"
			default:
				values[i] = FromBits(fmt.Sprintf("%s >> %du", word, i%2*16), a.DType)
			}
		}
	default:
		fmt.Fprintf(&b, "    let v_%s = %s[(%s) >> 2u];\n", a.Name, a.Name, e)
		for i := range values {
			values[i] = FromBits(fmt.Sprintf("v_%s >> %du", a.Name, 8*i), a.DType)
		}
	}
	for i, v := range values {
		fmt.Fprintf(&b, "    let %s_%d = %s;\n", a.Name, i, Convert(v, a.DType, t, k))
	}
	return b.String()
}

// StoreVec4 returns statements that store four values from index e on. e is a multiple of four.
func (a *Access) StoreVec4(w *Text, t expr.Type, k expr.Kind, e string, values [4]string) string {
	var v [4]string
	for i := range v {
		v[i] = Encode(values[i], a.DType, t, k)
	}
	switch n := PerWord(a.DType); {
	case a.whole4():
		four := map[core.DType]string{core.Float32: "vec4<f32>", core.Float64: Real4, core.Int32: Int4, core.Uint32: Word4}[a.DType]
		return fmt.Sprintf("    %s[(%s) >> 2u] = %s(%s);\n", a.Name, e, four, strings.Join(v[:], ", "))
	case n == 1:
		var b strings.Builder
		for i := range v {
			fmt.Fprintf(&b, "    %s[%s + %du] = %s;\n", a.Name, e, i, v[i])
		}
		return b.String()
	case a.narrow(w) != "":
		return "    " + w.StoreNarrow4(a.Name, e, v) + ";\n"
	case a.paired(w):
		return fmt.Sprintf("    %s[(%s) >> 2u] = pair(%s | (%s << 16u), %s | (%s << 16u));\n", a.Name, e, v[0], v[1], v[2], v[3])
	case n == 2:
		return fmt.Sprintf("    %s[(%s) >> 1u] = %s | (%s << 16u);\n    %s[((%s) >> 1u) + 1u] = %s | (%s << 16u);\n",
			a.Name, e, v[0], v[1], a.Name, e, v[2], v[3])
	}
	return fmt.Sprintf("    %s[(%s) >> 2u] = %s | (%s << 8u) | (%s << 16u) | (%s << 24u);\n", a.Name, e, v[0], v[1], v[2], v[3])
}

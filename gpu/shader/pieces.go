package shader

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
)

// Expressions for infinity, and for the smallest and the largest integer of 64 bits.
const Infinity, Lowest64, Highest64 = "plait_inf()", "pair(0u, 0x80000000u)", "pair(0xffffffffu, 0x7fffffffu)"

const (
	// MaxLoop is how many elements an invocation processes at most. lavapipe ends loops after 65535 iterations.
	MaxLoop = 4096
	// SaturatingInvocations is the number of invocations that fills a GPU.
	SaturatingInvocations = 1 << 17
)

// NoIndex is the destination index of a value that is not written.
const NoIndex = "0xffffffffu"

// ComputeType returns the type that kernels compute elements of a dtype in.
func ComputeType(d core.DType) expr.Type {
	if d.IsFloat() {
		return expr.F32
	}
	return expr.I64
}

// Faults adds a fault word to the program. It returns a function for the statement that reports a fault at a position; the word is the
// position plus one. err makes the call's error from the position.
func (s *Builder) Faults(r *Recorder, c *core.Call, err func(c *core.Call, at uint32) error) func(position string) string {
	m, word, failure := r.Check(c, func(c *core.Call, fault uint32) error { return err(c, fault-1) })
	if failure != nil {
		s.err = failure
	}
	index := s.Uint(int(word))
	s.Bindings = append(s.Bindings, Binding{Access: Access{Name: "faults", DType: core.Bool, words: true}})
	s.Mems = append(s.Mems, m)
	return func(position string) string { return "faults[" + index + "] = " + position + " + 1u;" }
}

// CheckIndex returns statements that define NAME, the index that the expression load reads. An index outside of [0, size) becomes 0 and
// sets ok to false. With wrap, negative indices count from the end.
func CheckIndex(name, load, size string, wrap bool) string {
	text := "  var raw_" + name + " = " + load + ";\n"
	if wrap {
		text += "  if (raw_" + name + ".y == 0xffffffffu) { raw_" + name + " = plait_add_i64(raw_" + name + ", pair(" + size + ", 0u)); }\n"
	}
	return text + "  var " + name + " = raw_" + name + ".x;\n" +
		"  if (raw_" + name + ".y != 0u || " + name + " >= " + size + ") { ok = false; " + name + " = 0u; }\n"
}

// Combine returns the expression that combines the old value a with the new value b.
func Combine(mode contract.ScatterMode, t expr.Type, a, b string) string {
	function := func(name string) string { return name + "(" + a + ", " + b + ")" }
	if t == expr.I64 {
		switch mode {
		case contract.ScatterAdd:
			return function("plait_add_i64")
		case contract.ScatterMul:
			return function("plait_mul_i64")
		case contract.ScatterMax:
			return function("plait_max_i64")
		case contract.ScatterMin:
			return function("plait_min_i64")
		}
		return b
	}
	switch mode {
	case contract.ScatterAdd:
		return a + " + " + b
	case contract.ScatterMul:
		return a + " * " + b
	case contract.ScatterMax:
		return function("plait_max_f32")
	case contract.ScatterMin:
		return function("plait_min_f32")
	}
	return b
}

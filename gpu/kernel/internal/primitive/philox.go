package primitive

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// An invocation of a random kernel draws a block of four words and computes the neighbouring elements that use them.
// core/cpu/include/plait_philox.h has the order of words. Outputs are contiguous.

// PhiloxBlocks opens a main function over n blocks of the generator, from seed and offset on. Block i has the words w.
func PhiloxBlocks(w *shader.Text, n, seed, offset string) {
	w.Each(n)
	w.Add("  let w = plait_philox(%s, plait_add_i64(%s, pair(i, 0u)));", seed, offset)
}

// KeepLimit returns the 64-bit limit below which a random word keeps its element, with probability keep.
func KeepLimit(keep float64) int64 {
	return int64(math.Min(math.Max(keep, 0)*0x1p32, 0x1p32))
}

// OutVec4 lets [StoreWords] store a contiguous operand, which has the given number among the bindings, as vec4 if that is possible.
func OutVec4(s *shader.Builder, binding int, y *core.Operand) bool {
	vec4 := s.Flag(y.Numel()%4 == 0 && shader.Vec4(y))
	s.Bindings[binding].Vec4 = vec4
	return vec4
}

// StoreWords stores v in elements 4i to 4i+3 that are below total. Four single stores would be apart from those of the neighbours.
func StoreWords(w *shader.Text, vec4 bool, y, total string) {
	if vec4 {
		w.Add("  st4_y((%s >> 2u) + i, v);", y)
		return
	}
	for k := range 4 {
		w.Add("  if (i * 4u + %du < %s) { st_y(%s + i * 4u + %du, v.%s); }", k, total, y, k, shader.Component(k))
	}
}

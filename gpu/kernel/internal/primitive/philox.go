package primitive

import (
	"math"

	"github.com/plait-ml/plait/gpu/shader"
)

// Random kernels give each invocation a block of four words, and with it the neighbours that the words are for: see
// core/cpu/include/plait_philox.h for which word goes where. Outputs are contiguous.

// PhiloxBlocks opens the main function over blocks of the generator from seed and offset on: block i has the words w.
func PhiloxBlocks(w *shader.Text, n, seed, offset string) {
	w.Each(n)
	w.Add("  let w = plait_philox(%s, plait_add_i64(%s, pair(i, 0u)));", seed, offset)
}

// KeepLimit returns what a word must be below for its element to be kept with the given probability, as a pair.
func KeepLimit(keep float64) int64 {
	return int64(math.Min(math.Max(keep, 0)*0x1p32, 0x1p32))
}

// StoreWords writes v to elements 4i to 4i+3, as far as there are any.
func StoreWords(w *shader.Text, y, total string) {
	for k := range 4 {
		w.Add("  if (i * 4u + %du < %s) { st_y(%s + i * 4u + %du, v.%s); }", k, total, y, k, shader.Component(k))
	}
}

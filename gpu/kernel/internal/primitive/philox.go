package primitive

import (
	"math"
	"strconv"

	"github.com/plait-ml/plait/gpu/shader"
)

// Random kernels give each invocation a block of four words, and with it the neighbours that the words are for: see
// core/cpu/include/plait_philox.h for which word goes where. Outputs are contiguous.

// PhiloxBlocks returns the main function over blocks of the generator from seed and offset on, with words w; body is per block i.
func PhiloxBlocks(n, seed, offset, body string) string {
	return shader.Each(n, "  let w = plait_philox("+seed+", plait_add_i64("+offset+", vec2<u32>(i, 0u)));\n"+body)
}

// KeepLimit returns what a word must be below for its element to be kept with the given probability, as a pair.
func KeepLimit(keep float64) int64 {
	return int64(math.Min(math.Max(keep, 0)*0x1p32, 0x1p32))
}

// StoreWords writes v to elements 4i to 4i+3, as far as there are any.
func StoreWords(y, total string) string {
	t := ""
	for k := range 4 {
		t += "  if (i * 4u + " + strconv.Itoa(k) + "u < " + total + ") { st_y(" + y + " + i * 4u + " + strconv.Itoa(k) + "u, v." + string("xyzw"[k]) + "); }\n"
	}
	return t
}

package copying

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// fillVectors is how many vectors of two numbers an invocation stores.
	fillVectors = 4
	// leastFilled is the number of elements from which they are stored so.
	leastFilled = 1 << 14
)

// fillsPairs reports whether an operand is filled by [fillPairs].
func fillsPairs(out *core.Operand) bool {
	return out.DType == core.Int64 && out.Contiguous() && out.Numel() >= leastFilled && out.Numel()%2 == 0 && shader.Base(out)%2 == 0
}

// fillPairs sets all of out, int64, to a number. Each invocation stores vectors, which are apart by those of its workgroup, where one number
// each would take a multiple of the workgroups.
func fillPairs(r *shader.Recorder, out *core.Operand, number int64) error {
	n := out.Numel() / 2
	s := shader.New(r, "fill (64 bits)")
	s.Vec4Of("y", out.Memory)
	first, count, value := s.Uint(int(shader.Base(out)/2)), s.Uint(n), s.Long(number)
	groups := shader.Ceil(n, fillVectors*shader.Threads)
	groupsWord := s.Uint(groups)
	return s.Run(r, groups, func(w *shader.Text) {
		w.EachGroup(shader.Threads, groupsWord)
		w.Add("  let v = %s;\n  let both = int4(bitcast<i32>(v.x), bitcast<i32>(v.y), bitcast<i32>(v.x), bitcast<i32>(v.y));", value)
		for k := range fillVectors {
			w.Add("  let q%[1]d = group * %[2]du + %[3]du + li;\n  if (q%[1]d < %[4]s) { y[%[5]s + q%[1]d] = both; }",
				k, fillVectors*shader.Threads, k*shader.Threads, count, first)
		}
	})
}

package copying

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// flips reports whether a copy has the rows of in backwards, as whole vec4 on both sides. l is the loop over both.
func flips(l *shader.Loop, out, in *core.Operand) bool {
	last := len(l.Sizes) - 1
	if l.Count == 0 || last < 0 || l.Sizes[last]%4 != 0 || l.Strides[0][last] != 1 || l.Strides[1][last] != -1 {
		return false
	}
	divides := func(n int) bool { return n%4 == 0 }
	return shader.HasVec4(in.DType) && shader.Base(in)%4 == 3 && shader.Vec4(out) &&
		shader.All(l.Strides[0][:last], divides) && shader.All(l.Strides[1][:last], divides)
}

// flipRows copies rows backwards, four elements at a time.
func flipRows(r *shader.Recorder, l *shader.Loop, out, in *core.Operand) error {
	s := shader.New(r, "flip rows")
	y, x := s.Out("y", out, expr.F32, expr.Number), s.In("x", in, expr.F32, expr.Number)
	s.Bindings[0].Vec4, s.Bindings[1].Vec4 = true, true
	n, vectors := s.Uint(l.Count/4), l.ByVec4()
	rank := s.Specialize(len(vectors.Sizes))
	at := s.Loop(&vectors)
	return s.Run(r, shader.GroupsFor(l.Count/4), func(w *shader.Text) {
		w.Each(n)
		w.Put(shader.Walk(rank, 2, at, []string{y, x}))
		w.Add("  let v = ld4_x((at_1 - 3u) >> 2u);\n  st4_y(at_0 >> 2u, real4(v.w, v.z, v.y, v.x));")
	})
}

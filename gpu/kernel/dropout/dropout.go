// Package dropout has the GPU kernel of dropout.
package dropout

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Dropout, dropoutCall)
}

func dropoutCall(r *shader.Recorder, c *core.Call) error {
	n, a := c.Outs[0].Numel(), contract.DropoutOf(c)
	s := shader.New(r, "dropout")
	y := s.Out("y", &c.Outs[0], expr.F32, expr.Number)
	value, value4 := "1.0", "real4(1.0)"
	if s.Flag(c.Ins[0].Present()) {
		x := s.In("x", &c.Ins[0], expr.F32, expr.Number)
		value, value4 = "ld_x("+x+" + e)", "ld4_x(("+x+" >> 2u) + i)"
	}
	vec4 := s.Flag(n%4 == 0 && shader.Vec4(&c.Outs[0]) && (!c.Ins[0].Present() || shader.Vec4(&c.Ins[0])))
	for i := range s.Bindings {
		s.Bindings[i].Vec4 = vec4
	}
	count, total := s.Uint(shader.Ceil(n, 4)), s.Uint(n)
	seed, offset := s.Long(a.Seed), s.Long(a.Offset)
	limit, scale := s.Long(primitive.KeepLimit(1-a.P)), s.Float(a.Scale)
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(shader.Ceil(n, 4)), func(w *shader.Text) {
		primitive.PhiloxBlocks(w, count, seed, offset)
		w.Add("  let limit = %s;", limit)
		if vec4 {
			w.Add("  let v = %s;", value4)
			var parts []string
			for k := range 4 {
				at := shader.Component(k)
				parts = append(parts, fmt.Sprintf("select(0.0, v.%[1]s * %[2]s, limit.y > 0u || w.%[1]s < limit.x)", at, scale))
			}
			w.Add("  st4_y((%s >> 2u) + i, real4(%s));", y, strings.Join(parts, ", "))
			return
		}
		for k := range 4 {
			e := "i * 4u + " + strconv.Itoa(k) + "u"
			w.Add("  { let e = %s; if (e < %s) { var v = 0.0; if (limit.y > 0u || w.%s < limit.x) { v = %s * %s; } st_y(%s + e, v); } }", e, total, shader.Component(k), value, scale, y)
		}
	})
}

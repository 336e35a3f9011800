// Package dropout has the GPU kernel of dropout.
package dropout

import (
	"strconv"

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
	value := "1.0"
	if s.Flag(c.Ins[0].Present()) {
		value = "ld_x(" + s.In("x", &c.Ins[0], expr.F32, expr.Number) + " + e)"
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
		for k := range 4 {
			e := "i * 4u + " + strconv.Itoa(k) + "u"
			w.Add("  { let e = %s; if (e < %s) { var v = 0.0; if (limit.y > 0u || w.%s < limit.x) { v = %s * %s; } st_y(%s + e, v); } }", e, total, shader.Component(k), value, scale, y)
		}
	})
}

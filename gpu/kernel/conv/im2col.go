package conv

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Im2Col, func(r *shader.Recorder, c *core.Call) error {
		x, y := &c.Ins[0], &c.Outs[0]
		w := primitive.NewWindow(x.Shape, places(c), c.Ints[0:2], c.Ints[2:4], c.Ints[4:6], c.Ints[6:8])
		n, ch, l := x.Shape[0], x.Shape[1], primitive.Product3(w.Out)
		return w.Columns(r, x, y, n, ch, [3]int{ch * w.Taps() * l, w.Taps() * l, l})
	})
	kernel.Register(contract.Col2Im, func(r *shader.Recorder, c *core.Call) error {
		x, y := &c.Ins[0], &c.Outs[0]
		w := primitive.NewWindow(y.Shape, places(c), c.Ints[0:2], c.Ints[2:4], c.Ints[4:6], c.Ints[6:8])
		ch, l := y.Shape[1], primitive.Product3(w.Out)
		return w.Images(r, x, y, nil, y.Shape[0], ch, [3]int{ch * w.Taps() * l, w.Taps() * l, l})
	})
}

// places returns the sizes of the output of im2col.
func places(c *core.Call) []int { return []int{int(c.Ints[8]), int(c.Ints[9])} }

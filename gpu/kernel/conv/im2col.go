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
		w := patches(c, x.Shape)
		n, ch, l := x.Shape[0], x.Shape[1], primitive.Product3(w.Out)
		return w.Im2Col(r, x, y, n, ch, [3]int{ch * w.Taps() * l, w.Taps() * l, l})
	})
	kernel.Register(contract.Col2Im, func(r *shader.Recorder, c *core.Call) error {
		x, y := &c.Ins[0], &c.Outs[0]
		w := patches(c, y.Shape)
		ch, l := y.Shape[1], primitive.Product3(w.Out)
		return w.Col2Im(r, x, y, nil, y.Shape[0], ch, [3]int{ch * w.Taps() * l, w.Taps() * l, l})
	})
}

// patches returns the geometry of an im2col or col2im call.
func patches(c *core.Call, images []int) primitive.Window {
	a := contract.PatchesOf(c)
	return primitive.NewWindow(images, []int{int(a.Places[0]), int(a.Places[1])}, a.Kernel, a.Stride, a.Padding, a.Dilation)
}

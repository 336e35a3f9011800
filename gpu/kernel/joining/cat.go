// Package joining has the GPU kernel of concatenation.
package joining

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Cat, catCall)
}

func catCall(r *shader.Recorder, c *core.Call) error {
	dim, at := contract.Dim(c), 0
	piece := core.Call{Op: c.Op, Outs: []core.Operand{c.Outs[0]}, Ins: make([]core.Operand, 1)}
	for i := range c.Ins {
		in := c.Ins[i]
		out := c.Outs[0]
		out.Shape = in.Shape
		out.Offset += at * out.Strides[dim]
		at += in.Shape[dim]
		piece.Outs[0], piece.Ins[0] = out, in
		if err := copying.Copy(r, &piece); err != nil {
			return err
		}
	}
	return nil
}

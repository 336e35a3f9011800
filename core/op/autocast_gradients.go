package op

import "github.com/plait-ml/plait/core"

// Gradients have the dtypes of their tensors. On devices whose kernels take operands of different floating-point dtypes, some skip a
// conversion: a 16-bit gradient of a float32 tensor stays as it is if the derivative behind it reads any dtype, and a gradient that would be
// converted to float32 for a parameter is computed in float32.

// A mixer is a device whose kernels take operands of different floating-point dtypes, and convert elements as they load and store them.
type mixer interface{ MixesDTypes() bool }

func mixes(dev core.Device) bool {
	m, ok := dev.(mixer)
	return ok && m.MixesDTypes()
}

// widens reports whether g, a 16-bit gradient of a tensor of dtype d, could stay as it is on its device.
func widens(g *core.Tensor, d core.DType) bool {
	return g.Err() == nil && g.DType().IsHalf() && d == core.Float32 && mixes(g.Device())
}

// converted is what the nodes of conversions hold.
type converted struct{}

// anyDType is what nodes hold whose derivatives read gradients of any floating-point dtype, but for those that hold other things.
type anyDType struct{}

// meetsAnyDType reports whether the gradient of input i goes, by way of reshapes, into a derivative that reads any floating-point dtype, and
// nobody sees it before.
func meetsAnyDType(ctx *core.BackwardContext, i int) bool {
	if ctx.CreateGraph() {
		return false
	}
	for n := ctx.Node; ctx.Hidden(n, i); i = 0 {
		n = n.Edges()[i].Node
		switch n.Any.(type) {
		case rowNormInfo, *variant, anyDType, converted:
			return true
		case reshaped:
		default:
			return false
		}
	}
	return false
}

// parameterDType returns the dtype in which to compute the gradient of input i: that of the input; or float32 if the input is the cast of a
// float32 leaf, such as a parameter under autocast, and nobody sees the gradient of the cast.
func parameterDType(ctx *core.BackwardContext, i int, g *core.Tensor) core.DType {
	d := ctx.InputDType(i)
	if ctx.CreateGraph() || !d.IsHalf() || g.Err() != nil || !mixes(g.Device()) || !ctx.Hidden(ctx.Node, i) {
		return d
	}
	n := ctx.Node.Edges()[i].Node
	if _, ok := n.Any.(converted); !ok {
		return d
	}
	to, _ := n.InputMeta(0)
	if next := n.Edges()[0].Node; to != core.Float32 || next == nil || next.Leaf() == nil {
		return d
	}
	return core.Float32
}

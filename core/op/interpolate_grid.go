package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// GridSampleOptions are the options of [GridSample].
type GridSampleOptions struct {
	// Mode is "bilinear" (the default; also between the eight neighbours in a volume), "nearest" or, for images, "bicubic":
	// Keys' kernel with a = -0.75 over 4 x 4 neighbours.
	Mode string
	// PaddingMode says what lies outside the input: "zeros" (the default), the "border" or the "reflection".
	PaddingMode string
	// AlignCorners makes -1 and 1 the centres of the outermost elements and not their outer edges.
	AlignCorners bool
}

// GridSample returns the values of x [n, c, h, w] at the places in grid [n, h', w', 2], pairs of x and y from -1 to 1 across
// the input: [n, c, h', w']. Volumes [n, c, d, h, w] have grids [n, d', h', w', 3] of x, y and z.
//
// Jaderberg, Simonyan, Zisserman, Kavukcuoglu: Spatial transformer networks, 2015.
func GridSample(x, grid *core.Tensor, o GridSampleOptions) *core.Tensor {
	if parts := distributed(x, grid); parts != nil {
		return handOn(parts, "grid_sample", x, grid, o)
	}
	op := begin("grid_sample", &x, &grid)
	op.floatTensor(x)
	op.floatTensor(grid)
	if o.Mode == "" {
		o.Mode = "bilinear"
	}
	if o.PaddingMode == "" {
		o.PaddingMode = "zeros"
	}
	k := 0
	switch {
	case op.err != nil:
	case x.Dim() != 4 && x.Dim() != 5 || grid.Dim() != x.Dim() || grid.Size(-1) != x.Dim()-2 || grid.Size(0) != x.Size(0):
		op.failf(core.ShapeError, "got an input %v and a grid %v, want [n, c, h, w] and [n, h', w', 2], or one dimension more", x.Shape(), grid.Shape())
	case x.DType() != grid.DType():
		op.failf(core.DTypeError, "dtypes differ, got %v and %v", x.DType(), grid.DType())
	case o.Mode != "bilinear" && o.Mode != "nearest" && o.Mode != "bicubic":
		op.failf(core.ValueError, "unknown mode %q, want bilinear, nearest or bicubic", o.Mode)
	case o.Mode == "bicubic" && x.Dim() != 4:
		op.failf(core.ShapeError, "mode bicubic wants an input [n, c, h, w], got %v", x.Shape())
	case o.PaddingMode != "zeros" && o.PaddingMode != "border" && o.PaddingMode != "reflection":
		op.failf(core.ValueError, "unknown padding %q, want zeros, border or reflection", o.PaddingMode)
	default:
		k = x.Dim() - 2
		for _, n := range x.Shape()[2:] {
			if n == 0 {
				op.failf(core.ShapeError, "the input %v is empty", x.Shape())
			}
		}
	}
	if op.err != nil {
		return op.fail()
	}
	if d := statType(x.DType()); d != x.DType() { // places between elements want more digits than short dtypes have
		return op.compose(func() *core.Tensor {
			return castTo(GridSample(castTo(x, d), castTo(grid, d), o), x.DType())
		})
	}
	if op.grad && !x.Device().HostAccessible() {
		return op.compose(func() *core.Tensor { return o.sums(x, grid) })
	}
	out := op.out(x.DType(), append([]int{x.Size(0), x.Size(1)}, grid.Shape()[1:k+1]...))
	if op.err == nil && out.Numel() > 0 {
		c := op.call(contract.GridSample).Out(out).In(op.dense(x)).In(op.dense(grid))
		c.Work = 4 * out.Numel()
		op.launch(o.attrs().AddTo(c))
	}
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		n := op.node(gridDeriv, x, grid).Save(x, grid)
		n.Any = o
		op.attach(n, out)
	}
	return op.done(out)
}

// gridDeriv is the derivative of [GridSample] on the CPU.
func gridDeriv(ctx *core.BackwardContext) {
	o, x, grid, g := ctx.Node.Any.(GridSampleOptions), ctx.Saved(0), ctx.Saved(1), ctx.Grad()
	if err := firstBroken(x, grid, g); err != nil {
		ctx.Fail(err.Err())
		return
	}
	if ctx.CreateGraph() {
		o.gradients(ctx, x, grid, g)
		return
	}
	op := begin("grid_sample_backward").with(x, grid, g)
	g, x, grid = op.dense(g), op.dense(x), op.dense(grid)
	var dx, dgrid *core.Tensor
	if ctx.Needs(0) {
		dx = op.out(x.DType(), x.Shape())
	}
	if ctx.Needs(1) {
		dgrid = op.out(x.DType(), grid.Shape())
	}
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	c := op.call(contract.GridSampleGrad).Out(dx).Out(dgrid).In(g).In(x).In(grid)
	c.Work = 8 * max(g.Numel(), x.Numel())
	op.launch(o.attrs().AddTo(c))
	for i, d := range []*core.Tensor{dx, dgrid} {
		if d != nil {
			ctx.Set(i, op.done(d))
		}
	}
}

// attrs returns the attributes of the kernel.
func (o GridSampleOptions) attrs() contract.GridAttrs {
	return contract.GridAttrs{
		Mode: map[string]contract.InterpolateMode{
			"nearest": contract.InterpolateNearest, "bilinear": contract.InterpolateLinear, "bicubic": contract.InterpolateCubic}[o.Mode],
		Padding: map[string]contract.GridPadding{
			"zeros": contract.GridZeros, "border": contract.GridBorder, "reflection": contract.GridReflection}[o.PaddingMode],
		AlignCorners: o.AlignCorners,
	}
}

// AffineGrid returns a grid for [GridSample] of the affine maps theta [n, 2, 3], or [n, 3, 4] for volumes, and an input of
// the given shape [n, c, h, w] or [n, c, d, h, w].
func AffineGrid(theta *core.Tensor, size []int, alignCorners bool) *core.Tensor {
	if parts := distributed(theta); parts != nil {
		return handOn(parts, "affine_grid", theta, size, alignCorners)
	}
	op := begin("affine_grid", &theta)
	op.floatTensor(theta)
	k := len(size) - 2
	if op.err == nil && (k != 2 && k != 3 || theta.Dim() != 3 || theta.Size(0) != size[0] || theta.Size(1) != k || theta.Size(2) != k+1) {
		op.failf(core.ShapeError, "got maps of shape %v for an input of shape %v, want [n, k, k+1] for k = 2 or 3 dimensions", theta.Shape(), size)
	}
	return op.compose(func() *core.Tensor {
		d := statType(theta.DType())
		o := TensorOptions{DType: &d, Device: theta.Device()}
		spatial, maps := size[2:], castTo(theta, d)
		column := func(i int) *core.Tensor { // of all maps, beside the spatial dimensions
			return Reshape(Select(maps, 2, i), append(append([]int{size[0]}, unitSizes(k)...), k)...)
		}
		grid := column(k)
		for i := range k { // x first
			n := spatial[k-1-i]
			scale, shift := 2/float64(n), 1/float64(n)-1
			if alignCorners {
				scale, shift = 2/float64(max(n-1, 1)), -1
				if n == 1 {
					shift = 0
				}
			}
			places := Add(Mul(Arange(nil, core.IntNum(int64(n)), nil, o), core.Num(scale)), core.Num(shift))
			shape := unitSizes(k + 2)
			shape[k-i] = n
			grid = Add(grid, Mul(Reshape(places, shape...), column(i)))
		}
		return castTo(grid, theta.DType())
	})
}

// unitSizes returns n sizes of 1.
func unitSizes(n int) []int {
	shape := make([]int, n)
	for i := range shape {
		shape[i] = 1
	}
	return shape
}

func init() {
	grid := func(shape ...int) T { return Between(-0.9, 0.9, shape...) }
	wide := Between(-1.7, 1.7, 1, 2, 3, 2)
	float := []core.DType{core.Float32}
	align := Arg{Name: "align_corners", Default: false, Doc: "whether -1 and 1 are the centres of the outermost elements"}
	field := align
	field.Field = "AlignCorners"
	register("interpolate",
		Row{Name: "grid_sample", Func: GridSample, Doc: "The values of an image or a volume at given places.",
			Args: []Arg{{Name: "input"}, {Name: "grid", Doc: "places from -1 to 1"}, {Name: "mode", Field: "Mode", Default: "bilinear", Doc: "bilinear, nearest or bicubic"},
				{Name: "padding_mode", Field: "PaddingMode", Default: "zeros", Doc: "zeros, border or reflection"}, field},
			Samples: []Sample{
				{Name: "bilinear", Loose: 8, DTypes: float, Args: []any{Shaped(2, 2, 3, 4), grid(2, 2, 2, 2), GridSampleOptions{}}},
				{Name: "aligned", Loose: 8, DTypes: float, Args: []any{Shaped(1, 2, 3, 2), grid(1, 2, 3, 2), GridSampleOptions{AlignCorners: true}}},
				{Name: "outside", Loose: 8, DTypes: float, Args: []any{Shaped(1, 1, 3, 4), wide, GridSampleOptions{}}},
				{Name: "border", Loose: 8, DTypes: float, Args: []any{Shaped(1, 1, 3, 4), wide, GridSampleOptions{PaddingMode: "border"}}},
				{Name: "reflection", Loose: 8, DTypes: float, Args: []any{Shaped(1, 1, 3, 4), wide, GridSampleOptions{PaddingMode: "reflection", AlignCorners: true}}},
				{Name: "nearest", DTypes: float, Args: []any{Shaped(1, 2, 3, 4), grid(1, 2, 2, 2), GridSampleOptions{Mode: "nearest"}}},
				{Name: "bicubic", Loose: 8, DTypes: float, Args: []any{Shaped(2, 2, 3, 4), grid(2, 2, 2, 2), GridSampleOptions{Mode: "bicubic"}}},
				{Name: "bicubic, border", Loose: 8, DTypes: float, Args: []any{Shaped(1, 1, 3, 4), wide, GridSampleOptions{Mode: "bicubic", PaddingMode: "border", AlignCorners: true}}},
				{Name: "bicubic, reflection", Loose: 8, DTypes: float, Args: []any{Shaped(1, 1, 3, 4), wide, GridSampleOptions{Mode: "bicubic", PaddingMode: "reflection"}}},
				{Name: "volume", Loose: 8, DTypes: float, Args: []any{Shaped(1, 2, 2, 3, 2), grid(1, 1, 2, 2, 3), GridSampleOptions{}}},
			}},
		Row{Name: "affine_grid", Func: AffineGrid, Doc: "The grids at which affine maps sample images, [N, H, W, 2] or [N, D, H, W, 3], for grid_sample.", Args: []Arg{{Name: "theta"}, {Name: "size"}, align},
			Samples: []Sample{{Loose: 2, Args: []any{Shaped(2, 2, 3), []int{2, 1, 3, 2}, false}}, {Name: "aligned", Loose: 2, Args: []any{Shaped(1, 2, 3), []int{1, 3, 2, 1}, true}},
				{Name: "volume", Loose: 2, Args: []any{Shaped(1, 3, 4), []int{1, 1, 2, 1, 3}, false}}}},
	)
}

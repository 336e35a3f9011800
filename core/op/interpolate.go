package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// InterpolateOptions are the options of [Interpolate]. Lists have one entry for each spatial dimension, or a single one
// for all of them. Either Size or ScaleFactor must be given.
type InterpolateOptions struct {
	Size        []int     // sizes of the result
	ScaleFactor []float64 // or how many times larger it is
	// Mode is "nearest" (the default), "nearest-exact", "linear" for [N, C, L], "bilinear" and "bicubic" for [N, C, H, W],
	// "trilinear" for [N, C, D, H, W], "lanczos", which wants Antialias, or "area", which is adaptive average pooling.
	Mode string
	// AlignCorners makes the centres of the corner elements of input and result coincide, instead of their outer edges.
	AlignCorners bool
	// RecomputeScaleFactor computes positions from the sizes even if ScaleFactor is given.
	RecomputeScaleFactor bool
	// Antialias has each element of a smaller image be made of all of those in its place, and not of the nearest alone, in the modes
	// "bilinear", "bicubic" (there with a = -0.5) and "lanczos" (Duchon 1979), as Pillow does.
	Antialias bool
}

var interpolateModes = map[string]struct {
	mode   contract.InterpolateMode
	nd     int
	filter *filter // against aliases
}{
	"nearest": {contract.InterpolateNearest, 0, nil}, "nearest-exact": {contract.InterpolateNearestExact, 0, nil}, "linear": {contract.InterpolateLinear, 1, nil},
	"bilinear": {contract.InterpolateLinear, 2, &linearFilter}, "trilinear": {contract.InterpolateLinear, 3, nil}, "bicubic": {contract.InterpolateCubic, 2, &catmullFilter},
	"lanczos": {contract.InterpolateCubic, 2, &lanczosFilter},
}

// An interpolation is a linear map from the last dimensions of sizes in to those of sizes out.
type interpolation struct {
	in, out []int
	mode    contract.InterpolateMode
	align   bool
	scale   []float64 // 0 where positions follow from the sizes
	filter  *filter   // against aliases
	bytes   bool
}

// Interpolate returns x, of shape [N, C, spatial...] with one to three spatial dimensions, resampled to other spatial
// sizes. Positions follow PyTorch's conventions; cubic interpolation uses Keys' kernel with a = -0.75 (Keys 1981). Images may be of
// uint8, of which the nearest element may be taken in any number of dimensions.
func Interpolate(x *core.Tensor, o InterpolateOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "interpolate", x, o)
	}
	op := begin("interpolate", &x)
	if o.Mode == "" {
		o.Mode = "nearest"
	}
	p := op.interpolation(x, o)
	if op.err != nil {
		return op.fail()
	}
	if o.Mode == "area" {
		return op.compose(func() *core.Tensor {
			switch len(p.out) {
			case 1:
				return AdaptiveAvgPool1d(x, p.out)
			case 2:
				return AdaptiveAvgPool2d(x, p.out)
			}
			return AdaptiveAvgPool3d(x, p.out)
		})
	}
	if p.filter != nil || x.DType() == core.Uint8 && p.mode >= contract.InterpolateLinear {
		return op.compose(func() *core.Tensor { return p.separate(x) })
	}
	return op.passOn(p.apply("interpolate", contract.Interpolate, x, p.out))
}

func (op *opContext) interpolation(x *core.Tensor, o InterpolateOptions) *interpolation {
	if op.err != nil {
		return nil
	}
	nd := x.Dim() - 2
	if nd < 1 || nd > 3 {
		op.failf(core.ShapeError, "input has shape %v, want 3, 4 or 5 dimensions", x.Shape())
		return nil
	}
	m, known := interpolateModes[o.Mode]
	switch {
	case !known && o.Mode != "area":
		op.failf(core.ValueError, "unknown mode %q, want nearest, nearest-exact, linear, bilinear, bicubic, trilinear, lanczos or area", o.Mode)
	case m.nd != 0 && m.nd != nd:
		op.failf(core.ShapeError, "mode %q wants %d dimensions, got an input of shape %v", o.Mode, m.nd+2, x.Shape())
	case o.Antialias && m.filter == nil:
		op.failf(core.ValueError, "antialias wants mode bilinear, bicubic or lanczos and an input [n, c, h, w], got mode %q", o.Mode)
	case o.Mode == "lanczos" && !o.Antialias:
		op.failf(core.ValueError, "mode \"lanczos\" wants antialias")
	case o.AlignCorners && (m.nd == 0 || o.Mode == "lanczos"):
		op.failf(core.ValueError, "corners cannot be aligned in mode %q", o.Mode)
	case m.nd == 2 && x.DType() == core.Uint8: // an image
	case m.mode >= contract.InterpolateLinear || o.Mode == "area":
		op.floating("the input", x)
	case !x.DType().IsFloat() && x.DType() != core.Uint8:
		op.failf(core.DTypeError, "the input must be floating point or uint8, got %v", x.DType())
	}
	if (len(o.Size) == 0) == (len(o.ScaleFactor) == 0) {
		op.failf(core.ValueError, "want either size or scale_factor, got %v and %v", o.Size, o.ScaleFactor)
	}
	p := &interpolation{in: x.Shape()[2:], mode: m.mode, align: o.AlignCorners, scale: make([]float64, nd), bytes: x.DType() == core.Uint8}
	if o.Antialias {
		p.filter = m.filter
	}
	if n := len(o.ScaleFactor); n > 1 && n != nd {
		op.failf(core.ValueError, "scale_factor has %d entries, want 1 or %d", n, nd)
	}
	if len(o.ScaleFactor) == 0 {
		p.out = op.spatial("size", o.Size, nd, 1, 1)
	} else if op.err == nil {
		p.out = make([]int, nd)
		for i := range nd {
			f := o.ScaleFactor[i%len(o.ScaleFactor)]
			size := math.Floor(float64(p.in[i]) * f)
			if !(f > 0) || size > math.MaxInt32 || size < 1 {
				op.failf(core.ValueError, "scale_factor %v makes nothing of, or too much from, the input of shape %v", o.ScaleFactor, x.Shape())
				return nil
			}
			p.out[i] = int(size)
			if !o.RecomputeScaleFactor && !p.exact(i) {
				p.scale[i] = f
			}
		}
	}
	if op.err == nil && slices.Contains(p.in, 0) {
		op.failf(core.ShapeError, "input of shape %v has nothing to interpolate", x.Shape())
	}
	return p
}

// exact reports whether the positions in dimension i follow from the sizes whatever the scale factor was, as PyTorch has
// it: where the sizes are equal and, for the nearest element of an image, where one is twice the other. For the nearest
// element of a sequence or a volume, and for cubic interpolation of floats without antialias, they never do.
func (p *interpolation) exact(i int) bool {
	switch p.mode {
	case contract.InterpolateNearest:
		return len(p.in) == 2 && (p.in[i] == p.out[i] || 2*p.in[i] == p.out[i])
	case contract.InterpolateNearestExact:
		return false
	case contract.InterpolateCubic:
		return p.in[i] == p.out[i] && (p.bytes || p.filter != nil)
	}
	return p.in[i] == p.out[i]
}

func (p *interpolation) apply(name string, k core.KernelID, x *core.Tensor, sizes []int) *core.Tensor {
	deriv := interpolateDeriv
	if k == contract.InterpolateGrad {
		deriv = interpolateGradDeriv
	}
	return linearResize(name, k, x, sizes, p, deriv, func(c *core.Call) {
		contract.InterpolateAttrs{Spatial: len(sizes), Mode: p.mode, AlignCorners: p.align, Scale: p.scale}.AddTo(c)
		c.Work *= 4
	})
}

func interpolateDeriv(ctx *core.BackwardContext) {
	p := ctx.Node.Any.(*interpolation)
	ctx.Set(0, p.apply("interpolate_grad", contract.InterpolateGrad, ctx.Grad(), p.in))
}

func interpolateGradDeriv(ctx *core.BackwardContext) {
	p := ctx.Node.Any.(*interpolation)
	ctx.Set(0, p.apply("interpolate", contract.Interpolate, ctx.Grad(), p.out))
}

func init() {
	register("interpolate", Row{
		Name: "interpolate",
		Doc:  "The input, [N, C, spatial...], resampled to other spatial sizes.",
		Func: Interpolate,
		Args: []Arg{
			{Name: "input"}, {Name: "size", Field: "Size", Optional: true}, {Name: "scale_factor", Field: "ScaleFactor", Optional: true},
			{Name: "mode", Field: "Mode", Default: "nearest"}, {Name: "align_corners", Field: "AlignCorners", Default: false},
			{Name: "recompute_scale_factor", Field: "RecomputeScaleFactor", Default: false},
			{Name: "antialias", Field: "Antialias", Default: false},
		},
		Samples: []Sample{
			{Name: "nearest", Args: []any{Shaped(2, 2, 3, 4), InterpolateOptions{Size: []int{5, 7}}}},
			{Name: "nearest, smaller", Args: []any{Shaped(1, 2, 7), InterpolateOptions{Size: []int{3}}}},
			{Name: "nearest-exact", Args: []any{Shaped(1, 2, 2, 3, 4), InterpolateOptions{Size: []int{3, 2, 5}, Mode: "nearest-exact"}}},
			{Name: "linear", Args: []any{Shaped(2, 2, 5), InterpolateOptions{Size: []int{8}, Mode: "linear"}}},
			{Name: "bilinear", Args: []any{Shaped(1, 2, 4, 3), InterpolateOptions{ScaleFactor: []float64{2, 1.7}, Mode: "bilinear"}}},
			{Name: "bilinear, corners", Args: []any{Shaped(1, 2, 4, 5), InterpolateOptions{Size: []int{7, 3}, Mode: "bilinear", AlignCorners: true}}},
			{Name: "bilinear, to one", Args: []any{Shaped(1, 1, 4, 5), InterpolateOptions{Size: []int{1, 1}, Mode: "bilinear", AlignCorners: true}}},
			{Name: "bicubic", Args: []any{Shaped(1, 2, 4, 3), InterpolateOptions{Size: []int{6, 7}, Mode: "bicubic"}}},
			{Name: "bicubic, corners", Args: []any{Shaped(1, 1, 5, 4), InterpolateOptions{Size: []int{3, 6}, Mode: "bicubic", AlignCorners: true}}},
			{Name: "antialias", Args: []any{Shaped(1, 2, 7, 5), InterpolateOptions{Size: []int{3, 2}, Mode: "bilinear", Antialias: true}}},
			{Name: "antialias, larger", Args: []any{Shaped(2, 1, 2, 3), InterpolateOptions{ScaleFactor: []float64{1.7, 0.7}, Mode: "bicubic", Antialias: true}}},
			{Name: "antialias, corners", Args: []any{Shaped(1, 1, 6, 4), InterpolateOptions{Size: []int{1, 3}, Mode: "bicubic", AlignCorners: true, Antialias: true}}},
			{Name: "antialias, same size", Args: []any{Shaped(1, 1, 2, 3), InterpolateOptions{Size: []int{2, 3}, Mode: "bilinear", Antialias: true}}},
			{Name: "lanczos", Args: []any{Shaped(1, 2, 7, 4), InterpolateOptions{Size: []int{3, 5}, Mode: "lanczos", Antialias: true}}},
			{Name: "trilinear", Args: []any{Shaped(1, 2, 2, 3, 2), InterpolateOptions{Size: []int{3, 2, 4}, Mode: "trilinear"}}},
			{Name: "area", Args: []any{Shaped(1, 2, 5, 4), InterpolateOptions{Size: []int{2, 3}, Mode: "area"}}},
			{Name: "no images", Args: []any{Shaped(0, 2, 5), InterpolateOptions{Size: []int{2}, Mode: "linear"}}},
		},
	})
}

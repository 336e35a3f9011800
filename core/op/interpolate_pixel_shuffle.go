package op

import "github.com/plait-ml/plait/core"

// PixelShuffle returns x, [..., C*r*r, H, W], with the channels of each place spread over r x r places:
// [..., C, H*r, W*r] (Shi et al. 2016).
func PixelShuffle(x *core.Tensor, upscaleFactor int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "pixel_shuffle", x, upscaleFactor)
	}
	op := begin("pixel_shuffle", &x)
	r := upscaleFactor
	op.pixels(x, r)
	area := saturate(r, r)
	if op.err == nil && x.Size(-3)%area != 0 {
		op.failf(core.ShapeError, "input of shape %v has %d channels, want a multiple of %d * %d", x.Shape(), x.Size(-3), r, r)
	}
	if op.err != nil {
		return op.fail()
	}
	c, h, w := x.Size(-3)/area, x.Size(-2), x.Size(-1)
	return regroup("pixel_shuffle", x, []int{c, r, r, h, w}, []int{0, 3, 1, 4, 2}, []int{c, saturate(h, r), saturate(w, r)})
}

// PixelUnshuffle undoes [PixelShuffle]: [..., C, H*r, W*r] becomes [..., C*r*r, H, W].
func PixelUnshuffle(x *core.Tensor, downscaleFactor int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "pixel_unshuffle", x, downscaleFactor)
	}
	op := begin("pixel_unshuffle", &x)
	r := downscaleFactor
	op.pixels(x, r)
	if op.err == nil && (x.Size(-2)%r != 0 || x.Size(-1)%r != 0) {
		op.failf(core.ShapeError, "input has shape %v, want height and width to be multiples of %d", x.Shape(), r)
	}
	if op.err != nil {
		return op.fail()
	}
	c, h, w := x.Size(-3), x.Size(-2)/r, x.Size(-1)/r
	return regroup("pixel_unshuffle", x, []int{c, h, r, w, r}, []int{0, 2, 4, 1, 3}, []int{saturate(c, saturate(r, r)), h, w})
}

// ChannelShuffle returns x, [N, C, ...], with the channels of its groups interleaved (Zhang et al. 2018).
func ChannelShuffle(x *core.Tensor, groups int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "channel_shuffle", x, groups)
	}
	op := begin("channel_shuffle", &x)
	if op.err == nil && x.Dim() < 3 {
		op.failf(core.ShapeError, "want an input [N, C, ...]")
	}
	if op.err == nil && (groups < 1 || x.Size(1)%groups != 0) {
		op.failf(core.ValueError, "%d channels do not divide into %d groups", x.Size(1), groups)
	}
	return op.compose(func() *core.Tensor {
		rest := x.Shape()[2:]
		y := Reshape(x, append([]int{x.Size(0), groups, x.Size(1) / groups}, rest...)...)
		return Reshape(Clone(Transpose(y, 1, 2)), x.Shape()...)
	})
}

func (op *opContext) pixels(x *core.Tensor, r int) {
	switch {
	case op.err != nil:
	case x.Dim() < 3:
		op.failf(core.ShapeError, "want an input [..., C, H, W]")
	case r < 1:
		op.failf(core.ValueError, "the factor must be positive, got %d", r)
	}
}

// regroup copies x with its last three dimensions split into those of from, put in another order, and joined to those of to.
func regroup(name string, x *core.Tensor, from, order, to []int) *core.Tensor {
	return compose(name, func() *core.Tensor {
		lead := x.Shape()[:x.Dim()-3]
		dims := make([]int, 0, len(lead)+len(order))
		for i := range lead {
			dims = append(dims, i)
		}
		for _, d := range order {
			dims = append(dims, len(lead)+d)
		}
		y := Reshape(x, append(append([]int{}, lead...), from...)...)
		return Reshape(Clone(Permute(y, dims...)), append(append([]int{}, lead...), to...)...)
	})
}

func init() {
	register("interpolate",
		Row{
			Name: "pixel_shuffle", Doc: "The input, [..., C*r*r, H, W], with channels spread over places: [..., C, H*r, W*r].",
			Func: PixelShuffle, Args: []Arg{{Name: "input"}, {Name: "upscale_factor"}}, Memory: true,
			Samples: []Sample{{Args: []any{Shaped(2, 8, 2, 3), 2}}, {Name: "no batch", Args: []any{Shaped(9, 1, 2), 3}}},
		},
		Row{
			Name: "pixel_unshuffle", Doc: "The input, [..., C, H*r, W*r], with places gathered in channels: [..., C*r*r, H, W].",
			Func: PixelUnshuffle, Args: []Arg{{Name: "input"}, {Name: "downscale_factor"}}, Memory: true,
			Samples: []Sample{{Args: []any{Shaped(2, 2, 4, 6), 2}}, {Name: "no batch", Args: []any{Shaped(1, 3, 6), 3}}},
		},
		Row{
			Name: "channel_shuffle", Doc: "The input, [N, C, ...], with the channels of its groups interleaved.",
			Func: ChannelShuffle, Args: []Arg{{Name: "input"}, {Name: "groups"}}, Memory: true,
			Samples: []Sample{{Args: []any{Shaped(2, 6, 2, 2), 3}}, {Name: "3-d", Args: []any{Shaped(1, 4, 3), 2}}},
		},
	)
}

package vmap

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// layerRules are those of what layers are made of.
func layerRules(add func(r rule, names string)) {
	for k, n := range []string{"1d", "2d", "3d"} {
		k++
		for _, pool := range []string{"avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "max_pool", "lp_pool", "max_unpool"} {
			add(stacked(k+2), pool+n+" "+pool+n+"_with_indices")
		}
		add(convolution(k, false), "conv"+n)
		add(convolution(k, true), "conv_transpose"+n)
	}
	things := func(u *use) []*core.Tensor {
		for i, t := range u.tensors {
			if u.given(i) && t.Dim() == 0 {
				return nil
			}
		}
		return u.folded(u.Args, u.all())
	}
	add(things, "interpolate channel_shuffle grid_sample local_response_norm")
	add(func(u *use) []*core.Tensor {
		size := argument[[]int](u, 1)
		if len(size) == 0 || u.tensors[0].Dim() != 3 {
			return nil
		}
		args := slices.Clone(u.Args)
		size = slices.Clone(size)
		size[0] *= u.size
		args[1] = size
		return u.folded(args, u.whole)
	}, "affine_grid")
	add(leading(3), "pixel_shuffle pixel_unshuffle")
	add(stacked(4), "im2col")
	add(stacked(3), "col2im")
	add(padded, "pad")
	add(normalized, "batch_norm instance_norm")
	add(grouped, "group_norm")
	add(func(u *use) []*core.Tensor {
		if u.only(0) {
			return u.call(u.whole)
		}
		x, weight, bias := u.tensors[0], u.tensors[1], u.tensors[2]
		return []*core.Tensor{scaled(op.LayerNorm(x, argument[[]int](u, 1), nil, nil, argument[float64](u, 4)), weight, bias)}
	}, "layer_norm")
	add(func(u *use) []*core.Tensor {
		if u.only(0) {
			return u.call(u.whole)
		}
		return []*core.Tensor{scaled(op.RMSNorm(u.tensors[0], argument[[]int](u, 1), nil, argument[float64](u, 3)), u.tensors[1], nil)}
	}, "rms_norm")
	add(composed(func(u *use) *core.Tensor {
		x, weight := u.tensors[0], u.tensors[1]
		if weight.Dim() > 1 {
			return nil
		}
		if weight.Dim() == 1 && weight.Size(0) > 1 {
			if x.Dim() < 2 || x.Size(1) != weight.Size(0) {
				return nil
			}
			weight = channelwise(weight, x.Dim())
		} else {
			weight = op.Reshape(weight)
		}
		return op.Where(op.Gt(x, core.Num(0)), x, op.Mul(weight, x))
	}), "prelu")
	add(attention, "scaled_dot_product_attention")
}

// scaled returns x times weight plus bias, of which each may be absent.
func scaled(x, weight, bias *core.Tensor) *core.Tensor {
	if weight != nil {
		x = op.Mul(x, weight)
	}
	if bias != nil {
		x = op.Add(x, bias)
	}
	return x
}

// channelwise returns a vector of channels as a tensor that broadcasts along dimension 1 of one with n dimensions.
func channelwise(t *core.Tensor, n int) *core.Tensor {
	shape := slices.Repeat([]int{1}, n)
	shape[1] = -1
	return op.Reshape(t, shape...)
}

// padded is for pad.
func padded(u *use) []*core.Tensor {
	amounts, o := argument[[]int](u, 1), argument[op.PadOptions](u, 2)
	n, k := u.tensors[0].Dim(), len(amounts)/2
	switch {
	case k > n:
		return nil
	case o.Mode == "" || o.Mode == "constant" || n == k+1 && o.Mode != "circular":
		return u.call(u.whole)
	case n == k+2 && n > 0:
		return u.folded(u.Args, u.whole)
	}
	return nil
}

// convolution is the rule of convolutions along k dimensions: where the kernels are the same for all parts, the parts are more of the things
// along dimension 0, and elsewhere each part has groups of channels of its own.
func convolution(k int, transposed bool) rule {
	return func(u *use) []*core.Tensor {
		x, w := u.tensors[0], u.tensors[1]
		if x.Dim() != k+1 && x.Dim() != k+2 || w.Dim() != k+2 {
			return nil
		}
		single := x.Dim() == k+1
		if u.only(0) {
			if single {
				return u.call(u.whole)
			}
			return u.foldedFirst()
		}
		args := slices.Clone(u.Args)
		all := u.all()
		a, shared := u.whole[0], !u.batched[0]
		groups := 1
		switch o := args[3].(type) {
		case op.ConvOptions:
			groups = max(o.Groups, 1)
			shared = shared && groups == 1
			if !shared {
				o.Groups = groups * u.size
			}
			args[3] = o
		case op.ConvTransposeOptions:
			shared = false
			o.Groups = max(o.Groups, 1) * u.size
			args[3] = o
		}
		if !shared { // [N, batch * C, ...]
			a = all[0]
			if single {
				a = op.Unsqueeze(a, 1)
			}
			a = op.Flatten(op.Transpose(a, 0, 1), 1, 2)
		} else if single {
			a = op.Unsqueeze(a, 0)
		}
		b := all[2]
		if b != nil {
			b = op.Flatten(b, 0, 1)
		}
		for _, t := range []*core.Tensor{a, b} {
			if t != nil && t.Err() != nil {
				return []*core.Tensor{t}
			}
		}
		out := u.Call(op.Replaced(args, []*core.Tensor{a, op.Flatten(all[1], 0, 1), b}))[0]
		out = op.Transpose(op.Unflatten(out, 1, u.size, -1), 0, 1)
		if single {
			out = op.Squeeze(out, 1)
		}
		return []*core.Tensor{u.with(out)}
	}
}

// normalized is for batch_norm and instance_norm, which take each channel by itself: the parts have channels of their own.
func normalized(u *use) []*core.Tensor {
	x := u.tensors[0]
	if x.Dim() < 2 {
		return nil
	}
	training := argument[bool](u, 5)
	for _, i := range []int{1, 2} {
		if t := u.tensors[i]; training && t != nil && !u.batched[i] {
			return []*core.Tensor{core.ErrorTensor(core.Errorf(core.NotImplemented, u.Op, "inside vmap the running statistics are the same for all parts and cannot hold those of each: "+
				"use them without training, or track_running_stats=False"))}
		}
	}
	tensors := u.all()
	tensors[0] = op.Flatten(op.Transpose(tensors[0], 0, 1), 1, 2)
	for i := 1; i < 5; i++ {
		t := tensors[i]
		if t == nil {
			continue
		}
		if tensors[i] = op.Reshape(t, -1); training && i < 3 && (!t.Contiguous() || t.Parts() != nil) {
			return nil // they are changed in place
		}
	}
	for _, t := range tensors {
		if t != nil && t.Err() != nil {
			return []*core.Tensor{t}
		}
	}
	out := u.Call(op.Replaced(u.Args, tensors))[0]
	return []*core.Tensor{u.with(op.Transpose(op.Unflatten(out, 1, u.size, x.Size(1)), 0, 1))}
}

// grouped is for group_norm.
func grouped(u *use) []*core.Tensor {
	x, weight, bias := u.tensors[0], u.tensors[1], u.tensors[2]
	if x.Dim() < 2 {
		return nil
	}
	if u.only(0) {
		return u.foldedFirst()
	}
	if weight != nil {
		weight = channelwise(weight, x.Dim())
	}
	if bias != nil {
		bias = channelwise(bias, x.Dim())
	}
	return []*core.Tensor{scaled(op.GroupNorm(x, argument[int](u, 1), nil, nil, argument[float64](u, 4)), weight, bias)}
}

// attention is for attention: stacks are independent.
func attention(u *use) []*core.Tensor {
	if u.same && argument[op.AttentionOptions](u, 3).DropoutP > 0 {
		return nil
	}
	n := u.tensors[0].Dim()
	for _, t := range u.tensors[:3] {
		if t.Dim() != n || n < 2 {
			return nil
		}
	}
	tensors := u.all()
	if u.tensors[3] != nil {
		if tensors[3] = u.whole[3]; u.batched[3] {
			tensors[3] = widened(tensors[3], n)
		}
		if u.tensors[3].Dim() > n {
			return nil
		}
	}
	return u.call(tensors)
}

package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// A Cast is what autocast does with the floating-point inputs of an operation, but those in float64.
type Cast uint8

const (
	// KeepDTypes leaves them as they are.
	KeepDTypes Cast = iota
	// CastLow casts them to autocast's dtype.
	CastLow
	// CastFloat32 casts them to float32.
	CastFloat32
	// CastWidest casts them to the widest dtype among them.
	CastWidest
)

// Casts is what autocast does with an operation's inputs on CPU devices and on others.
type Casts struct{ CPU, GPU Cast }

// autocast replaces the inputs, which may be nil, by what the row of the operation says, where autocast is on for their device. The op
// owns what it makes.
func (op *opContext) autocast(inputs []**core.Tensor) {
	kind := ""
	for _, p := range inputs {
		if p != nil && (*p).Usable(op.name) == nil && !(*p).IsNumber() {
			kind = (*p).Device().Kind()
			break
		}
	}
	if kind == "" || !op.mode.Autocast(kind) {
		return
	}
	op.casts = true
	to, ok := castOf(op.name, kind).dtype(op.mode, kind, inputs)
	rounds := ok && op.roundsInLoads(to, kind, inputs)
	for i, p := range inputs {
		if ok && castable(p, kind) && (*p).DType() != to {
			t := *p
			if op.wide = i == 0 && to == core.Float32 && convertsInLoads(op.name, inputs); op.wide {
				continue
			}
			if rounds && (i == 1 || op.name == "linear") && t.DType() == core.Float32 && op.mode.CastsFirst(t, to) {
				op.rounds = true
				continue
			}
			*p = op.own(op.mode.CachedCast(t, to, func() *core.Tensor { return To(t, to) }))
		}
	}
}

// convertsInLoads reports whether the kernel of an operation reads its first input, which has 16 bits and is to be float32, as it is. The
// result has the bits that it has for the cast: kernels access contiguous elements that begin at a multiple of four like those of the cast.
func convertsInLoads(name string, inputs []**core.Tensor) bool {
	if x := *inputs[0]; !readsHalves[name] || !x.DType().IsHalf() || !mixes(x.Device()) || !x.Contiguous() || x.Offset()%4 != 0 {
		return false
	}
	return name != "cross_entropy" || !(*inputs[1]).DType().IsFloat() // probabilities have the scores' dtype
}

// A rounder is a device whose matrix products in a dtype take factors of float32 too, and round them as they load them, and whose convolutions
// take weights so.
type rounder interface {
	RoundsFactors(d core.DType) bool
}

var convolves = map[string]bool{"conv1d": true, "conv2d": true, "conv3d": true}

// roundsInLoads reports whether the kernel of an operation can round its inputs, or the weight of a convolution, to a dtype: where the casts are not for the graph, too. The
// result has the bits that it has for the casts, but for subnormal numbers, which some products take for zero.
func (op *opContext) roundsInLoads(to core.DType, kind string, inputs []**core.Tensor) bool {
	if op.name != "linear" && !convolves[op.name] || op.mode.GradEnabled() || core.ForwardActive() {
		return false
	}
	for i, p := range inputs {
		if p != nil && (!castable(p, kind) || i < 2 && (*p).Dim() < 2) {
			return false
		}
	}
	dev, ok := (*inputs[0]).Device().(rounder)
	return ok && dev.RoundsFactors(to)
}

// inputType returns the dtype in which the kernel sees x, the first input.
func (op *opContext) inputType(x *core.Tensor) core.DType {
	if op.wide {
		return core.Float32
	}
	if op.rounds {
		return op.mode.AutocastDType(x.Device().Kind())
	}
	return x.DType()
}

// castList is autocast for a list, for which it returns another.
func (op *opContext) castList(list []*core.Tensor) []*core.Tensor {
	if !op.mode.Autocasting() {
		return list
	}
	cast := slices.Clone(list) // a variable of its own, so that list need not go to the heap
	inputs := make([]**core.Tensor, len(cast))
	for i := range cast {
		inputs[i] = &cast[i]
	}
	op.autocast(inputs)
	return cast
}

func castOf(name, kind string) Cast {
	r := Lookup(name)
	switch {
	case r == nil:
		return KeepDTypes
	case kind == "cpu":
		return r.Autocast.CPU
	}
	return r.Autocast.GPU
}

// dtype returns the dtype to cast to, if any.
func (c Cast) dtype(mode core.Mode, kind string, inputs []**core.Tensor) (core.DType, bool) {
	switch c {
	case CastLow:
		return mode.AutocastDType(kind), true
	case CastFloat32:
		return core.Float32, true
	case CastWidest:
		found := false
		d := mode.AutocastDType(kind)
		for _, p := range inputs {
			if castable(p, kind) {
				found = true
				d = core.Promote(d, (*p).DType())
			}
		}
		return d, found
	}
	return 0, false
}

// castable reports whether autocast on devices of the kind concerns an input.
func castable(p **core.Tensor, kind string) bool {
	if p == nil || (*p).Usable("autocast") != nil || (*p).IsNumber() {
		return false
	}
	t := *p
	return t.DType().IsFloat() && t.DType() != core.Float64 && t.Device().Kind() == kind
}

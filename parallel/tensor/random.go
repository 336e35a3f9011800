package tensor

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/mesh"
)

// draws are the ops that fill a tensor with random numbers, and masks those that multiply one by random numbers of its shape.
var (
	draws = strings.Fields("normal_ uniform_ random_ exponential_ cauchy_ geometric_ log_normal_ trunc_normal_ bernoulli_ rand_like randn_like randint_like")
	masks = strings.Fields("dropout dropout1d dropout2d dropout3d")
	// those of parameters, which are gathered
	parameters = strings.Fields("poisson")
)

// alignGenerators gives all ranks of a mesh the state of its first rank's generator for a device. So replicated draws are equal, and
// divided ones are parts of one draw. It waits for the ranks, and they exchange their states at every call: no rank could know alone that
// another has drawn or set a seed.
func alignGenerators(m *mesh.Mesh, d core.Device) error {
	gen := core.CurrentContext().Generator(d)
	for i := range m.Shape() {
		seed, offset := gen.State()
		state := binary.LittleEndian.AppendUint64(nil, seed)
		state = binary.LittleEndian.AppendUint64(state, offset)
		w := m.Group(i).For("the state of random generators").StartExchange("distribute_tensor", state)
		if err := w.Wait(); err != nil {
			return err
		}
		if first := w.Payloads()[0]; !bytes.Equal(first, state) {
			gen.SetState(binary.LittleEndian.Uint64(first), binary.LittleEndian.Uint64(first[8:]))
		}
	}
	return nil
}

// random applies an op that draws random numbers for divided tensors: each rank draws those of the whole tensor and keeps its part, so that
// the ranks' generators stay alike and the numbers are those of one device. ok says whether the op is one.
func (p *parts) random(a core.Application, u *op.Use, list []*parts) (out []*core.Tensor, ok bool) {
	q := list[0]
	if q == nil || !slices.ContainsFunc(q.placements, func(p core.Placement) bool { return p.Kind != core.Replicated }) {
		return nil, false
	}
	isMask := slices.Contains(masks, a.Op)
	hasParameters := slices.Contains(parameters, a.Op)
	if !isMask && !hasParameters && !slices.Contains(draws, a.Op) {
		return nil, false
	}
	for _, t := range u.Tensors[1:] {
		if t != nil && !t.IsNumber() {
			return nil, false
		}
	}
	l := q.gradient()
	part := func() (part *core.Tensor) {
		core.NoGrad(func() {
			var like *core.Tensor
			whole := l.with(make([]core.Placement, len(l.placements)))
			if hasParameters {
				like = relay(q.here, q.layout, whole.placements)
			} else if like = empty(q.here, q.shape); isMask {
				like = op.OnesLike(like, op.TensorOptions{})
			}
			if part = like; like.Err() != nil {
				return
			}
			args := slices.Clone(a.Args)
			args[0] = like
			if part = a.Call(args)[0]; part.Err() == nil {
				part = relay(part, whole, l.placements)
			}
		})
		return part
	}
	if !strings.HasSuffix(a.Op, "_") {
		return []*core.Tensor{wrap(l, tidy(func() *core.Tensor {
			y := part()
			if isMask && y.Err() == nil {
				y = op.Mul(relay(q.here, q.layout, l.placements), y)
			}
			if hasParameters && y.Err() == nil { // whose gradients are 0
				own := relay(q.here, q.layout, l.placements)
				y = op.Where(op.Full(own.Shape(), core.BoolNum(true), op.TensorOptions{Device: own.Device()}), y, own)
			}
			return y
		}))}, true
	}
	if !slices.Equal(q.placements, l.placements) {
		return []*core.Tensor{core.ErrorTensor(core.Errorf(core.StateError, a.Op, "cannot fill a tensor placed %v: redistribute it first", q))}, true
	}
	var err error
	core.Tidy(func() {
		if y := part(); y.Err() != nil {
			err = y.Err()
		} else {
			err = op.CopyInPlace(q.here, y).Err()
		}
	})
	if err != nil {
		return []*core.Tensor{core.ErrorTensor(err)}, true
	}
	return u.Tensors[:1], true
}

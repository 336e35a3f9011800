package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A sharing says how the ranks of a mesh share the vectors of an L-BFGS over distributed parameters. A rank's vector has its parts of the
// parameters. Elements that several ranks have count on the first of them alone.
type sharing struct {
	mesh  core.Parts // of any of the parameters
	owned []span     // the elements that count on this rank
}

// A span is a range of a vector.
type span struct{ start, length int }

// shared returns how the ranks share vectors over the parameters; nil if none of them is distributed. Ordinary parameters are the same on
// all ranks.
func shared(slots []*slot) (*sharing, error) {
	var r sharing
	for _, s := range slots {
		p := s.parts
		switch {
		case p == nil:
		case r.mesh == nil:
			r.mesh = p
		case !r.mesh.Beside(p):
			return nil, core.Errorf(core.ValueError, "lbfgs", "parameters must share a mesh, got %v and another mesh for %v", slots[0].whole, s.whole)
		}
	}
	if r.mesh == nil {
		return nil, nil
	}
	d := precision(slots[0])
	zero := r.mesh.Like(nil, func(shape []int) *core.Tensor {
		return op.ZerosWith(shape, op.TensorOptions{DType: &d, Device: slots[0].param.Device()})
	})
	if err := zero.Err(); err != nil {
		return nil, err
	}
	defer zero.Release()
	start := 0
	for _, s := range slots {
		n := numbers(s, s.param)
		first := zero.Parts().First()
		if p := s.parts; p != nil {
			first = p.First()
		}
		if last := len(r.owned) - 1; first && last >= 0 && r.owned[last].start+r.owned[last].length == start {
			r.owned[last].length += n
		} else if first && n > 0 {
			r.owned = append(r.owned, span{start, n})
		}
		start += n
	}
	return &r, nil
}

// counted returns the elements of x that count on this rank.
func (r *sharing) counted(x *core.Tensor) []*core.Tensor {
	out := make([]*core.Tensor, len(r.owned))
	for i, s := range r.owned {
		out[i] = op.Narrow(x, 0, s.start, s.length)
	}
	return out
}

// combined returns the combination of the numbers that the ranks compute.
func (r *sharing) combined(c core.Combination, number func() *core.Tensor) *core.Tensor {
	return core.RunScope(func() []*core.Tensor { return []*core.Tensor{r.mesh.Combine("a step of LBFGS", number(), c)} })[0]
}

// dot returns the product of two vectors.
func (r *sharing) dot(x, y *core.Tensor) *core.Tensor {
	return r.combined(core.Sums, func() *core.Tensor {
		d := x.DType()
		sum := op.ZerosWith([]int{}, op.TensorOptions{DType: &d, Device: x.Device()})
		ys := r.counted(y)
		for i, part := range r.counted(x) {
			sum = op.Add(sum, op.Dot(part, ys[i]))
		}
		return sum
	})
}

// norm returns the sum (power 1) or the largest (power infinity) of the absolute values of a vector.
func (r *sharing) norm(x *core.Tensor, power float64) *core.Tensor {
	c := core.Sums
	if math.IsInf(power, 1) {
		c = core.Maxima
	}
	return r.combined(c, func() *core.Tensor {
		list := r.counted(x)
		if len(list) == 0 {
			list = []*core.Tensor{op.Narrow(x, 0, 0, 0)}
		}
		return reduceList(list, power, true)
	})
}

// agreed returns the loss that all ranks go on with, which is theirs but for rounding: what they do next must be the same. like is one of
// the parameters.
func (r *sharing) agreed(loss float64, like *slot) (float64, error) {
	d := core.Float32
	if precision(like) == core.Float64 {
		d = core.Float64
	}
	var most, least float64
	var err error
	core.Tidy(func() {
		own := op.Full([]int{}, core.Num(loss), op.TensorOptions{DType: &d, Device: like.param.Device()})
		if most, err = r.mesh.Combine("a step of LBFGS", own, core.Maxima).Item(); err == nil {
			least, err = r.mesh.Combine("a step of LBFGS", own, core.Minima).Item()
		}
	})
	if err == nil && most-least > 1e-3*max(math.Abs(most), math.Abs(least)) {
		err = core.Errorf(core.ValueError, "lbfgs", "the ranks have other losses, got %v to %v, want the same: return the loss of the whole batch, such as the mean over the ranks", least, most)
	}
	return most, err
}

package optim

import (
	"maps"
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Methods that look at matrices as a whole are composed of operations, none of which waits. They make all that a step changes
// anew before anything is changed.

func init() {
	// Shazeer and Stern 2018, "Adafactor: adaptive learning rates with sublinear memory cost". A negative eps1 stands for
	// the distance from 1 to the next number of the parameter's dtype.
	define(&algorithm{
		name:     "adafactor",
		defaults: Hyper{"lr": 1e-2, "beta2_decay": -0.8, "eps1": -1, "eps2": 1e-3, "d": 1, "weight_decay": 0},
		limits: append(atLeastZero("eps2"), limit{"beta2_decay", "at most 0", func(v float64) bool { return v <= 0 }},
			limit{"d", "at least 1", func(v float64) bool { return v >= 1 }}),
		states: states("row_var", "col_var", "variance"),
		shape: func(state string, param []int) []int {
			n := len(param)
			switch {
			case n < 2 && state == "variance":
				return param
			case n < 2 || state == "variance":
				return nil
			}
			s := append([]int{}, param...)
			if state == "row_var" {
				s[n-1] = 1
			} else {
				s[n-2] = 1
			}
			return s
		},
		apply: adafactor,
	})
	// Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks". a, b and c are the coefficients of an
	// iteration's polynomial; match_rms takes the size of updates from AdamW's.
	define(&algorithm{
		name: "muon",
		defaults: Hyper{"lr": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": 1, "a": 3.4445, "b": -4.775, "c": 2.0315,
			"eps": 1e-7, "ns_steps": 5, "match_rms": 0},
		limits: append(append(atLeastZero("momentum", "eps"), flag("nesterov", "match_rms")...),
			limit{"ns_steps", "in [0, 100)", func(v float64) bool { return v >= 0 && v < 100 }}),
		states: states("momentum_buffer"),
		accepts: func(t *core.Tensor) error {
			if t.Dim() != 2 {
				return core.Errorf(core.ValueError, "muon", "only matrices can be optimised, got a parameter of shape %v", t.Shape())
			}
			return nil
		},
		apply: muon,
	})
}

// rms returns the root of the mean of the squares of all elements.
func rms(t *core.Tensor) *core.Tensor { return op.Sqrt(op.Mean(op.Square(t), nil, false)) }

// noLess returns the larger of t and a number.
func noLess(t *core.Tensor, v float64) *core.Tensor { return op.Maximum(t, core.Num(v)) }

func adafactor(h Hyper, p, g *core.Tensor, s map[string]*core.Tensor, count float64) (*core.Tensor, map[string]*core.Tensor) {
	lr, eps1 := h["lr"], h["eps1"]
	if eps1 < 0 {
		eps1 = map[core.DType]float64{core.Float16: 0x1p-10, core.BFloat16: 0x1p-7, core.Float32: 0x1p-23, core.Float64: 0x1p-52}[p.DType()]
	}
	take := core.Num(math.Pow(count, h["beta2_decay"]))
	size := op.Mul(noLess(rms(p), h["eps2"]), core.Num(min(lr, 1/math.Sqrt(count))))
	square := op.Square(g)
	var variance *core.Tensor
	var states map[string]*core.Tensor
	if old := s["variance"]; old != nil {
		variance = op.Lerp(old, square, take)
		states = map[string]*core.Tensor{"variance": variance}
	} else {
		row := op.Lerp(s["row_var"], op.Mean(square, []int{-1}, true), take)
		col := op.Lerp(s["col_var"], op.Mean(square, []int{-2}, true), take)
		variance = op.Div(op.MatMul(row, col), noLess(op.Mean(row, []int{-2}, true), eps1))
		states = map[string]*core.Tensor{"row_var": row, "col_var": col}
	}
	update := op.Mul(g, op.Rsqrt(noLess(variance, eps1*eps1)))
	size = op.Div(size, noLess(op.Div(rms(update), core.Num(h["d"])), 1))
	return op.Sub(shrunk(h, p), op.Mul(update, size)), states
}

// shrunk returns the parameter after decoupled weight decay.
func shrunk(h Hyper, p *core.Tensor) *core.Tensor {
	return op.Mul(p, core.Num(1-h["lr"]*h["weight_decay"]))
}

func muon(h Hyper, p, g *core.Tensor, s map[string]*core.Tensor, _ float64) (*core.Tensor, map[string]*core.Tensor) {
	momentum := h["momentum"]
	buffer := op.Lerp(s["momentum_buffer"], g, core.Num(1-momentum))
	update := buffer
	if h["nesterov"] != 0 {
		update = op.Lerp(g, update, core.Num(momentum))
	}
	rows, columns := float64(p.Size(0)), float64(p.Size(1))
	ratio := math.Sqrt(max(1, rows/columns))
	if h["match_rms"] != 0 {
		ratio = 0.2 * math.Sqrt(max(rows, columns))
	}
	update = onWhole(update, func(x *core.Tensor) *core.Tensor { return op.To(orthogonal(x, h), p.DType()) })
	return op.Sub(shrunk(h, p), op.Mul(update, core.Num(h["lr"]*ratio))), map[string]*core.Tensor{"momentum_buffer": buffer}
}

// onWhole returns f of t. Of a distributed t every rank computes f of the whole, so that it is what one device computes, and keeps its part.
func onWhole(t *core.Tensor, f func(*core.Tensor) *core.Tensor) *core.Tensor {
	p := t.Parts()
	if p == nil {
		return f(t)
	}
	y := f(p.Whole())
	local, err := p.Take("muon", y)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return p.With(local.Alias(false))
}

// orthogonal returns about the orthogonal matrix nearest to x, by Newton and Schulz's iteration in bfloat16, which rounds
// the norm, each product of matrices and each sum with one once.
func orthogonal(x *core.Tensor, h Hyper) *core.Tensor {
	tall := x.Size(0) > x.Size(1)
	x = op.To(x, core.BFloat16)
	if tall {
		x = op.Transpose(x, 0, 1)
	}
	x = op.Div(x, noLess(op.VectorNorm(x, 2, nil, op.ReduceOptions{}), h["eps"]))
	for range int(h["ns_steps"]) {
		gram := op.MatMul(x, op.Transpose(x, 0, 1))
		x = op.AddMM(x, op.AddMM(gram, gram, gram, h["b"], h["c"]), x, h["a"], 1)
	}
	if tall {
		x = op.Transpose(x, 0, 1)
	}
	return x
}

// runComposed makes the steps of an algorithm without a kernel.
func (p *plan) runComposed(o *Optimizer) (err error) {
	core.Tidy(func() {
		var old, made []*core.Tensor
		for i := range p.items {
			it := &p.items[i]
			s := it.slot
			changed := []*core.Tensor{s.param}
			made = append(made, core.RunScope(func() []*core.Tensor {
				d := core.Float32
				if s.param.DType() == core.Float64 {
					d = core.Float64
				}
				param, grad := op.To(s.laid(), d), it.grad
				if p := s.parts; p != nil {
					grad = p.Gradient(grad.Alias(false))
				}
				grad = op.To(grad, d)
				if it.hyper["maximize"] != 0 {
					grad = op.Neg(grad)
				}
				next, states := o.algorithm.apply(it.hyper, param, grad, s.states, s.count+1)
				list := []*core.Tensor{like(s.laid(), next)}
				for _, name := range slices.Sorted(maps.Keys(states)) { // in one order on all ranks
					changed, list = append(changed, part(s.states[name])), append(list, like(s.states[name], states[name]))
				}
				return list
			})...)
			old = append(old, changed...)
		}
		for _, t := range made {
			if err = t.Err(); err != nil {
				return
			}
		}
		launches := p.together(o.algorithm.name, made)
		for i, t := range old {
			if err = op.CopyInPlace(t, made[i]).Err(); err != nil {
				return
			}
		}
		for i := range p.items {
			p.items[i].slot.count++
		}
		o.launches = append(o.launches, launches...)
		p.made = nil
	})
	return err
}

// like returns t, a result for old, or this rank's part of it where old is distributed.
func like(old, t *core.Tensor) *core.Tensor {
	p := old.Parts()
	if p == nil || t.Err() != nil {
		return t
	}
	local, err := p.Take("step", t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return local.Alias(false)
}

// together makes all tensors of a device fail if computing one of them does.
func (p *plan) together(name string, made []*core.Tensor) (launches []*launched) {
	calls := map[core.Stream]*core.Call{}
	of := map[core.Stream]*launched{}
	stream := func(t *core.Tensor) core.Stream {
		s := core.CurrentContext().Stream(t.Device())
		if calls[s] == nil {
			of[s] = &launched{}
			calls[s] = s.Begin(-1, name)
			calls[s].HostOnly, calls[s].InPlace, calls[s].Fn, calls[s].OnSkip = true, true, func() error { return nil }, of[s].onSkip
		}
		return s
	}
	for _, t := range made {
		calls[stream(t)].In(t).Out(t)
	}
	for i := range p.items {
		of[stream(p.items[i].slot.param)].add(&p.items[i])
	}
	for s, c := range calls {
		s.Launch(c)
		of[s].end = s.Record()
		launches = append(launches, of[s])
	}
	return launches
}

package optim

import (
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// state returns the method's memory as the state of parameter 0, with the vectors that show returns for its own.
func (l *lbfgs) state(show func(name string, t *core.Tensor) *core.Tensor) ParamState {
	s := ParamState{Step: float64(l.iterations), Tensors: map[string]*core.Tensor{}, Numbers: map[string]float64{
		"func_evals": float64(l.evaluations), "t": l.rate, "prev_loss": l.loss, "H_diag": l.scale, "history": float64(len(l.moves))}}
	for i := range l.moves {
		n := strconv.Itoa(i)
		s.Tensors["old_dirs."+n], s.Tensors["old_stps."+n] = show("old_dirs."+n, l.changes[i]), show("old_stps."+n, l.moves[i])
		s.Numbers["ro."+n] = l.curvatures[i]
	}
	if l.direction != nil {
		s.Tensors["d"], s.Tensors["prev_flat_grad"] = show("d", l.direction), show("prev_flat_grad", l.grad)
	}
	return s
}

// loadLBFGS is LoadStateDict for the method.
func (o *Optimizer) loadLBFGS(d *StateDict, h Hyper) error {
	g := o.groups[0]
	n := 0
	for _, s := range g.slots {
		n += numbers(s, s.whole)
	}
	var l *lbfgs
	if ps, ok := d.Params[0]; ok {
		l = &lbfgs{iterations: int(ps.Step), evaluations: int(ps.Numbers["func_evals"]), rate: ps.Numbers["t"], loss: ps.Numbers["prev_loss"],
			scale: ps.Numbers["H_diag"]}
		var err error
		take := func(name string) *core.Tensor {
			t := ps.Tensors[name]
			if err != nil {
				return nil
			}
			if t == nil || t.Dim() != 1 || t.Size(0) != n {
				err = core.Errorf(core.ShapeError, "lbfgs", "state %q is missing or of another shape, got %v, want [%d]", name, t, n)
				return nil
			}
			var c *core.Tensor
			core.NoGrad(func() {
				core.Tidy(func() {
					part := partsOf(g.slots, t)
					if part != t {
						defer part.Release()
					}
					if err = part.Err(); err == nil {
						c, err = keptCopy(part, precision(g.slots[0]), g.slots[0].param.Device())
					}
				})
			})
			return c
		}
		if ps.Step > 0 {
			l.direction, l.grad = take("d"), take("prev_flat_grad")
		}
		for i := range int(ps.Numbers["history"]) {
			k := strconv.Itoa(i)
			y, s := take("old_dirs."+k), take("old_stps."+k)
			if err != nil {
				break
			}
			l.changes, l.moves, l.curvatures = append(l.changes, y), append(l.moves, s), append(l.curvatures, ps.Numbers["ro."+k])
		}
		if err != nil {
			return err
		}
	}
	if o.lbfgs != nil {
		o.lbfgs.release()
	}
	o.lbfgs = l
	g.hyper.Store(&h)
	return nil
}

// wholeVectors returns a function that gathers a vector of an L-BFGS over distributed parameters, under its name in the state. What was
// gathered stays until the next step.
func (o *Optimizer) wholeVectors() func(name string, t *core.Tensor) *core.Tensor {
	slots, l := o.groups[0].slots, o.lbfgs
	return func(name string, t *core.Tensor) *core.Tensor {
		if whole := l.shown[name]; whole != nil {
			return whole
		}
		whole := wholeOf(slots, t)
		if whole == t || whole.Err() != nil {
			return whole
		}
		if l.shown == nil {
			l.shown = map[string]*core.Tensor{}
		}
		l.shown[name] = whole
		return whole
	}
}

// forget frees the vectors that were gathered.
func (l *lbfgs) forget() {
	for _, t := range l.shown {
		t.Release()
	}
	l.shown = nil
}

// wholeOf returns the vector over whole parameters of which v has this rank's parts: v itself if no parameter is distributed.
func wholeOf(slots []*slot, v *core.Tensor) *core.Tensor {
	return acrossSlots(slots, v, func(s *slot) []int { return s.param.Shape() }, func(s *slot, t *core.Tensor) *core.Tensor {
		return s.parts.With(t.Alias(false)).Parts().Whole()
	})
}

// partsOf returns this rank's parts of a vector over whole parameters: v itself if no parameter is distributed.
func partsOf(slots []*slot, v *core.Tensor) *core.Tensor {
	if p := v.Parts(); p != nil {
		v = p.Whole()
	}
	return acrossSlots(slots, v, func(s *slot) []int { return s.whole.Shape() }, func(s *slot, t *core.Tensor) *core.Tensor {
		local, err := s.parts.Take("lbfgs", t)
		if err != nil {
			return core.ErrorTensor(err)
		}
		return local
	})
}

// acrossSlots cuts a vector into tensors of the shapes that shape returns, and joins what f returns for those of distributed parameters, and
// the others. The result is v itself if no parameter is distributed, and else is kept.
func acrossSlots(slots []*slot, v *core.Tensor, shape func(*slot) []int, f func(*slot, *core.Tensor) *core.Tensor) *core.Tensor {
	changed := false
	var out *core.Tensor
	core.NoGrad(func() {
		core.Tidy(func() {
			list := make([]*core.Tensor, len(slots))
			at := 0
			for i, s := range slots {
				d := s.param.DType()
				n := core.Numel(shape(s)) * d.Size() / precision(s).Size()
				list[i] = op.Narrow(v, 0, at, n)
				if at += n; s.parts != nil {
					changed = true
					list[i] = flat(f(s, shaped(list[i], d, shape(s))))
				}
			}
			out = v
			if changed {
				out = op.Cat(list, 0).Keep()
			}
		})
	})
	return out
}

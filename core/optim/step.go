package optim

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
)

// Step updates every parameter that has a gradient. On an error nothing has changed: see the package's comment.
func (o *Optimizer) Step() error {
	if o.algorithm.closure {
		return core.Errorf(core.StateError, o.algorithm.name, "a step evaluates the loss several times: use StepWith")
	}
	o.lock()
	defer o.mu.Unlock()
	var err error
	plain := func(m core.Mode) core.Mode { return m.WithGrad(false).WithoutAutocast() }
	core.WithMode(plain, func() {
		var p plan
		defer p.release()
		if err = p.prepare(o); err != nil {
			return
		}
		if o.algorithm.apply != nil {
			err = p.runComposed(o)
		} else {
			err = p.run(o)
		}
	})
	return err
}

// StepWith makes a step of an algorithm that evaluates the loss itself, such as L-BFGS, or evaluates it once and makes a
// [Optimizer.Step]. loss computes it and, with gradients cleared first, its gradients. The first value is returned.
func (o *Optimizer) StepWith(loss func() (*core.Tensor, error)) (float64, error) {
	if loss == nil {
		return 0, core.Errorf(core.TypeError, o.algorithm.name, "the function of the loss is nil")
	}
	if o.algorithm.closure {
		return o.stepLBFGS(loss)
	}
	v, err := evaluate(loss)
	if err != nil {
		return 0, err
	}
	return v, o.Step()
}

// evaluate calls loss with gradients on and reads its value.
func evaluate(loss func() (*core.Tensor, error)) (v float64, err error) {
	core.EnableGrad(func() {
		var t *core.Tensor
		if t, err = loss(); err != nil {
			return
		}
		if p := t.Parts(); p != nil {
			t = p.Whole()
			defer t.Release()
		}
		v, err = t.Item()
	})
	return v, err
}

// A plan is a step in preparation.
type plan struct {
	items []item
	made  []made // states that this step added
	temps []*core.Tensor

	lenders []*core.AutogradMeta // of the gradients
}

// An item is one parameter of a plan. param and grad are contiguous: the parameter's and gradient's own memory, or copies.
type item struct {
	slot        *slot
	of          *Group
	place       int   // of the slot in its group
	hyper       Hyper // of its group
	update      update
	param, grad *core.Tensor
	states      []*core.Tensor
	master      *core.Tensor
	made        []string // the states that are made for this step

	rows          *core.Tensor   // of a sparse gradient: param, states and master are copies of these rows,
	parts, wholes []*core.Tensor // which are here, and what they were taken from
}

type made struct {
	slot *slot
	name string
}

// release frees the copies, and the states that a step which failed has made.
func (p *plan) release() {
	for _, t := range p.temps {
		t.Release()
	}
	for _, m := range p.made {
		m.slot.states[m.name].Release()
		delete(m.slot.states, m.name)
	}
	for _, meta := range p.lenders {
		meta.ReturnGrad()
	}
}

// prepare checks everything that can be known before the launch, and allocates.
func (p *plan) prepare(o *Optimizer) error {
	if err := o.steps(); err != nil {
		return err
	}
	o.settle()
	for _, g := range o.groups {
		names := o.algorithm.states(g.values())
		memo := map[step]update{}
		for place, s := range g.slots {
			if part(s.whole) != s.param && (s.parts == nil || s.param.Storage() == nil) { // a shard is stepped also while its parameter is gathered
				return s.changed(o.algorithm.name)
			}
			grad, lender := s.param.BorrowGrad()
			p.lenders = append(p.lenders, lender)
			if grad == nil {
				if s.param.Storage() == nil { // released, as by moving its module
					return core.Errorf(core.StateError, o.algorithm.name, "parameter %s was released: make the optimiser after moving the module", s.name)
				}
				continue
			}
			if err := s.sound(o.algorithm, grad); err != nil {
				return err
			}
			var rows *core.Tensor
			if grad.IsSparse() {
				var err error
				if rows, grad, err = p.sparseGrad(o.algorithm, s, g.values(), grad); err == nil {
					err = grad.Err()
				}
				if err != nil {
					return err
				}
			} else if o.algorithm.name == "sparse_adam" {
				return core.Errorf(core.StateError, o.algorithm.name, "parameter %s: SparseAdam does not support dense gradients, please consider Adam instead", s.name)
			}
			it := item{slot: s, of: g, place: place, hyper: g.values(), param: p.contiguous(s.param), grad: p.contiguous(grad)}
			for _, name := range names {
				if _, has := o.algorithm.stateShape(name, s.whole.Shape()); !has {
					continue
				}
				t, err := p.state(o, g, &it, name)
				if err != nil {
					return err
				}
				it.states = append(it.states, t)
			}
			fresh := len(it.made) > 0
			if g.values()["master_weights"] != 0 && s.param.DType().IsHalf() {
				t, err := p.state(o, g, &it, masterState)
				if err != nil {
					return err
				}
				it.master = t
			}
			for _, t := range []*core.Tensor{it.param, it.grad} {
				if t.Err() != nil {
					return t.Err()
				}
			}
			if rows != nil {
				if err := p.takeRows(&it, rows); err != nil {
					return err
				}
			}
			key := step{count: s.count + 1, carried: s.carried, fresh: fresh}
			u, ok := memo[key]
			if !ok && o.algorithm.update != nil {
				u = o.algorithm.update(g.values(), key)
				memo[key] = u
			}
			it.update = u
			p.items = append(p.items, it)
		}
	}
	return nil
}

// sound returns an error unless the slot's parameter can be updated by grad, as far as is known.
func (s *slot) sound(a *algorithm, grad *core.Tensor) error {
	op := a.name
	fail := func(err error) error {
		kind, ok := core.KindOf(err)
		if !ok {
			kind = core.StateError
		}
		return core.Errorf(kind, op, "parameter %s: %w", s.name, err)
	}
	for _, t := range []*core.Tensor{s.param, grad} {
		if err := t.Present(op); err != nil {
			return fail(err)
		}
		if err := part(t).Storage().ErrRecovered(); err != nil {
			return fail(err)
		}
	}
	switch {
	case s.param.AutogradMeta() != s.history:
		return s.changed(op)
	case !slices.Equal(grad.Shape(), s.param.Shape()):
		return core.Errorf(core.ShapeError, op, "parameter %s: the gradient has another shape, got %v, want %v", s.name, grad.Shape(), s.param.Shape())
	case grad.DType() != s.param.DType():
		return core.Errorf(core.DTypeError, op, "parameter %s: the gradient has another dtype, got %v, want %v", s.name, grad.DType(), s.param.DType())
	case grad.Device() != s.param.Device():
		return core.Errorf(core.DeviceError, op, "parameter %s: the gradient is on another device, got %v, want %v", s.name, grad.Device(), s.param.Device())
	}
	for name, t := range s.states {
		shape, _ := a.stateShape(name, s.whole.Shape())
		if t.Device() != s.param.Device() || !slices.Equal(t.Shape(), shape) {
			return core.Errorf(core.StateError, op, "parameter %s has changed since its state was made, got %v, want %v on %v", s.name,
				s.param, t.Shape(), t.Device())
		}
	}
	return nil
}

// changed returns the error for a parameter that is another tensor now than the optimiser was made with.
func (s *slot) changed(op string) error {
	return core.Errorf(core.StateError, op, "parameter %s was sharded over ranks since the optimiser was made, got %v: make the optimiser after the model is fully sharded", s.name, s.whole)
}

// contiguous returns t, or a contiguous copy that lives as long as the plan.
func (p *plan) contiguous(t *core.Tensor) *core.Tensor {
	if t.Contiguous() {
		return t
	}
	c := op.Clone(t)
	p.temps = append(p.temps, c)
	return c
}

// stateDType returns the dtype of a parameter's states.
func stateDType(param *core.Tensor) core.DType {
	if d := param.DType(); d == core.Float64 || d.IsComplex() {
		return d
	}
	return core.Float32
}

// state returns a state of the item's parameter, or this rank's part of it, making it if need be.
func (p *plan) state(o *Optimizer, g *Group, it *item, name string) (t *core.Tensor, err error) {
	s := it.slot
	if t := s.states[name]; t != nil {
		return part(t), nil
	}
	d := stateDType(s.param)
	core.WithCategory(core.OptimizerState, func() {
		if name == masterState {
			if t = op.To(s.param, d); s.parts != nil {
				t = s.parts.With(t)
			}
			return
		}
		start := 0.0
		if o.algorithm.start != nil {
			start = o.algorithm.start(g.values(), name)
		}
		value := core.Num(start)
		if d.IsComplex() { // whose parts are parameters of their own
			value = core.ComplexNum(complex(start, start))
		}
		shape, _ := o.algorithm.stateShape(name, s.whole.Shape())
		t = s.like(shape, func(shape []int) *core.Tensor {
			return op.Full(shape, value, op.TensorOptions{DType: &d, Device: s.param.Device()})
		})
	})
	if err := t.Err(); err != nil {
		return nil, core.Errorf(core.MemoryError, o.algorithm.name, "parameter %s: %w", s.name, err)
	}
	t.Keep()
	s.states[name] = t
	p.made, it.made = append(p.made, made{s, name}), append(it.made, name)
	return part(t), nil
}

// like returns a tensor of the given shape that fill makes, distributed as the parameter is.
func (s *slot) like(shape []int, fill func(shape []int) *core.Tensor) *core.Tensor {
	if p := s.parts; p != nil {
		return p.Like(shape, fill)
	}
	return fill(shape)
}

// run launches the step on each device and counts it.
func (p *plan) run(o *Optimizer) error {
	mode := core.CurrentMode()
	done := make([]bool, len(p.items))
	var launches []*launched
	for i := range p.items {
		if done[i] {
			continue
		}
		dev := p.items[i].param.Device()
		stream := mode.Context().Stream(dev)
		c := stream.Begin(contract.OptimStep, o.algorithm.name)
		l, work := &launched{}, 0
		for k := i; k < len(p.items); k++ {
			it := &p.items[k]
			if it.param.Device() != dev {
				continue
			}
			done[k] = true
			it.addTo(c)
			l.add(it)
			work += it.param.Numel() * (2 + len(it.states))
		}
		c.InPlace = true
		c.Work = work
		c.OnSkip = l.onSkip
		if r := core.CurrentRecording(); r != nil {
			p.replays(r, o, c, stream)
		}
		if err := core.Launch(stream, c); err != nil {
			return err
		}
		l.end = stream.Record()
		launches = append(launches, l)
	}
	o.launches = append(o.launches, launches...)
	for i := range p.items {
		it := &p.items[i]
		if it.rows != nil {
			if err := it.putRows(); err != nil {
				return err
			}
		} else if it.param != it.slot.param {
			op.CopyInPlace(it.slot.param, it.param)
		} else {
			it.param.Change()
		}
		for _, t := range it.states {
			t.Storage().BumpVersion()
		}
		if it.master != nil {
			it.master.Storage().BumpVersion()
		}
		it.slot.count++
		if o.algorithm.carries != "" {
			it.slot.carried = it.update.carried
		}
	}
	p.made = nil
	return nil
}

func (it *item) addTo(c *core.Call) {
	c.In(it.grad).Out(it.param)
	for _, t := range it.states {
		c.Out(t)
	}
	if it.master != nil {
		c.Out(it.master)
	}
	a := contract.OptimStepAttrs{Rule: it.update.rule, States: len(it.states), Master: it.master != nil, Numbers: it.update.numbers}
	a.AddTo(c)
}

package optim

import (
	"math"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
)

// A GradScaler multiplies the loss, so that gradients in float16 do not vanish, and divides the gradients of parameters
// before the step (Micikevicius et al. 2018, "Mixed precision training"). A step whose gradients are not all finite is
// left out and makes the factor smaller; many in a row that are make it larger.
type GradScaler struct {
	// Scale is the factor; it is kept a float32.
	Scale float64
	// Growth and Backoff are what it is multiplied by after Interval good steps, and after a bad one.
	Growth, Backoff float64
	Interval        int
	// Good counts the good steps since the factor changed.
	Good int

	mu    sync.Mutex // guards what follows, and the fields above in methods
	steps map[any]*scaledStep
}

// lock keeps other goroutines from what happened to the optimisers. Its holder may wait for gradients.
func (s *GradScaler) lock() { core.Lock(&s.mu) }

// A scaledStep is what happened to an optimiser since the last update.
type scaledStep struct {
	unscaled, stepped bool
	found             []*core.Tensor // for each device, 1 where a gradient is not finite
}

// NewGradScaler returns a scaler with PyTorch's defaults: 65536, doubled after 2000 good steps and halved after a bad one.
func NewGradScaler() *GradScaler {
	return &GradScaler{Scale: 65536, Growth: 2, Backoff: 0.5, Interval: 2000}
}

// ScaleLoss returns the loss multiplied by the factor.
func (s *GradScaler) ScaleLoss(loss *core.Tensor) *core.Tensor {
	return op.Mul(loss, core.Num(s.Scale))
}

func (s *GradScaler) stepOf(optimizer any) *scaledStep {
	if s.steps == nil {
		s.steps = map[any]*scaledStep{}
	}
	if s.steps[optimizer] == nil {
		s.steps[optimizer] = &scaledStep{}
	}
	return s.steps[optimizer]
}

// Unscale divides the gradients of an optimiser's parameters by the factor, for code between backward and the step that
// looks at them. optimizer is anything that tells it from others. It is called once before each step at most, and by
// [GradScaler.Step] if nobody has. Gradients in float16 are an error.
func (s *GradScaler) Unscale(optimizer any, params []*core.Tensor) error {
	s.lock()
	defer s.mu.Unlock()
	return s.unscale(optimizer, params)
}

// unscale is [GradScaler.Unscale] for who has the lock.
func (s *GradScaler) unscale(optimizer any, params []*core.Tensor) error {
	step := s.stepOf(optimizer)
	switch {
	case step.stepped:
		return core.Errorf(core.StateError, "unscale_", "called after step(); call update() in between")
	case step.unscaled:
		return core.Errorf(core.StateError, "unscale_", "called twice for this optimiser since the last update()")
	}
	grads, giveBack, err := gradients("unscale_", params)
	defer giveBack()
	if err != nil {
		return err
	}
	var meshes []core.Parts // one on each
	for i, g := range grads {
		if p := g.Parts(); p != nil {
			if !p.Sparse() && !slices.ContainsFunc(meshes, p.Beside) {
				meshes = append(meshes, p)
			}
			grads[i] = p.Local()
		}
		if g.DType() == core.Float16 {
			return core.Errorf(core.ValueError, "unscale_", "got a gradient in float16, want parameters in float32 that autocast casts")
		}
	}
	inverse := float64(float32(1 / s.Scale))
	core.NoGrad(func() {
		err = byDevice(grads, func(dev core.Device, here []*core.Tensor) error {
			d := core.Float32
			found := op.EmptyWith([]int{}, op.TensorOptions{DType: &d, Device: dev}).Keep()
			if err := found.Err(); err != nil {
				return err
			}
			step.found = append(step.found, found)
			return changeOn("unscale_", dev, here, func(c *core.Call, _ *core.Tensor) { c.Out(found).Float(inverse) }, contract.OptimUnscale, nil)
		})
		if err == nil && len(meshes) > 0 {
			err = step.agree(meshes)
		}
	})
	step.unscaled = true
	return err
}

// agree adds what the ranks of meshes, which have other parts of the gradients, have found.
func (p *scaledStep) agree(meshes []core.Parts) error {
	core.Tidy(func() {
		anywhere := p.found[0]
		for _, f := range p.found[1:] {
			anywhere = op.Maximum(anywhere, op.ToDevice(f, anywhere.Device()))
		}
		for _, m := range meshes {
			anywhere = m.Combine("whether a GradScaler steps", anywhere, core.Maxima)
		}
		p.found = append(p.found, anywhere.Alias(false).Keep())
	})
	return p.found[len(p.found)-1].Err()
}

// Found returns, for each device, a number that is not 0 if [GradScaler.Unscale] found a gradient there that is not finite, for
// ranks with parts of the gradients to agree on, by [GradScaler.FoundElsewhere], before [GradScaler.Check].
func (s *GradScaler) Found(optimizer any) []*core.Tensor {
	s.lock()
	defer s.mu.Unlock()
	if step := s.steps[optimizer]; step != nil {
		return step.found
	}
	return nil
}

// FoundElsewhere adds what was found in gradients of other ranks: a number that is not 0 if one of them is not finite. So a rank
// without gradients may make a step, of nothing, that the others make.
func (s *GradScaler) FoundElsewhere(optimizer any, found *core.Tensor) {
	s.lock()
	defer s.mu.Unlock()
	step := s.stepOf(optimizer)
	if err := found.Usable("found_elsewhere"); err != nil { // what reads it says so
		step.found = append(step.found, core.ErrorTensor(err))
		return
	}
	step.found = append(step.found, found.Alias(false).Keep())
}

// Check says that an optimiser is about to step: it unscales the gradients if need be, waits for them, and reports whether
// all are finite, so that the step shall be made.
func (s *GradScaler) Check(optimizer any, params []*core.Tensor) (finite bool, err error) {
	s.lock()
	defer s.mu.Unlock()
	step := s.stepOf(optimizer)
	if step.stepped {
		return false, core.Errorf(core.StateError, "step", "called twice for this optimiser since the last update()")
	}
	if !step.unscaled {
		if err := s.unscale(optimizer, params); err != nil {
			return false, err
		}
	}
	if len(step.found) == 0 {
		return false, core.Errorf(core.StateError, "step", "no parameter of this optimiser has a gradient")
	}
	step.stepped = true
	bad, err := step.bad()
	return !bad, err
}

func (p *scaledStep) bad() (bool, error) {
	for _, f := range p.found {
		v, err := f.Item()
		if err != nil || v != 0 {
			return true, err
		}
	}
	return false, nil
}

// Step steps the optimiser if all its gradients are finite, and reports whether they are.
func (s *GradScaler) Step(o *Optimizer) (finite bool, err error) {
	if o == nil {
		return false, core.Errorf(core.TypeError, "step", "the optimiser is nil")
	}
	var params []*core.Tensor
	for _, g := range o.Groups() {
		params = append(params, g.Params()...)
	}
	if finite, err = s.Check(o, params); err != nil || !finite {
		return finite, err
	}
	return true, o.Step()
}

// Update makes the factor smaller if a gradient since the last update was not finite, and larger after enough updates
// where all were.
func (s *GradScaler) Update() error {
	s.lock()
	defer s.mu.Unlock()
	bad, seen := false, false
	for _, step := range s.steps {
		seen = seen || len(step.found) > 0
		b, err := step.bad()
		if err != nil {
			return err
		}
		bad = bad || b
	}
	if !seen {
		return core.Errorf(core.StateError, "update", "no gradients were looked at since the last one: call step() or unscale_() before")
	}
	switch s.Good++; {
	case bad:
		s.Scale, s.Good = float64(float32(s.Scale*s.Backoff)), 0
	case s.Good >= s.Interval:
		s.Good = 0
		if grown := float32(s.Scale * s.Growth); !math.IsInf(float64(grown), 0) {
			s.Scale = float64(grown)
		}
	}
	s.forget()
	return nil
}

// SetScale sets the factor in place of an update.
func (s *GradScaler) SetScale(scale float64) {
	s.lock()
	defer s.mu.Unlock()
	s.Scale = float64(float32(scale))
	s.forget()
}

func (s *GradScaler) forget() {
	for key, step := range s.steps {
		for _, f := range step.found {
			f.Release()
		}
		delete(s.steps, key)
	}
}

// Release frees what is kept between a step and its update.
func (s *GradScaler) Release() {
	s.lock()
	defer s.mu.Unlock()
	s.forget()
}

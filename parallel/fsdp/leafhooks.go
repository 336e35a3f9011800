package fsdp

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// Hooks that a program registers on a sharded parameter run after the reduction, on this rank's rows of the averaged gradient. Hooks of
// register_hook get the gradient of one reduction before it is accumulated, and may replace it. Hooks of
// register_post_accumulate_grad_hook run once it is accumulated in the shard's gradient. During a hook the module's tensors are the shards.

// A parameter may also have a gradient of its own, beside that through its module, such as that of an L2 term in the loss. Backward passes then run
// the shard's leaf last. If it has hooks, the reduced gradient is held until then, and they run once, on the sum of both.

// holds reports whether a reduced gradient of the shard is held for the hooks that this backward pass runs on the shard's own gradient.
func (p *parameter) holds() bool {
	meta := p.shard().AutogradMeta()
	if meta == nil {
		return false
	}
	arrive, post := meta.LeafHooks()
	return len(arrive)+len(post) > 0 && p.awaitsOwn()
}

// awaitsOwn reports whether this backward pass has yet to compute a gradient of the shard's own.
func (p *parameter) awaitsOwn() bool {
	run := autograd.CurrentRun()
	return run != nil && !p.unit.replicated() && run.Awaits(p.shard())
}

// hold holds a reduced gradient for [parameter.addHeld]. It owns g.
func (p *parameter) hold(g *core.Tensor) error {
	p.joined = true
	return p.sumHeld(g).Err()
}

// addHeld adds what is held to g, the shard's own gradient, which it owns and which may be nil. The module's tensors are the shards from now on.
func (p *parameter) addHeld(g *core.Tensor) *core.Tensor {
	if u := p.unit; u.usesFull && u.activeForwards == 0 && !u.manualUnshard && u.tree != nil && len(u.tree.backwardRuns) <= 1 {
		u.useShards()
	}
	if p.held == nil {
		return g
	}
	if g != nil {
		p.sumHeld(g)
	}
	g, p.held = p.held, nil
	return g
}

// sumHeld adds g, which it owns, to what is held, and returns the sum.
func (p *parameter) sumHeld(g *core.Tensor) *core.Tensor {
	old := p.held
	if p.held = g; old == nil {
		return g
	}
	add := func() { p.held = op.Add(old, g).Keep() }
	if old.RequiresGrad() || g.RequiresGrad() {
		add()
	} else {
		core.NoGrad(add)
	}
	old.Release()
	g.Release()
	return p.held
}

// gradientHooks returns the parameter's hooks of register_hook. A replicated parameter has none here: backward itself runs them.
func (p *parameter) gradientHooks() []core.Hook {
	if meta := p.shard().AutogradMeta(); meta != nil && !p.unit.replicated() {
		arrive, _ := meta.LeafHooks()
		return arrive
	}
	return nil
}

// runGradientHooks runs hooks on a reduced gradient, and accumulates the result in the gradient of the shard. It owns g.
func (p *parameter) runGradientHooks(g *core.Tensor, hooks []core.Hook) error {
	for _, h := range hooks {
		err := p.runHook(h, autograd.WantHook, func() *core.Tensor { return g }, func(result *core.Tensor) error {
			if result == nil {
				return nil
			}
			old := g
			g = result
			if err := result.Usable("register_hook"); err != nil {
				return err
			}
			if !slices.Equal(result.Shape(), old.Shape()) || result.DType() != old.DType() {
				return core.Errorf(core.ShapeError, "register_hook", "the hook on parameter %s returned %v %v, want %v %v, this rank's rows",
					p.name, result.DType(), result.Shape(), old.DType(), old.Shape())
			}
			old.Release()
			return nil
		})
		if err != nil {
			return err
		}
	}
	// Backward runs the hooks after this function has returned, in order. A last hook, which does nothing, accumulates what they have made.
	last := core.Hook{Fn: func(*core.Tensor) *core.Tensor { return nil }}
	return autograd.RunHook(last, autograd.WantHook, func() *core.Tensor { return g }, func(*core.Tensor) (err error) {
		core.NoGrad(func() {
			core.WithCategory(core.Gradient, func() {
				core.Tidy(func() { err = p.accumulate(op.Clone(g)) })
			})
		})
		g.Release()
		return err
	})
}

// runPostHooks runs the parameters' hooks of register_post_accumulate_grad_hook. If this rank has computed no gradient for a parameter, its
// hooks wait until the end of backward, when the rank knows whether another rank has one.
func (u *Unit) runPostHooks(params []*parameter) error {
	for _, p := range params {
		if !p.postponed {
			if err := p.runPostHooks(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parameter) runPostHooks() error {
	meta := p.shard().AutogradMeta()
	if meta == nil || p.joined || p.unit.replicated() || p.unit.defersAllReduce() {
		return nil
	}
	_, post := meta.LeafHooks()
	for _, hook := range post {
		grad := func() *core.Tensor { return p.shard().Grad() }
		err := p.runHook(hook, autograd.WantPostHook, grad, func(failed *core.Tensor) error {
			if failed == nil {
				return nil
			}
			return failed.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runHook makes the backward pass run a hook of the shard: see [autograd.RunHook]. The module's tensors are the shards meanwhile, and the full
// parameters again afterwards if the unit still needs them.
func (p *parameter) runHook(h core.Hook, want autograd.Want, grad func() *core.Tensor, then func(*core.Tensor) error) error {
	u, usedFull := p.unit, false
	gradOfShards := func() *core.Tensor {
		g := grad()
		if g != nil {
			usedFull = u.usesFull
			u.useShards()
		}
		return g
	}
	return autograd.RunHook(h, want, gradOfShards, func(result *core.Tensor) error {
		if usedFull && !u.idle() {
			if err := u.useFull(); err != nil {
				return err
			}
		}
		return then(result)
	})
}

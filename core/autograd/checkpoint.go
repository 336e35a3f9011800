package autograd

import (
	"sync"

	"github.com/plait-ml/plait/core"
)

// Checkpoint runs fn on the inputs and returns its outputs without saving tensors for backward. Backward runs fn again to recompute them
// (Chen et al. 2016). The second run restores the random generators, so dropout draws the same masks. fn must compute the same both times.
// It may use other tensors, such as parameters.
func Checkpoint(fn func(inputs []*core.Tensor) []*core.Tensor, inputs ...*core.Tensor) []*core.Tensor {
	if fn == nil {
		return []*core.Tensor{core.ErrorTensor(core.Errorf(core.TypeError, "checkpoint", "the function is nil"))}
	}
	c := &checkpoint{fn: fn, mode: core.CurrentMode()}
	for i, t := range inputs {
		if t == nil {
			return []*core.Tensor{core.ErrorTensor(core.Errorf(core.TypeError, "checkpoint", "input %d is nil", i))}
		}
		c.inputs = append(c.inputs, t.Alias(true).Keep())
	}
	c.saveGenerators()
	var out []*core.Tensor
	hooks := &core.SavedHooks{Pack: c.pack, Unpack: c.unpack}
	core.WithSavedHooks(hooks, func() { out = fn(inputs) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	c.unref(0)
	return out
}

// A checkpoint stands for the tensors that one run of fn would have saved.
type checkpoint struct {
	fn     func([]*core.Tensor) []*core.Tensor
	inputs []*core.Tensor
	mode   core.Mode // of the first run; the second run uses its autocast state

	generators []savedGenerator

	mu     sync.Mutex
	saved  int            // tensors that fn saved in the first run
	live   int            // those of them whose nodes still exist
	sealed bool           // the first run has ended
	values []*core.Tensor // of the last recomputation; nil once taken
}

type savedGenerator struct {
	generator    *core.Generator
	seed, offset uint64
}

// placeholder is what a node saves instead of tensor index.
type placeholder struct {
	of    *checkpoint
	index int
}

// Release is called when the node frees its saved tensors.
func (p *placeholder) Release() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.unref(1)
}

// unref drops n placeholders. After the last one the checkpoint frees its inputs.
func (c *checkpoint) unref(n int) {
	c.live -= n
	if c.live > 0 || !c.sealed {
		return
	}
	for _, t := range append(c.values, c.inputs...) {
		if t != nil {
			t.Release()
		}
	}
	c.values, c.inputs = nil, nil
}

func (c *checkpoint) saveGenerators() {
	ctx := core.CurrentContext()
	for _, d := range core.OpenDevices() {
		g := ctx.Generator(d)
		seed, offset := g.State()
		c.generators = append(c.generators, savedGenerator{g, seed, offset})
	}
}

// replay runs fn with the generators in their saved state, and restores their current state afterwards.
func (c *checkpoint) replay(fn func()) {
	now := make([]savedGenerator, len(c.generators))
	for i, s := range c.generators {
		seed, offset := s.generator.State()
		now[i] = savedGenerator{s.generator, seed, offset}
		s.generator.SetState(s.seed, s.offset)
	}
	defer func() {
		for _, s := range now {
			s.generator.SetState(s.seed, s.offset)
		}
	}()
	fn()
}

func (c *checkpoint) pack(*core.Tensor) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved++
	c.live++
	return &placeholder{c, c.saved - 1}
}

func (c *checkpoint) unpack(packed any) *core.Tensor {
	p := packed.(*placeholder)
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.index >= len(c.values) || c.values[p.index] == nil {
		if err := c.recompute(); err != nil {
			return core.ErrorTensor(err)
		}
	}
	t := c.values[p.index]
	c.values[p.index] = nil
	return t
}

// recompute runs fn again and collects the tensors that its nodes save.
func (c *checkpoint) recompute() error {
	for _, t := range c.values {
		if t != nil {
			t.Release()
		}
	}
	c.values = make([]*core.Tensor, 0, c.saved)
	hooks := &core.SavedHooks{
		Pack: func(t *core.Tensor) any {
			c.values = append(c.values, t.Alias(false).Keep())
			return nil
		},
		Unpack: func(any) *core.Tensor {
			return core.ErrorTensor(core.Errorf(core.StateError, "checkpoint", "the checkpointed function calls backward"))
		},
	}
	var err error
	c.replay(func() {
		again := func(m core.Mode) core.Mode { return m.WithGrad(true).WithAutocastOf(c.mode) }
		core.WithMode(again, func() {
			core.WithSavedHooks(hooks, func() {
				core.RunScope(func() []*core.Tensor {
					inputs := make([]*core.Tensor, len(c.inputs))
					for i, t := range c.inputs {
						inputs[i] = t.Detach()
						if t.RequiresGrad() {
							inputs[i].SetRequiresGrad(true)
						}
					}
					for _, t := range c.fn(inputs) {
						if err == nil {
							err = t.Err()
						}
					}
					return nil
				})
			})
		})
	})
	if err == nil && len(c.values) != c.saved {
		err = core.Errorf(core.StateError, "checkpoint", "the function saved %d tensors in the forward pass and %d when it was recomputed; it must compute the same both times", c.saved, len(c.values))
	}
	return err
}

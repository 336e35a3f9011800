package autograd

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// nodeRun is the state of a node that is being run, in stages. Between stages the run may send a request to its caller.
type nodeRun struct {
	node        *core.Node
	mode        core.Mode
	grads       []*core.Tensor                       // of the outputs; after the derivative, of the inputs
	outputGrads []*core.Tensor                       // of the outputs, after the derivative, if hooks need them
	summed      []int                                // inputs whose gradient includes what had arrived
	mixed       []int                                // inputs whose gradient may have another floating-point dtype
	saved       map[*core.ExternalValue]*core.Tensor // unpacked by another language
	stages      []stage
	answer      []*core.Tensor
	borrowed    *core.AutogradMeta // the leaf whose gradient a hook of the caller is using
	asked       bool
}

// stage is one part of running a node. It returns a request that must be answered before the next stage, or nil.
type stage func(p *nodeRun) (*Request, error)

// prepare queues the stages of running n.
func (r *Run) prepare(n *core.Node) {
	s := r.states[n]
	p := &nodeRun{node: n, mode: r.modeOf(n), grads: s.grads}
	s.grads = nil
	r.current = p
	then := func(stages ...stage) { p.stages = append(p.stages, stages...) }
	if s.partial {
		then(r.derive, r.deliver)
		return
	}
	s.undivided = r.split && !divisible(n)
	hooked := n.HasHooks()
	if hooked {
		for i := range p.grads {
			for _, h := range n.TensorHooks(i).All() {
				then(hookStage(i, h, WantHook))
			}
		}
		then(r.keepStage)
	}
	leaf := n.Leaf()
	var post []core.Hook
	if leaf != nil {
		if add := leaf.Last(); add != nil {
			then(func(p *nodeRun) (*Request, error) {
				if p.grads[0] = add(p.grads[0]); p.grads[0] != nil {
					return nil, p.grads[0].Err()
				}
				return nil, nil
			})
		}
		var arrive []core.Hook
		arrive, post = leaf.LeafHooks()
		for _, h := range arrive {
			then(hookStage(0, h, WantHook))
		}
	}
	then(r.capture)
	if !s.runs {
		then(dropGrads)
		return
	}
	if hooked {
		for _, h := range n.PreHooks().All() {
			then(nodeHookStage(h, WantPreHook))
		}
	}
	if leaf != nil {
		then(r.accumulate)
		for _, h := range post {
			then(postStage(leaf, h))
		}
	} else {
		if values := n.ExternalValues(); len(values) > 0 {
			then(savedStage(values))
		}
		then(r.derive)
	}
	if hooked {
		for _, h := range n.PostHooks().All() {
			then(nodeHookStage(h, WantAfterHook))
		}
	}
	then(r.deliver)
}

// dropGrads releases the gradients of a node that need not run.
func dropGrads(p *nodeRun) (*Request, error) {
	releaseAll(p.grads)
	return nil, nil
}

// setInputGrads replaces the gradients of the outputs by those of the inputs. It keeps the former only if hooks need them.
func (p *nodeRun) setInputGrads(grads []*core.Tensor) {
	given := p.grads
	p.grads = grads
	if p.node.HasHooks() && p.node.PostHooks().Len() > 0 {
		p.outputGrads = given
		return
	}
	releaseAll(given)
}

// capture stores the gradients that the caller asked for.
func (r *Run) capture(p *nodeRun) (*Request, error) {
	for i, g := range p.grads {
		for _, at := range r.captures[core.Edge{Node: p.node, Index: i}] {
			if g != nil && r.captured[at] == nil && r.options.Inputs == nil {
				r.captured[at] = g.Alias(r.linked()).Keep()
			}
		}
	}
	return nil, nil
}

// derive runs the node's derivative.
func (r *Run) derive(p *nodeRun) (*Request, error) {
	if err := r.densify(p); err != nil {
		return nil, err
	}
	n := p.node
	if n.External != 0 {
		if !p.asked {
			return &Request{Node: n, ID: n.External, What: WantDerivative, Grads: p.grads}, nil
		}
		p.asked = false
		if len(p.answer) != len(n.Edges()) {
			return nil, core.Errorf(core.ValueError, n.Name, "its derivative returned %d gradients, want %d", len(p.answer), len(n.Edges()))
		}
		p.setInputGrads(p.answer)
		p.answer = nil
		if r.mode.CheckGrads() {
			return nil, findNaN(n, p.grads)
		}
		return nil, nil
	}
	var err error
	given := p.grads
	again := r.runsAgain(n)
	if again {
		r.deferRest(n, given)
	}
	out := core.RunScope(func() []*core.Tensor {
		var results []*core.Tensor
		if q := deepest(given); q != nil {
			results, err = r.batched(p, q, given)
		} else {
			results, err = r.runDerivative(p, given, r.arrivals)
		}
		return results
	})
	// A derivative may return a gradient that it was given, or the same one for two inputs. Each owner needs its own reference.
	for i, g := range out {
		if g != nil && (slices.Contains(given, g) || slices.Contains(out[:i], g)) {
			out[i] = g.Alias(r.linked())
		}
		if out[i] != nil {
			out[i].Keep()
		}
	}
	p.setInputGrads(out)
	p.releaseSaved()
	if err == nil && r.mode.CheckGrads() {
		err = findNaN(n, out)
	}
	if err != nil {
		return nil, r.explain(n, err)
	}
	if !r.options.RetainGraph && !r.options.CreateGraph && !again {
		n.FreeSaved()
	}
	return nil, nil
}

func (r *Run) runDerivative(p *nodeRun, grads []*core.Tensor, arrivals func(*core.Node, int) (*core.Tensor, bool)) (out []*core.Tensor, err error) {
	n := p.node
	defer func() {
		if v := recover(); v != nil {
			err = core.Errorf(core.StateError, n.Name, "internal error in its derivative: %v", v)
		}
	}()
	need := make([]bool, len(n.Edges()))
	for i, e := range n.Edges() {
		need[i] = r.wants(n, e)
	}
	ctx := core.NewBackwardContext(core.CurrentMode(), n, grads, need)
	ctx.Unpack(p.saved)
	ctx.Returns(r.returns)
	ctx.Arrives(arrivals)
	out, err = ctx.Run()
	for i := range need {
		if ctx.Summed(i) {
			p.summed = append(p.summed, i)
		}
		if ctx.Mixed(i) {
			p.mixed = append(p.mixed, i)
		}
	}
	return out, err
}

// findNaN waits for the gradients and returns an error if one has a NaN.
func findNaN(n *core.Node, grads []*core.Tensor) error {
	for i, g := range grads {
		if g == nil {
			continue
		}
		at, err := core.FirstNaN(g)
		if err != nil {
			return err
		}
		if at >= 0 {
			return core.Errorf(core.StateError, n.Name, "its derivative returned nan values in its %dth output: the gradient of that input has a NaN at element %d", i, at)
		}
	}
	return nil
}

// explain adds to err, in anomaly mode, the stack where the node was recorded.
func (r *Run) explain(n *core.Node, err error) error {
	if t := n.Trace(); t != "" {
		kind, _ := core.KindOf(err)
		return core.Errorf(kind, n.Name, "%w\nin the gradient of %s, recorded at\n%s", err, n.Name, t)
	}
	return err
}

// densify replaces sparse gradients by ordinary ones: derivatives do not know them. Leaves keep them.
func (r *Run) densify(p *nodeRun) error {
	for i, g := range p.grads {
		if !g.IsSparse() {
			continue
		}
		core.WithMode(func(m core.Mode) core.Mode { return p.mode.WithGrad(r.options.CreateGraph) }, func() { p.grads[i] = op.ToDense(g).Keep() })
		g.Release()
		if err := p.grads[i].Err(); err != nil {
			return err
		}
	}
	return nil
}

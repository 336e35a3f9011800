package autograd

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// pending is a node that is being run, in stages between which the caller may be asked for something.
type pending struct {
	node   *core.Node
	mode   core.Mode
	grads  []*core.Tensor                       // of the outputs, then, after the derivative, of the inputs
	given  []*core.Tensor                       // of the outputs, after the derivative, where hooks want to see them
	summed []int                                // the inputs of which grads include what had arrived
	saved  map[*core.ExternalValue]*core.Tensor // values of another language
	stages []stage
	answer []*core.Tensor
	lent   *core.AutogradMeta // whose gradient a hook of the caller's has
	asked  bool
}

// stage is one part of running a node. It returns a request to be answered before the next stage, or nil.
type stage func(p *pending) (*Request, error)

// begin lines up the stages of running n.
func (r *Run) begin(n *core.Node) {
	s := r.states[n]
	p := &pending{node: n, mode: r.modeOf(n), grads: s.grads}
	s.grads = nil
	r.pending = p
	then := func(stages ...stage) { p.stages = append(p.stages, stages...) }
	if s.half {
		then(r.derive, r.deliver)
		return
	}
	s.whole = r.split && !divisible(n)
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
		var arrive []core.Hook
		arrive, post = leaf.LeafHooks()
		for _, h := range arrive {
			then(hookStage(0, h, WantHook))
		}
	}
	then(r.capture)
	if !s.runs {
		then(drop)
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

// drop lets go of the gradients of a node that is not to be run.
func drop(p *pending) (*Request, error) {
	releaseAll(p.grads)
	return nil, nil
}

// take lets go of the gradients of the outputs, now that those of the inputs are known, or keeps them for hooks.
func (p *pending) take(grads []*core.Tensor) {
	given := p.grads
	p.grads = grads
	if p.node.HasHooks() && p.node.PostHooks().Len() > 0 {
		p.given = given
		return
	}
	releaseAll(given)
}

// capture takes the gradients that were asked for.
func (r *Run) capture(p *pending) (*Request, error) {
	for i, g := range p.grads {
		for _, at := range r.captures[core.Edge{Node: p.node, Index: i}] {
			if g != nil && r.captured[at] == nil && r.options.Inputs == nil {
				r.captured[at] = g.Alias(r.options.CreateGraph).Keep()
			}
		}
	}
	return nil, nil
}

// derive runs the node's derivative.
func (r *Run) derive(p *pending) (*Request, error) {
	n := p.node
	if n.External != 0 {
		if !p.asked {
			return &Request{Node: n, ID: n.External, What: WantDerivative, Grads: p.grads}, nil
		}
		p.asked = false
		if len(p.answer) != len(n.Edges()) {
			return nil, core.Errorf(core.ValueError, n.Name, "its derivative returned %d gradients, want %d", len(p.answer), len(n.Edges()))
		}
		p.take(p.answer)
		p.answer = nil
		if r.mode.CheckGrads() {
			return nil, findNaN(n, p.grads)
		}
		return nil, nil
	}
	var err error
	given := p.grads
	again := r.halves(n)
	if again {
		r.keepForRest(n, given)
	}
	out := core.RunScope(func() []*core.Tensor {
		var results []*core.Tensor
		results, err = r.runDerivative(p, given)
		return results
	})
	// A derivative may pass a gradient on as it is, or the same one to two inputs: each owner needs its own reference.
	for i, g := range out {
		if g != nil && (slices.Contains(given, g) || slices.Contains(out[:i], g)) {
			out[i] = g.Alias(r.options.CreateGraph)
		}
		if out[i] != nil {
			out[i].Keep()
		}
	}
	p.take(out)
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

func (r *Run) runDerivative(p *pending, grads []*core.Tensor) (out []*core.Tensor, err error) {
	n := p.node
	defer func() {
		if v := recover(); v != nil {
			err = core.Errorf(core.StateError, n.Name, "internal error in its derivative: %v", v)
		}
	}()
	need := make([]bool, len(n.Edges()))
	for i, e := range n.Edges() {
		need[i] = r.goes(n, e)
	}
	ctx := core.NewBackwardContext(core.CurrentMode(), n, grads, need)
	ctx.Unpack(p.saved)
	ctx.Returns(r.returns)
	ctx.Arrives(r.arrivals)
	out, err = ctx.Run()
	for i := range need {
		if ctx.Summed(i) {
			p.summed = append(p.summed, i)
		}
	}
	return out, err
}

// findNaN waits for the gradients and returns an error if one holds a NaN.
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

// explain adds, in anomaly mode, where the node was recorded.
func (r *Run) explain(n *core.Node, err error) error {
	if t := n.Trace(); t != "" {
		kind, _ := core.KindOf(err)
		return core.Errorf(kind, n.Name, "%w\nin the gradient of %s, recorded at\n%s", err, n.Name, t)
	}
	return err
}

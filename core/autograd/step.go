package autograd

import (
	"runtime"
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
)

// A Request is work that a run asks of its caller: to run a foreign derivative or hook on some gradients.
type Request struct {
	// Node is where the run stands.
	Node *core.Node
	// ID names the foreign derivative or hook.
	ID uint64
	// What is wanted: the gradients of the inputs (Derivative), or gradients in place of those given, where nil keeps
	// one.
	What Want
	// IDs name the values that are wanted, of WantSaved.
	IDs []uint64
	// Grads are the gradients given. They belong to the run.
	Grads []*core.Tensor
	// After are, for a hook that runs after its node, the gradients of the node's outputs. They belong to the run.
	After []*core.Tensor
	// Mode is the mode to do it in: its current streams are those on which the node was recorded.
	Mode core.Mode
	// Payload is what the work is about, of a request made by [Ask].
	Payload any
}

// A Want says what a [Request] wants.
type Want uint8

// What a run can want.
const (
	WantDerivative Want = iota // of a foreign node: the gradients of its inputs
	WantHook                   // of a hook on one gradient: one gradient
	WantPreHook                // of a hook before a node: as many gradients as given
	WantPostHook               // of a hook after a leaf's accumulation: nothing
	WantAsked                  // what [Ask] was called for
	WantAfterHook              // of a hook after a node: as many gradients as given
	WantSaved                  // of hooks on saved values: the values that they packed
)

// pending is a node that is being run, in stages between which the caller may be asked for something.
type pending struct {
	node   *core.Node
	mode   core.Mode
	grads  []*core.Tensor                      // of the outputs, then, after the derivative, of the inputs
	given  []*core.Tensor                      // of the outputs, after the derivative, where hooks want to see them
	saved  map[*core.ForeignValue]*core.Tensor // values of another language
	stages []stage
	answer []*core.Tensor
	asked  bool
}

// stage is one part of running a node. It returns a request to be answered before the next stage, or nil.
type stage func(p *pending) (*Request, error)

// Step runs nodes until the walk has ended, which it reports by returning nil, or the caller is asked for something, which
// [Run.Resume] answers.
func (r *Run) Step() (q *Request, err error) {
	if r.err != nil || r.closed {
		return nil, r.err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old := core.SwapMode(r.mode)
	defer core.SwapMode(old)
	core.WithTask(r, func() { q, err = r.advance() })
	r.err = err
	return q, err
}

// StepFor is [Run.Step] that returns after about d, and where it would wait for room in a queue. more says that the walk
// has not ended: call it again.
func (r *Run) StepFor(d time.Duration) (q *Request, more bool, err error) {
	r.until, r.paused = time.Now().Add(d), false
	q, err = r.Step()
	r.until = time.Time{}
	return q, r.paused, err
}

// pause reports whether the walk stands still for its caller, before the next node; moved says that this step has run one.
func (r *Run) pause(moved bool) bool {
	r.paused = !r.until.IsZero() && (core.Crowded() || moved && time.Now().After(r.until))
	return r.paused
}

func (r *Run) advance() (*Request, error) {
	moved := false
	for {
		for r.pending != nil {
			p := r.pending
			if len(p.stages) == 0 {
				r.pending = nil
				break
			}
			q, err := r.run(p)
			if err != nil {
				return nil, err
			}
			if q != nil {
				p.asked, q.Mode = true, p.mode.WithAutocastOf(r.caller)
				return q, nil
			}
			p.stages = append(r.asked, p.stages[1:]...)
			r.asked = nil
		}
		if r.ready.count == 0 {
			done, err := r.end()
			if done || err != nil {
				return nil, err
			}
			continue
		}
		if r.pause(moved) {
			return nil, nil
		}
		n := r.ready.next()
		if r.split && !r.states[n].first {
			r.later = append(r.later, n)
			continue
		}
		moved = true
		r.begin(n)
	}
}

// end runs the next callback after the last node, and reports whether there are no more.
func (r *Run) end() (done bool, err error) {
	r.joinStreams()
	if len(r.callbacks) == 0 || r.split {
		return true, nil
	}
	fn := r.callbacks[0]
	r.callbacks = r.callbacks[1:]
	if err := fn(); err != nil {
		return false, err
	}
	r.pending = &pending{mode: r.mode, stages: r.asked}
	r.asked = nil
	return false, nil
}

// run runs the next stage of p, on the streams of its node.
func (r *Run) run(p *pending) (*Request, error) {
	if p.mode == r.mode {
		return p.stages[0](p)
	}
	core.SwapMode(p.mode)
	defer core.SwapMode(r.mode)
	return p.stages[0](p)
}

// Resume answers the request that [Run.Step] returned; the run takes the gradients over. Call Step again after it.
func (r *Run) Resume(grads []*core.Tensor) error {
	if r.pending == nil || !r.pending.asked {
		return core.Errorf(core.StateError, "backward", "resumed without a request")
	}
	r.pending.answer = grads
	return nil
}

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
		if values := n.ForeignValues(); len(values) > 0 {
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
	if n.Foreign != 0 {
		if !p.asked {
			return &Request{Node: n, ID: n.Foreign, What: WantDerivative, Grads: p.grads}, nil
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
		results, err = r.runDerivative(n, given, p.saved)
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

func (r *Run) runDerivative(n *core.Node, grads []*core.Tensor, saved map[*core.ForeignValue]*core.Tensor) (out []*core.Tensor, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = core.Errorf(core.StateError, n.Name, "internal error in its derivative: %v", v)
		}
	}()
	need := make([]bool, len(n.Edges()))
	for i, e := range n.Edges() {
		need[i] = r.goes(n, e)
	}
	d := core.NewDerivation(core.CurrentMode(), n, grads, need)
	d.Unpack(saved)
	return d.Run()
}

// findNaN waits for the gradients and returns an error if one holds a NaN.
func findNaN(n *core.Node, grads []*core.Tensor) error {
	for i, g := range grads {
		if g == nil {
			continue
		}
		v, err := core.Values[float64](g)
		if err != nil {
			return err
		}
		for at, x := range v {
			if x != x {
				return core.Errorf(core.StateError, n.Name, "its derivative returned nan values in its %dth output: the gradient of that input has a NaN at element %d", i, at)
			}
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

// deliver hands the gradients of the inputs to the nodes that made them.
func (r *Run) deliver(p *pending) (*Request, error) {
	grads := p.grads
	p.grads = nil
	releaseAll(p.given)
	for i, e := range p.node.Edges() {
		var g *core.Tensor
		if i < len(grads) {
			g, grads[i] = grads[i], nil
		}
		if !r.goes(p.node, e) {
			if g != nil {
				g.Release()
			}
			continue
		}
		s := r.states[e.Node]
		if g != nil {
			d, shape := e.Node.OutputMeta(e.Index)
			if err := sameShape("gradient of "+p.node.Name, shape, d, g); err != nil {
				g.Release()
				releaseAll(grads)
				return nil, err
			}
			if err := r.arrive(e, g); err != nil {
				releaseAll(grads)
				return nil, err
			}
		}
		if s.waiting--; s.waiting == 0 {
			r.finishNode(e.Node)
		}
	}
	releaseAll(grads)
	return nil, nil
}

// finishNode queues a node all of whose gradients have arrived. One that got none passes none on.
func (r *Run) finishNode(n *core.Node) {
	work := []*core.Node{n}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		s := r.states[n]
		// A foreign function may make gradients out of none: it is asked for as if zeros had arrived.
		if n.Foreign != 0 || slices.ContainsFunc(s.grads, func(g *core.Tensor) bool { return g != nil }) {
			r.offer(n)
			continue
		}
		for _, e := range n.Edges() {
			if t := r.states[e.Node]; e.Node != nil && t != nil && t.needed {
				if t.waiting--; t.waiting == 0 {
					work = append(work, e.Node)
				}
			}
		}
	}
}

func releaseAll(tensors []*core.Tensor) {
	for i, t := range tensors {
		if t != nil {
			t.Release()
		}
		tensors[i] = nil
	}
}

func sameShape(what string, shape []int, d core.DType, g *core.Tensor) error {
	if !slices.Equal(shape, g.Shape()) {
		return core.Errorf(core.ShapeError, "backward", "%s has shape %v, want %v", what, g.Shape(), shape)
	}
	if g.DType() != d {
		return core.Errorf(core.DTypeError, "backward", "%s is %v, want %v", what, g.DType(), d)
	}
	return nil
}

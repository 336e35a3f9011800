package autograd

import (
	"fmt"
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A Run is one walk over the graph.
type Run struct {
	options   Options
	caller    core.Mode                   // of the backward pass's caller, whose autocast holds for what it is asked to do
	mode      core.Mode                   // of the derivatives, on the caller's streams
	modes     map[*core.Context]core.Mode // of those recorded on other streams
	states    map[*core.Node]*state
	ready     ready
	inputs    []*core.Tensor
	targets   []core.Edge // of the inputs
	captures  map[core.Edge][]int
	captured  []*core.Tensor
	returns   func(e core.Edge) bool // whether the caller gets the gradient
	arrivals  func(n *core.Node, i int) (g *core.Tensor, alone bool)
	callbacks []callback
	closers   []func()
	pending   *pending  // what the caller was asked for
	asked     []stage   // what [Ask] was called for in the stage that runs
	until     time.Time // when StepFor returns
	paused    bool
	err       error
	ended     bool // has run its last callback
	closed    bool
	split     bool         // only what the gradients of Options.First need runs
	later     []*core.Node // what is left for the second part

	visits int // of nodes, to prepare the walk

	partCallbacks []callback // of the first part's end
	refillers     []func(s *core.Storage, node uint64) (bool, error)
}

// state is what the walk knows of a node: the gradients that have arrived and how many are still to come.
type state struct {
	grads   []*core.Tensor
	waiting int
	ahead   int  // how many nodes that lead here are still to be sorted
	needed  bool // its gradients, or some behind it, are wanted
	runs    bool // some behind it are
	first   bool // leads to a tensor whose gradient comes first
	half    bool // has run for these; grads are kept for the others
	whole   bool // runs once for both
	done    bool // has run
}

// NewRun prepares a walk from the outputs, whose gradients are as for [BackwardWith].
func NewRun(outputs, grads []*core.Tensor, o Options) (*Run, error) {
	if o.Inputs == nil {
		return newRun(outputs, grads, nil, o)
	}
	return newRun(outputs, grads, o.Inputs, o)
}

// NewGradRun prepares the walk of [Grad]; [Run.Captured] returns the gradients after its last step.
func NewGradRun(outputs, inputs, grads []*core.Tensor, o Options) (*Run, error) {
	o.Inputs = nil
	return newRun(outputs, grads, inputs, o)
}

func newRun(outputs, grads, inputs []*core.Tensor, o Options) (*Run, error) {
	if len(grads) != 0 && len(grads) != len(outputs) {
		return nil, core.Errorf(core.ValueError, "backward", "got %d outputs and %d gradients", len(outputs), len(grads))
	}
	r := &Run{options: o, states: map[*core.Node]*state{}, inputs: inputs}
	r.returns = func(e core.Edge) bool { return len(r.captures[e]) > 0 }
	r.arrivals = r.arrived
	// Derivatives compute in the dtypes of what they differentiate.
	r.caller = core.CurrentMode()
	r.mode = r.caller.WithGrad(o.CreateGraph).WithInference(false).WithGrad(o.CreateGraph).WithoutAutocast()
	var roots []core.Edge
	var seeds []*core.Tensor
	defer func() {
		for _, e := range roots {
			if e.Node != nil {
				e.Node.Release() // the states hold their own
			}
		}
	}()
	fail := func(err error) (*Run, error) {
		for _, s := range seeds {
			s.Release()
		}
		if r.err = err; len(r.states) == 0 {
			// Of a call that is wrong there is no pass. One that lacks memory is a pass that fails.
			if kind, _ := core.KindOf(err); kind != core.MemoryError || inputs != nil {
				r.ended = true
			} else {
				for _, t := range outputs[len(roots):] {
					if t.RequiresGrad() {
						roots = append(roots, t.AutogradMeta().Edge())
					}
				}
				r.discover(roots)
			}
		}
		r.Close()
		return nil, err
	}
	for i, t := range outputs {
		var g *core.Tensor
		if len(grads) > 0 {
			g = grads[i]
		}
		seed, err := r.seed(i, t, g)
		if err != nil {
			return fail(err)
		}
		seeds = append(seeds, seed)
		roots = append(roots, t.AutogradMeta().Edge())
	}
	if err := r.target(); err != nil {
		return fail(err)
	}
	order := r.discover(roots)
	if o.First != nil {
		r.divide(order)
	}
	for i, e := range roots {
		if s := r.states[e.Node]; s != nil {
			if err := r.arrive(e, seeds[i]); err != nil {
				return fail(err)
			}
			continue
		}
		seeds[i].Release()
	}
	for _, n := range order { // the same each time, as the order in which gradients are added up must be
		if s := r.states[n]; s.waiting == 0 && s.needed {
			r.offer(n)
		}
	}
	return r, nil
}

// seed returns the gradient of output i, owned by the run.
func (r *Run) seed(i int, t, g *core.Tensor) (*core.Tensor, error) {
	if err := t.Usable("backward"); err != nil {
		return nil, err
	}
	if t.IsNumber() {
		return nil, core.Errorf(core.StateError, "backward", "output %d is the number %v, which no gradient leads to", i, t)
	}
	if err := t.Storage().Stream().TakeError(); err != nil {
		return nil, err
	}
	if !t.RequiresGrad() {
		return nil, core.Errorf(core.StateError, "backward", "output %d (%v) does not require a gradient: no operation on a tensor that does was recorded", i, t)
	}
	if g == nil {
		if t.Numel() != 1 {
			return nil, core.Errorf(core.ShapeError, "backward", "output %d has shape %v; its gradient must be given, since only that of one element is 1 by itself", i, t.Shape())
		}
		var ones *core.Tensor
		core.NoGrad(func() { ones = op.OnesLike(t, op.TensorOptions{}).Keep() })
		return ones, ones.Err()
	}
	if err := g.Usable("backward"); err != nil {
		return nil, err
	}
	if g.DType() != t.DType() && g.DType().IsFloat() {
		core.WithMode(func(m core.Mode) core.Mode { return m.WithGrad(r.options.CreateGraph) }, func() { g = op.To(g, t.DType()).Keep() })
		defer g.Release()
		if err := g.Err(); err != nil {
			return nil, err
		}
	}
	if err := sameShape(fmt.Sprintf("the gradient given for output %d", i), t.Shape(), t.DType(), g); err != nil {
		return nil, err
	}
	return g.Alias(r.options.CreateGraph).Keep(), nil
}

// target finds the edges of the inputs, if the walk is restricted to some.
func (r *Run) target() error {
	if r.inputs == nil {
		return nil
	}
	r.captures = map[core.Edge][]int{}
	r.captured = make([]*core.Tensor, len(r.inputs))
	for i, t := range r.inputs {
		if err := t.Usable("grad"); err != nil {
			return err
		}
		if !t.RequiresGrad() {
			return core.Errorf(core.StateError, "grad", "input %d (%v) does not require a gradient", i, t)
		}
		if r.options.Inputs != nil {
			t.RetainGrad()
		}
		e := t.AutogradMeta().Edge()
		r.targets = append(r.targets, e)
		r.captures[e] = append(r.captures[e], i)
	}
	return nil
}

// discover counts, for every node behind the roots, the gradients that will arrive, and finds those that are needed. It returns
// the nodes.
func (r *Run) discover(roots []core.Edge) (order []*core.Node) {
	visit := func(n *core.Node) *state {
		s := r.states[n]
		if s == nil {
			n.Retain()
			s = &state{grads: make([]*core.Tensor, n.Outputs()), needed: r.captures == nil, runs: r.captures == nil}
			r.states[n] = s
			order = append(order, n)
		}
		return s
	}
	for _, e := range roots {
		visit(e.Node)
	}
	for i := 0; i < len(order); i++ {
		for _, e := range order[i].Edges() {
			if e.Node != nil {
				visit(e.Node).waiting++
			}
		}
	}
	if r.captures == nil {
		return order
	}
	for e := range r.captures {
		if s := r.states[e.Node]; s != nil {
			s.needed = true
			s.runs = e.Node.Leaf() != nil && r.options.Inputs != nil
		}
	}
	r.fromBehind(order, func(n *core.Node, s *state) {
		if !s.runs && r.leads(n, func(behind *state) bool { return behind.needed }) {
			s.needed, s.runs = true, true
		}
	})
	return order
}

// fromBehind calls visit once for every node, after those that its edges lead to.
func (r *Run) fromBehind(nodes []*core.Node, visit func(n *core.Node, s *state)) {
	sorted := make([]*core.Node, 0, len(nodes))
	for _, n := range nodes {
		s := r.states[n]
		if s.ahead = s.waiting; s.ahead == 0 {
			sorted = append(sorted, n)
		}
	}
	for i := 0; i < len(sorted); i++ {
		for _, e := range sorted[i].Edges() {
			if e.Node == nil {
				continue
			}
			s := r.states[e.Node]
			if s.ahead--; s.ahead == 0 {
				sorted = append(sorted, e.Node)
			}
		}
	}
	for _, n := range slices.Backward(sorted) {
		r.visits++
		visit(n, r.states[n])
	}
}

// leads reports whether an edge of n leads to a node of which is holds.
func (r *Run) leads(n *core.Node, is func(behind *state) bool) bool {
	return slices.ContainsFunc(n.Edges(), func(e core.Edge) bool { return e.Node != nil && is(r.states[e.Node]) })
}

// offer makes n, whose gradients have all arrived, one that can run.
func (r *Run) offer(n *core.Node) {
	var device core.Device
	for _, g := range r.states[n].grads {
		if g != nil && g.Err() == nil {
			device = g.Device()
			break
		}
	}
	r.ready.add(n, device)
}

// Reaches reports whether the walk adds to the gradient of the leaf t.
func (r *Run) Reaches(t *core.Tensor) bool {
	s := r.leaf(t)
	return s != nil && s.runs
}

// Awaits is [Run.Reaches] that is false once the walk has done so, and the leaf's hooks have run.
func (r *Run) Awaits(t *core.Tensor) bool {
	s := r.leaf(t)
	return s != nil && s.runs && !s.done
}

// leaf returns what the walk knows of a leaf; nil if it does not come to it.
func (r *Run) leaf(t *core.Tensor) *state {
	if t == nil {
		return nil
	}
	meta := t.AutogradMeta()
	if meta == nil || !meta.NeedsGradLeaf() {
		return nil
	}
	n := meta.Edge().Node
	defer n.Release()
	return r.states[n]
}

// Captured returns the gradients of the inputs after the last step; they belong to the caller and to its scope.
func (r *Run) Captured() ([]*core.Tensor, error) {
	for i, g := range r.captured {
		if g == nil && !r.options.AllowUnused {
			return nil, core.Errorf(core.StateError, "grad", "the outputs do not depend on input %d (%v); allow unused inputs to get none", i, r.inputs[i])
		}
	}
	out := r.captured
	r.captured = nil
	for i, g := range out {
		if g != nil {
			out[i] = g.Alias(r.options.CreateGraph)
			g.Release()
		}
	}
	return out, nil
}

// Visits reports whether the walk comes to n, or has.
func (r *Run) Visits(n *core.Node) bool {
	s := r.states[n]
	return s != nil && s.needed
}

// failed tells the hooks of the leaves that the walk comes to that it will not end.
func (r *Run) failed() {
	cause := r.err
	if cause == nil {
		cause = core.Errorf(core.StateError, "backward", "the backward pass was given up")
	}
	for n, s := range r.states {
		leaf := n.Leaf()
		if leaf == nil || !s.runs {
			continue
		}
		_, post := leaf.LeafHooks()
		for _, h := range post {
			if h.Failed != nil {
				h.Failed(cause)
			}
		}
	}
}

// Close lets go of everything the run holds.
func (r *Run) Close() {
	if r.closed {
		return
	}
	r.closed = true
	if !r.ended {
		core.WithTask(r, r.failed)
	}
	for n, s := range r.states {
		for _, g := range s.grads {
			if g != nil {
				g.Release()
			}
		}
		n.Release()
	}
	if p := r.pending; p != nil {
		releaseAll(p.grads)
		releaseAll(p.given)
		releaseAll(p.answer)
		p.releaseSaved()
		p.returnLent()
	}
	for _, e := range r.targets {
		if e.Node != nil {
			e.Node.Release()
		}
	}
	for _, g := range r.captured {
		if g != nil {
			g.Release()
		}
	}
	for _, m := range r.modes {
		m.Context().Free()
	}
	r.states, r.captured, r.ready, r.modes = nil, nil, ready{}, nil
	for _, fn := range r.closers {
		fn()
	}
	r.closers = nil
}

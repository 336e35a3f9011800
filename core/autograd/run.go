package autograd

import (
	"fmt"
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A Run is one backward pass.
type Run struct {
	options   Options
	caller    core.Mode                   // mode of the caller; its requests use this autocast state
	mode      core.Mode                   // of derivatives, on the caller's streams
	modes     map[*core.Context]core.Mode // of derivatives recorded on other streams
	states    map[*core.Node]*nodeState
	ready     ready
	inputs    []*core.Tensor
	parts     [][]core.Parts // of the inputs that are distributed; nil if none is
	targets   []core.Edge    // of the inputs
	captures  map[core.Edge][]int
	captured  []*core.Tensor
	returns   func(e core.Edge) bool // reports whether the caller gets the gradient
	arrivals  func(n *core.Node, i int) (g *core.Tensor, alone bool)
	callbacks []callback
	closers   []func()
	current   *nodeRun  // the node that is running
	asked     []stage   // requests of [Ask] from the current stage
	until     time.Time // deadline of StepFor
	paused    bool
	err       error
	ended     bool // the last callback has run
	closed    bool
	split     bool         // in the first part: only derivatives that Options.First needs run
	deferred  []*core.Node // left for the second part

	visits int // nodes visited while preparing the pass

	partCallbacks []callback // run at the end of the first part
	refillers     []func(s *core.Storage, node uint64) (bool, error)
}

// nodeState is what the pass knows about a node: the gradients that have arrived, and how many are missing.
type nodeState struct {
	grads     []*core.Tensor
	missing   int
	unsorted  int  // incoming edges not sorted yet
	needed    bool // its gradients, or those of a node behind it, are wanted
	runs      bool // its derivative must run
	first     bool // leads to a tensor of Options.First
	partial   bool // has run for First; grads are kept for the second part
	undivided bool // runs once, for both parts
	done      bool // has run
}

// NewRun prepares a backward pass from the outputs. grads are as in [BackwardWith].
func NewRun(outputs, grads []*core.Tensor, o Options) (*Run, error) {
	if o.Inputs == nil {
		return newRun(outputs, grads, nil, o)
	}
	return newRun(outputs, grads, o.Inputs, o)
}

// NewGradRun prepares the pass of [Grad]. After the last step [Run.Captured] returns the gradients.
func NewGradRun(outputs, inputs, grads []*core.Tensor, o Options) (*Run, error) {
	o.Inputs = nil
	return newRun(outputs, grads, inputs, o)
}

func newRun(outputs, grads, inputs []*core.Tensor, o Options) (*Run, error) {
	if len(grads) != 0 && len(grads) != len(outputs) {
		return nil, core.Errorf(core.ValueError, "backward", "got %d outputs and %d gradients", len(outputs), len(grads))
	}
	if err := eachBatched(outputs, inputs); err != nil {
		return nil, err
	}
	outputs, grads, err := localSeeds(outputs, grads)
	if err != nil {
		return nil, err
	}
	inputs, parts := localInputs(inputs)
	r := &Run{options: o, states: map[*core.Node]*nodeState{}, inputs: inputs, parts: parts}
	r.returns = func(e core.Edge) bool { return len(r.captures[e]) > 0 }
	r.arrivals = r.arrived
	// Derivatives compute in the dtypes of their saved tensors and gradients, so autocast is off.
	r.caller = core.CurrentMode()
	r.mode = r.caller.WithGrad(o.CreateGraph).WithInference(false).WithGrad(o.CreateGraph).WithoutAutocast()
	var roots []core.Edge
	var seeds []*core.Tensor
	defer func() {
		for _, e := range roots {
			if e.Node != nil {
				e.Node.Release() // states have their own reference
			}
		}
	}()
	abort := func(err error) (*Run, error) {
		for _, s := range seeds {
			s.Release()
		}
		if r.err = err; len(r.states) == 0 {
			// A call with wrong arguments starts no pass, so no hook must learn of a failure. A lack of memory is a failed pass.
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
			return abort(err)
		}
		seeds = append(seeds, seed)
		roots = append(roots, t.AutogradMeta().Edge())
	}
	if err := r.findTargets(); err != nil {
		return abort(err)
	}
	order := r.discover(roots)
	if o.First != nil {
		r.divide(order)
	}
	for i, e := range roots {
		if s := r.states[e.Node]; s != nil {
			if err := r.addGrad(e, seeds[i]); err != nil {
				return abort(err)
			}
			continue
		}
		seeds[i].Release()
	}
	for _, n := range order { // in this order, so that sums of gradients are reproducible
		if s := r.states[n]; s.missing == 0 && s.needed {
			r.enqueue(n)
		}
	}
	return r, nil
}

// seed returns the gradient of output i. The run owns it.
func (r *Run) seed(i int, t, g *core.Tensor) (*core.Tensor, error) {
	if err := t.Usable("backward"); err != nil {
		return nil, err
	}
	if t.IsNumber() {
		return nil, core.Errorf(core.StateError, "backward", "output %d is the plain number %v, which has no gradient", i, t)
	}
	if err := t.Storage().Stream().TakeError(); err != nil {
		return nil, err
	}
	if !t.RequiresGrad() {
		return nil, core.Errorf(core.StateError, "backward", "output %d (%v) does not require a gradient: no operation on a tensor that does was recorded", i, t)
	}
	if g == nil {
		if t.Numel() != 1 {
			return nil, core.Errorf(core.ShapeError, "backward", "output %d has shape %v and needs an explicit gradient; only an output with one element has an implicit one", i, t.Shape())
		}
		if t.DType().IsComplex() {
			return nil, core.Errorf(core.DTypeError, "backward", "output %d is %v and needs an explicit gradient; only real outputs have an implicit one", i, t.DType())
		}
		var ones *core.Tensor
		core.NoGrad(func() { ones = op.OnesLike(t, op.TensorOptions{}).Keep() })
		return ones, ones.Err()
	}
	if p := g.Parts(); p == nil || p.Depth() == 0 {
		if err := g.Usable("backward"); err != nil {
			return nil, err
		}
	}
	if g.DType() != t.DType() && (g.DType().IsFloat() || g.DType().IsComplex() && t.DType().IsComplex()) {
		core.WithMode(func(m core.Mode) core.Mode { return m.WithGrad(r.options.CreateGraph) }, func() { g = op.To(g, t.DType()).Keep() })
		defer g.Release()
		if err := g.Err(); err != nil {
			return nil, err
		}
	}
	if err := sameShape(fmt.Sprintf("the gradient given for output %d", i), t.Shape(), t.DType(), g); err != nil {
		return nil, err
	}
	return g.Alias(r.linked()).Keep(), nil
}

// findTargets finds the edges of the inputs, if the pass is restricted to some.
func (r *Run) findTargets() error {
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

// discover returns all nodes reachable from the roots. It counts the gradients that will arrive at each, and marks nodes that are needed.
func (r *Run) discover(roots []core.Edge) (order []*core.Node) {
	visit := func(n *core.Node) *nodeState {
		s := r.states[n]
		if s == nil {
			n.Retain()
			s = &nodeState{grads: make([]*core.Tensor, n.Outputs()), needed: r.captures == nil, runs: r.captures == nil}
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
			if e.Node != nil && (e.Node.ID > r.options.since || e.Node.Leaf() != nil) {
				visit(e.Node).missing++
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
	r.reverseOrder(order, func(n *core.Node, s *nodeState) {
		if !s.runs && r.leadsTo(n, func(behind *nodeState) bool { return behind.needed }) {
			s.needed, s.runs = true, true
		}
	})
	return order
}

// reverseOrder calls visit once for every node, after the nodes that its edges lead to.
func (r *Run) reverseOrder(nodes []*core.Node, visit func(n *core.Node, s *nodeState)) {
	sorted := make([]*core.Node, 0, len(nodes))
	for _, n := range nodes {
		s := r.states[n]
		if s.unsorted = s.missing; s.unsorted == 0 {
			sorted = append(sorted, n)
		}
	}
	for i := 0; i < len(sorted); i++ {
		for _, e := range sorted[i].Edges() {
			s := r.states[e.Node]
			if e.Node == nil || s == nil {
				continue
			}
			if s.unsorted--; s.unsorted == 0 {
				sorted = append(sorted, e.Node)
			}
		}
	}
	for _, n := range slices.Backward(sorted) {
		r.visits++
		visit(n, r.states[n])
	}
}

// leadsTo reports whether an edge of n leads to a node that satisfies is.
func (r *Run) leadsTo(n *core.Node, is func(behind *nodeState) bool) bool {
	return slices.ContainsFunc(n.Edges(), func(e core.Edge) bool {
		s := r.states[e.Node]
		return e.Node != nil && s != nil && is(s)
	})
}

// enqueue enqueues n, whose gradients have all arrived.
func (r *Run) enqueue(n *core.Node) {
	var device core.Device
	for _, g := range r.states[n].grads {
		if g != nil && g.Err() == nil {
			device = g.Device()
			break
		}
	}
	r.ready.add(n, device)
}

// Reaches reports whether the pass adds to the gradient of the leaf t.
func (r *Run) Reaches(t *core.Tensor) bool {
	s := r.leaf(t)
	return s != nil && s.runs
}

// Awaits reports whether the pass will add to the gradient of the leaf t, or run its hooks, from now on.
func (r *Run) Awaits(t *core.Tensor) bool {
	s := r.leaf(t)
	return s != nil && s.runs && !s.done
}

// AwaitsForeign reports whether the pass has yet to run nodes of another language. These may run passes of their own, as reentrant
// checkpoints do.
func (r *Run) AwaitsForeign() bool {
	for n, s := range r.states {
		if n.External != 0 && s.runs && !s.done {
			return true
		}
	}
	return false
}

// leaf returns the state of a leaf; nil if the pass does not reach it.
func (r *Run) leaf(t *core.Tensor) *nodeState {
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

// Captured returns the gradients of the inputs after the last step. They belong to the caller and its scope.
func (r *Run) Captured() ([]*core.Tensor, error) {
	for i, g := range r.captured {
		if g == nil && !r.options.AllowUnused {
			return nil, core.Errorf(core.StateError, "grad", "the outputs do not depend on input %d (%v); allow unused inputs to get no gradient for it", i, r.inputs[i])
		}
	}
	out := r.captured
	r.captured = nil
	for i, g := range out {
		if g != nil {
			out[i] = g.Alias(r.linked())
			g.Release()
			if r.parts != nil {
				for _, p := range slices.Backward(r.parts[i]) {
					out[i] = p.Gradient(out[i])
				}
			}
		}
	}
	return out, nil
}

// linked reports whether gradients keep their place in the graph, where their own derivatives or tangents are found.
func (r *Run) linked() bool { return r.options.CreateGraph || core.ForwardActive() }

// Visits reports whether the pass runs n.
func (r *Run) Visits(n *core.Node) bool {
	s := r.states[n]
	return s != nil && s.needed
}

// Err returns the error that has ended the pass, or nil.
func (r *Run) Err() error { return r.err }

// failed tells the leaves that the pass would have reached, by their Failed hooks, and the nodes that want to know.
func (r *Run) failed() {
	cause := r.err
	if cause == nil {
		cause = core.Errorf(core.StateError, "backward", "the backward pass was abandoned")
	}
	for n, s := range r.states {
		if a, ok := n.Any.(interface{ Abandoned(cause error) }); ok {
			a.Abandoned(cause)
		}
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

// Close releases everything the run holds. A run that has not ended counts as failed.
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
	if p := r.current; p != nil {
		releaseAll(p.grads)
		releaseAll(p.outputGrads)
		releaseAll(p.answer)
		p.releaseSaved()
		p.returnBorrowed()
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

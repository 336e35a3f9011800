package ddp

import (
	"errors"
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// A parameter is a parameter of the model and its place in the buckets.
type parameter struct {
	Named
	removeHook func()
	active     bool    // required a gradient when the buckets were assigned
	delayed    bool    // in Options.Delayed
	bucket     *Bucket // nil if not active
	slot       int     // index in the bucket
}

// A Reducer averages the gradients of a model's parameters over the ranks of a group, in buckets, while backward runs. One thread
// of the rank may use it at a time.
type Reducer struct {
	guard       core.Guard
	rankContext *core.Context     // identifies the rank
	baseGroup   *collective.Group // a channel of the reducer's own
	group       *collective.Group // a channel of baseGroup; a failed pass revokes it, and the next pass gets a new one
	options     Options
	params      []*parameter
	buffers     []Named // the module's, such as running statistics

	buckets      []*Bucket
	bucketOrder  []int  // parameters in the order in which they are assigned to buckets
	arrivalOrder []byte // order in which gradients became final on rank 0 in the first pass
	rebuilt      bool   // buckets follow arrivalOrder

	sync         bool // whether the next forward passes are synchronised, see SetSync
	syncBackward bool // whether the backward pass of the last forward pass is synchronised
	pass         *pass
	reduced      bool                  // a pass has ended
	failure      error                 // of the current step
	pendingEnd   *collective.Work      // exchange at the end of the last pass, if other ranks have not reached it
	recentWorks  [2][]*collective.Work // collectives of the last two passes
	staticUnused map[int]bool          // with StaticGraph, parameters that no rank uses; nil before the first step

	pendingSamples float64 // with Weighted, samples of the forward passes since the last reduction
	passSamples    float64 // with Weighted, samples behind the gradients of the current pass

	hook               Hook
	precisionHook      bool   // hook comes from Options.Precision
	foreignHook        uint64 // ID of a hook of another language
	releaseForeignHook func()
	removeUntilHook    func() // removes the hook on Options.Until

	streams  map[streamKey]core.Stream   // communication streams
	contexts map[streamKey]*core.Context // contexts on these streams, for hooks of another language

	join      *joinState // nil outside of Join
	mode      SyncMode
	optimizer *optim.Optimizer // given to SetSyncMode
	steps     int              // steps that Step has made with it
	async     *asyncClient     // nil unless training is asynchronous
	stats     Stats
}

// Stats count what a [Reducer] has done.
type Stats struct {
	Passes    int // reduced backward passes
	Buckets   int // reduced buckets
	Bytes     int // bytes of gradients in them
	Buffers   int // bytes of broadcast buffers
	Rebuilds  int // times that buckets were rebuilt
	Unused    int // missing gradients on this rank
	LastBytes int // bytes of gradients in the last pass
}

// NewReducer returns a reducer for parameters. Every rank calls it with parameters of the same shapes and dtypes in the same order;
// otherwise every rank gets an error that names the first difference. Parameters and buffers are broadcast from rank 0. Parameters that
// require no gradient are not reduced until they do.
func NewReducer(g *collective.Group, params []Named, o Options) (*Reducer, error) {
	if g == nil {
		return nil, core.Errorf(core.ValueError, "ddp", "got no group; this rank is not in it")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	base := g.For(fmt.Sprintf("DDP model %d", g.Number())).Channel()
	r := &Reducer{baseGroup: base, group: base.Channel(), options: o, buffers: o.Buffers, sync: true, streams: map[streamKey]core.Stream{}, contexts: map[streamKey]*core.Context{}}
	seen := map[*core.Tensor]bool{}
	for _, n := range params {
		if seen[n.Tensor] {
			continue // a shared parameter
		}
		seen[n.Tensor] = true
		r.params = append(r.params, &parameter{Named: n})
	}
	problem := r.checkTensors()
	if problem == nil {
		problem = r.prepareDelayed()
	}
	if problem == nil {
		problem = r.applyPrecision()
	}
	if !o.SkipInit {
		if err := r.verifyRanks(problem); err != nil {
			return nil, err
		}
		if err := r.broadcastModel(0, !o.LocalBuffers, "the first values"); err != nil {
			return nil, err
		}
	} else if problem != nil {
		return nil, problem
	}
	for i := len(r.params) - 1; i >= 0; i-- {
		r.bucketOrder = append(r.bucketOrder, i) // about the order of backward
	}
	r.addHooks()
	r.register()
	if err := r.assignBuckets(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// addHooks adds the post-accumulate-grad hooks to the parameters and to Options.Until.
func (r *Reducer) addHooks() {
	add := func(t *core.Tensor, ready func() error, failed func(error)) (remove func()) {
		return t.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
			if err := ready(); err != nil {
				return core.ErrorTensor(err)
			}
			return nil
		}, Failed: failed})
	}
	own := false
	for i, p := range r.params {
		p.removeHook = add(p.Tensor, func() error { return r.gradientReady(i) }, r.backwardFailed)
		own = own || p.Tensor == r.options.Until
	}
	if t := r.options.Until; t != nil && !own {
		r.removeUntilHook = add(t, r.untilReady, nil)
	}
}

// checkTensors returns an error if this rank's parameters or buffers are invalid.
func (r *Reducer) checkTensors() error {
	trained := false
	for _, p := range r.params {
		t := p.Tensor
		if err := t.Usable("ddp"); err != nil {
			return core.Errorf(core.StateError, "ddp", "parameter %s: %w", p.Name, err)
		}
		if !t.IsLeaf() {
			return core.Errorf(core.ValueError, "ddp", "parameter %s is the result of an operation, want a leaf", p.Name)
		}
		trained = trained || t.RequiresGrad()
	}
	if !trained {
		return core.Errorf(core.StateError, "ddp", "none of the %d parameters requires a gradient", len(r.params))
	}
	for _, b := range r.buffers {
		if err := b.Tensor.Usable("ddp"); err != nil {
			return core.Errorf(core.StateError, "ddp", "buffer %s: %w", b.Name, err)
		}
	}
	return nil
}

// Group returns the group whose ranks' gradients are averaged.
func (r *Reducer) Group() *collective.Group { return r.group }

// groupFor returns the reducer's group with a purpose, such as "the buffers", for error messages.
func (r *Reducer) groupFor(purpose string) *collective.Group {
	return r.group.For(purpose + " of " + r.group.Purpose())
}

// Stats returns what the reducer has done so far.
func (r *Reducer) Stats() Stats { return r.stats }

// Close waits for the last pass and returns its error, removes the reducer's hooks from the parameters, and frees memory.
// Gradients are not changed.
func (r *Reducer) Close() error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	err := r.Wait()
	if r.async != nil {
		err = errors.Join(err, r.SetSyncMode(SyncMode{}, nil))
	}
	streams := r.detach()
	for _, s := range streams {
		if e := s.Close(); err == nil && !collective.IsRevoked(e) { // backward has returned that error
			err = e
		}
	}
	return err
}

// Release is [Reducer.Close] without waiting, for reducers that are dropped.
func (r *Reducer) Release() {
	r.guard.Later(func() {
		streams := r.detach()
		go func() {
			for _, s := range streams {
				s.Close() // waits for launched work
			}
		}()
	})
}

// Use runs fn, which reads or changes the reducer, while no other thread uses it.
func (r *Reducer) Use(fn func()) error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	fn()
	return nil
}

// detach removes the hooks and frees memory. It returns the streams, which the caller closes.
func (r *Reducer) detach() map[streamKey]core.Stream {
	r.unregister()
	for _, p := range r.params {
		if p.removeHook != nil {
			p.removeHook()
			p.removeHook = nil
		}
	}
	if r.removeUntilHook != nil {
		r.removeUntilHook()
		r.removeUntilHook = nil
	}
	if r.releaseForeignHook != nil {
		r.releaseForeignHook()
		r.releaseForeignHook = nil
	}
	r.freeBuckets()
	for _, c := range r.contexts {
		c.Free()
	}
	streams := r.streams
	r.contexts, r.streams = nil, nil
	return streams
}

// NoSync runs fn without synchronisation, for gradient accumulation: backward only adds to the rank's own gradients. The next
// pass outside reduces the accumulated gradients.
func (r *Reducer) NoSync(fn func() error) error {
	defer r.SetSync(r.SetSync(false))
	return fn()
}

// SetSync sets whether the next forward passes are synchronised, and returns the previous setting: see [Reducer.NoSync].
func (r *Reducer) SetSync(on bool) (before bool) {
	before, r.sync = r.sync, on
	return before
}

// Forward tells the reducer that a forward pass begins. samples is the size of the batch and only matters with
// [Options.Weighted]. Forward broadcasts the buffers of rank 0. It returns the error of the previous step, if there is one: that
// of a collective, or one that names the parameters without a gradient. It does nothing if gradients are not recorded.
func (r *Reducer) Forward(samples int) error {
	if !core.CurrentMode().GradEnabled() {
		return nil
	}
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	r.failure = nil
	if err := r.checkPriorReduction(); err != nil {
		return err // the other ranks usually find the same error
	}
	r.syncBackward = r.sync && !r.mode.isAsync()
	if err := r.allocateBucketBuffers(); err != nil {
		return r.abortOn(err)
	}
	r.pendingSamples += float64(samples)
	if r.join != nil {
		if err := r.join.announce(r, true); err != nil {
			if r.group.Revoked() != nil { // otherwise JoinOptions.Throw ends the join
				r.abort(err)
			}
			return err
		}
	}
	if !r.syncBackward {
		return nil
	}
	return r.abortOn(r.preparePass())
}

// preparePass prepares a synchronised pass, before forward: it waits for the end of the last pass, reports late errors, rebuilds buckets if
// necessary, and broadcasts buffers.
func (r *Reducer) preparePass() error {
	r.pass = nil
	if err := r.closePass(); err != nil {
		return err
	}
	if err := r.checkWorks(); err != nil {
		return err
	}
	if err := r.allocateBucketBuffers(); err != nil {
		return err
	}
	if r.arrivalOrder != nil && !r.rebuilt {
		if err := r.rebuild(); err != nil {
			return err
		}
	} else if r.requiresGradChanged() {
		if err := r.assignBuckets(); err != nil {
			return err
		}
	}
	return r.broadcastBuffers()
}

package ddp

import (
	"errors"
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// The sizes of buckets, where [Options] do not say others. The first is small, so that communication starts early.
const (
	FirstBucketBytes = 1 << 20
	BucketBytes      = 25 << 20
)

// A Named is a tensor with its name, for messages.
type Named struct {
	Name   string
	Tensor *core.Tensor
}

// Options say how a [Reducer] works. The zero value is PyTorch's default.
type Options struct {
	// FirstBucketBytes and BucketBytes are the sizes at which a bucket is full; 0 means the package's constants. A
	// parameter is never divided.
	FirstBucketBytes, BucketBytes int
	// Buffers are tensors that are not trained, such as running statistics. They are sent from rank 0 at the beginning and,
	// unless KeepBuffers is set, before each forward pass that is to be synchronised.
	Buffers     []Named
	KeepBuffers bool
	// SkipInit leaves parameters and buffers as each rank has them, without verification, at the beginning.
	SkipInit bool
	// FindUnused allows backward to leave parameters without a gradient, other ones on each rank and in each step. One that
	// no rank has used keeps the gradient it has.
	FindUnused bool
	// StaticGraph promises that each step uses the same parameters, which are found in the first.
	StaticGraph bool
	// BucketView makes gradients views of the buckets' memory, which saves the memory of one copy.
	BucketView bool
	// DelayAllReduce reduces when backward has ended.
	DelayAllReduce bool
	// Delayed are parameters that may get gradients in several backward passes of one step. They are reduced after all other parameters,
	// once Until has its gradient. Until is a parameter of this or of another module. Gradients missing at that time count as zero. If all
	// parameters are delayed, the step may have several forward passes.
	Delayed []*core.Tensor `json:"-"`
	Until   *core.Tensor   `json:"-"`
	// SkipUnused promises, with FindUnused, that the ranks leave the same parameters without a gradient: buckets without any are
	// not sent.
	SkipUnused bool
	// Precision says in which dtypes to compute and to reduce.
	Precision Precision
	// Weighted makes the result the gradient of the mean over the joined batch where the ranks' batches differ in size, by
	// the numbers of samples given to [Reducer.Forward]. Otherwise it is the mean of the ranks' gradients.
	Weighted bool
}

// A parameter is a tensor that is trained.
type parameter struct {
	Named
	remove  func() // takes the hook away
	active  bool   // requires a gradient, as of the last forward pass
	delayed bool
	bucket  *Bucket // nil if not active
	slot    int     // in the bucket
}

// A Reducer averages the gradients of parameters over the ranks of a group. Its methods belong to the thread of its rank.
type Reducer struct {
	guard     core.Guard
	baseGroup *collective.Group // a channel for this reducer alone
	group     *collective.Group // a channel of baseGroup for passes; a failed pass revokes it
	options   Options
	params    []*parameter
	buffers   []Named

	order           []int // in which parameters are put into buckets
	buckets         []*Bucket
	streams         map[streamKey]core.Stream   // where buckets are prepared
	contexts        map[streamKey]*core.Context // in which hooks of another language work on them
	rebuilt         bool                        // the order is that of a backward pass
	arrivalOrder    []byte                      // the order in which gradients came on rank 0 in the first
	removeUntilHook func()                      // takes the hook on Options.Until away
	unused          map[int]bool                // with StaticGraph, the parameters that no rank uses; nil before the first step

	sync          bool // forward passes are to be synchronised
	syncBackward  bool // the last forward pass began a synchronised step
	reduced       bool // a pass has ended
	pass          *pass
	works         [2][]*collective.Work // of the last two passes
	failure       error                 // of the step, until the next begins
	pendingEnd    *collective.Work      // the exchange at the end of the last pass, if other ranks have not reached it
	rankContext   *core.Context         // the rank
	hook          Hook
	precisionHook bool   // hook comes from Options.Precision
	foreignHook   uint64 // a hook of another language
	dropForeign   func()
	samples       float64
	weight        float64 // the samples behind the gradients that are reduced now
	join          *joinState
	mode          SyncMode
	async         *asyncClient // nil unless training is asynchronous

	optimizer *optim.Optimizer // of SetSyncMode
	steps     int              // that it made
	stats     Stats
}

// Stats count what a [Reducer] has done.
type Stats struct {
	Passes    int // backward passes that were reduced
	Buckets   int // that went to the group
	Bytes     int // of gradients in them
	Buffers   int // bytes of buffers that were broadcast
	Rebuilds  int // of the buckets
	Unused    int // gradients that were missing on this rank
	LastBytes int // of gradients in the last pass
}

// NewReducer returns a reducer for parameters, of which every rank must have the same shapes and dtypes in the same order:
// otherwise every rank gets an error that names the first difference and the ranks. Parameters and buffers become those of
// rank 0. It returns when the ranks have agreed. Parameters that require no gradient are left alone until they do.
func NewReducer(g *collective.Group, params []Named, o Options) (*Reducer, error) {
	if g == nil {
		return nil, core.Errorf(core.ValueError, "ddp", "got no group; this rank is not in it")
	}
	if o.FirstBucketBytes < 0 || o.BucketBytes < 0 {
		return nil, core.Errorf(core.ValueError, "ddp", "the size of buckets must be positive, got %d and %d bytes", o.FirstBucketBytes, o.BucketBytes)
	}
	if o.FirstBucketBytes == 0 {
		o.FirstBucketBytes = FirstBucketBytes
		if o.BucketBytes != 0 {
			o.FirstBucketBytes = min(o.BucketBytes, FirstBucketBytes)
		}
	}
	if o.BucketBytes == 0 {
		o.BucketBytes = BucketBytes
	}
	if o.StaticGraph {
		o.FindUnused = false // the first step finds them for all
	}
	own := g.For(fmt.Sprintf("DDP model %d", g.Number())).Channel()
	r := &Reducer{baseGroup: own, group: own.Channel(), options: o, buffers: o.Buffers, sync: true, streams: map[streamKey]core.Stream{}, contexts: map[streamKey]*core.Context{}}
	seen := map[*core.Tensor]bool{}
	for _, n := range params {
		if seen[n.Tensor] {
			continue // shared
		}
		seen[n.Tensor] = true
		r.params = append(r.params, &parameter{Named: n})
	}
	problem := r.check()
	if problem == nil {
		problem = r.prepareDelayed()
	}
	if problem == nil {
		problem = r.applyPrecision()
	}
	if !o.SkipInit {
		if err := r.verify(problem); err != nil {
			return nil, err
		}
		if err := r.broadcastAll(); err != nil {
			return nil, err
		}
	} else if problem != nil {
		return nil, problem
	}
	for i := len(r.params) - 1; i >= 0; i-- {
		r.order = append(r.order, i)
	}
	for i, p := range r.params {
		p.remove = p.Tensor.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
			if err := r.gradientReady(i); err != nil {
				return core.ErrorTensor(err)
			}
			return nil
		}, Failed: r.backwardFailed})
	}
	if t := o.Until; t != nil && !seen[t] {
		r.removeUntilHook = t.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
			if err := r.untilReady(); err != nil {
				return core.ErrorTensor(err)
			}
			return nil
		}})
	}
	r.register()
	if err := r.assignBuckets(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// check returns an error if this rank's parameters cannot be trained.
func (r *Reducer) check() error {
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

// groupFor returns the reducer's group with a purpose, such as "the buffers".
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
		if e := s.Close(); err == nil && !collective.IsRevoked(e) { // which backward has told
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
				s.Close() // when what was launched has run
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

// detach takes the hooks off and gives memory back. It returns the streams, which are to be closed.
func (r *Reducer) detach() map[streamKey]core.Stream {
	r.unregister()
	for _, p := range r.params {
		if p.remove != nil {
			p.remove()
			p.remove = nil
		}
	}
	if r.removeUntilHook != nil {
		r.removeUntilHook()
		r.removeUntilHook = nil
	}
	if r.dropForeign != nil {
		r.dropForeign()
		r.dropForeign = nil
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
	if err := r.checkFinished(); err != nil {
		return err // and on the other ranks by themselves, as a rule
	}
	r.syncBackward = r.sync && !r.mode.isAsync()
	if err := r.makeBuffers(); err != nil {
		return r.abortOn(err)
	}
	r.samples += float64(samples)
	if r.join != nil {
		if err := r.join.announce(r, true); err != nil {
			if r.group.Revoked() != nil { // and not because a rank has no more batches
				r.abort(err)
			}
			return err
		}
	}
	if !r.syncBackward {
		return nil
	}
	return r.abortOn(r.prepare())
}

// prepare does what every rank does before a synchronised pass.
func (r *Reducer) prepare() error {
	r.pass = nil
	if err := r.closePass(); err != nil {
		return err
	}
	if err := r.checkWorks(); err != nil {
		return err
	}
	if err := r.makeBuffers(); err != nil {
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

// streamsPerDevice is the number of buckets that can be packed or unpacked on a device at the same time. With one stream, work on
// the result of a bucket would delay the launch of the next.
const streamsPerDevice = 4

type streamKey struct {
	device core.Device
	index  int
}

// onCommStream runs fn on a communication stream of dev, so that the stream of backward does not wait for other ranks. It frees
// temporary tensors of fn.
func (r *Reducer) onCommStream(dev core.Device, index int, fn func() error) (err error) {
	key := streamKey{dev, index % streamsPerDevice}
	s := r.streams[key]
	if s == nil {
		s = dev.NewStream(core.CurrentContext().Rank())
		r.streams[key] = s
	}
	core.NoGrad(func() {
		core.WithStream(s, func() {
			core.WithCategory(core.Communication, func() {
				core.Tidy(func() { err = fn() })
			})
		})
	})
	return err
}

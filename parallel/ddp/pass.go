package ddp

import (
	"encoding/binary"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A pass is the reduction of one step's gradients, from the first final gradient after a forward pass to the last.
type pass struct {
	run            *autograd.Run                // the most recent backward pass
	ready          []bool                       // by parameter: the gradient is final, or backward will not compute it
	arrived        []int                        // parameters in the order in which their gradients became final
	remaining      int                          // parameters that are not ready; a bucket of delayed parameters counts as one
	nextBucket     int                          // the next bucket to reduce
	gradientWeight map[core.Device]*core.Tensor // with Options.Weighted, the factor for this rank's gradients
	endWork        *collective.Work             // exchange of endPayload, which ends the pass on all ranks
	done           bool
	shadow         bool // in a join: this rank has no batch and contributes zeros
}

// gradientReady is the post-accumulate-grad hook of parameter i. It runs when the gradient is final.
func (r *Reducer) gradientReady(i int) error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	if r.failure != nil {
		return r.failure
	}
	p := r.params[i]
	if r.mode.isAsync() {
		return nil
	}
	if !r.syncBackward || !p.active || p.delayed { // not reduced now
		if p.bucket != nil && r.options.BucketView {
			if err := p.bucket.viewGradient(p.slot); err != nil {
				return err
			}
		}
		if p.Tensor == r.options.Until {
			return r.untilReady()
		}
		return nil
	}
	if err := r.beginBackward(); err != nil {
		return err
	}
	current := r.pass
	if current.ready[i] {
		return core.Errorf(core.StateError, "ddp", "parameter %s on rank %d got its final gradient twice in one step: it is used in two backward passes of which neither has all parameters, or the graph is not the static one that was promised",
			p.Name, r.group.Rank())
	}
	current.arrived = append(current.arrived, i)
	if err := r.markReady(i); err != nil {
		return err
	}
	if p.Tensor == r.options.Until {
		return r.untilReady()
	}
	return nil
}

// beginBackward begins a pass, unless one is running. In a new backward pass it also registers the callback for its end.
func (r *Reducer) beginBackward() error {
	if r.pass == nil || r.pass.done {
		if err := r.beginPass(false); err != nil {
			return err
		}
	}
	run := autograd.CurrentRun()
	if run == r.pass.run {
		return nil
	}
	r.pass.run = run
	if err := autograd.OnClose(func() { r.guard.Later(r.guard.End) }); err != nil {
		return err
	}
	r.guard.Begin()
	if err := autograd.QueueCallback(r.backwardEnded); err != nil {
		return err
	}
	return r.markUnused(run)
}

// beginPass starts a pass and marks all parameters as not ready. In a join, shadow is set on a rank without a batch.
func (r *Reducer) beginPass(shadow bool) error {
	current := &pass{ready: make([]bool, len(r.params)), shadow: shadow}
	r.pass = current
	for _, b := range r.buckets {
		b.pending = len(b.params)
		if b.delayed {
			b.pending = 1 // Options.Until
		}
		b.placeholders = nil
		current.remaining += b.pending
	}
	r.stats.LastBytes = 0
	if !r.options.Weighted {
		return nil
	}
	if r.pendingSamples > 0 || shadow {
		r.passSamples, r.pendingSamples = r.pendingSamples, 0
	}
	return r.computeGradientWeights()
}

// computeGradientWeights computes the factor for this rank's gradients on each device: its fraction of all samples, times the divisor of sums.
func (r *Reducer) computeGradientWeights() error {
	r.pass.gradientWeight = map[core.Device]*core.Tensor{}
	for _, b := range r.buckets {
		if r.pass.gradientWeight[b.device] != nil {
			continue
		}
		err := r.onCommStream(b.device, 0, func() error {
			d := core.Float32
			if b.dtype == core.Float64 {
				d = core.Float64
			}
			o := op.TensorOptions{DType: &d, Device: b.device}
			total := op.Full([]int{}, core.Num(r.passSamples), o)
			if err := r.track(r.groupFor("the samples of a step").AllReduce(total, collective.Sum)); err != nil {
				return err
			}
			mine := op.Full([]int{}, core.Num(r.passSamples*float64(r.divisor())), o)
			weight := op.Div(mine, total).Keep()
			r.pass.gradientWeight[b.device] = weight
			return weight.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// markReady marks parameter i as ready and reduces the buckets that are complete.
func (r *Reducer) markReady(i int) error {
	current, b := r.pass, r.params[i].bucket
	current.ready[i] = true
	current.remaining--
	b.pending--
	if r.delaysReduction() {
		return nil
	}
	return r.reduceReadyBuckets()
}

// delaysReduction reports whether buckets are reduced only at the end of backward.
func (r *Reducer) delaysReduction() bool {
	return r.options.DelayAllReduce || r.options.StaticGraph && r.staticUnused == nil
}

// reduceReadyBuckets reduces the next buckets that are complete. Buckets are always reduced in order, so that all ranks launch the same
// collectives in the same order.
func (r *Reducer) reduceReadyBuckets() error {
	current := r.pass
	for current.nextBucket < len(r.buckets) && r.buckets[current.nextBucket].pending == 0 {
		b := r.buckets[current.nextBucket]
		current.nextBucket++
		if err := r.reduceBucket(b); err != nil {
			return err
		}
	}
	return nil
}

// backwardEnded is the callback at the end of a backward pass.
func (r *Reducer) backwardEnded() error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	current := r.pass
	if current == nil || current.done {
		return nil
	}
	if r.options.FindUnused || r.options.StaticGraph && r.staticUnused == nil {
		if err := r.markAllReady(); err != nil {
			return err
		}
	}
	if current.remaining > 0 {
		return nil // another backward pass may compute the rest; otherwise the next forward pass reports an error
	}
	if err := r.reduceReadyBuckets(); err != nil {
		return err
	}
	if err := autograd.QueueWait(r.finishPass); err != nil {
		return err
	}
	return autograd.QueueWait(r.closePendingPasses)
}

// finishPass ends a pass after all its buckets are launched. It waits until the other ranks have launched theirs, because no rank may
// make a step if another has failed. It does not wait for the averages. If limit is not negative, it waits that long at most; over reports
// whether the wait is over. The wait is no call of the guard: another thread may fail the pass, which ends it.
func (r *Reducer) finishPass(limit time.Duration) (over bool, err error) {
	var current *pass
	var must bool
	if err := r.Use(func() { current, must = r.startEnd() }); err != nil || current == nil {
		return true, err
	}
	over, crossed := waitEnd(current.endWork, limit, must)
	if !over && !crossed {
		return false, nil
	}
	if useErr := r.Use(func() { err = r.passEnded(current, crossed) }); useErr != nil {
		return true, useErr
	}
	return true, err
}

// startEnd starts the exchange that ends the pass under way. It returns the pass, or nil if none is, and whether the wait for its end
// must not be put off.
func (r *Reducer) startEnd() (current *pass, must bool) {
	current = r.pass
	if current == nil || current.done {
		return nil, false
	}
	if current.endWork == nil {
		current.releaseGradientWeights()
		current.endWork = r.groupFor("the end of a step").StartExchange("backward", r.endPayload())
	}
	// The first pass must wait: it determines the order of the buckets, and finds ranks that run backward in other modules.
	return current, r.needsUsedCounts() || !r.reduced
}

// passEnded ends a pass whose exchange is over, or crossed that of another.
func (r *Reducer) passEnded(current *pass, crossed bool) error {
	if r.pass != current {
		return r.failure // another thread has failed it
	}
	if crossed {
		r.pendingEnd = current.endWork // other ranks run backward in another order, so a later pass waits for the end of this one
	} else if err := current.endWork.Err(); err != nil {
		return err
	}
	current.done, r.reduced = true, true
	r.stats.Passes++
	if !crossed {
		r.saveArrivalOrder(current.endWork)
	}
	switch {
	case r.options.FindUnused && r.options.SkipUnused:
		r.setMissingGradients(make([]int, len(r.params)))
	case r.needsUsedCounts():
		r.setMissingGradients(r.globalUsedCounts(current.endWork.Payloads()))
	default:
		r.setMissingGradients(nil)
	}
	return nil
}

// releaseGradientWeights releases the weights once all buckets are launched.
func (current *pass) releaseGradientWeights() {
	for _, t := range current.gradientWeight {
		t.Release()
	}
	current.gradientWeight = nil
}

// endPayload returns what this rank sends at the end of a pass: its used map and, on rank 0 until buckets are rebuilt, the order in which
// gradients became final.
func (r *Reducer) endPayload() []byte {
	b := r.localUsedMap()
	if r.group.Rank() == 0 && r.arrivalOrder == nil {
		for _, i := range r.pass.arrived {
			b = binary.LittleEndian.AppendUint32(b, uint32(i))
		}
	}
	return b
}

// saveArrivalOrder stores rank 0's order of gradients from the first pass that has succeeded on all ranks.
func (r *Reducer) saveArrivalOrder(end *collective.Work) {
	if r.arrivalOrder == nil && !r.options.FindUnused {
		r.arrivalOrder = append([]byte{}, end.Payloads()[0][len(r.params):]...)
	}
}

package ddp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A pass is the reduction of one step's gradients, from the first final gradient after a forward pass to the last.
type pass struct {
	run        *autograd.Run // the most recent backward pass
	ready      []bool        // by parameter: the gradient is final or will be missing
	arrived    []int         // parameters in the order in which their gradients became final
	remaining  int           // parameters that are not ready
	nextBucket int           // bucket to be reduced
	lossWeight map[core.Device]*core.Tensor
	endWork    *collective.Work // exchange at the end, with the gradients that each rank has
	done       bool
	joined     bool // this rank has no batch and contributes zeros
}

// gradientReady is the hook that runs when the gradient of parameter i is final.
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
	if !r.syncBackward || !p.active || p.delayed {
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
	s := r.pass
	if s.ready[i] {
		return core.Errorf(core.StateError, "ddp", "parameter %s on rank %d got its final gradient twice in one step: it is used in two backward passes of which neither has all parameters, or the graph is not the static one that was promised",
			p.Name, r.group.Rank())
	}
	s.arrived = append(s.arrived, i)
	if err := r.markReady(i); err != nil {
		return err
	}
	if p.Tensor == r.options.Until {
		return r.untilReady()
	}
	return nil
}

// beginBackward begins a pass unless one is running, and registers the callbacks of a new backward pass.
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
	return r.skipUnused(run)
}

// beginPass starts a pass.
func (r *Reducer) beginPass(joined bool) error {
	s := &pass{ready: make([]bool, len(r.params)), joined: joined}
	r.pass = s
	for _, b := range r.buckets {
		b.pending = len(b.params)
		if b.delayed {
			b.pending = 1 // the parameter that they wait for
		}
		b.absent = nil
		s.remaining += b.pending
	}
	r.stats.LastBytes = 0
	if !r.options.Weighted {
		return nil
	}
	if r.samples > 0 || joined {
		r.weight, r.samples = r.samples, 0
	}
	return r.computeLossWeights()
}

// computeLossWeights computes, on each device, this rank's fraction of the samples times the divisor of sums.
func (r *Reducer) computeLossWeights() error {
	r.pass.lossWeight = map[core.Device]*core.Tensor{}
	for _, b := range r.buckets {
		if r.pass.lossWeight[b.device] != nil {
			continue
		}
		err := r.onCommStream(b.device, 0, func() error {
			d := core.Float32
			if b.dtype == core.Float64 {
				d = core.Float64
			}
			o := op.TensorOptions{DType: &d, Device: b.device}
			total := op.Full([]int{}, core.Num(r.weight), o)
			if err := r.track(r.groupFor("the samples of a step").AllReduce(total, collective.Sum)); err != nil {
				return err
			}
			mine := op.Full([]int{}, core.Num(r.weight*float64(r.divisor())), o)
			share := op.Div(mine, total).Keep()
			r.pass.lossWeight[b.device] = share
			return share.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// markReady marks parameter i as ready and launches the buckets that are complete.
func (r *Reducer) markReady(i int) error {
	s, b := r.pass, r.params[i].bucket
	s.ready[i] = true
	s.remaining--
	b.pending--
	if r.delaysLaunch() {
		return nil
	}
	return r.launchReady()
}

// delaysLaunch reports whether buckets are launched only at the end of backward.
func (r *Reducer) delaysLaunch() bool {
	return r.options.DelayAllReduce || r.options.StaticGraph && r.unused == nil
}

func (r *Reducer) launchReady() error {
	s := r.pass
	for s.nextBucket < len(r.buckets) && r.buckets[s.nextBucket].pending == 0 {
		b := r.buckets[s.nextBucket]
		s.nextBucket++
		if err := r.launch(b); err != nil {
			return err
		}
	}
	return nil
}

// skipUnused marks parameters that the backward pass does not reach as ready, if the options allow unused parameters.
func (r *Reducer) skipUnused(run *autograd.Run) error {
	for i, p := range r.params {
		if !p.active || p.delayed || r.pass.ready[i] {
			continue
		}
		if r.options.FindUnused && !run.Reaches(p.Tensor) || r.options.StaticGraph && r.unused[i] {
			if err := r.markReady(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// backwardEnded is the callback at the end of a backward pass.
func (r *Reducer) backwardEnded() error {
	s := r.pass
	if s == nil || s.done {
		return nil
	}
	if r.options.FindUnused || r.options.StaticGraph && r.unused == nil {
		if err := r.markRest(); err != nil {
			return err
		}
	}
	if s.remaining > 0 {
		return nil // another backward pass may bring the rest; otherwise the next forward pass reports an error
	}
	if err := r.launchReady(); err != nil {
		return err
	}
	if err := autograd.QueueWait(r.finish); err != nil {
		return err
	}
	return autograd.QueueWait(r.closePending)
}

// markRest marks all parameters as ready.
func (r *Reducer) markRest() error {
	for i, p := range r.params {
		if p.active && !p.delayed && !r.pass.ready[i] {
			if err := r.markReady(i); err != nil {
				return err
			}
		}
	}
	return r.markDelayed()
}

// finish ends a pass after all its buckets are launched. It waits until the other ranks have launched theirs, because no rank may
// make a step if another has failed. It does not wait for the averages.
func (r *Reducer) finish(limit time.Duration) (over bool, err error) {
	s := r.pass
	if s == nil || s.done {
		return true, nil
	}
	if s.endWork == nil {
		s.free()
		s.endWork = r.groupFor("the end of a step").StartExchange("backward", r.endPayload())
	}
	asks := r.needsUsage()
	// The first pass must wait: it determines the order of the buckets, and finds ranks that run backward in other modules.
	over, crossed := waitEnd(s.endWork, limit, asks || !r.reduced)
	switch {
	case crossed:
		r.pendingEnd = s.endWork // the rank's next backward or forward pass waits for it
	case !over:
		return false, nil
	default:
		if err := s.endWork.Err(); err != nil {
			return true, err
		}
	}
	s.done, r.reduced = true, true
	r.stats.Passes++
	if !crossed {
		r.learnOrder(s.endWork)
	}
	switch {
	case r.options.FindUnused && r.options.SkipUnused:
		r.fillAbsent(make([]int, len(r.params)))
	case asks:
		r.fillAbsent(r.usedAnywhere(s.endWork.Payloads()))
	default:
		r.fillAbsent(nil)
	}
	return true, nil
}

// free releases tensors that are not needed after all buckets are launched.
func (s *pass) free() {
	for _, t := range s.lossWeight {
		t.Release()
	}
	s.lossWeight = nil
}

// needsUsage reports whether this rank has to know which gradients the others have.
func (r *Reducer) needsUsage() bool {
	if r.options.StaticGraph {
		return r.unused == nil
	}
	return r.options.FindUnused && !r.options.SkipUnused && slices.ContainsFunc(r.buckets, func(b *Bucket) bool { return b.absent != nil })
}

// endPayload returns what this rank sends at the end of a pass: which parameters have a gradient and, on rank 0 until buckets are
// rebuilt, the order in which gradients became final.
func (r *Reducer) endPayload() []byte {
	b := r.used()
	if r.group.Rank() == 0 && r.arrivalOrder == nil {
		for _, i := range r.pass.arrived {
			b = binary.LittleEndian.AppendUint32(b, uint32(i))
		}
	}
	return b
}

// learnOrder stores rank 0's order of gradients from the first pass that has succeeded on all ranks.
func (r *Reducer) learnOrder(end *collective.Work) {
	if r.arrivalOrder == nil && !r.options.FindUnused {
		r.arrivalOrder = append([]byte{}, end.Payloads()[0][len(r.params):]...)
	}
}

// used returns, for each parameter, 1 if it has a gradient on this rank.
func (r *Reducer) used() []byte {
	used := make([]byte, len(r.params))
	for _, i := range r.pass.arrived {
		used[i] = 1
	}
	for i, p := range r.params {
		// A gradient that came without synchronisation before has been averaged with this pass.
		if (p.delayed || !r.options.StaticGraph) && p.Tensor.Grad() != nil {
			used[i] = 1
		}
	}
	return used
}

// usedAnywhere returns the number of ranks on which each parameter has a gradient. With [Options.StaticGraph], it also stores the
// parameters without one.
func (r *Reducer) usedAnywhere(ranks [][]byte) []int {
	counts := make([]int, len(r.params))
	for _, used := range ranks {
		for i := range min(len(used), len(counts)) {
			counts[i] += int(used[i])
		}
	}
	if r.options.StaticGraph {
		r.unused = map[int]bool{}
		for i, n := range counts {
			if n == 0 {
				r.unused[i] = true
			}
		}
	}
	return counts
}

// fillAbsent sets missing gradients to the average of the other ranks. used holds the number of ranks with a gradient; nil means
// that all parameters have one.
func (r *Reducer) fillAbsent(used []int) {
	for _, b := range r.buckets {
		for slot, g := range b.absent {
			if g == nil {
				continue
			}
			i := b.params[slot]
			t := r.params[i].Tensor
			if !r.pass.joined && (used == nil || used[i] > 0) && !r.unused[i] && t.Grad() == nil {
				t.SetGrad(g)
				continue
			}
			g.Release()
		}
		b.absent = nil
	}
}

// dropAbsent releases the placeholders of missing gradients.
func (b *Bucket) dropAbsent() {
	for _, g := range b.absent {
		g.Release()
	}
	b.absent = nil
}

// checkFinished returns an error with the parameters that got no gradient in the last pass.
func (r *Reducer) checkFinished() error {
	s := r.pass
	if s == nil || s.done || len(s.arrived) == 0 {
		return nil
	}
	var names []string
	for i, p := range r.params {
		if p.active && !p.delayed && !s.ready[i] {
			names = append(names, p.Name)
		}
	}
	if slices.ContainsFunc(r.buckets, func(b *Bucket) bool { return b.delayed && b.pending > 0 }) {
		names = append(names, "the parameter that the delayed ones wait for")
	}
	r.pass = nil
	if len(names) == 0 {
		return core.Errorf(core.StateError, "ddp", "the reduction of the last step has not finished: an error has ended its backward pass on rank %d", r.group.Rank())
	}
	const most = 20
	more := ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return core.Errorf(core.StateError, "ddp", "the reduction of the last step has not finished: on rank %d backward gave no gradient to %s%s. Use all parameters and outputs in the loss, or allow unused ones (find_unused_parameters)",
		r.group.Rank(), strings.Join(names, ", "), more)
}

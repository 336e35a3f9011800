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

// A pass is the reduction of one step's gradients: from the first gradient after a forward pass to the last.
type pass struct {
	run       *autograd.Run // the backward pass that has called last
	ready     []bool        // parameters whose gradients are final, or will not come
	came      []int         // parameters whose gradients came, in order
	remaining int           // parameters that are not ready
	next      int           // bucket to be reduced
	share     map[core.Device]*core.Tensor
	end       *collective.Work // of all ranks, and which gradients each has
	done      bool
	shadow    bool // this rank has no batch: it only takes part
}

// arrived is told that the gradient of parameter i is final.
func (r *Reducer) arrived(i int) error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	if r.failure != nil {
		return r.failure
	}
	p := r.params[i]
	if r.mode.stale() {
		return nil
	}
	if !r.expect || !p.active || p.delayed {
		if p.bucket != nil && r.options.BucketView {
			if err := p.bucket.adopt(p.slot); err != nil {
				return err
			}
		}
		if p.Tensor == r.options.Until {
			return r.released()
		}
		return nil
	}
	if err := r.enter(); err != nil {
		return err
	}
	s := r.pass
	if s.ready[i] {
		return core.Errorf(core.StateError, "ddp", "parameter %s on rank %d got its final gradient twice in one step: it is used in two backward passes of which neither has all parameters, or the graph is not the static one that was promised",
			p.Name, r.group.Rank())
	}
	s.came = append(s.came, i)
	if err := r.markReady(i); err != nil {
		return err
	}
	if p.Tensor == r.options.Until {
		return r.released()
	}
	return nil
}

// enter begins a pass, unless one is under way, and takes note of the backward pass that calls.
func (r *Reducer) enter() error {
	if r.pass == nil || r.pass.done {
		if err := r.begin(false); err != nil {
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

// begin starts a pass.
func (r *Reducer) begin(shadow bool) error {
	s := &pass{ready: make([]bool, len(r.params)), shadow: shadow}
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
	if r.samples > 0 || shadow {
		r.weight, r.samples = r.samples, 0
	}
	return r.weigh()
}

// weigh computes, on each device, this rank's share of the samples times what sums are divided by.
func (r *Reducer) weigh() error {
	r.pass.share = map[core.Device]*core.Tensor{}
	for _, b := range r.buckets {
		if r.pass.share[b.device] != nil {
			continue
		}
		err := r.aside(b.device, 0, func() error {
			d := core.Float32
			if b.dtype == core.Float64 {
				d = core.Float64
			}
			o := op.TensorOptions{DType: &d, Device: b.device}
			total := op.Full([]int{}, core.Num(r.weight), o)
			if err := r.keep(r.to("the samples of a step").AllReduce(total, collective.Sum)); err != nil {
				return err
			}
			mine := op.Full([]int{}, core.Num(r.weight*float64(r.divisor())), o)
			share := op.Div(mine, total).Keep()
			r.pass.share[b.device] = share
			return share.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// markReady counts parameter i as ready and reduces the buckets whose turn it is.
func (r *Reducer) markReady(i int) error {
	s, b := r.pass, r.params[i].bucket
	s.ready[i] = true
	s.remaining--
	b.pending--
	if r.delays() {
		return nil
	}
	return r.launchReady()
}

// delays reports whether buckets wait for the end of backward.
func (r *Reducer) delays() bool {
	return r.options.DelayAllReduce || r.options.StaticGraph && r.unused == nil
}

func (r *Reducer) launchReady() error {
	s := r.pass
	for s.next < len(r.buckets) && r.buckets[s.next].pending == 0 {
		b := r.buckets[s.next]
		s.next++
		if err := r.launch(b); err != nil {
			return err
		}
	}
	return nil
}

// skipUnused counts the parameters that the backward pass will not reach as ready, where that is allowed.
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

// backwardEnded is told that a backward pass has run its last node.
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
		return nil // the next forward pass says which, if no other backward pass brings them
	}
	if err := r.launchReady(); err != nil {
		return err
	}
	if err := autograd.QueueWait(r.finish); err != nil {
		return err
	}
	return autograd.QueueWait(r.closeOthers)
}

// markRest counts all parameters as ready.
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

// finish runs when all buckets of a pass have gone. It waits for the other ranks to have come so far, since none may take a step if one
// has failed. It does not wait for the averages.
func (r *Reducer) finish(limit time.Duration) (over bool, err error) {
	s := r.pass
	if s == nil || s.done {
		return true, nil
	}
	if s.end == nil {
		s.free()
		s.end = r.to("the end of a step").StartExchange("backward", r.report())
	}
	asks := r.asksUsed()
	// The first pass decides the order of the buckets. It also is the one that finds ranks that go backward in other modules.
	over, crossed := await(s.end, limit, asks || !r.reduced)
	switch {
	case crossed:
		r.open = s.end // the rank's next backward pass, or the next forward one, waits
	case !over:
		return false, nil
	default:
		if err := s.end.Err(); err != nil {
			return true, err
		}
	}
	s.done, r.reduced = true, true
	r.stats.Passes++
	if !crossed {
		r.learnOrder(s.end)
	}
	switch {
	case r.options.FindUnused && r.options.SkipUnused:
		r.fillAbsent(make([]int, len(r.params)))
	case asks:
		r.fillAbsent(r.usedAnywhere(s.end.Payloads()))
	default:
		r.fillAbsent(nil)
	}
	return true, nil
}

// free gives back what is only needed until the buckets have gone.
func (s *pass) free() {
	for _, t := range s.share {
		t.Release()
	}
	s.share = nil
}

// asksUsed reports whether this rank has to know, at the end of a pass, which gradients the others have.
func (r *Reducer) asksUsed() bool {
	if r.options.StaticGraph {
		return r.unused == nil
	}
	return r.options.FindUnused && !r.options.SkipUnused && slices.ContainsFunc(r.buckets, func(b *Bucket) bool { return b.absent != nil })
}

// report returns what this rank tells the others at the end of a pass: which parameters have a gradient, and, on rank 0 as long as
// buckets are not made by it, the order in which the gradients came.
func (r *Reducer) report() []byte {
	b := r.used()
	if r.group.Rank() == 0 && r.arrivals == nil {
		for _, i := range r.pass.came {
			b = binary.LittleEndian.AppendUint32(b, uint32(i))
		}
	}
	return b
}

// learnOrder takes note of the order in which gradients came on rank 0 in the first pass that all ranks have ended.
func (r *Reducer) learnOrder(end *collective.Work) {
	if r.arrivals == nil && !r.options.FindUnused {
		r.arrivals = append([]byte{}, end.Payloads()[0][len(r.params):]...)
	}
}

// used returns, for each parameter, 1 if it has a gradient on this rank.
func (r *Reducer) used() []byte {
	used := make([]byte, len(r.params))
	for _, i := range r.pass.came {
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

// usedAnywhere returns on how many ranks each parameter has a gradient. With [Options.StaticGraph], those without any are so for good.
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

// fillAbsent gives the parameters without a gradient here the average of those of other ranks. used says which parameters
// have any; nil means all.
func (r *Reducer) fillAbsent(used []int) {
	for _, b := range r.buckets {
		for slot, g := range b.absent {
			if g == nil {
				continue
			}
			i := b.params[slot]
			t := r.params[i].Tensor
			if !r.pass.shadow && (used == nil || used[i] > 0) && !r.unused[i] && t.Grad() == nil {
				t.SetGrad(g)
				continue
			}
			g.Release()
		}
		b.absent = nil
	}
}

// dropAbsent lets go of what stands in the place of gradients that are missing.
func (b *Bucket) dropAbsent() {
	for _, g := range b.absent {
		g.Release()
	}
	b.absent = nil
}

// unfinished returns an error that names the parameters whose gradients did not come in the last pass.
func (r *Reducer) unfinished() error {
	s := r.pass
	if s == nil || s.done || len(s.came) == 0 {
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

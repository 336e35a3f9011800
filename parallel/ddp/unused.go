package ddp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
)

// Parameters may get no gradient in a step, with [Options.FindUnused] or [Options.StaticGraph]. A rank reduces zeros in place of a missing
// gradient. At the end of the pass, the ranks exchange which parameters they used. A parameter that another rank used gets the average; one
// that no rank used keeps its gradient.

// markUnused marks parameters that the backward pass does not reach as ready, if the options allow unused parameters.
func (r *Reducer) markUnused(run *autograd.Run) error {
	for i, p := range r.params {
		if !p.active || p.delayed || r.pass.ready[i] {
			continue
		}
		if r.options.FindUnused && !run.Reaches(p.Tensor) || r.options.StaticGraph && r.staticUnused[i] {
			if err := r.markReady(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// markAllReady marks all parameters as ready.
func (r *Reducer) markAllReady() error {
	for i, p := range r.params {
		if p.active && !p.delayed && !r.pass.ready[i] {
			if err := r.markReady(i); err != nil {
				return err
			}
		}
	}
	return r.markDelayed()
}

// needsUsedCounts reports whether this rank must know which gradients the other ranks have.
func (r *Reducer) needsUsedCounts() bool {
	if r.options.StaticGraph {
		return r.staticUnused == nil
	}
	return r.options.FindUnused && !r.options.SkipUnused && slices.ContainsFunc(r.buckets, func(b *Bucket) bool { return b.placeholders != nil })
}

// localUsedMap returns, for each parameter, 1 if it has a gradient on this rank.
func (r *Reducer) localUsedMap() []byte {
	used := make([]byte, len(r.params))
	for _, i := range r.pass.arrived {
		used[i] = 1
	}
	for i, p := range r.params {
		// A gradient accumulated without synchronisation before was averaged in this pass, too.
		if (p.delayed || !r.options.StaticGraph) && p.Tensor.Grad() != nil {
			used[i] = 1
		}
	}
	return used
}

// globalUsedCounts returns the number of ranks on which each parameter has a gradient, from the ranks' used maps. With
// [Options.StaticGraph], it also stores the parameters without one.
func (r *Reducer) globalUsedCounts(ranks [][]byte) []int {
	counts := make([]int, len(r.params))
	for _, used := range ranks {
		for i := range min(len(used), len(counts)) {
			counts[i] += int(used[i])
		}
	}
	if r.options.StaticGraph {
		r.staticUnused = map[int]bool{}
		for i, n := range counts {
			if n == 0 {
				r.staticUnused[i] = true
			}
		}
	}
	return counts
}

// addPlaceholder stores the zeros that stand for a missing gradient.
func (b *Bucket) addPlaceholder(slot int, g *core.Tensor) {
	if b.placeholders == nil {
		b.placeholders = make([]*core.Tensor, len(b.params))
	}
	b.reducer.stats.Unused++
	b.placeholders[slot] = g
}

// setMissingGradients sets this rank's missing gradients to the average of the other ranks' gradients. usedCounts holds the number of ranks
// with a gradient for each parameter; nil means that all parameters have one.
func (r *Reducer) setMissingGradients(usedCounts []int) {
	for _, b := range r.buckets {
		for slot, g := range b.placeholders {
			if g == nil {
				continue
			}
			i := b.params[slot]
			t := r.params[i].Tensor
			if !r.pass.shadow && (usedCounts == nil || usedCounts[i] > 0) && !r.staticUnused[i] && t.Grad() == nil {
				t.SetGrad(g)
				continue
			}
			g.Release()
		}
		b.placeholders = nil
	}
}

// releasePlaceholders releases the placeholders of missing gradients.
func (b *Bucket) releasePlaceholders() {
	for _, g := range b.placeholders {
		g.Release()
	}
	b.placeholders = nil
}

// checkPriorReduction returns an error if the last step's reduction did not finish. It names the parameters that got no gradient.
func (r *Reducer) checkPriorReduction() error {
	current := r.pass
	if current == nil || current.done || len(current.arrived) == 0 {
		return nil
	}
	var names []string
	for i, p := range r.params {
		if p.active && !p.delayed && !current.ready[i] {
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

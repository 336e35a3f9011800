package pipeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// sharedTag is the message tag of shared parameters. It differs from all tags of transfers between stages.
const sharedTag = firstTag - 1

// A sharedParam is a parameter that stages on several ranks use. Each of these ranks has a copy. The owner, which is the rank of
// the first such stage, sends its values to the others before the first step. At the end of a training step, every copy gets the
// sum of the gradients of all uses. The sums are bitwise equal, so equal optimisers keep the copies equal.
type sharedParam struct {
	tensor    *core.Tensor
	stages    []int
	ranks     []int        // the owner is the first
	synced    bool         // a step has succeeded, so the copies have the owner's values
	gradSaved bool         // savedGrad holds the accumulated gradient of earlier steps
	savedGrad *core.Tensor // nil if there was no gradient
}

// Share declares that the given stages use one parameter, and that t is the calling rank's copy of it. Every rank with one of
// these stages calls it. Ranks declare parameters of the same stages in the same order.
func (x *Executor) Share(t *core.Tensor, stages []int) error {
	const name = "pipeline"
	if err := x.acquire(notAStep); err != nil {
		return err
	}
	defer x.current.Store(nil)
	if x.group == nil {
		return core.Errorf(core.StateError, name, "one thread drives all stages: tie their tensors instead of sharing them")
	}
	if err := t.Present(name); err != nil {
		return err
	}
	y := &sharedParam{tensor: t, stages: slices.Compact(slices.Sorted(slices.Values(stages)))}
	for _, s := range y.stages {
		if s < 0 || s >= x.Stages() {
			return core.Errorf(core.ValueError, name, "got a tensor shared by the stages %v, there are %d", stages, x.Stages())
		}
		if r := x.place[s]; !slices.Contains(y.ranks, r) {
			y.ranks = append(y.ranks, r)
		}
	}
	if !slices.Contains(y.ranks, x.group.Rank()) {
		return core.Errorf(core.ValueError, name, "got a tensor shared by the stages %v, none of which is on rank %d", stages, x.group.Rank())
	}
	if len(y.ranks) == 1 || slices.ContainsFunc(x.shared, func(o *sharedParam) bool { return o.tensor == t }) {
		return nil
	}
	x.shared = append(x.shared, y)
	// Messages of all shared parameters have one tag, so every rank must process the parameters in the same order.
	slices.SortStableFunc(x.shared, func(a, b *sharedParam) int { return slices.Compare(a.stages, b.stages) })
	return nil
}

// part returns what the calling rank has of a tensor, which is distributed if each stage is on several ranks: all of an ordinary one. The
// ranks that share a parameter have the same part of it.
func part(t *core.Tensor) *core.Tensor {
	if p := t.Parts(); p != nil {
		return p.Local()
	}
	return t
}

// nonOwners returns all ranks except the owner.
func (y *sharedParam) nonOwners() []int { return y.ranks[1:] }

// channel returns the group with a purpose that names this parameter in errors.
func (y *sharedParam) channel(r *p2p) *collective.Group {
	return r.group.For(fmt.Sprintf("the parameter that stages %v share", y.stages))
}

// begin makes the copies equal before the first step. In training it also saves the accumulated gradient, which is already summed
// over the ranks and must not be summed again.
func (y *sharedParam) begin(r *p2p, train bool) (err error) {
	if !y.synced {
		core.NoGrad(func() {
			value := y.tensor.Detach()
			if r.group.Rank() == y.ranks[0] {
				for _, to := range y.nonOwners() {
					err = cmp.Or(err, r.track(y.channel(r).Send(part(value), to, sharedTag)))
				}
			} else {
				err = r.track(y.channel(r).Recv(part(value), y.ranks[0], sharedTag))
			}
			value.Release()
		})
	}
	if train && y.tensor.RequiresGrad() {
		y.gradSaved = true
		if g := y.tensor.Grad(); g != nil {
			y.savedGrad = g.Alias(false).Keep()
			y.tensor.SetGrad(nil)
		}
	}
	return err
}

// reduceGrad sums this step's gradients in the order of the stages and adds the sum to the saved gradient.
func (y *sharedParam) reduceGrad(r *p2p) (err error) {
	if !y.gradSaved {
		return nil
	}
	core.NoGrad(func() {
		core.WithCategory(core.Gradient, func() {
			var total *core.Tensor
			if total, err = y.sum(r); err != nil {
				total.Release()
				return
			}
			if y.savedGrad != nil {
				err = op.AddInPlace(y.savedGrad, total).Err()
				total.Release()
				if err != nil {
					return
				}
				total = y.savedGrad
			}
			y.savedGrad, y.gradSaved = nil, false
			y.tensor.SetGrad(total)
		})
	})
	return err
}

// sum returns the sum of the ranks' gradients. The caller must release the result, also with an error.
func (y *sharedParam) sum(r *p2p) (*core.Tensor, error) {
	var total *core.Tensor
	if g := y.tensor.Grad(); g != nil {
		total = op.Contiguous(g).Keep()
	} else {
		total = op.ZerosLike(y.tensor, op.TensorOptions{}).Keep()
	}
	if err := total.Err(); err != nil {
		return total, err
	}
	if owner := y.ranks[0]; r.group.Rank() != owner {
		err := r.track(y.channel(r).Send(part(total), owner, sharedTag))
		total.Release()
		if err != nil {
			return nil, err
		}
		received := op.EmptyLike(y.tensor, op.TensorOptions{}).Keep()
		if err := received.Err(); err != nil {
			return received, err
		}
		return received, r.track(y.channel(r).Recv(part(received), owner, sharedTag))
	}
	for _, from := range y.nonOwners() {
		grad := op.EmptyLike(total, op.TensorOptions{}).Keep()
		err := grad.Err()
		if err == nil {
			err = r.track(y.channel(r).Recv(part(grad), from, sharedTag))
		}
		if err == nil {
			sum := op.Add(total, grad).Keep()
			total.Release()
			total, err = sum, sum.Err()
		}
		if grad.Release(); err != nil {
			return total, err
		}
	}
	for _, to := range y.nonOwners() {
		if err := r.track(y.channel(r).Send(part(total), to, sharedTag)); err != nil {
			return total, err
		}
	}
	return total, nil
}

// restoreGrad restores the saved gradient after a failed step.
func (y *sharedParam) restoreGrad() {
	if y.gradSaved {
		y.tensor.SetGrad(y.savedGrad)
		y.savedGrad, y.gradSaved = nil, false
	}
}

package pipeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// shareTag tells what goes between ranks for the sake of a share from what goes from stage to stage.
const shareTag = firstTag - 1

// A share is a tensor of which several ranks have a copy, since each has a stage that uses it. The owner, which has the first of
// these stages, gives the others its values before the first step. At the end of a training step every copy's gradient is that of
// all uses together, in the same bits, so that the same optimisers keep the copies equal.
type share struct {
	tensor *core.Tensor
	stages []int
	ranks  []int        // the owner's first
	equal  bool         // the copies have the owner's values, since a step has ended
	taken  bool         // the gradient of earlier steps is in before
	before *core.Tensor // perhaps nil
}

// Share says that the stages use one tensor, of which t is the calling rank's copy. Every rank with one of them says so, in the
// same order for tensors of the same stages.
func (x *Executor) Share(t *core.Tensor, stages []int) error {
	const name = "pipeline"
	if err := x.take(busy); err != nil {
		return err
	}
	defer x.open.Store(nil)
	if x.group == nil {
		return core.Errorf(core.StateError, name, "one thread drives all stages: tie their tensors instead of sharing them")
	}
	if err := t.Usable(name); err != nil {
		return err
	}
	y := &share{tensor: t, stages: slices.Compact(slices.Sorted(slices.Values(stages)))}
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
	if len(y.ranks) == 1 || slices.ContainsFunc(x.shares, func(o *share) bool { return o.tensor == t }) {
		return nil
	}
	x.shares = append(x.shares, y)
	// What two ranks exchange for several shares is told apart by its order.
	slices.SortStableFunc(x.shares, func(a, b *share) int { return slices.Compare(a.stages, b.stages) })
	return nil
}

// others returns the ranks but the owner.
func (y *share) others() []int { return y.ranks[1:] }

// in returns the group, for what the ranks exchange for this share.
func (y *share) in(r *remote) *collective.Group {
	return r.group.For(fmt.Sprintf("the parameter that stages %v share", y.stages))
}

// begin makes the copies equal before the first step, and puts the gradient of earlier steps aside, which is the sum already.
func (y *share) begin(r *remote, train bool) (err error) {
	if !y.equal {
		core.NoGrad(func() {
			value := y.tensor.Detach()
			if r.group.Rank() == y.ranks[0] {
				for _, to := range y.others() {
					err = cmp.Or(err, r.keep(y.in(r).Send(value, to, shareTag)))
				}
			} else {
				err = r.keep(y.in(r).Recv(value, y.ranks[0], shareTag))
			}
			value.Release()
		})
	}
	if train && y.tensor.RequiresGrad() {
		y.taken = true
		if g := y.tensor.Grad(); g != nil {
			y.before = g.Alias(false).Keep()
			y.tensor.SetGrad(nil)
		}
	}
	return err
}

// collect adds up the gradients of this step in the order of the stages and adds the sum to that of earlier steps.
func (y *share) collect(r *remote) (err error) {
	if !y.taken {
		return nil
	}
	core.NoGrad(func() {
		core.WithCategory(core.Gradient, func() {
			var total *core.Tensor
			if total, err = y.sum(r); err != nil {
				total.Release()
				return
			}
			if y.before != nil {
				err = op.AddInPlace(y.before, total).Err()
				total.Release()
				if err != nil {
					return
				}
				total = y.before
			}
			y.before, y.taken = nil, false
			y.tensor.SetGrad(total)
		})
	})
	return err
}

// sum returns the sum of the ranks' gradients, which is the caller's also if there is an error.
func (y *share) sum(r *remote) (*core.Tensor, error) {
	var mine *core.Tensor
	if g := y.tensor.Grad(); g != nil {
		mine = op.Contiguous(g).Keep()
	} else {
		mine = op.ZerosLike(y.tensor, op.TensorOptions{}).Keep()
	}
	if err := mine.Err(); err != nil {
		return mine, err
	}
	if owner := y.ranks[0]; r.group.Rank() != owner {
		err := r.keep(y.in(r).Send(mine, owner, shareTag))
		mine.Release()
		if err != nil {
			return nil, err
		}
		total := op.EmptyLike(y.tensor, op.TensorOptions{}).Keep()
		if err := total.Err(); err != nil {
			return total, err
		}
		return total, r.keep(y.in(r).Recv(total, owner, shareTag))
	}
	for _, from := range y.others() {
		theirs := op.EmptyLike(mine, op.TensorOptions{}).Keep()
		err := theirs.Err()
		if err == nil {
			err = r.keep(y.in(r).Recv(theirs, from, shareTag))
		}
		if err == nil {
			sum := op.Add(mine, theirs).Keep()
			mine.Release()
			mine, err = sum, sum.Err()
		}
		if theirs.Release(); err != nil {
			return mine, err
		}
	}
	for _, to := range y.others() {
		if err := r.keep(y.in(r).Send(mine, to, shareTag)); err != nil {
			return mine, err
		}
	}
	return mine, nil
}

// forget puts the gradient of earlier steps back, of a step that failed.
func (y *share) forget() {
	if y.taken {
		y.tensor.SetGrad(y.before)
		y.before, y.taken = nil, false
	}
}

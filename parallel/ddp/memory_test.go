package ddp_test

import (
	"errors"
	"testing"

	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
)

// newReplica returns a model with several buckets, and its optimiser.
func newReplica(r *collective.Rank) (*ddp.DistributedDataParallel, *optim.Optimizer, error) {
	p, err := ddp.New(mlp(), r.World, small)
	if err != nil {
		return nil, nil, err
	}
	o, err := optimisers["adam"](nn.Parameters(p))
	return p, o, err
}

// If any allocation of a rank fails, also in the constructor, that rank returns an error and the other ranks do not hang.
func TestOutOfMemoryOnARank(t *testing.T) {
	ranktest.OutOfMemory(t, 2, 1, func(r *collective.Rank) error {
		p, o, err := newReplica(r)
		if err != nil {
			return err
		}
		before, err := values(p)
		if err != nil {
			return err
		}
		x, y := batch(0, r.Rank*2, r.Rank*2+2)
		if _, err = step(p, o, x, y); err != nil && r.Rank == 1 {
			after, failed := values(p)
			return errors.Join(err, failed, equal("parameters", after, before))
		}
		return err
	})
}

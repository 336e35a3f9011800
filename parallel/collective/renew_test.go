package collective

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestRenew checks that a renewed group has the same ranks, also in a subgroup, and that its parent forgets it once it is closed.
func TestRenew(t *testing.T) {
	require.NoError(t, spawn(3, nil, longTimeout, func(r *Rank) error {
		for i := range 4 {
			for _, parent := range []*Group{r.World, r.World.Renew(Options{})} {
				g := parent.Renew(Options{})
				if g.Rank() != r.Rank || g.Size() != 3 || g.Name() != "world" {
					return fmt.Errorf("got rank %d of %d of %q", g.Rank(), g.Size(), g.Name())
				}
				x := op.Full([]int{5}, core.Num(float64(r.Rank+i)), op.TensorOptions{})
				if err := g.AllReduce(x, Sum).Wait(); err != nil {
					return err
				}
				if v, err := core.Values[float32](x); err != nil || v[4] != float32(3+3*i) {
					return fmt.Errorf("got %v, %v", v, err)
				}
				if err := g.Close(); err != nil {
					return err
				}
				if err := g.Barrier(); err == nil {
					return errors.New("a barrier of a closed group passed")
				}
			}
		}
		if own := r.World.local.children; len(own) != 4 {
			return fmt.Errorf("the world keeps %d groups, want the 4 that are open", len(own))
		}
		return r.World.Barrier()
	}))
}

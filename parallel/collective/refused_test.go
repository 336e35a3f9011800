package collective

import (
	"fmt"
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// A call launched before the program knows that a collective was refused fails, also if it runs after; calls launched later find the
// tensors as they were.
func TestRefusedCollectivesGiveTensorsBackInOrder(t *testing.T) {
	require.NoError(t, Spawn(2, nil, patient, func(r *Rank) error {
		x := core.FromSlice(make([]float64, 3+r.Rank))
		work := r.World.AllReduce(x, Sum)
		s, held := core.CurrentContext().Stream(x.Device()), make(chan struct{})
		c := s.Begin(-1, "hold")
		c.Work, c.Fn = math.MaxInt, func() error { <-held; return nil }
		s.Launch(c)
		before := op.Add(x, x)
		err := work.Wait()
		after := op.Add(x, x)
		close(held)
		if err == nil || before.Wait() == nil {
			return fmt.Errorf("want two errors, got %v and %v", err, before.Wait())
		}
		_, err = core.Values[float64](after)
		return err
	}))
}

package collective

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// TestCallsBeforeAndAfterARefusedCollective checks that a call launched before the error of a collective is known fails, even if
// it runs later, and that calls launched afterwards see the unchanged tensors.
func TestCallsBeforeAndAfterARefusedCollective(t *testing.T) {
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
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

// TestRecoverAfterASkippedCall makes a collective fail, so that a later call on its output is skipped. Calls after Recover must
// see the old contents.
func TestRecoverAfterASkippedCall(t *testing.T) {
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
		x := core.FromSlice([]float64{1, 2, 3})
		channel := r.World.Channel()
		if r.Rank == 1 {
			work := channel.Broadcast(x, 0)
			op.AddInPlace(x, x)
			channel.Revoke(errors.New("the rank gives up"))
			work.WaitForRanks()
		}
		if err := r.World.Barrier(); err != nil { // rank 0 must not return earlier
			return err
		}
		if _, err := core.Values[float64](op.Add(x, x)); r.Rank == 1 && !IsRevoked(err) {
			return fmt.Errorf("want the revocation, got %v", err)
		}
		x.Recover()
		got, err := core.Values[float64](x)
		if err == nil && !slices.Equal(got, []float64{1, 2, 3}) {
			return fmt.Errorf("got %v", got)
		}
		return err
	}))
}

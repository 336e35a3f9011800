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

// A tensor that a refused collective was to write to, and then a call that was left out, has its old contents for calls after Recover.
func TestRecoverKeepsContentsOfWhichAChangeWasLeftOut(t *testing.T) {
	require.NoError(t, Spawn(2, nil, patient, func(r *Rank) error {
		x := core.FromSlice([]float64{1, 2, 3})
		channel := r.World.Channel()
		if r.Rank == 1 {
			work := channel.Broadcast(x, 0)
			op.AddInPlace(x, x)
			channel.Revoke(errors.New("the rank gives up"))
			work.Met()
		}
		if err := r.World.Barrier(); err != nil { // rank 0 stays until then
			return err
		}
		x.Recover(func(err error) bool { return !IsRevoked(err) })
		if _, err := core.Values[float64](op.Add(x, x)); r.Rank == 1 && !IsRevoked(err) {
			return fmt.Errorf("want the revocation, got %v", err)
		}
		x.Recover(IsRevoked)
		got, err := core.Values[float64](x)
		if err == nil && !slices.Equal(got, []float64{1, 2, 3}) {
			return fmt.Errorf("got %v", got)
		}
		return err
	}))
}

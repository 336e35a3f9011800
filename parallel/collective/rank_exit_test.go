package collective_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// TestRankReturnsAfterItsLastCall checks that a collective completes even if a rank returns after its call, before others arrive.
func TestRankReturnsAfterItsLastCall(t *testing.T) {
	for range 20 {
		left := make(chan struct{})
		err := collective.Spawn(3, nil, collective.Options{Timeout: time.Minute}, func(r *collective.Rank) error {
			x := op.Full([]int{5}, core.Num(float64(r.Rank)), op.TensorOptions{})
			if r.Rank == 2 {
				defer close(left)
				r.World.AllReduce(x, collective.Sum)
				return nil
			}
			<-left
			if r.Rank == 1 {
				time.Sleep(time.Millisecond)
			}
			if err := r.World.AllReduce(x, collective.Sum).Wait(); err != nil {
				return err
			}
			v, err := core.Values[float64](x)
			if err != nil || v[4] != 3 {
				return fmt.Errorf("got %v, %v", v, err)
			}
			if err := r.World.Barrier(); err == nil {
				return errors.New("a barrier passed without rank 2")
			}
			return nil
		})
		require.NoError(t, err)
	}
}

// TestRankEndsWhileOthersWait checks that calls that wait for a rank fail when the rank ends.
func TestRankEndsWhileOthersWait(t *testing.T) {
	groups, err := collective.NewWorld(3, collective.Options{Timeout: 10 * time.Second, Log: func(string) {}})
	require.NoError(t, err)
	works := collective.Works{groups[0].StartExchange("", nil), groups[1].StartExchange("", nil),
		groups[0].Recv(op.Zeros(2), 2, 0), groups[1].Recv(op.Zeros(2), 0, 0)}
	groups[2].Abort(errors.New("out of luck"))
	for _, w := range works[:3] {
		require.ErrorContains(t, w.Wait(), "rank 2 is gone: out of luck")
	}
	// Operations of the two other ranks continue.
	require.NoError(t, groups[0].Send(op.Ones(2), 1, 0).Wait())
	require.NoError(t, works[3].Wait())
}

// TestReleaseBeforeOtherRanksArrive releases tensors while their collective waits for other ranks.
func TestReleaseBeforeOtherRanksArrive(t *testing.T) {
	err := collective.Spawn(2, nil, collective.Options{Timeout: time.Minute}, func(r *collective.Rank) error {
		for i := range 200 {
			out := op.Zeros(2, 3)
			in := op.Full([]int{3}, core.Num(float64(r.Rank+i)), op.TensorOptions{})
			r.World.AllGatherInto(out, in)
			in.Release()
			sum := op.Add(out, core.Num(1.0))
			out.Release()
			v, err := core.Values[float64](sum)
			if err != nil || v[0] != float64(i+1) || v[5] != float64(i+2) {
				return fmt.Errorf("round %d: got %v, %v", i, v, err)
			}
			got := op.Zeros(3)
			w := r.World.Recv(got, 1-r.Rank, 7)
			r.World.Send(sum, 1-r.Rank, 8)
			other := op.Empty(2, 3)
			r.World.Recv(other, 1-r.Rank, 8)
			r.World.Send(op.Full([]int{3}, core.Num(float64(i)), op.TensorOptions{}), 1-r.Rank, 7)
			seen := op.Add(other, core.Num(0.0))
			other.Release()
			got.Release()
			sum.Release()
			if err := w.Wait(); err != nil {
				return err
			}
			if v, err := core.Values[float64](seen); err != nil || v[5] != float64(i+2) {
				return fmt.Errorf("round %d: received %v, %v", i, v, err)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// TestMemoryReuseBetweenCollectives checks that memory that a peer still reads is not overwritten after its release, on any
// rank's stream.
func TestMemoryReuseBetweenCollectives(t *testing.T) {
	err := collective.Spawn(3, nil, collective.Options{Timeout: time.Minute}, func(r *collective.Rank) error {
		for i := range 300 {
			var err error
			core.Tidy(func() {
				in := op.Full([]int{9000}, core.Num(float64(r.Rank+i)), op.TensorOptions{})
				first := op.Empty(3, 9000)
				r.World.AllGatherInto(first, in)
				// New tensors may get the memory of the previous round, which other ranks may still read.
				second := op.Empty(9000)
				r.World.ReduceScatterInto(second, op.Reshape(first, 27000), collective.Sum)
				var v []float64
				if v, err = core.Values[float64](second); err == nil && v[8999] != float64(3*(r.Rank+i)) {
					err = fmt.Errorf("round %d: got %v", i, v[8999])
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
}

package collective

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSendRecv(t *testing.T) {
	require.NoError(t, spawn(3, nil, longTimeout, func(r *Rank) error {
		next, before := (r.Rank+1)%3, (r.Rank+2)%3
		for i := range 100 {
			x, y := filled(4, float64(100*r.Rank+i)), filled(4, 0)
			a, b := r.World.Send(x, next, i%3), r.World.Recv(y, before, i%3)
			if err := errors.Join(a.Wait(), b.Wait(), allEqual(y, float64(100*before+i))); err != nil {
				return err
			}
		}
		if r.Rank > 0 {
			return r.World.Send(filled(1, float64(r.Rank)), 0, 7).Wait()
		}
		sum := 0
		for range 2 {
			y := filled(1, 0)
			w := r.World.Recv(y, -1, 7)
			if err := errors.Join(w.Wait(), allEqual(y, float64(w.Source()))); err != nil {
				return err
			}
			sum += w.Source()
		}
		if sum != 3 {
			return fmt.Errorf("the senders' numbers sum to %d, want 3", sum)
		}
		return nil
	}))
}

func TestSendRecvErrors(t *testing.T) {
	err := spawn(2, nil, longTimeout, func(r *Rank) error {
		if r.Rank == 0 {
			return r.World.Send(filled(2, 0), 1, 0).Wait()
		}
		return r.World.Recv(filled(3, 0), 0, 0).Wait()
	})
	require.ErrorContains(t, err, "rank 0 sends float64[2], rank 1 wants float64[3]")
	err = spawn(2, nil, Options{Timeout: 20 * time.Millisecond}, func(r *Rank) error {
		if r.Rank == 0 {
			return r.World.Recv(filled(3, 0), 1, 5).Wait()
		}
		return r.World.WithTimeout(time.Minute).Recv(filled(1, 0), 0, 6).Wait()
	})
	require.ErrorContains(t, err, "rank 1 has not called the matching send within 20ms (rank 0 waits, tag 5)")
	require.ErrorContains(t, err, "rank 0 is gone")
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
		for _, peer := range []int{-1, r.Rank, 2} {
			if r.World.Send(filled(1, 0), peer, 0).Wait() == nil {
				return fmt.Errorf("rank %d sent to %d", r.Rank, peer)
			}
		}
		return nil
	}))
}

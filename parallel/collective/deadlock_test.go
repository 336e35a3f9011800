package collective

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ranks that wait for each other in different calls get an error long before their deadline.
func TestRanksThatWaitForEachOther(t *testing.T) {
	for name, wait := range map[string]func(r *Rank, other *Group) error{
		"sends": func(r *Rank, _ *Group) error { return r.World.Recv(ones(2, 1), 1-r.Rank, 0).Wait() },
		"groups": func(r *Rank, other *Group) error {
			return []*Group{r.World, other}[r.Rank].Barrier()
		},
		"a send and a collective": func(r *Rank, _ *Group) error {
			if r.Rank == 0 {
				return r.World.Send(ones(2, 1), 1, 3).Wait()
			}
			return r.World.AllReduce(ones(2, 1), Sum).Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := make([]error, 2)
			require.Error(t, Spawn(2, nil, Options{Timeout: 5 * time.Minute}, func(r *Rank) error {
				other, err := r.World.New([]int{0, 1}, Options{Name: "other"})
				if err != nil {
					return err
				}
				errs[r.Rank] = wait(r, other)
				return errs[r.Rank]
			}))
			for _, err := range errs {
				require.ErrorContains(t, err, "deadlock, the ranks wait for each other: rank 0 in ")
				require.ErrorContains(t, err, "; rank 1 in ")
			}
		})
	}
}

// A rank is not deadlocked while its other threads can make the call.
func TestRanksWithOtherThreadsWait(t *testing.T) {
	require.NoError(t, Spawn(2, nil, Options{Timeout: time.Minute}, func(r *Rank) error {
		r.World.Beside(1)
		sent := make(chan error)
		go func() {
			defer r.World.Beside(-1)
			time.Sleep(3 * deadlockDelay / 2)
			sent <- r.World.Send(ones(2, 1), 1-r.Rank, 0).Wait()
		}()
		if err := r.World.Recv(ones(2, 1), 1-r.Rank, 0).Wait(); err != nil {
			return err
		}
		return <-sent
	}))
}

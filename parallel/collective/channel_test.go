package collective

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

// TestRevokedChannels revokes a channel on one rank. Its pending and later operations must fail on every rank. Tensors are
// unchanged, and the group and its other channels keep working.
func TestRevokedChannels(t *testing.T) {
	require.NoError(t, spawn(3, nil, longTimeout, func(r *Rank) error {
		other := r.World.Channel()
		for round := range 3 {
			g := r.World.For("a step").Channel()
			if err := g.AllReduce(filled(2, 1), Sum).Wait(); err != nil {
				return err
			}
			if r.Rank == 1 {
				g.Revoke(core.Errorf(core.MemoryError, "relu", "too large"))
			}
			x := filled(2, 1)
			err := g.AllReduce(x, Sum).Wait()
			if kind, _ := core.KindOf(err); kind != core.MemoryError || !strings.Contains(err.Error(), "rank 1 has failed: relu: too large") || !IsRevoked(err) {
				return fmt.Errorf("round %d: got %v", round, err)
			}
			if v, err := core.Values[float64](x); err != nil || v[0] != 1 {
				return fmt.Errorf("got %v, %v", v, err)
			}
			if g.Revoke(err); r.Rank == 2 {
				if err := g.Send(filled(2, 1), 0, 0).Wait(); err == nil {
					return fmt.Errorf("a send of a revoked channel: %v", err)
				}
			}
			if err := other.AllReduce(filled(2, 1), Sum).Wait(); err != nil {
				return err
			}
		}
		m := r.World.local.rendezvous
		if err := r.World.Barrier(); err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.rounds)+len(m.revoked) > 0 {
			return fmt.Errorf("%d rounds and %d revocations are left", len(m.rounds), len(m.revoked))
		}
		return nil
	}))
}

// TestWaitForRanksUnlessCrossed checks that the wait ends early if another rank makes its calls in another order, and only then.
func TestWaitForRanksUnlessCrossed(t *testing.T) {
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
		a, b := r.World.Channel(), r.World.Channel()
		if r.Rank == 1 {
			a, b = b, a
		}
		for _, g := range []*Group{a, b} {
			w := g.StartExchange("", []byte{1})
			if over, crossed := w.WaitForRanksUnlessCrossed(-1); g == a && over == crossed || g == b && !over && !crossed {
				return fmt.Errorf("over: %v, crossed: %v", over, crossed)
			}
		}
		w := r.World.StartExchange("", nil)
		if r.Rank == 0 {
			time.Sleep(3 * crossingPoll)
		}
		if over, _ := w.WaitForRanksUnlessCrossed(-1); !over {
			return errors.New("a wait for a rank that is late has ended")
		}
		return nil
	}))
}

package ranktest

import (
	"testing"

	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/parallel/collective"
)

// OutOfMemory runs fn on n ranks, again and again: each time another allocation of one rank fails, from the first that it makes
// to the last. fn must return that, and no rank may wait for ever.
func OutOfMemory(t testing.TB, n, victim int, fn func(r *collective.Rank) error) {
	t.Helper()
	coretest.EachAllocation(t, func() error {
		var its error
		err := Spawn(n, func(int) uint64 { return 7 }, func(r *collective.Rank) error {
			err := fn(r)
			if r.Rank == victim {
				its = err
			}
			return err
		})
		if its != nil {
			return its
		}
		return err
	}, func() {}, victim)
}

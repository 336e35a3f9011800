package ranktest

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/parallel/collective"
)

// OutOfMemory runs fn on n ranks once for each allocation that the rank victim makes, which fails in that run. At least one rank must return an
// out-of-memory error, and no rank may hang.
func OutOfMemory(t testing.TB, n, victim int, fn func(r *collective.Rank) error) {
	t.Helper()
	coretest.EachAllocation(t, func() error {
		errs := make([]error, n)
		err := Spawn(n, func(int) uint64 { return 7 }, func(r *collective.Rank) error {
			errs[r.Rank] = fn(r)
			return errs[r.Rank]
		})
		for _, e := range errs {
			if kind, _ := core.KindOf(e); e != nil && kind == core.MemoryError {
				return e
			}
		}
		return err
	}, func() {}, victim)
}

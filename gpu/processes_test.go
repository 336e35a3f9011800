package gpu_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/coretest/wiretest"
	"github.com/plait-ml/plait/parallel/collective"
)

// TestCollectivesAcrossProcesses checks that collectives of GPUs and CPUs in several processes have the bits of CPUs in one.
func TestCollectivesAcrossProcesses(t *testing.T) {
	for _, n := range []int{7, 5000} {
		fn := func(r *collective.Rank) ([][]byte, error) { return everyCollective(r, n) }
		want := onLinked(t, []string{"cpu:0", "cpu:0", "cpu:0"}, fn)
		for _, counts := range [][]int{{1, 1, 1}, {2, 1}, {1, 2}} {
			for _, devices := range [][]string{linkedNames(0, 3), {"cpu:0", "fakelink:1", "fakelink:2"}, {"fakelink:0", "cpu:1", "fakelink:0"}} {
				require.Equal(t, want, inProcesses(t, counts, devices, fn), "%v on %v", counts, devices)
			}
		}
	}
}

// inProcesses runs fn on ranks in processes that are parts of this one. counts are the ranks of each.
func inProcesses(t *testing.T, counts []int, devices []string, fn func(r *collective.Rank) ([][]byte, error)) [][][]byte {
	t.Helper()
	net := wiretest.New(len(counts), 0, 1)
	got := make([][][]byte, len(devices))
	errs := make([]error, len(counts))
	var wg sync.WaitGroup
	for p, n := range counts {
		own := devices[:n]
		devices = devices[n:]
		wg.Go(func() {
			w, err := collective.JoinWorld(net.Transport(p), n, collective.Options{Timeout: linkLimit})
			if err != nil {
				errs[p] = err
				return
			}
			errs[p] = errors.Join(w.Spawn(own, func(r *collective.Rank) (err error) {
				got[r.Rank], err = fn(r)
				return err
			}), w.Close())
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	return got
}

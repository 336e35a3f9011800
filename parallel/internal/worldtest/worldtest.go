// Package worldtest runs ranks in several processes that are only parts of one test binary.
package worldtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/plait-ml/plait/core/coretest/wiretest"
	"github.com/plait-ml/plait/parallel/collective"
)

// layout is how [Spawn] distributes ranks; nil puts all in one process.
var layout func(n int) []int

// Layouts are ways to distribute n ranks over processes, with the number of ranks of each process.
var Layouts = map[string]func(n int) []int{
	"one rank each": func(n int) []int {
		counts := make([]int, n)
		for i := range counts {
			counts[i] = 1
		}
		return counts
	},
	"pairs": func(n int) (counts []int) {
		for ; n > 0; n -= 2 {
			counts = append(counts, min(n, 2))
		}
		return counts
	},
	"all but one": func(n int) []int {
		if n == 1 {
			return []int{1}
		}
		return []int{n - 1, 1}
	},
}

// Across runs a test with the ranks of [Spawn] in several processes, for each layout.
func Across(t *testing.T, test func(t *testing.T)) {
	for name := range Layouts {
		In(t, name, test)
	}
}

// In is Across for one layout.
func In(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		layout = Layouts[name]
		defer func() { layout = nil }()
		test(t)
	})
}

// Spawn is [collective.Spawn] with the ranks in the processes of the layout under test.
func Spawn(n int, devices []string, o collective.Options, fn func(r *collective.Rank) error) error {
	if layout == nil {
		return collective.Spawn(n, devices, o, fn)
	}
	counts := layout(n)
	return SpawnIn(wiretest.New(len(counts), 100*time.Microsecond, uint64(n)), counts, devices, o, fn)
}

// SpawnIn runs fn on ranks in the processes of a net. counts are the ranks of each.
func SpawnIn(net *wiretest.Net, counts []int, devices []string, o collective.Options, fn func(r *collective.Rank) error) error {
	errs := make([]error, len(counts))
	var wg sync.WaitGroup
	first := 0
	for p, n := range counts {
		var own []string
		for i := range n {
			if len(devices) == 0 {
				own = append(own, fmt.Sprint("cpu:", first+i))
			} else {
				own = append(own, devices[(first+i)%len(devices)])
			}
		}
		wg.Go(func() {
			w, err := collective.JoinWorld(net.Transport(p), n, o)
			if err != nil {
				errs[p] = err
				return
			}
			errs[p] = errors.Join(w.Spawn(own, fn), w.Close())
		})
		first += n
	}
	wg.Wait()
	return errors.Join(errs...)
}

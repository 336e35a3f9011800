package collective

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/plait-ml/plait/core"
)

// A Rank is what one of several ranks in this process knows of itself.
type Rank struct {
	Rank   int
	World  *Group
	Device core.Device
}

// Spawn runs fn on n ranks, each a goroutine that is locked to its thread, with a [core.Context], streams, random generators
// and a default device of its own: devices[rank % len(devices)], or cpu:rank if there are none. It returns when all of them
// have, with their errors. Goroutines that make calls for a rank besides its own are to be counted: see [Group.Beside]. When a rank fails, the operations in which others wait for it fail too, and name it.
func Spawn(n int, devices []string, o Options, fn func(r *Rank) error) error {
	groups, err := NewWorld(n, o)
	if err != nil {
		return err
	}
	open := make([]core.Device, n)
	for i := range open {
		name := fmt.Sprint("cpu:", i)
		if len(devices) > 0 {
			name = devices[i%len(devices)]
		}
		if open[i], err = core.OpenDevice(name); err != nil {
			return err
		}
	}
	// Errors of one rank that follow from another's are not worth a line each: the first one of each rank is kept.
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ctx := core.NewRankContext(i, open[i])
			defer ctx.Free()
			g.Attend(ctx)
			core.WithContext(ctx, func() { errs[i] = runRank(&Rank{i, g, open[i]}, fn) })
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return errors.Join(errs...)
}

// runRank runs fn and ends the rank's part in its groups.
func runRank(r *Rank, fn func(r *Rank) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = core.Errorf(core.StateError, "spawn", "panic: %v\n%s", p, debug.Stack())
		}
		err = errors.Join(err, r.World.leaving.finish())
		why := err
		if why == nil {
			why = core.Errorf(core.DistributedError, "", "it has returned")
		}
		r.World.Abort(why)
		err = errors.Join(err, r.World.Close())
	}()
	return fn(r)
}

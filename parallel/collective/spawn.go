package collective

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/plait-ml/plait/core"
)

// A Rank is what a rank's function gets: its number, its group and its device.
type Rank struct {
	Rank   int
	World  *Group
	Device core.Device
}

// Spawn runs fn on n ranks. Each rank is a goroutine locked to its thread, with its own [core.Context], streams, random generators and
// default device: devices[rank % len(devices)], or cpu:rank without devices. Spawn returns when all ranks have returned, with their errors.
// When a rank fails, operations in which other ranks wait for it fail too, with an error that names it. Further goroutines that make calls
// for a rank must be counted with [Group.AddThreads].
func Spawn(n int, devices []string, o Options, fn func(r *Rank) error) error {
	groups, err := NewWorld(n, o)
	if err != nil {
		return err
	}
	return runRanks(groups, devices, fn)
}

// Spawn runs fn on the ranks of this process, as [Spawn] does on those of a world of one process. devices are those of the process.
func (w *World) Spawn(devices []string, fn func(r *Rank) error) error {
	return runRanks(w.groups, devices, fn)
}

func runRanks(groups []*Group, devices []string, fn func(r *Rank) error) (err error) {
	open := make([]core.Device, len(groups))
	for i := range open {
		name := fmt.Sprint("cpu:", i)
		if len(devices) > 0 {
			name = devices[i%len(devices)]
		}
		if open[i], err = core.OpenDevice(name); err != nil {
			return err
		}
	}
	// Later errors of a rank usually follow from its first, so only that one is kept.
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ctx := core.NewRankContext(g.rank, open[i])
			defer ctx.Free()
			g.DetectDeadlocks(ctx)
			core.WithContext(ctx, func() { errs[i] = runRank(&Rank{g.rank, g, open[i]}, fn) })
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("rank %d: %w", groups[i].rank, err)
		}
	}
	return errors.Join(errs...)
}

// runRank runs fn, and then ends the rank in its groups.
func runRank(r *Rank, fn func(r *Rank) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = core.Errorf(core.StateError, "spawn", "panic: %v\n%s", p, debug.Stack())
		}
		err = errors.Join(err, r.World.exitWaits.finish())
		why := err
		if why == nil {
			why = ErrReturned
		}
		r.World.Abort(why)
		err = errors.Join(err, r.World.Close())
	}()
	return fn(r)
}

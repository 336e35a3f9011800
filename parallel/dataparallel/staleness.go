package dataparallel

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A SyncMode says when the gradients of a step are added to the module's.
type SyncMode struct {
	// Stale allows late gradients: a device that has not finished a step adds its gradients in a later step, exactly once. The zero value
	// is the synchronous mode, where a step has the gradients of all devices.
	Stale bool
	// Max is the maximum number of steps that gradients may be late. Negative means no limit (asynchronous mode). With 0 a step waits for
	// all devices.
	Max int
}

// staleness is the state of late gradients.
type staleness struct {
	mode    SyncMode
	clock   int
	queues  [][]update // by bucket
	applied [][]int    // last applied step, by bucket and device
	largest int
}

// An update holds the gradients of a bucket on one device from one step.
type update struct {
	clock, device int
	grads         []*core.Tensor
	targets       []*core.Tensor
	done          core.Event
}

func (s *staleness) begin() int {
	s.clock++
	return s.clock
}

// deferred reports whether gradients may be late.
func (s *staleness) deferred() bool { return s.mode.Stale && s.mode.Max != 0 }

func (s *staleness) drop() {
	for b, q := range s.queues {
		for _, u := range q {
			u.release()
		}
		s.queues[b] = nil
	}
}

func (u update) release() {
	for _, g := range u.grads {
		if g != nil {
			g.Release()
		}
	}
}

// due reports whether an update must be applied at a step because of Max, or can be because it is done.
func (s *staleness) due(u update, clock int) bool {
	return s.mode.Max >= 0 && clock-u.clock >= s.mode.Max || u.done.Done()
}

// SetSyncMode sets when gradients are added to the originals'. It applies outstanding gradients at once.
func (r *Replicas) SetSyncMode(m SyncMode) error {
	if err := r.guard.Enter("data_parallel"); err != nil {
		return err
	}
	defer r.guard.Leave()
	if err := r.Flush(); err != nil {
		return err
	}
	r.stale.mode = m
	return nil
}

// Flush adds outstanding gradients to those of the originals. Call it after the last step in a mode with late gradients.
func (r *Replicas) Flush() (err error) {
	if err := r.guard.Enter("data_parallel"); err != nil {
		return err
	}
	defer r.guard.Leave()
	core.NoGrad(func() {
		core.Tidy(func() {
			for b := range r.stale.queues {
				for _, u := range r.stale.queues[b] {
					for k, g := range u.grads {
						if g == nil || err != nil {
							continue
						}
						t := u.targets[k]
						moved := collective.ToDevice(g, r.devices[0])
						if old := t.Grad(); old != nil {
							err = op.AddInPlace(old, moved).Err()
						} else if err = moved.Err(); err == nil {
							t.SetGrad(moved.Keep())
						}
					}
					r.stale.recordApplied(b, u, r.stale.clock)
					u.release()
				}
				r.stale.queues[b] = nil
			}
		})
	})
	return err
}

// recordApplied records that an update was applied.
func (s *staleness) recordApplied(b int, u update, clock int) {
	s.applied[b][u.device] = max(s.applied[b][u.device], u.clock)
	s.largest = max(s.largest, clock-u.clock)
}

// Clocks returns, by device, the last step up to which all gradients were applied.
func (r *Replicas) Clocks() []int {
	out := make([]int, len(r.devices))
	for d := range out {
		out[d] = r.stale.clock
		if !r.stale.mode.Stale {
			continue
		}
		for b := range r.stale.applied {
			for _, u := range r.stale.queues[b] {
				if u.device == d {
					out[d] = min(out[d], u.clock-1)
				}
			}
		}
	}
	return out
}

// Staleness returns the largest number of steps that a gradient was late.
func (r *Replicas) Staleness() int { return r.stale.largest }

// queueLate queues the gradients of a step, and sets the sum of all queued gradients that are due, in the order of steps and devices.
func (r *Replicas) queueLate(d *core.BackwardContext, j *bucketSum, grads [][]*core.Tensor) {
	s, b, clock := &r.stale, j.bucket, j.clock
	var targets []*core.Tensor
	for _, i := range r.buckets[b] {
		if r.tensors[i].RequiresGrad() {
			targets = append(targets, r.tensors[i])
		}
	}
	ctx := core.CurrentContext()
	for dev, list := range grads {
		u := update{clock: clock, device: dev, targets: targets}
		for _, g := range list {
			if g != nil {
				g = g.Detach().Keep()
			}
			u.grads = append(u.grads, g)
		}
		if u.done = j.ready[dev]; u.done == nil {
			u.done = ctx.Stream(r.devices[dev]).Record()
		}
		s.queues[b] = append(s.queues[b], u)
	}
	sums := make([]*core.Tensor, len(grads[0]))
	var later []update
	for _, u := range s.queues[b] {
		if !s.due(u, clock) {
			later = append(later, u)
			continue
		}
		for j, g := range u.grads {
			k := slices.Index(targets, u.targets[j])
			if g == nil || k < 0 { // frozen since then
				continue
			}
			if g = collective.ToDevice(g, r.devices[0]); sums[k] != nil {
				g = op.Add(sums[k], g)
			}
			sums[k] = g
		}
		s.recordApplied(b, u, clock)
		u.release()
	}
	s.queues[b] = later
	for k, g := range sums {
		if g != nil {
			d.Set(k, g)
		}
	}
}

package dataparallel

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A SyncMode says when the gradients of a step reach the module.
type SyncMode struct {
	// Stale lets gradients of devices that are not done yet come with those of a later step, each exactly once. The zero
	// value is the synchronous mode, in which a step has the gradients of all devices.
	Stale bool
	// Max is how many steps a device's gradients may be behind; negative means any number, which is the asynchronous mode.
	// With 0, a step waits for all of them.
	Max int
}

// staleness is what is known of gradients that come late.
type staleness struct {
	mode    SyncMode
	clock   int
	queues  [][]update // by bucket
	applied [][]int    // steps of each device that have been applied, by bucket
	largest int
}

// An update is the gradients of a bucket on one device from one step.
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

// deferred reports whether gradients may come late.
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

// due reports whether an update must be applied at a step, or can be.
func (s *staleness) due(u update, clock int) bool {
	return s.mode.Max >= 0 && clock-u.clock >= s.mode.Max || u.done.Done()
}

// SetSyncMode sets when gradients reach the originals. What is outstanding is added to their gradients at once.
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

// Flush adds the gradients that have not been applied yet to those of the originals, as the last step of training in a
// mode in which gradients may be late.
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
					r.stale.count(b, u, r.stale.clock)
					u.release()
				}
				r.stale.queues[b] = nil
			}
		})
	})
	return err
}

// count notes that an update was applied.
func (s *staleness) count(b int, u update, clock int) {
	s.applied[b][u.device] = max(s.applied[b][u.device], u.clock)
	s.largest = max(s.largest, clock-u.clock)
}

// Clocks returns, by device, the steps whose gradients have all reached the originals.
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

// Staleness returns the largest number of steps that a gradient has come late.
func (r *Replicas) Staleness() int { return r.stale.largest }

// postpone keeps the gradients of a step, and sets as gradients the sum of those, in the order of steps and devices, that are
// due or done.
func (r *Replicas) postpone(d *core.BackwardContext, j *joint, grads [][]*core.Tensor) {
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
		if u.done = j.made[dev]; u.done == nil {
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
			if g == nil || k < 0 { // frozen meanwhile
				continue
			}
			if g = collective.ToDevice(g, r.devices[0]); sums[k] != nil {
				g = op.Add(sums[k], g)
			}
			sums[k] = g
		}
		s.count(b, u, clock)
		u.release()
	}
	s.queues[b] = later
	for k, g := range sums {
		if g != nil {
			d.Set(k, g)
		}
	}
}

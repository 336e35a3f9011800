package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// Backward does not wait for its collectives. A reducer keeps their handles for two passes, to report their errors.

// checkWorks returns the first error of a collective of the last two passes. It waits for collectives of the pass before the last only. It
// reports each error once.
func (r *Reducer) checkWorks() error {
	last, before := r.recentWorks[0], r.recentWorks[1]
	r.recentWorks[1], r.recentWorks[0] = last, nil
	for _, w := range before {
		if err := waitWork(w); err != nil {
			return err
		}
	}
	for _, w := range last {
		if w.Done() {
			if err := w.Err(); err != nil {
				r.recentWorks[1] = nil
				return err
			}
		}
	}
	return nil
}

// track keeps a collective to report its error later, and returns the error if it is already known.
func (r *Reducer) track(w *collective.Work) error {
	r.recentWorks[0] = append(r.recentWorks[0], w)
	if w.Done() {
		return w.Err()
	}
	return nil
}

// Wait waits until the gradients of the last pass are computed, and returns the error of the pass.
func (r *Reducer) Wait() error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	if r.pendingEnd != nil {
		r.pendingEnd.WaitForRanks()
		if err := r.pendingEnd.Err(); err != nil {
			return err
		}
	}
	for _, works := range r.recentWorks {
		for _, w := range works {
			if err := waitWork(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitWork waits for a collective and returns its error. Unlike [collective.Work.Wait], it leaves the tensors failed, so that no optimiser
// step takes this rank's gradients for the average.
func waitWork(w *collective.Work) error {
	w.WaitForRanks()
	core.WaitOn(w.Event(), -1)
	return w.Err()
}

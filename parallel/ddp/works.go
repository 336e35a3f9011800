package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// A reducer keeps the collectives of its last two passes until it has reported their errors.

// checkWorks returns the first error of a collective: a known one of the last pass, or any of the pass before. It reports each
// once.
func (r *Reducer) checkWorks() error {
	last, before := r.works[0], r.works[1]
	r.works[1], r.works[0] = last, nil
	for _, w := range before {
		if err := waitWork(w); err != nil {
			return err
		}
	}
	for _, w := range last {
		if w.Done() {
			if err := w.Err(); err != nil {
				r.works[1] = nil
				return err
			}
		}
	}
	return nil
}

// track remembers a collective whose error is to be reported, and returns its error if it is already known.
func (r *Reducer) track(w *collective.Work) error {
	r.works[0] = append(r.works[0], w)
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
	for _, works := range r.works {
		for _, w := range works {
			if err := waitWork(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitWork waits for a collective and returns its error. Unlike [collective.Work.Wait], it leaves the tensors failed: a step
// launched on them must not take this rank's gradients for the average.
func waitWork(w *collective.Work) error {
	w.WaitForRanks()
	core.WaitOn(w.Event(), -1)
	return w.Err()
}

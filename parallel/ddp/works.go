package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// The collectives of the last two passes are kept until their errors have been told: here they are checked and waited for.

// checkWorks returns the error of a collective of the last pass, as far as it is known, and of the one before it. It does so once.
func (r *Reducer) checkWorks() error {
	last, before := r.works[0], r.works[1]
	r.works[1], r.works[0] = last, nil
	for _, w := range before {
		if err := outcome(w); err != nil {
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

// keep remembers a collective whose error is to be reported.
func (r *Reducer) keep(w *collective.Work) error {
	r.works[0] = append(r.works[0], w)
	if w.Done() {
		return w.Err()
	}
	return nil
}

// Wait waits until the gradients of the last pass are known and returns the error that prevented it.
func (r *Reducer) Wait() error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	if r.open != nil {
		r.open.WaitForRanks()
		if err := r.open.Err(); err != nil {
			return err
		}
	}
	for _, works := range r.works {
		for _, w := range works {
			if err := outcome(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// outcome waits for a collective and returns its error. Unlike its own Wait it leaves the tensors failed: a step that was
// launched on them must not take this rank's gradients for the average.
func outcome(w *collective.Work) error {
	w.WaitForRanks()
	core.WaitOn(w.Event(), -1)
	return w.Err()
}

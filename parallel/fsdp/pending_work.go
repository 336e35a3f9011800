package fsdp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// A pendingWork is a collective whose error was not reported yet.
type pendingWork struct {
	*collective.Work
	verify func() error // checks what the other ranks sent; may be nil
}

// Err returns the error of the collective, or of verify.
func (w pendingWork) Err() error {
	if err := w.Work.Err(); err != nil || w.verify == nil {
		return err
	}
	return w.verify()
}

// track adds a collective whose error [Tree.checkWorks] will report, and returns the error known so far. It does not return a
// failure of another rank: backward reports that at its end, so that this rank's own error comes first.
func (t *Tree) track(w *collective.Work) error {
	t.pendingWorks[0] = append(t.pendingWorks[0], pendingWork{Work: w})
	if !w.Done() || collective.IsRevoked(w.Err()) {
		return nil
	}
	return w.Err()
}

// checkWorks returns the first error of the collectives of the last two passes. It waits for the older ones only.
func (t *Tree) checkWorks() error {
	last, before := t.pendingWorks[0], t.pendingWorks[1]
	t.pendingWorks[1], t.pendingWorks[0] = last, nil
	for _, w := range before {
		core.WaitOn(w.Event(), -1)
		if err := w.Err(); err != nil {
			return err
		}
	}
	for _, w := range last {
		if w.Done() {
			if err := w.Err(); err != nil {
				t.pendingWorks[1] = nil
				return err
			}
		}
	}
	return nil
}

// Wait waits for the collectives of the last passes and returns their first error.
func (t *Tree) Wait() error {
	if err := t.guard.Enter("fsdp"); err != nil {
		return err
	}
	defer t.guard.Leave()
	for _, works := range t.pendingWorks {
		for _, w := range works {
			core.WaitOn(w.Event(), -1) // Work.Wait would make failed tensors valid again
			if err := w.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

package fsdp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// An awaited is a collective whose error is yet to be reported.
type awaited struct {
	*collective.Work
	verify func() error // checks what the other ranks sent; may be nil
}

// Err returns the error of the collective, or of verify.
func (w awaited) Err() error {
	if err := w.Work.Err(); err != nil || w.verify == nil {
		return err
	}
	return w.verify()
}

// keep adds a collective whose error [Tree.check] will report, and returns the error known so far. It does not return a failure of another
// rank: backward reports that at its end, so that this rank's own error comes first.
func (t *Tree) keep(w *collective.Work) error {
	t.works[0] = append(t.works[0], awaited{Work: w})
	if !w.Done() || collective.IsRevoked(w.Err()) {
		return nil
	}
	return w.Err()
}

// check returns the first error of the collectives of the last two passes. It waits for the older ones only.
func (t *Tree) check() error {
	last, before := t.works[0], t.works[1]
	t.works[1], t.works[0] = last, nil
	for _, w := range before {
		core.WaitOn(w.Event(), -1)
		if err := w.Err(); err != nil {
			return err
		}
	}
	for _, w := range last {
		if w.Done() {
			if err := w.Err(); err != nil {
				t.works[1] = nil
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
	for _, works := range t.works {
		for _, w := range works {
			core.WaitOn(w.Event(), -1) // Work.Wait would make failed tensors valid again
			if err := w.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

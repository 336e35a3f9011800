package collective

import (
	"errors"
	"sync"
)

// An exitWaits lists the functions that a rank must wait for before it leaves its groups.
type exitWaits struct {
	mu    sync.Mutex
	waits map[*func() error]struct{}
}

// BeforeEnd makes the end of the rank's function wait for background work that needs the group, such as a save. Its error becomes the
// rank's. The returned function cancels this.
func (g *Group) BeforeEnd(wait func() error) (cancel func()) {
	e := g.exitWaits
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waits[&wait] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waits, &wait)
	}
}

// finish calls the functions of BeforeEnd.
func (e *exitWaits) finish() (err error) {
	e.mu.Lock()
	waits := e.waits
	e.waits = map[*func() error]struct{}{}
	e.mu.Unlock()
	for wait := range waits {
		err = errors.Join(err, (*wait)())
	}
	return err
}

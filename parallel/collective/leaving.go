package collective

import (
	"errors"
	"sync"
)

// A leaving is what a rank has to wait for before it leaves its groups.
type leaving struct {
	mu    sync.Mutex
	waits map[*func() error]struct{}
}

// BeforeEnd makes the end of the rank's function wait for what goes on beside it and needs the group, such as a save; its error
// becomes the rank's. The result takes that back.
func (g *Group) BeforeEnd(wait func() error) (cancel func()) {
	e := g.leaving
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waits[&wait] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waits, &wait)
	}
}

// finish waits for what BeforeEnd was given.
func (e *leaving) finish() (err error) {
	e.mu.Lock()
	waits := e.waits
	e.waits = map[*func() error]struct{}{}
	e.mu.Unlock()
	for wait := range waits {
		err = errors.Join(err, (*wait)())
	}
	return err
}

package core

import (
	"errors"
	"slices"
	"sync"
)

// DeviceStreams are the open streams of a device, for those who implement [Device]. The zero value has none.
type DeviceStreams[S interface {
	comparable
	Stream
}] struct {
	mu   sync.Mutex
	open []S
}

// Add adds a stream that was made.
func (d *DeviceStreams[S]) Add(s S) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = append(d.open, s)
}

// Remove takes a stream out that is closed.
func (d *DeviceStreams[S]) Remove(s S) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = slices.DeleteFunc(d.open, func(x S) bool { return x == s })
}

// All returns the streams that are open now.
func (d *DeviceStreams[S]) All() []S {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.open)
}

// Synchronize waits for the streams that concern the calling thread's context, and returns their errors.
func (d *DeviceStreams[S]) Synchronize() error {
	here := CurrentContext()
	var errs []error
	for _, s := range d.All() {
		if here.Concerns(s) {
			errs = append(errs, s.Synchronize())
		}
	}
	return errors.Join(errs...)
}

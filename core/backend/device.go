package backend

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
)

// A Device has a device's name and its open streams.
type Device struct {
	kind, name     string
	index, ordinal int

	mu      sync.Mutex
	streams []*Stream
}

// NewDevice returns a device without streams. Its name is the kind and the index.
func NewDevice(kind string, index, ordinal int) *Device {
	return NewNamedDevice(kind, kind, index, ordinal)
}

// NewNamedDevice is NewDevice for a device whose name is an alias of its kind and the index, as in "cuda:0".
func NewNamedDevice(kind, alias string, index, ordinal int) *Device {
	return &Device{kind: kind, name: fmt.Sprint(alias, ":", index), index: index, ordinal: ordinal}
}

// String implements [core.Device].
func (d *Device) String() string { return d.name }

// Kind implements [core.Device].
func (d *Device) Kind() string { return d.kind }

// Index implements [core.Device].
func (d *Device) Index() int { return d.index }

// Ordinal implements [core.Device].
func (d *Device) Ordinal() int { return d.ordinal }

// Streams returns the open streams.
func (d *Device) Streams() []*Stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.streams)
}

// Synchronize implements [core.Device].
func (d *Device) Synchronize() error {
	here := core.CurrentContext()
	var errs []error
	for _, s := range d.Streams() {
		if here.Concerns(s.self) {
			errs = append(errs, s.Synchronize())
		}
	}
	return errors.Join(errs...)
}

func (d *Device) add(s *Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams = append(d.streams, s)
}

func (d *Device) remove(s *Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams = slices.DeleteFunc(d.streams, func(x *Stream) bool { return x == s })
}

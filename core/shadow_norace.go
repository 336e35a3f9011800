//go:build !race

package core

const shadowed = false

// A shadow is a word on the Go heap that stands for a piece of memory. The race detector does not see memory off the heap.
type shadow struct{}

// Shadowed returns m, under the race detector with a new shadow.
func (m Memory) Shadowed() Memory { return m }

// Touch tells the race detector that the memory is read or written here.
func (m *Memory) Touch(write bool) { _ = m.shadow }

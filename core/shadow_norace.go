//go:build !race

package core

const shadowed = false

// A shadow stands for a piece of memory on the Go heap under the race detector, which does not see other memory.
type shadow struct{}

// Shadowed returns m; under the race detector, with a shadow of its own.
func (m Memory) Shadowed() Memory { return m }

// Touch tells the race detector that the memory is read or written here.
func (m *Memory) Touch(write bool) { _ = m.shadow }

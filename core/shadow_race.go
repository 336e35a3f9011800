//go:build race

package core

const shadowed = true

// A shadow is a word on the Go heap that stands for a piece of memory. The race detector does not see memory off the heap.
type shadow struct{ word *uint64 }

// Shadowed returns m, under the race detector with a new shadow.
func (m Memory) Shadowed() Memory {
	m.word = new(uint64)
	return m
}

// Touch tells the race detector that the memory is read or written here.
func (m *Memory) Touch(write bool) {
	switch {
	case m.word == nil:
	case write:
		*m.word++
	default:
		_ = readShadow(m.word)
	}
}

//go:noinline
func readShadow(p *uint64) uint64 { return *p }

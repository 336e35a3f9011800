package safetensors

import "sync/atomic"

// mapping is a file in memory, kept as long as somebody has a reference. A nil mapping keeps nothing.
type mapping struct {
	bytes []byte
	refs  atomic.Int32
	unmap func([]byte) error
}

func newMapping(bytes []byte, unmap func([]byte) error) *mapping {
	m := &mapping{bytes: bytes, unmap: unmap}
	m.refs.Store(1)
	return m
}

func (m *mapping) retain() {
	if m != nil {
		m.refs.Add(1)
	}
}

func (m *mapping) release() error {
	if m == nil || m.refs.Add(-1) > 0 || len(m.bytes) == 0 {
		return nil
	}
	return m.unmap(m.bytes)
}

//go:build !unix

package safetensors

import "os"

// mapping is a file in memory: read, where the system has no mmap.
type mapping struct{ bytes []byte }

func mapFile(path string) (*mapping, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return &mapping{bytes: bytes}, nil
}

func (m *mapping) release() error { return nil }

//go:build !linux && !darwin

package safetensors

import "os"

// mapFile reads a file, where the system's mmap is not known.
func mapFile(path string) (*mapping, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return newMapping(bytes, func([]byte) error { return nil }), nil
}

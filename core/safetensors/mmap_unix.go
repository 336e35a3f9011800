//go:build unix

package safetensors

import (
	"fmt"
	"os"
	"syscall"
)

// mapping is a file in memory.
type mapping struct{ bytes []byte }

func mapFile(path string) (*mapping, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: not a regular file", path)
	}
	size := int(stat.Size())
	if size == 0 {
		return &mapping{}, nil // an empty map is an error to the system
	}
	bytes, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	return &mapping{bytes: bytes}, nil
}

func (m *mapping) release() error {
	if m.bytes == nil {
		return nil
	}
	bytes := m.bytes
	m.bytes = nil
	return os.NewSyscallError("munmap", syscall.Munmap(bytes))
}

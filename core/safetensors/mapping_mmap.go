//go:build linux || darwin

package safetensors

import (
	"fmt"
	"os"
	"syscall"
)

// mapFile maps a file privately: what is written to the memory gets pages of its own and does not reach the file.
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
	if stat.Size() == 0 {
		return newMapping(nil, nil), nil // an empty map is an error to the system
	}
	// Without the reservation a file larger than memory can be mapped too.
	bytes, err := syscall.Mmap(int(file.Fd()), 0, int(stat.Size()),
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	return newMapping(bytes, func(b []byte) error { return os.NewSyscallError("munmap", syscall.Munmap(b)) }), nil
}

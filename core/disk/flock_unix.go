//go:build linux || darwin

package disk

import (
	"errors"
	"os"
	"syscall"
)

// flock locks an open file, which its closing, or the end of the process, undoes. It does not wait.
//
// Errors: one that is errors.ErrUnsupported where the file system has no locks; others if the file is locked.
func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err == nil || errors.Is(err, syscall.EWOULDBLOCK):
			return err
		default:
			return errors.ErrUnsupported
		}
	}
}

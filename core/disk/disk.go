// Package disk writes files so that what was there stays until what comes is whole: files that are replaced in one step, and
// a lock for a folder that one save at a time may write to.
//
// Every change of a file system goes through one function, so that a test can fail, or end, any of them: see [Inject].
package disk

import (
	"os"
	"sync/atomic"
)

// An Op names a change that is about to be made, such as "rename", and the file.
type Op struct{ Name, Path string }

var fault atomic.Pointer[func(Op) error]

// Inject calls f before every change of a file or folder; an error of f takes the place of the change. It is for tests, and
// returns what ends it.
func Inject(f func(Op) error) (end func()) {
	fault.Store(&f)
	return func() { fault.Store(nil) }
}

// before returns the error that a test wants instead of a change.
func before(name, path string) error {
	if f := fault.Load(); f != nil {
		return (*f)(Op{name, path})
	}
	return nil
}

// MakeFolder makes a folder and those above it, if need be.
func MakeFolder(path string) error {
	if err := before("mkdir", path); err != nil {
		return err
	}
	return os.MkdirAll(path, 0o777)
}

// Remove removes a file.
func Remove(path string) error {
	if err := before("remove", path); err != nil {
		return err
	}
	return os.Remove(path)
}

// create makes a file that was not there, for writing.
func create(path string) (*os.File, error) {
	if err := before("create", path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// A writer writes to a file. An injected error lets half of the bytes through, as a full disk or a kill may.
type writer struct{ file *os.File }

func (w writer) Write(p []byte) (int, error) {
	if err := before("write", w.file.Name()); err != nil {
		n, _ := w.file.Write(p[:len(p)/2])
		return n, err
	}
	return w.file.Write(p)
}

func syncFile(f *os.File) error {
	if err := before("sync", f.Name()); err != nil {
		return err
	}
	return f.Sync()
}

// syncFolder makes the entries of a folder last.
func syncFolder(path string) error {
	if err := before("sync folder", path); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

package safetensors

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/plait-ml/plait/core"
)

// WriteFile writes a file as Write does, by way of [ReplaceFile].
//
// Errors: those of Write, and those of the file system.
func WriteFile(path string, entries []Entry, metadata map[string]string) error {
	return ReplaceFile(path, func(w io.Writer) error { return Write(w, entries, metadata) })
}

// ReplaceFile writes what fill writes beside path, and then renames it to path: after an error or a crash path holds what
// it held before. The bytes and the name are on the disk when it returns. A link is followed, and the permissions of an
// existing file are kept.
//
// Errors: fill's as it is, and those of the file system.
func ReplaceFile(path string, fill func(io.Writer) error) error {
	target := path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		target = resolved
	}
	file, err := createBeside(target)
	if err != nil {
		return core.Errorf(core.IOError, format, "%w", err)
	}
	err = fillAndSync(file, fill)
	if err = errors.Join(err, file.Close()); err == nil {
		err = replace(file.Name(), target)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}

// createBeside makes a file that the system's umask applies to, which os.CreateTemp's does not get.
func createBeside(target string) (*os.File, error) {
	for {
		name := fmt.Sprintf("%s.%08x.tmp", target, rand.Uint32())
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, os.ErrExist) {
			return file, err
		}
	}
}

func fillAndSync(file *os.File, fill func(io.Writer) error) error {
	buffered := bufio.NewWriterSize(file, 1<<20)
	if err := fill(buffered); err != nil {
		return err
	}
	if err := errors.Join(buffered.Flush(), file.Sync()); err != nil {
		return core.Errorf(core.IOError, format, "%w", err)
	}
	return nil
}

// replace renames name to target and makes the folder's entry last.
func replace(name, target string) error {
	if old, err := os.Stat(target); err == nil {
		if !old.Mode().IsRegular() {
			return core.Errorf(core.IOError, format, "write %s: not a regular file", target)
		}
		if err := os.Chmod(name, old.Mode().Perm()); err != nil {
			return core.Errorf(core.IOError, format, "%w", err)
		}
	}
	if err := os.Rename(name, target); err != nil {
		return core.Errorf(core.IOError, format, "%w", err)
	}
	dir, err := os.Open(filepath.Dir(target))
	if err != nil {
		return core.Errorf(core.IOError, format, "%w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return core.Errorf(core.IOError, format, "%w", err)
	}
	return nil
}

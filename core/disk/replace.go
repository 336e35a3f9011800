package disk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Replace writes what fill writes beside path, and then renames it to path: after an error or a crash path holds what it held
// before. The bytes and the name are on the disk when it returns. A link is followed, and the permissions of an existing file
// are kept. What earlier calls for the path left behind when their process died is removed.
//
// Errors: fill's as it is, and those of the file system.
func Replace(path string, fill func(io.Writer) error) error {
	target := path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		target = resolved
	}
	clean(target)
	file, err := createBeside(target)
	if err != nil {
		return err
	}
	if err = fillAndSync(file, fill); err == nil {
		err = rename(file.Name(), target)
	}
	// The lock that tells others of its writer ends with the file: not before it has its name.
	err = errors.Join(err, file.Close())
	if err != nil {
		_ = Remove(file.Name())
	}
	return err
}

// createBeside makes a file that the system's umask applies to, which os.CreateTemp's does not get. It is locked as long as it
// is open, so that others see that its writer lives.
func createBeside(target string) (*os.File, error) {
	for {
		name := fmt.Sprintf("%s.%08x.tmp", target, rand.Uint32())
		file, err := create(name)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// Where nobody can tell, nobody cleans up; where somebody has just done so, the file is not there any more.
		if err := flock(file); err == nil || errors.Is(err, errors.ErrUnsupported) {
			if sameFile(file, name) {
				return file, nil
			}
		}
		_ = file.Close()
	}
}

var unfinished = regexp.MustCompile(`^\.[0-9a-f]{8}\.tmp$`)

// clean removes files that dead writers of target have left beside it.
func clean(target string) {
	folder, base := filepath.Split(target)
	files, err := os.ReadDir(filepath.Clean(folder))
	if err != nil {
		return // writing will say so
	}
	for _, f := range files {
		if rest, ok := strings.CutPrefix(f.Name(), base); !ok || !unfinished.MatchString(rest) || !f.Type().IsRegular() {
			continue
		}
		path := filepath.Join(folder, f.Name())
		if file, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			if flock(file) == nil && sameFile(file, path) {
				_ = Remove(path)
			}
			_ = file.Close()
		}
	}
}

// sameFile reports whether path still names the open file.
func sameFile(file *os.File, path string) bool {
	a, err := file.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

func fillAndSync(file *os.File, fill func(io.Writer) error) error {
	buffered := bufio.NewWriterSize(writer{file}, 1<<20)
	if err := fill(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return syncFile(file)
}

// rename renames name to target and makes the folder's entry last.
func rename(name, target string) error {
	if old, err := os.Stat(target); err == nil {
		if !old.Mode().IsRegular() {
			return fmt.Errorf("write %s: not a regular file", target)
		}
		if err := os.Chmod(name, old.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := before("rename", target); err != nil {
		return err
	}
	if err := os.Rename(name, target); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(target))
}

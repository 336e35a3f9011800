package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// LockName is the name of the file that says who writes to a folder.
const LockName = "writing.lock"

// A Lock keeps others from writing to a folder.
type Lock struct{ file *os.File }

// A holder is who has a lock: a process, by its number, the time of its start and the machine that it runs on.
type holder struct {
	Host  string    `json:"host"`
	Boot  string    `json:"boot"` // of the machine's kernel, which containers share
	PID   int       `json:"pid"`
	Start string    `json:"start"` // when the process began, in the kernel's spelling
	What  string    `json:"what"`
	Since time.Time `json:"since"`
}

// A HeldError says that somebody else is writing to a folder.
type HeldError struct{ Text string }

func (e *HeldError) Error() string { return e.Text }

// Acquire takes the lock of a folder for what is named, such as a save with its number of ranks. It does not wait.
//
// The system gives up the lock of a process that dies, and then the file counts for nothing. It counts where that cannot be known:
// if another machine wrote it, or the file system has no locks and the process lives.
//
// Errors: *HeldError, with the holder, and those of the file system.
func Acquire(folder, what string) (*Lock, error) {
	path := filepath.Join(folder, LockName)
	for {
		if err := before("lock", path); err != nil {
			return nil, err
		}
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		locked := flock(file)
		if locked == nil && !sameFile(file, path) { // its holder has just removed it
			_ = file.Close()
			continue
		}
		if err := claim(file, folder, what, locked); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return &Lock{file}, nil
	}
}

// claim writes a holder to a lock's file, unless another one has it.
func claim(file *os.File, folder, what string, locked error) error {
	text, err := io.ReadAll(io.LimitReader(file, 1<<16))
	if err != nil {
		return err
	}
	var by holder
	known := json.Unmarshal(text, &by) == nil
	me := self(what)
	switch {
	case errors.Is(locked, errors.ErrUnsupported):
		if known && by.Boot == me.Boot && by.Start == processStart(by.PID) && by.Start != "" {
			return held(folder, by, "wait for its end")
		}
	case locked != nil:
		return held(folder, current(file), "wait for its end")
	}
	if known && by.Boot != me.Boot && by.Host != me.Host {
		return held(folder, by, "if that process is gone, remove "+file.Name())
	}
	if err := write(file, me); err != nil {
		return errors.Join(err, Remove(file.Name())) // on a full disk, the file would stay without a name in it
	}
	return nil
}

// write makes a holder the content of a lock's file.
func write(file *os.File, by holder) error {
	if err := before("lock", file.Name()); err != nil {
		return err
	}
	text, err := json.Marshal(by)
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(append(text, '\n'), 0)
	return err
}

// current reads from a locked file who holds its lock. A holder that has just locked the file has not written its name yet: the file is
// then empty, or names one that is gone. That is read again for a moment.
func current(file *os.File) holder {
	by := holder{What: "another process"}
	for range 50 {
		var read holder
		text, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<16))
		if err == nil && json.Unmarshal(text, &read) == nil {
			by = read
			if by.Boot != bootOf(by.Host) || by.Start == processStart(by.PID) {
				break
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	return by
}

func held(folder string, by holder, advice string) error {
	who := by.What
	if by.PID != 0 {
		who = fmt.Sprintf("%s of process %d on %s, since %s", by.What, by.PID, by.Host, by.Since.Format(time.DateTime))
	}
	return &HeldError{fmt.Sprintf("%s is being written to by %s; %s", folder, who, advice)}
}

// Release gives the lock up, and removes its file.
func (l *Lock) Release() {
	if l == nil || l.file == nil {
		return
	}
	_ = Remove(l.file.Name()) // a file that stays counts for nothing without its lock
	_ = l.file.Close()
	l.file = nil
}

// self describes the process.
func self(what string) holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return holder{Host: host, Boot: bootOf(host), PID: os.Getpid(), Start: processStart(os.Getpid()), What: what, Since: time.Now()}
}

// Package sharing keeps tensors in memory that processes share.
//
// [Move] moves the storage of a tensor, with all tensors on it, into a file without a name, in memory. Another process that gets the file's
// descriptor and what [File] says of it makes a storage over the same memory: see [Open]. The system frees the memory when no process
// has it open or mapped any more, however the processes end. A storage has one descriptor open as long as it lives.
//
// Operations on such a storage are done when they return, so what a program does with it is ordered as its statements are: a lock that it
// holds meanwhile keeps other processes out. Without a lock, processes that write the same elements overwrite each other's. Versions, by which backward
// notices changes, count each process's own changes.
package sharing

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"weak"

	"github.com/plait-ml/plait/core"
)

const name = "share_memory_"

// A Key names a file in all processes.
type Key [2]int64

func newKey() (k Key) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	k[0], k[1] = int64(binary.NativeEndian.Uint64(b[:8])), int64(binary.NativeEndian.Uint64(b[8:]))
	return k
}

// A File is the memory behind a storage.
type File struct {
	FD   int // open while the storage lives
	Size int // of the storage in bytes
	Key  Key
}

// files are the storages of this process that lie in shared memory. A storage that is found here may have been released already.
var files struct {
	sync.Mutex
	storages map[Key]weak.Pointer[core.Storage]
}

// Of returns the file behind t's storage, or nil.
func Of(t *core.Tensor) *File {
	if t.IsNumber() || t.Usable(name) != nil {
		return nil
	}
	f, _ := t.Storage().Backing().(*File)
	return f
}

// Move moves the storage of a tensor on a CPU device into shared memory, unless it is there or has no elements. What was launched on it before
// is done first, and no other thread may be using it. Memory that NumPy arrays or other libraries have taken over stays theirs, and is no longer the tensor's.
func Move(t *core.Tensor) (*File, error) {
	if err := Movable(t); err != nil {
		return nil, err
	}
	if f := Of(t); f != nil || t.Storage().Size() == 0 {
		return f, nil
	}
	st := t.Storage()
	if err := st.Wait(); err != nil {
		return nil, err
	}
	f, err := Start(t)
	if err != nil {
		return nil, err
	}
	return f, st.Wait()
}

// Movable returns the reason why a tensor cannot lie in shared memory, or nil.
func Movable(t *core.Tensor) error {
	if err := t.Usable(name); err != nil {
		return err
	}
	if t.IsNumber() || !t.Device().HostAccessible() || t.Device().Kind() != "cpu" {
		return core.Errorf(core.NotImplemented, name, "want a tensor on a CPU device, got %v: other memory belongs to one process", t)
	}
	return nil
}

// Start is [Move] without waiting, for a caller that does so itself: before, for what was launched on the storage, and after, for the copy.
func Start(t *core.Tensor) (*File, error) {
	if err := Movable(t); err != nil {
		return nil, err
	}
	st := t.Storage()
	if f := Of(t); f != nil || st.Size() == 0 {
		return f, nil
	}
	f, m, err := makeFile(st.Size())
	if err != nil {
		return nil, err
	}
	if err := st.Rehome(m, f, func() { f.release(m) }); err != nil {
		f.release(m)
		return nil, err
	}
	files.Lock()
	defer files.Unlock()
	f.add(st)
	return f, nil
}

// New returns a storage on stream s in shared memory of its own, all zero, with one reference.
func New(s core.Stream, size int) (*core.Storage, error) {
	if size <= 0 || !s.Device().HostAccessible() {
		return nil, core.Errorf(core.ValueError, name, "want a size above 0 on a CPU device, got %d bytes on %s", size, s.Device())
	}
	f, m, err := makeFile(size)
	if err != nil {
		return nil, err
	}
	files.Lock()
	defer files.Unlock()
	return f.wrap(s, m), nil
}

func makeFile(size int) (*File, core.Memory, error) {
	key := newKey()
	fd, err := create(size, key)
	if err != nil {
		return nil, core.Memory{}, failed("make", size, err)
	}
	m, err := mapped(fd, size)
	if err != nil {
		closeFD(fd)
		return nil, core.Memory{}, err
	}
	return &File{FD: fd, Size: size, Key: key}, m, nil
}

// Open returns a storage on stream s over the memory that f describes, with one reference: the one that this process has already, or a
// new one, which has a descriptor of its own: the caller closes f's.
func Open(s core.Stream, f File) (*core.Storage, error) {
	files.Lock()
	defer files.Unlock()
	if st := files.storages[f.Key].Value(); st != nil && st.RetainLive() {
		if own, _ := st.Backing().(*File); own != nil && own.Key == f.Key {
			return st, nil
		}
		st.Release()
	}
	own := &f
	m, err := own.reopen()
	if err != nil {
		return nil, err
	}
	return own.wrap(s, m), nil
}

// wrap returns a storage over f's memory. The caller holds files.
func (f *File) wrap(s core.Stream, m core.Memory) *core.Storage {
	st := core.WrapStorage(s, m, func() { f.release(m) })
	st.Share(1)
	st.SetBacking(f)
	f.add(st)
	return st
}

// reopen maps a file that another process made, and makes f's descriptor one of this storage's own.
func (f *File) reopen() (core.Memory, error) {
	has, err := sizeOf(f.FD)
	if err != nil {
		return core.Memory{}, failed("open", f.Size, err)
	}
	if f.Size <= 0 || has < int64(f.Size) {
		return core.Memory{}, core.Errorf(core.ValueError, name, "want a file of %d bytes of shared memory, got one of %d", f.Size, has)
	}
	fd, err := duplicate(f.FD)
	if err != nil {
		return core.Memory{}, failed("open", f.Size, err)
	}
	m, err := mapped(fd, f.Size)
	if err != nil {
		closeFD(fd)
		return core.Memory{}, err
	}
	f.FD = fd
	return m, nil
}

// add makes st findable by f's key. The caller holds files.
func (f *File) add(st *core.Storage) {
	if files.storages == nil {
		files.storages = map[Key]weak.Pointer[core.Storage]{}
	}
	files.storages[f.Key] = weak.Make(st)
}

// release gives back the memory of a storage that is gone.
func (f *File) release(m core.Memory) {
	files.Lock()
	if st := files.storages[f.Key].Value(); st == nil || st.Backing() == any(f) {
		delete(files.storages, f.Key)
	}
	files.Unlock()
	unmap(m)
	closeFD(f.FD)
}

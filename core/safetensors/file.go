package safetensors

import (
	"errors"
	"iter"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
)

// File is an open file. Its methods may be called from several goroutines.
//
// The bytes of a file opened by Open are mapped, not read: they come from the disk when they are first touched. A file
// that is replaced meanwhile stays readable as it was; one that is cut short in place must not be touched.
type File struct {
	path    string
	header  *header
	byName  map[string]int
	mu      sync.Mutex
	mapping *mapping // nil for bytes in memory
	data    []byte   // the tensors' bytes
	closed  bool
}

// Open maps a file and checks its header.
//
// Errors: those of opening the file, and *FormatError for one that breaks the format.
func Open(path string) (*File, error) {
	m, err := mapFile(path)
	if err != nil {
		return nil, core.Errorf(core.IOError, format, "%w", err)
	}
	f, err := Parse(m.bytes)
	if err != nil {
		var where *FormatError
		if errors.As(err, &where) {
			where.Path = path
		}
		return nil, errors.Join(err, m.release())
	}
	f.path, f.mapping = path, m
	return f, nil
}

// Parse reads a file that is in memory. The bytes are kept, not copied.
//
// Errors: *FormatError.
func Parse(file []byte) (*File, error) {
	h, err := parseHeader(file)
	if err != nil {
		return nil, err
	}
	f := &File{header: h, byName: make(map[string]int, len(h.tensors)), data: file[h.data:]}
	for i, t := range h.tensors {
		f.byName[t.Name] = i
	}
	return f, nil
}

// Close ends the use of the file. Slices that Bytes returned must not be touched afterwards; tensors made from the file
// stay valid, and keep its map until they are released.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed, f.data = true, nil
	if err := f.mapping.release(); err != nil {
		return core.Errorf(core.IOError, format, "%w", err)
	}
	return nil
}

// Len returns the number of tensors.
func (f *File) Len() int { return len(f.header.tensors) }

// Names returns the tensors' names, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.byName)) }

// Infos returns the tensors' descriptions, in the order of their bytes.
func (f *File) Infos() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		for _, t := range f.header.tensors {
			if !yield(t.clone()) {
				return
			}
		}
	}
}

// Info returns the description of a tensor, and whether the file has one of this name.
func (f *File) Info(name string) (Info, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Info{}, false
	}
	return f.header.tensors[i].clone(), true
}

// Metadata returns a copy of the header's text entries; nil if it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.header.metadata) }

// Bytes returns a tensor's bytes where they lie: little endian, in row-major order. They are valid until Close. A write
// to those of a mapped file does not reach the file, but everybody who reads them here.
//
// Errors: an unknown name, a closed file.
func (f *File) Bytes(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, bytes, err := f.find(name)
	return bytes, err
}

// find returns a tensor's description and bytes; the caller holds the lock.
func (f *File) find(name string) (Info, []byte, error) {
	i, ok := f.byName[name]
	if !ok {
		return Info{}, nil, core.Errorf(core.ValueError, format, "%sno tensor %s among %d", f.prefix(), quote(name), f.Len())
	}
	t := f.header.tensors[i]
	if f.closed {
		return t, nil, core.Errorf(core.StateError, format, "%stensor %s: %w", f.prefix(), quote(name), os.ErrClosed)
	}
	return t, f.data[t.Begin:t.End:t.End], nil
}

func (f *File) prefix() string {
	if f.path == "" {
		return ""
	}
	return f.path + ": "
}

func (t Info) clone() Info {
	t.Shape = slices.Clone(t.Shape)
	return t
}

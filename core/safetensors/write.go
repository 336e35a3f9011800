package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/disk"
)

// Entry is a tensor to be written: its elements are little endian and in row-major order.
type Entry struct {
	Name  string
	DType DType
	Shape []int64
	// Data holds the elements, unless Stream is set.
	Data []byte
	// Stream writes the elements when their turn comes, so that a big file needs no more memory than one piece of it.
	Stream func(io.Writer) error
}

// Write writes a file to w: the header with its keys in order, then the tensors, those of wide elements first, so that
// each lies aligned without a gap. Equal input gives equal bytes.
//
// Errors: names that repeat, are reserved or are no UTF-8; a count of bytes that does not fit dtype and shape; a header
// over MaxHeaderBytes; those of w and of Stream.
func Write(w io.Writer, entries []Entry, metadata map[string]string) error {
	ordered, sizes, err := layout(entries)
	if err != nil {
		return err
	}
	text, err := encodeHeader(ordered, sizes, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return core.Errorf(core.IOError, format, "write header: %w", err)
	}
	for i, e := range ordered {
		out := &exactWriter{w: w, left: sizes[i]}
		if e.Stream == nil {
			_, err = out.Write(e.Data)
		} else {
			err = e.Stream(out)
		}
		if err == nil && out.left != 0 {
			err = fmt.Errorf("wrong byte count for shape %v of %s, got %d, want %d", e.Shape, e.DType, sizes[i]-out.left, sizes[i])
		}
		if err != nil {
			kind, known := core.KindOf(err) // of making the bytes
			if !known {
				kind = core.IOError
			}
			return core.Errorf(kind, format, "write tensor %s: %w", quote(e.Name), err)
		}
	}
	return nil
}

// WriteFile writes a file as Write does, in the place of what is at path: see [disk.Replace].
//
// Errors: those of Write, and those of the file system.
func WriteFile(path string, entries []Entry, metadata map[string]string) error {
	err := disk.Replace(path, func(w io.Writer) error { return Write(w, entries, metadata) })
	if _, known := core.KindOf(err); err != nil && !known {
		err = core.Errorf(core.IOError, format, "%w", err)
	}
	return err
}

// layout returns the entries in the order of their bytes, and the bytes of each.
func layout(entries []Entry) ([]Entry, []int64, error) {
	ordered := slices.Clone(entries)
	slices.SortStableFunc(ordered, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.DType.Bits(), a.DType.Bits()), cmp.Compare(a.Name, b.Name))
	})
	sizes := make([]int64, len(ordered))
	seen := make(map[string]bool, len(ordered))
	for i, e := range ordered {
		fail := func(text string, args ...any) error {
			return core.Errorf(core.ValueError, format, "write tensor %s: %s", quote(e.Name), fmt.Sprintf(text, args...))
		}
		if e.Name == metadataKey {
			return nil, nil, fail("the name is reserved")
		}
		if !utf8.ValidString(e.Name) {
			return nil, nil, fail("the name is not UTF-8")
		}
		if seen[e.Name] {
			return nil, nil, fail("the name comes twice")
		}
		seen[e.Name] = true
		size, err := byteCount(e.DType, e.Shape)
		if err != nil {
			return nil, nil, fail("%s", err)
		}
		if e.Stream == nil && int64(len(e.Data)) != size {
			return nil, nil, fail("wrong byte count for shape %v of %s, got %d, want %d", e.Shape, e.DType, len(e.Data), size)
		}
		sizes[i] = size
	}
	return ordered, sizes, nil
}

// encodeHeader returns the length and the header, padded with spaces so that the data begins at a multiple of eight.
func encodeHeader(ordered []Entry, sizes []int64, metadata map[string]string) ([]byte, error) {
	type field struct {
		name  string
		value any
	}
	type info struct {
		DType   DType    `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	fields := make([]field, 0, len(ordered))
	var end int64
	for i, e := range ordered {
		if end+sizes[i] < end {
			return nil, core.Errorf(core.ValueError, format, "write: tensors hold more than 2^63-1 bytes")
		}
		shape := append([]int64{}, e.Shape...) // never nil, which JSON would call null
		fields = append(fields, field{e.Name, info{e.DType, shape, [2]int64{end, end + sizes[i]}}})
		end += sizes[i]
	}
	slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.name, b.name) })
	if len(metadata) > 0 {
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
				return nil, core.Errorf(core.ValueError, format, "write metadata %s: not UTF-8", quote(key))
			}
		}
		fields = slices.Insert(fields, 0, field{metadataKey, metadata})
	}

	b := bytes.NewBuffer(make([]byte, lengthBytes))
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	put := func(v any) error {
		err := enc.Encode(v)
		b.Truncate(b.Len() - 1) // the newline that Encode adds
		return err
	}
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := put(f.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := put(f.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	for b.Len()%lengthBytes != 0 {
		b.WriteByte(' ')
	}
	length := b.Len() - lengthBytes
	if length > MaxHeaderBytes {
		return nil, core.Errorf(core.ValueError, format, "write: header too long, got %d bytes, want at most %d", length, MaxHeaderBytes)
	}
	text := b.Bytes()
	binary.LittleEndian.PutUint64(text, uint64(length))
	return text, nil
}

// exactWriter refuses what a tensor has no room for.
type exactWriter struct {
	w    io.Writer
	left int64
}

func (x *exactWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > x.left {
		return 0, fmt.Errorf("%d bytes more than the tensor holds", int64(len(p))-x.left)
	}
	n, err := x.w.Write(p)
	x.left -= int64(n)
	return n, err
}

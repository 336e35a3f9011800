package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/disk"
	"github.com/plait-ml/plait/core/safetensors"
)

const (
	indexName = "index.json"
	indexKind = "plait.checkpoint"
	version   = 1
)

// An index is the table of contents of a checkpoint.
type index struct {
	Kind    string                     `json:"format"`
	Version int                        `json:"version"`
	Files   []fileInfo                 `json:"files"`
	Tensors map[string]tensorInfo      `json:"tensors"`
	Values  map[string]json.RawMessage `json:"values"`

	sum uint32 // checksum of the file's text
}

type fileInfo struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

type tensorInfo struct {
	DType  safetensors.DType `json:"dtype"`
	Shape  []int             `json:"shape"`
	Pieces []pieceInfo       `json:"pieces"`
}

type pieceInfo struct {
	File int `json:"file"` // index in Files
	box
	CRC uint32 `json:"crc32c"` // of the piece's bytes (Castagnoli)
}

// fileName returns the name of a rank's file in a save.
func fileName(save string, rank, world int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.safetensors", save, rank, world)
}

// pieceFile matches names made by fileName. leftover matches temporary files of an unfinished or killed writer.
var (
	pieceFile = regexp.MustCompile(`^[0-9a-f]{16}-\d{5}-of-\d{5}\.safetensors$`)
	leftover  = regexp.MustCompile(`^([0-9a-f]{16}-\d{5}-of-\d{5}\.safetensors|index\.json)\.[0-9a-f]{8}\.tmp$`)
)

// write writes the index to dir. Its last entry is a checksum of the text before it.
func (x *index) write(dir string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(x)
	if err == nil {
		b.Truncate(b.Len() - len("\n}\n"))
		fmt.Fprintf(&b, "%s%08x\"\n}\n", sumMark, crc32.Checksum(b.Bytes(), castagnoli))
		err = disk.Replace(filepath.Join(dir, indexName), func(w io.Writer) error {
			_, err := w.Write(b.Bytes())
			return err
		})
	}
	if err != nil {
		return errorf(core.IOError, "%w", err)
	}
	return nil
}

// sumMark precedes the checksum in an index file.
const sumMark = ",\n \"crc32c\": \""

// intact reports whether the checksum in an index file is right. A file without one was not written by write and passes.
func intact(text []byte) bool {
	at := bytes.LastIndex(text, []byte(sumMark))
	return at < 0 || string(text[at:]) == fmt.Sprintf("%s%08x\"\n}\n", sumMark, crc32.Checksum(text[:at], castagnoli))
}

// readIndex reads the index of dir and checks everything that needs no other file.
func readIndex(dir string) (*index, error) {
	path := filepath.Join(dir, indexName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errorf(core.IOError, "%s is no checkpoint: it has no %s: %w", dir, indexName, err)
	}
	if err != nil {
		return nil, errorf(core.IOError, "%w", err)
	}
	x := &index{sum: crc32.Checksum(text, castagnoli)}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(x); err != nil {
		return nil, errorf(core.ValueError, "%s is damaged or no index: %w", path, err)
	}
	if x.Kind != indexKind {
		return nil, errorf(core.ValueError, "%s is no index of a checkpoint: its format is %.40q, want %q", path, x.Kind, indexKind)
	}
	if x.Version != version {
		return nil, errorf(core.ValueError, "%s has version %d, this program reads %d", path, x.Version, version)
	}
	for _, f := range x.Files {
		if !pieceFile.MatchString(f.Name) {
			return nil, errorf(core.ValueError, "%s is damaged: it lists the invalid file name %.80q", path, f.Name)
		}
	}
	for name, t := range x.Tensors {
		if err := t.check(name, len(x.Files)); err != nil {
			return nil, fmt.Errorf("%s is damaged: %w", path, err)
		}
	}
	if !intact(text) {
		return nil, errorf(core.ValueError, "%s is damaged: its checksum does not match", path)
	}
	return x, nil
}

// problem returns an error text if a file is missing or has the wrong size, else "".
func (f fileInfo) problem(dir string) string {
	stat, err := os.Stat(filepath.Join(dir, f.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "the file is missing"
	case err != nil:
		return err.Error()
	case stat.Size() != f.Bytes:
		return fmt.Sprintf("the file has the wrong size: %d bytes, the index says %d", stat.Size(), f.Bytes)
	}
	return ""
}

// problems returns, by tensor name, why the files cannot hold a tensor.
func (x *index) problems(dir string) map[string]error {
	whole := make([]string, len(x.Files))
	left := make([]int64, len(x.Files)) // bytes per file not claimed by a tensor yet
	for i, f := range x.Files {
		whole[i], left[i] = f.problem(dir), f.Bytes
	}
	problems := map[string]error{}
	for _, name := range slices.Sorted(maps.Keys(x.Tensors)) {
		t := x.Tensors[name]
		for _, p := range t.Pieces {
			left[p.File] -= int64(p.count()) * int64(t.DType.Bits()) / 8
			problem := whole[p.File]
			if problem == "" && left[p.File] < 0 {
				problem = fmt.Sprintf("the file has %d bytes, the index says that it holds more", x.Files[p.File].Bytes)
			}
			if problem != "" && problems[name] == nil {
				problems[name] = errorf(core.ValueError, "%s: tensor %q: %s", filepath.Join(dir, x.Files[p.File].Name), name, problem)
			}
		}
	}
	return problems
}

func (t tensorInfo) check(name string, files int) error {
	if t.DType.Bits() < 8 {
		return errorf(core.ValueError, "tensor %q has the unknown dtype %.40q", name, t.DType)
	}
	if _, err := core.CheckShape(format, t.Shape, core.Float64); err != nil {
		return fmt.Errorf("tensor %q: %w", name, err)
	}
	boxes := make([]box, len(t.Pieces))
	for i, p := range t.Pieces {
		if p.File < 0 || p.File >= files || len(p.Offset) != len(t.Shape) || len(p.Shape) != len(t.Shape) {
			return errorf(core.ValueError, "tensor %q: piece %d has the wrong number of dimensions or an unknown file", name, i)
		}
		for d, n := range t.Shape {
			if p.Offset[d] < 0 || p.Shape[d] < 1 || p.Offset[d] > n-p.Shape[d] {
				return errorf(core.ValueError, "tensor %q of shape %v: piece %d is %v", name, t.Shape, i, p.box)
			}
		}
		boxes[i] = p.box
	}
	return covers(name, t.Shape, boxes)
}

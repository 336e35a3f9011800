package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/safetensors"
	"github.com/plait-ml/plait/parallel/collective"
)

// Load writes the checkpoint in dir to the pieces of want and returns the checkpoint's values. All values of want must be among them. Each
// rank of group may want any pieces, whatever the layout of the save. A nil group means a single rank. Elements are converted to the dtypes
// of the pieces' tensors. Tensors that no piece needs are not read.
//
// Errors, on every rank and with all pieces unchanged: a folder without a checkpoint; tensors or values that it lacks; tensors of another
// shape; a file that is missing, truncated or modified. The error names the file and the tensor.
func Load(dir string, want State, group *collective.Group) (map[string]json.RawMessage, error) {
	want = localState(want)
	w, pieces := worldOf(group, "a load"), want.Pieces
	var r *reader
	var plans [][]overlap
	var sum uint32
	_, problem := describeState(want)
	if problem == nil {
		if r, plans, problem = open(dir, want); problem == nil {
			defer r.close()
			sum = r.index.sum
		}
	}
	sums, err := exchange(w, sum, problem)
	if err != nil {
		return nil, err
	}
	for rank, other := range sums {
		if other != sums[0] {
			return nil, errorf(core.DistributedError, "%s: ranks 0 and %d see different checkpoints; one was saved while they began to load", dir, rank)
		}
	}
	problem = onHost(func(core.Device) error {
		for i, p := range pieces {
			if err := r.copyTo(p, plans[i]); err != nil {
				return err
			}
		}
		return nil
	})
	_, err = exchange(w, struct{}{}, problem)
	return r.index.Values, err
}

// Info describes a tensor of a checkpoint.
type Info struct {
	DType  core.DType
	Shape  []int
	Pieces int // number of stored pieces
	// Problem is the reason why the files cannot hold the tensor, such as a truncated file. Callers need not allocate memory for it then.
	Problem error
}

// Inspect returns the tensors and values of the checkpoint in dir, by name. It reads the index and the sizes of the files.
func Inspect(dir string) (map[string]Info, map[string]json.RawMessage, error) {
	x, err := readIndex(dir)
	if err != nil {
		return nil, nil, err
	}
	infos := make(map[string]Info, len(x.Tensors))
	problems := x.problems(dir)
	for name, t := range x.Tensors {
		d, ok := t.DType.Core()
		if !ok {
			return nil, nil, errorf(core.DTypeError, "tensor %q: no tensors have dtype %s", name, t.DType)
		}
		infos[name] = Info{d, t.Shape, len(t.Pieces), problems[name]}
	}
	return infos, x.Values, nil
}

// A reader is an open checkpoint.
type reader struct {
	dir     string
	index   *index
	files   map[int]*safetensors.File
	checked map[string]bool // verified pieces, by file name and key
}

// open opens dir and verifies what want needs. If a concurrent save replaces the checkpoint and removes its files, open tries again with
// the new one.
func open(dir string, want State) (*reader, [][]overlap, error) {
	for {
		r, err := openReader(dir)
		if err != nil {
			return nil, nil, err
		}
		plans, err := r.check(want)
		if err == nil {
			return r, plans, nil
		}
		r.close()
		if x, e := readIndex(dir); e != nil || x.sum == r.index.sum {
			return nil, nil, err
		}
	}
}

func openReader(dir string) (*reader, error) {
	x, err := readIndex(dir)
	if err != nil {
		return nil, err
	}
	return &reader{dir: dir, index: x, files: map[int]*safetensors.File{}, checked: map[string]bool{}}, nil
}

func (r *reader) close() {
	for _, f := range r.files {
		// Tensors made from the file keep the memory map; an error here has no consequence.
		_ = f.Close()
	}
}

// An overlap is the intersection of a wanted piece and a stored one.
type overlap struct {
	from pieceInfo
	key  string
	box  // region of the whole tensor
}

// check finds the parts of every wanted piece and verifies that the files hold them.
func (r *reader) check(want State) ([][]overlap, error) {
	if err := r.compare(want); err != nil {
		return nil, err
	}
	plans := make([][]overlap, len(want.Pieces))
	for i, p := range want.Pieces {
		t := r.index.Tensors[p.Name]
		for _, from := range t.Pieces {
			both, ok := from.intersect(p.box())
			if !ok {
				continue
			}
			key := from.key(p.Name, t.Shape)
			if err := r.verify(p.Name, key, t, from); err != nil {
				return nil, err
			}
			plans[i] = append(plans[i], overlap{from, key, both})
		}
	}
	return plans, nil
}

// compare reports all missing and mismatched tensors and values in one error.
func (r *reader) compare(want State) error {
	missing, shapes, values := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for name := range want.Values {
		if _, ok := r.index.Values[name]; !ok {
			values[name] = true
		}
	}
	for _, p := range want.Pieces {
		if t, ok := r.index.Tensors[p.Name]; !ok {
			missing[p.Name] = true
		} else if !slices.Equal(t.Shape, p.whole()) {
			shapes[fmt.Sprintf("%s (the checkpoint's is %v, wanted is %v)", p.Name, t.Shape, p.whole())] = true
		}
	}
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, "no tensors named "+listed(missing))
	}
	if len(values) > 0 {
		parts = append(parts, "no values named "+listed(values))
	}
	if len(shapes) > 0 {
		parts = append(parts, "tensors of another shape: "+listed(shapes))
	}
	if parts == nil {
		return nil
	}
	return errorf(core.ValueError, "%s has %s", r.dir, strings.Join(parts, ", and "))
}

// listed joins sorted names. It shortens a long list.
func listed(names map[string]bool) string {
	const most = 20
	list := slices.Sorted(maps.Keys(names))
	if n := len(list); n > most {
		list = append(list[:most], fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(list, ", ")
}

// verify checks that a file holds a stored piece with the right checksum.
func (r *reader) verify(name, key string, t tensorInfo, from pieceInfo) error {
	info := r.index.Files[from.File]
	path := filepath.Join(r.dir, info.Name)
	fail := func(text string, args ...any) error {
		return errorf(core.ValueError, "%s: tensor %q: %s", path, name, fmt.Sprintf(text, args...))
	}
	f := r.files[from.File]
	if f == nil {
		if problem := info.problem(r.dir); problem != "" {
			return fail("%s", problem)
		}
		var err error
		if f, err = safetensors.Open(path); err != nil {
			return fail("%s", err)
		}
		r.files[from.File] = f
	}
	id := info.Name + "/" + key
	if r.checked[id] {
		return nil
	}
	stored, ok := f.Info(key)
	if !ok {
		return fail("the file has no piece %q", key)
	}
	if stored.DType != t.DType || !equalShape(stored.Shape, from.Shape) {
		return fail("the file holds %s%v, the index says %s%v", stored.DType, stored.Shape, t.DType, from.Shape)
	}
	bytes, err := f.Bytes(key)
	if err != nil {
		return err
	}
	if sum := crc32.Checksum(bytes, castagnoli); sum != from.CRC {
		return fail("the file is damaged: the piece %v has the checksum %08x, the index says %08x", from.box, sum, from.CRC)
	}
	r.checked[id] = true
	return nil
}

func equalShape(a []int64, b []int) bool {
	return slices.EqualFunc(a, b, func(x int64, y int) bool { return x == int64(y) })
}

// copyTo copies the parts to a piece's tensor and waits for the copies.
func (r *reader) copyTo(p Piece, parts []overlap) (err error) {
	wanted := p.box()
	core.Tidy(func() {
		for _, part := range parts {
			source := narrowed(r.files[part.from.File].Tensor(part.key), part.box, part.from.Offset)
			if err = op.CopyInPlace(narrowed(p.Tensor, part.box, wanted.Offset), source).Err(); err != nil {
				return
			}
		}
		err = p.Tensor.Wait()
	})
	if err != nil {
		return fmt.Errorf("tensor %q: %w", p.Name, err)
	}
	return nil
}

// narrowed returns a view of region b of the whole tensor, where t is a piece that begins at origin.
func narrowed(t *core.Tensor, b box, origin []int) *core.Tensor {
	for d, n := range b.Shape {
		if t.Err() != nil {
			break
		}
		if n != t.Shape()[d] {
			t = op.Narrow(t, d, b.Offset[d]-origin[d], n)
		}
	}
	return t
}

package checkpoint

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/safetensors"
	"github.com/plait-ml/plait/parallel/collective"
)

// Save writes the states of all ranks of group to the folder dir, which it makes if need be, as its checkpoint. All ranks
// call it, on one file system; a nil group is one rank alone. It returns when the checkpoint is whole and on the disk, or with
// an error on every rank, and then dir holds the checkpoint it held before.
//
// Errors: pieces that do not fit together, or leave out a part of a tensor; values that differ under one name; a save to the
// same folder that is still running; those of the file system.
func Save(dir string, s State, group *collective.Group) error {
	w := world{group}
	sv, err := begin(dir, s, w)
	if err != nil {
		return err
	}
	return sv.finish(w)
}

// SaveAsync is [Save] that returns when the state has been copied to host memory: what changes it later does not change what
// is saved. The rest goes on while the ranks do; Wait of the result returns its error. The copies need memory on the host
// for what the rank writes.
func SaveAsync(dir string, s State, group *collective.Group) (*Pending, error) {
	own, err := ownGroup(group)
	if err != nil {
		return nil, err
	}
	w := world{own}
	sv, err := begin(dir, s, w)
	if err == nil {
		err = sv.snapshot()
		if _, err = exchange(w, struct{}{}, err); err != nil {
			sv.end()
		}
	}
	if err != nil {
		return nil, errors.Join(err, closeGroup(own))
	}
	p := &Pending{done: make(chan struct{})}
	ctx := core.CurrentContext().Worker(0)
	go func() {
		defer close(p.done)
		core.WithMode(func(m core.Mode) core.Mode { return m.WithContext(ctx) }, func() { p.err = sv.finish(w) })
		p.err = errors.Join(p.err, closeGroup(own))
		ctx.Free()
	}()
	return p, nil
}

// ownGroup returns a group of the ranks of g for what runs beside their other calls.
func ownGroup(g *collective.Group) (*collective.Group, error) {
	if g == nil {
		return nil, nil
	}
	all := make([]int, g.Size())
	for r := range all {
		all[r] = r
	}
	return g.New(all, collective.Options{Timeout: g.Timeout()})
}

func closeGroup(g *collective.Group) error {
	if g == nil {
		return nil
	}
	return g.Close()
}

// Pending is a save that goes on.
type Pending struct {
	done chan struct{}
	err  error
}

// Done returns a channel that is closed when the save has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the save and returns its error.
func (p *Pending) Wait() error {
	<-p.done
	return p.err
}

// A save is one rank's part in writing a checkpoint.
type save struct {
	dir     string
	name    string // the same on all ranks
	plan    *plan
	writers map[string][]int
	index   *index
	pieces  []Piece        // those that this rank writes
	copies  []*core.Tensor // of an asynchronous save
	place   string         // its key among those running
}

// running holds the folders that saves of this process are writing to, by rank.
var running = struct {
	sync.Mutex
	places map[string]bool
}{places: map[string]bool{}}

// begin makes the plan of a save. All ranks return the same error, or all go on.
func begin(dir string, s State, w world) (*save, error) {
	sv := &save{dir: dir}
	pieces, problem := describeState(s)
	d := description{Pieces: pieces}
	if problem == nil {
		d.Values, problem = checkValues(s.Values)
	}
	if problem == nil {
		problem = sv.reserve(w.rank())
	}
	if problem == nil {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			problem = errorf(core.IOError, "%w", err)
		}
	}
	if w.rank() == 0 {
		var b [8]byte
		rand.Read(b[:])
		d.Save = hex.EncodeToString(b[:])
	}
	all, err := exchange(w, d, problem)
	if err == nil {
		err = sv.arrange(all, s.Pieces, w)
	}
	if err != nil {
		sv.end()
		return nil, err
	}
	return sv, nil
}

// arrange decides what this rank writes and begins the index.
func (sv *save) arrange(ranks []description, pieces []Piece, w world) (err error) {
	sv.name = ranks[0].Save
	if sv.plan, err = merge(ranks); err != nil {
		return err
	}
	sv.index = &index{Kind: indexKind, Version: version, Tensors: map[string]tensorInfo{}}
	if sv.index.Values, err = joinValues(ranks); err != nil {
		return err
	}
	sv.writers = sv.plan.writers(w.size())
	for _, p := range pieces {
		b := p.box()
		for i, s := range sv.plan.tensors[p.Name].from {
			if s.equal(b) && sv.writers[p.Name][i] == w.rank() {
				sv.pieces = append(sv.pieces, p)
			}
		}
	}
	return nil
}

// snapshot replaces the pieces to be written by copies in host memory.
func (sv *save) snapshot() (err error) {
	return onHost(func(host core.Device) error {
		for i, p := range sv.pieces {
			var c *core.Tensor
			if p.Tensor.Device() == host {
				c = op.Clone(p.Tensor)
			} else {
				c = op.ToDevice(p.Tensor, host)
			}
			if err := c.Err(); err != nil {
				return fmt.Errorf("tensor %q: %w", p.Name, err)
			}
			sv.copies = append(sv.copies, c.Keep())
			sv.pieces[i].Tensor = c
		}
		return nil
	})
}

// A result is what a rank tells of its file.
type result struct {
	Bytes int64
	CRC   map[string]uint32 // by key
}

// finish writes the rank's file, and on rank 0 the index once all have written theirs.
func (sv *save) finish(w world) error {
	defer sv.end()
	path := filepath.Join(sv.dir, fileName(sv.name, w.rank(), w.size()))
	r, problem := sv.write(path)
	all, err := exchange(w, r, problem)
	if err != nil {
		// Without agreement rank 0 may have gone on, to an index that names the file.
		if w.group == nil || errors.As(err, new(agreed)) {
			os.Remove(path)
		}
		return err
	}
	if w.rank() == 0 {
		sv.complete(all)
		if problem = sv.index.write(sv.dir); problem == nil {
			problem = sv.sweep()
		}
	}
	_, err = exchange(w, struct{}{}, problem)
	return err
}

// write writes the rank's pieces.
func (sv *save) write(path string) (result, error) {
	r := result{CRC: map[string]uint32{}}
	if len(sv.pieces) == 0 {
		return r, nil
	}
	var entries []safetensors.Entry
	for _, p := range sv.pieces {
		e, err := safetensors.EntryOf(p.box().key(p.Name, p.whole()), p.Tensor)
		if err != nil {
			return r, err
		}
		stream := e.Stream
		e.Stream = func(w io.Writer) error {
			sum := crc32.New(castagnoli)
			err := stream(io.MultiWriter(w, sum))
			r.CRC[e.Name] = sum.Sum32()
			return err
		}
		entries = append(entries, e)
	}
	if err := safetensors.WriteFile(path, entries, nil); err != nil {
		return r, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return r, errorf(core.IOError, "%w", err)
	}
	r.Bytes = info.Size()
	return r, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// complete adds to the index what the ranks have written.
func (sv *save) complete(ranks []result) {
	number := make([]int, len(ranks))
	for r, res := range ranks {
		number[r] = len(sv.index.Files)
		if len(res.CRC) > 0 {
			sv.index.Files = append(sv.index.Files, fileInfo{fileName(sv.name, r, len(ranks)), res.Bytes})
		}
	}
	for name, t := range sv.plan.tensors {
		info := tensorInfo{DType: t.dtype, Shape: t.whole, Pieces: []pieceInfo{}}
		for i, s := range t.from {
			w := sv.writers[name][i]
			info.Pieces = append(info.Pieces, pieceInfo{number[w], s.box, ranks[w].CRC[s.key(name, t.whole)]})
		}
		sv.index.Tensors[name] = info
	}
}

// sweep removes the files of other saves.
func (sv *save) sweep() error {
	files, err := os.ReadDir(sv.dir)
	if err != nil {
		return errorf(core.IOError, "%w", err)
	}
	for _, f := range files {
		if name := f.Name(); ours.MatchString(name) && name[:len(sv.name)] != sv.name {
			if err := os.Remove(filepath.Join(sv.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return errorf(core.IOError, "the checkpoint is complete, but a file of an earlier one stays: %w", err)
			}
		}
	}
	return nil
}

// reserve makes sure that no other save of this rank is writing to the folder: they would remove each other's files.
func (sv *save) reserve(rank int) error {
	path, err := filepath.Abs(sv.dir)
	if err != nil {
		return errorf(core.IOError, "%w", err)
	}
	place := fmt.Sprintf("%d %s", rank, path)
	running.Lock()
	defer running.Unlock()
	if running.places[place] {
		return errorf(core.StateError, "a save to %s is still running; wait for it first", sv.dir)
	}
	running.places[place], sv.place = true, place
	return nil
}

// end gives up what the save holds.
func (sv *save) end() {
	for _, c := range sv.copies {
		c.Release()
	}
	sv.copies = nil
	if sv.place != "" {
		running.Lock()
		delete(running.places, sv.place)
		running.Unlock()
		sv.place = ""
	}
}

// onHost runs fn without gradients where new tensors lie on the host.
func onHost(fn func(host core.Device) error) error {
	host, err := core.OpenDevice("cpu")
	if err != nil {
		return err
	}
	ctx := core.CurrentContext().Worker(0)
	defer ctx.Free()
	ctx.SetDefaultDevice(host)
	core.WithMode(func(m core.Mode) core.Mode { return m.WithContext(ctx).WithGrad(false) }, func() { err = fn(host) })
	return err
}

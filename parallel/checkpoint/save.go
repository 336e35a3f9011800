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
	"runtime/debug"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/disk"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/safetensors"
	"github.com/plait-ml/plait/parallel/collective"
)

// Save writes the states of all ranks of group to the folder dir as one checkpoint. It creates the folder if necessary. All ranks must call
// it and share one file system. A nil group means a single rank. Save returns when the checkpoint is complete and on disk, or with an error
// on every rank. After an error dir still holds its previous checkpoint.
//
// Errors: different folders on different ranks; pieces that do not match, do not cover a tensor, or have other values than on other ranks;
// different values under one name; another save to the folder in progress, in this or another process; errors of the file system.
func Save(dir string, s State, group *collective.Group) error {
	w := worldOf(group, "a save")
	sv, err := beginSave(dir, s, w)
	if err != nil {
		return err
	}
	return sv.finish(w)
}

// SaveAsync is [Save] in the background. It returns once the state is copied to host memory, so later changes do not affect the checkpoint.
// Wait of the result returns the error. When the function of a rank of [collective.Spawn] returns, the rank waits for the save and reports
// its error if nobody has called Wait. The copies need host memory for the pieces that this rank writes.
func SaveAsync(dir string, s State, group *collective.Group) (*Pending, error) {
	own, err := ownGroup(group)
	if err != nil {
		return nil, err
	}
	w := worldOf(own, "a save")
	sv, err := beginSave(dir, s, w)
	if err == nil {
		err = sv.snapshot()
		if _, err = exchange(w, struct{}{}, err); err != nil {
			sv.release()
		}
	}
	if err != nil {
		return nil, errors.Join(err, closeGroup(own))
	}
	p := &Pending{done: make(chan struct{}), cancel: func() {}}
	if group != nil {
		p.cancel = group.BeforeEnd(p.Wait)
	}
	ctx := core.CurrentContext().Worker(0)
	go func() {
		core.WithMode(func(m core.Mode) core.Mode { return m.WithContext(ctx) }, func() { p.err = sv.finishSafely(w) })
		p.err = errors.Join(p.err, closeGroup(own))
		ctx.Free()
		close(p.done)
		if p.err == nil {
			p.cancel()
		}
	}()
	return p, nil
}

// ownGroup returns a new group of the same ranks, for calls that run concurrently with their other collectives.
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

// Pending is a save in progress.
type Pending struct {
	done   chan struct{}
	err    error
	cancel func() // removes the hook that waits at the rank's end
}

// Done returns a channel that is closed when the save has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the save and returns its error.
func (p *Pending) Wait() error {
	<-p.done
	p.cancel()
	return p.err
}

// A saveJob is one rank's share of writing a checkpoint.
type saveJob struct {
	dir     string // with symbolic links resolved; the same on all ranks
	name    string // the same on all ranks
	plan    *plan
	writers map[string][]int
	index   *index
	pieces  []Piece        // pieces that this rank writes
	copies  []*core.Tensor // of an asynchronous save
	lock    *disk.Lock     // held by rank 0 for all ranks
}

// beginSave plans a save. Either all ranks return the same error, or none does.
func beginSave(dir string, s State, w world) (*saveJob, error) {
	s = localState(s)
	sv := &saveJob{}
	var problem error
	d := rankDescription{}
	if d.Pieces, problem = describeState(s); problem == nil {
		d.Values, problem = checkValues(s.Values)
	}
	if problem == nil {
		d.Dir, problem = resolve(dir)
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
		return nil, err
	}
	problem = sv.prepare(w)
	var digests []uint32
	if problem == nil {
		digests, problem = sv.digests(s.Pieces, w)
	}
	told, err := exchange(w, digests, problem)
	if err == nil {
		err = sv.plan.compareDigests(told)
	}
	if err != nil {
		sv.release()
		return nil, err
	}
	return sv, nil
}

// prepare creates the folder. Rank 0 locks it and removes leftover files of killed writers.
func (sv *saveJob) prepare(w world) error {
	if err := disk.MakeFolder(sv.dir); err != nil {
		return errorf(core.IOError, "%w", err)
	}
	if w.rank() != 0 {
		return nil
	}
	var err error
	if sv.lock, err = disk.Acquire(sv.dir, fmt.Sprintf("the save %s (ranks: %d)", sv.name, w.size())); err != nil {
		if errors.As(err, new(*disk.HeldError)) {
			return errorf(core.StateError, "%w", err)
		}
		return errorf(core.IOError, "%w", err)
	}
	return sv.sweep()
}

// arrange selects the pieces that this rank writes and starts the index.
func (sv *saveJob) arrange(ranks []rankDescription, pieces []Piece, w world) (err error) {
	sv.name, sv.dir = ranks[0].Save, ranks[0].Dir
	for r, d := range ranks {
		if d.Dir != sv.dir {
			return errorf(core.DistributedError, "the ranks want to save to different folders: rank 0 to %s, rank %d to %s", sv.dir, r, d.Dir)
		}
	}
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

// snapshot replaces the pieces to write by copies in host memory.
func (sv *saveJob) snapshot() (err error) {
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

// A result describes the file that a rank wrote.
type result struct {
	Bytes int64
	CRC   map[string]uint32 // by key
}

// finishSafely is finish with a recover, for the background goroutine.
func (sv *saveJob) finishSafely(w world) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = core.Errorf(core.StateError, "checkpoint", "internal error: %v\n%s", v, debug.Stack())
		}
	}()
	return sv.finish(w)
}

// finish writes the rank's file. Rank 0 then writes the index, once all ranks have written theirs.
func (sv *saveJob) finish(w world) error {
	defer sv.release()
	path := filepath.Join(sv.dir, fileName(sv.name, w.rank(), w.size()))
	r, problem := sv.write(path)
	all, err := exchange(w, r, problem)
	if err != nil {
		// If the ranks did not agree on the error, rank 0 may have written an index that names the file.
		if w.group == nil || errors.As(err, new(agreed)) {
			_ = disk.Remove(path)
		}
		return err
	}
	if w.rank() == 0 {
		sv.completeIndex(all)
		if problem = sv.verifyFiles(w); problem == nil {
			problem = sv.index.write(sv.dir)
		}
		if problem == nil {
			if problem = sv.sweep(); problem != nil {
				problem = fmt.Errorf("the checkpoint is complete, but a file of an earlier one could not be removed: %w", problem)
			}
		}
		sv.lock.Release() // before other ranks go on, perhaps to the next save
	}
	_, err = exchange(w, struct{}{}, problem)
	return err
}

// write writes the rank's pieces to its file.
func (sv *saveJob) write(path string) (result, error) {
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

// completeIndex adds the written files and pieces to the index.
func (sv *saveJob) completeIndex(ranks []result) {
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

// verifyFiles verifies that rank 0 sees the files of the other ranks.
func (sv *saveJob) verifyFiles(w world) error {
	for _, f := range sv.index.Files {
		path := filepath.Join(sv.dir, f.Name)
		if info, err := os.Stat(path); err != nil {
			return errorf(core.IOError, "rank 0 does not see a file that another rank wrote; %s must be on a file system shared by all %d ranks: %w", sv.dir, w.size(), err)
		} else if info.Size() != f.Bytes {
			return errorf(core.IOError, "%s has %d bytes, its rank wrote %d", path, info.Size(), f.Bytes)
		}
	}
	return nil
}

// sweep removes unfinished files, and files that the folder's index does not name. Without a readable index it removes only unfinished
// files, because the others may still be useful to the user.
func (sv *saveJob) sweep() error {
	files, err := os.ReadDir(sv.dir)
	if err != nil {
		return errorf(core.IOError, "%w", err)
	}
	x, err := readIndex(sv.dir)
	needed := map[string]bool{}
	if err == nil {
		for _, f := range x.Files {
			needed[f.Name] = true
		}
	}
	known := err == nil || errors.Is(err, os.ErrNotExist)
	for _, f := range files {
		name := f.Name()
		if leftover.MatchString(name) || known && pieceFile.MatchString(name) && !needed[name] {
			if err := disk.Remove(filepath.Join(sv.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return errorf(core.IOError, "%w", err)
			}
		}
	}
	return nil
}

// resolve returns the absolute path of a folder without symbolic links. The folder need not exist.
func resolve(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", errorf(core.IOError, "%w", err)
	}
	for rest := ""; ; {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, os.ErrNotExist) || path == filepath.Dir(path) {
			return "", errorf(core.IOError, "%w", err)
		}
		path, rest = filepath.Dir(path), filepath.Join(filepath.Base(path), rest)
	}
}

// release releases the copies and the lock.
func (sv *saveJob) release() {
	for _, c := range sv.copies {
		c.Release()
	}
	sv.copies = nil
	sv.lock.Release()
}

// onHost runs fn without gradients and with the CPU as the default device.
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

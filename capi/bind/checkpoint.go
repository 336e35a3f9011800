package bind

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/checkpoint"
	"github.com/plait-ml/plait/parallel/collective"
)

// pieces joins n tensors with what a header says of each.
func pieces(header string, list Tensors, n int64) (checkpoint.State, error) {
	var h struct {
		Pieces []struct {
			Name          string
			Shape, Offset []int
			Any           bool
		}
		Values  map[string]json.RawMessage
		Problem string
	}
	if err := json.Unmarshal([]byte(header), &h); err != nil {
		return checkpoint.State{}, core.Errorf(core.ValueError, "checkpoint", "header: %v", err)
	}
	if int64(len(h.Pieces)) != n {
		return checkpoint.State{}, core.Errorf(core.ValueError, "checkpoint", "got %d names and %d tensors", len(h.Pieces), n)
	}
	s := checkpoint.State{Values: h.Values}
	if h.Problem != "" {
		s.Problem = core.Errorf(core.ValueError, "checkpoint", "%s", h.Problem)
	}
	for i, t := range tensors(list, n) {
		p := h.Pieces[i]
		// A part of a parameter is here for what it holds.
		s.Pieces = append(s.Pieces, checkpoint.Piece{Name: p.Name, Tensor: t.Detach(), Shape: p.Shape, Offset: p.Offset, Any: p.Any})
	}
	return s, nil
}

// groupOrNone returns the group of a handle; nil for 0.
func groupOrNone(h Object) *collective.Group {
	if h == 0 {
		return nil
	}
	return group(h)
}

// A saving is a checkpoint on its way to the disk.
type saving struct{ *checkpoint.Pending }

// CheckpointSave writes the pieces that the ranks of a group hold, and values, to a folder; without a group one rank is alone.
// header is JSON: {"pieces": [{"name", "shape", "offset", "any"}, ...], "values": {...}, "problem": "..."}, with the shape of the whole
// tensor and where the piece begins in it, or neither for a whole one, of which "any" says that ranks may hold different values, and with
// what keeps the rank from taking part.
//
//plait:waits
func CheckpointSave(dir, header string, list Tensors, n int64, of Object) (status Status) {
	defer protect("checkpoint", &status)
	defer using(tensors(list, n)...)()
	s, err := pieces(header, list, n)
	if err != nil {
		return failure(err)
	}
	return failure(checkpoint.Save(dir, s, groupOrNone(of)))
}

// CheckpointSaveAsync is [CheckpointSave] that returns when the pieces are copied to host memory, with an object for
// [CheckpointWaitFor].
//
//plait:waits
func CheckpointSaveAsync(dir, header string, list Tensors, n int64, of Object) (status Object) {
	defer protect("checkpoint", &status)
	defer using(tensors(list, n)...)()
	s, err := pieces(header, list, n)
	if err != nil {
		return failure(err)
	}
	p, err := checkpoint.SaveAsync(dir, s, groupOrNone(of))
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(saving{p})
}

// CheckpointWaitFor waits until a checkpoint is saved, at most so many nanoseconds, and returns whether it is.
//
//plait:waits
func CheckpointWaitFor(h Object, nanoseconds int64) (status Status) {
	defer protect("checkpoint", &status)
	s, ok := handle.Object[saving](h)
	if !ok {
		return failf(core.TypeError, "checkpoint", "%d is not the handle of a save", h)
	}
	select {
	case <-s.Done():
		if err := s.Wait(); err != nil {
			return failure(err)
		}
		return 1
	case <-time.After(time.Duration(nanoseconds)):
		return 0
	}
}

// A loaded is what a checkpoint says beside its tensors.
type loaded struct{ text string }

// CheckpointLoad writes what a checkpoint holds to the pieces that the ranks of a group want, with a header as
// [CheckpointSave] takes, whose values name those that must be there, and returns an object for [CheckpointText]: the values, as JSON.
//
//plait:waits
func CheckpointLoad(dir, header string, list Tensors, n int64, of Object) (status Object) {
	defer protect("checkpoint", &status)
	defer using(tensors(list, n)...)()
	s, err := pieces(header, list, n)
	if err != nil {
		return failure(err)
	}
	values, err := checkpoint.Load(dir, s, groupOrNone(of))
	if err != nil {
		return failure(err)
	}
	return describe(values)
}

// CheckpointInspect reads the index of a checkpoint and returns an object for [CheckpointText]:
// {"tensors": {name: {"dtype", "shape", "problem"}, ...}, "values": {...}} as JSON.
//
//plait:waits
func CheckpointInspect(dir string) (status Object) {
	defer protect("checkpoint", &status)
	infos, values, err := checkpoint.Inspect(dir)
	if err != nil {
		return failure(err)
	}
	type tensor struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Problem string `json:"problem"`
	}
	all := map[string]tensor{}
	for name, info := range infos {
		t := tensor{DType: info.DType.String(), Shape: append([]int{}, info.Shape...)}
		if info.Problem != nil {
			t.Problem = info.Problem.Error()
		}
		all[name] = t
	}
	return describe(map[string]any{"tensors": all, "values": values})
}

func describe(what any) Object {
	text, err := json.Marshal(what)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(loaded{string(text)})
}

// CheckpointText returns the text of an object of [CheckpointLoad] or [CheckpointInspect]; nothing for others.
func CheckpointText(h Object) string {
	l, _ := handle.Object[loaded](h)
	return l.text
}

// CheckpointReshard writes to the pieces that each rank of a group wants what the ranks have, without files: the first n
// tensors, and pieces of the header, are those that the rank has, the rest those it wants.
//
//plait:waits
func CheckpointReshard(header string, list Tensors, n, all int64, of Object) (status Status) {
	defer protect("checkpoint", &status)
	defer using(tensors(list, all)...)()
	s, err := pieces(header, list, all)
	if err != nil {
		return failure(err)
	}
	if n < 0 || n > all {
		return failf(core.ValueError, "checkpoint", "got %d tensors, %d of them the rank's own", all, n)
	}
	return failure(checkpoint.Reshard(slices.Clip(s.Pieces[:n]), s.Pieces[n:], groupOrNone(of)))
}

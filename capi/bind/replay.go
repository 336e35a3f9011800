package bind

import (
	"sync"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/core/replay"
)

// A replayStep is a step with the reasons that it has told.
type replayStep struct {
	replay.Step
	mu   sync.Mutex
	told []string
}

// Close drops the recordings, without waiting for what uses them.
func (s *replayStep) Close() {
	go func() {
		var failed error // nobody is left who could be told
		defer backend.Recover("compile", &failed)
		s.Step.Close()
	}()
}

// ReplayNew returns a function's recordings, of which there are none yet. Release it with [ObjectRelease].
func ReplayNew() (status Object) {
	defer protect("compile", &status)
	s := &replayStep{}
	s.Tell = func(reason error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, reason.Error())
	}
	return handle.AddObject(s)
}

// ReplayReason returns why the function was run in full, each reason once; empty where there is nothing to tell.
func ReplayReason(h Object) string {
	s, ok := handle.Object[*replayStep](h)
	if !ok {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.told) == 0 {
		return ""
	}
	reason := s.told[0]
	s.told = s.told[1:]
	return reason
}

// ReplayRefuse refuses the recording that the thread makes, if it makes one: reason says what a replay would not do again.
func ReplayRefuse(reason string) (status Status) {
	defer protect("compile", &status)
	core.RefuseRecording(reason)
	return 0
}

// ReplayBegin begins a run of a function with n tensors as arguments and returns its turn; key tells other arguments apart. End
// it with [ObjectRelease], on the same thread, also if the function fails.
//
//plait:waits
func ReplayBegin(h Object, key string, inputs Tensors, n int64) (status Object) {
	defer protect("compile", &status)
	s, ok := handle.Object[*replayStep](h)
	if !ok {
		return failf(core.TypeError, "compile", "%d is not the handle of a function's recordings", h)
	}
	list := tensors(inputs, n)
	defer using(list...)()
	t, err := s.Begin(key, list)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(t)
}

func turn(h Object) (*replay.Turn, error) {
	t, ok := handle.Object[*replay.Turn](h)
	if !ok {
		return nil, core.Errorf(core.TypeError, "compile", "%d is not the handle of a turn", h)
	}
	return t, nil
}

// ReplayHow returns 2 if the turn replays, 1 if it records the function, and 0 if the function runs without a recording.
func ReplayHow(h Object) (status int64) {
	defer protect("compile", &status)
	t, err := turn(h)
	switch {
	case err != nil:
		return failure(err)
	case t.Replays():
		return 2
	case t.Records():
		return 1
	}
	return 0
}

// ReplayInputs writes the tensors with which the function is to be called, in place of those given to [ReplayBegin].
func ReplayInputs(h Object, out TensorsOut, room int64) (status Status) {
	defer protect("compile", &status)
	t, err := turn(h)
	if err != nil {
		return failure(err)
	}
	to := handle.Slice[int64](out, min(room, int64(len(t.Inputs()))))
	for i := range to {
		to[i] = handle.Tensors.Add(t.Inputs()[i].Alias(false))
	}
	return 0
}

// ReplayRun replays, and writes up to room results: new tensors, or 0 where the function returns what it returned before.
//
//plait:waits
func ReplayRun(h Object, out TensorsOut, room int64) (status Status) {
	defer protect("compile", &status)
	t, err := turn(h)
	if err != nil {
		return failure(err)
	}
	list, err := t.Replay()
	if err != nil {
		return failure(err)
	}
	writeCopies(t, list, out, room)
	return 0
}

// ReplayEnd ends a turn in which the function returned n tensors, and writes what the caller is to return in place of them, or 0
// for the tensor itself.
//
//plait:waits
func ReplayEnd(h Object, outputs Tensors, n int64, out TensorsOut) (status Status) {
	defer protect("compile", &status)
	t, err := turn(h)
	if err != nil {
		return failure(err)
	}
	given := tensors(outputs, n)
	defer using(given...)()
	list, err := t.End(given)
	if err != nil {
		return failure(err)
	}
	writeCopies(t, list, out, n)
	return 0
}

// writeCopies writes the results of a turn that are copies.
func writeCopies(t *replay.Turn, list []*core.Tensor, out TensorsOut, room int64) {
	to := handle.Slice[int64](out, min(room, int64(len(list))))
	for i := range to {
		if to[i] = 0; t.Copied(i) {
			to[i] = handle.Tensors.Add(list[i])
		}
	}
}

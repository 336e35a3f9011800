package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A kind is what is known for arguments of one kind.
type kind struct {
	warm      bool // the function has run
	attempts  int
	inputs    []*core.Tensor  // what the function is recorded with
	recording *core.Recording // the last one
	agreed    bool            // it is like the one before, so that it can be replayed
	results   []result
	versions  []uint32 // of the inputs, before the function was recorded
	refused   error
}

// A result is what the recorded function returned.
type result struct {
	of     *core.Tensor // what it is a copy of, or the very tensor
	copied bool         // it was made by the function, or is an argument
	owned  bool         // of is the kind's
}

func (k *kind) close() {
	k.dropResults()

	if k.recording != nil {
		k.recording.Close()
		k.recording = nil
	}
	for _, t := range k.inputs {
		t.Release()
	}
	k.inputs, k.agreed, k.attempts = nil, false, 0
}

func (k *kind) dropResults() {
	for _, r := range k.results {
		if r.owned {
			r.of.Release()
		}
	}
	k.results = nil
}

// refuse makes the function run in full from now on.
func (k *kind) refuse(reason error) {
	k.close()
	k.refused = reason
}

// A Turn is one run of a step's function.
type Turn struct {
	step      *Step
	kind      *kind
	inputs    []*core.Tensor
	given     []*core.Tensor // the arguments, where the function is called with copies of them
	recording *core.Recording
	replays   bool
	swapped   map[int]bool // results that are arguments, in place of copies of them
	reason    error        // why the function runs in full although it is not the first time
	done      bool
}

// Begin begins a turn, on the thread that ends it, and copies the inputs to where the recording reads them. If [Turn.Replays] is true,
// [Turn.Replay] is to be called; otherwise the function, with [Turn.Inputs], and then [Turn.End]. [Turn.Close] ends the turn in any case.
func (s *Step) Begin(key string, inputs []*core.Tensor) (*Turn, error) {
	t := &Turn{step: s, inputs: inputs}
	s.mu.Lock()
	if s.busy || core.CurrentRecording() != nil { // a step inside a step is a part of it
		s.mu.Unlock()
		t.done = true
		return t, nil
	}
	s.busy = true
	full := key + kindOf(inputs)
	k := s.kinds[full]
	if k == nil {
		if s.kinds == nil {
			s.kinds = map[string]*kind{}
		}
		k = &kind{}
		if len(s.kinds) >= maxKinds {
			k.refused = core.Errorf(core.StateError, "replay", "there are more than %d kinds of arguments", maxKinds)
		} else {
			s.kinds[full] = k
		}
	}
	s.mu.Unlock()
	t.kind = k
	if err := t.begin(); err != nil {
		t.Close()
		return nil, err
	}
	if t.reason != nil {
		s.tell(t.reason)
	}
	return t, nil
}

func (t *Turn) begin() error {
	k := t.kind
	switch {
	case k.refused != nil:
		t.reason = k.refused
		return nil
	case !k.warm:
		k.warm = true
		return nil
	case k.agreed:
		if t.reason = k.recording.Fits(); t.reason != nil {
			k.agreed = false // what has changed may stay so, and can be recorded then
			return nil
		}
		t.replays = true
		return t.copyInputs()
	}
	for _, x := range t.inputs {
		if x.RequiresGrad() {
			k.refuse(core.Errorf(core.StateError, "replay", "an argument requires a gradient, got %v", x))
			t.reason = k.refused
			return nil
		}
	}
	if k.inputs == nil {
		for _, x := range t.inputs {
			d := x.DType()
			k.inputs = append(k.inputs, op.EmptyWith(x.Shape(), op.TensorOptions{DType: &d, Device: x.Device()}).Keep())
		}
	}
	if err := t.copyInputs(); err != nil {
		return err
	}
	k.attempts++
	k.versions = k.versions[:0]
	for _, x := range k.inputs {
		k.versions = append(k.versions, x.Storage().Version())
	}
	var err error
	t.recording, err = core.Record(k.recording)
	t.given, t.inputs = t.inputs, k.inputs
	return err
}

// copyInputs copies the arguments to where the recording reads them.
func (t *Turn) copyInputs() (err error) {
	core.WithMode(func(m core.Mode) core.Mode { return m.WithGrad(false).WithoutAutocast() }, func() {
		for i, x := range t.inputs {
			if err = op.CopyInPlace(t.kind.inputs[i], x).Err(); err != nil {
				return
			}
		}
	})
	return err
}

// Replays reports whether the turn launches the recorded calls, without the function.
func (t *Turn) Replays() bool { return t.replays }

// Inputs returns what the function is to be called with in place of the tensors given to [Step.Begin].
func (t *Turn) Inputs() []*core.Tensor { return t.inputs }

// Replay launches the recorded calls and returns the results: copies of those that the function made, and otherwise the tensors that it
// returned.
func (t *Turn) Replay() ([]*core.Tensor, error) {
	if err := t.kind.recording.Replay(); err != nil {
		return nil, err
	}
	return t.kind.copies()
}

// Copied reports whether result i is a copy, not the very tensor that the function returned when it was recorded.
func (t *Turn) Copied(i int) bool {
	return t.swapped[i] || t.kind != nil && i < len(t.kind.results) && t.kind.results[i].copied
}

// Records reports whether the function is recorded in this turn.
func (t *Turn) Records() bool { return t.recording != nil }

// End ends a turn in which the function has returned outputs. It returns what the caller is to return in place of them.
func (t *Turn) End(outputs []*core.Tensor) ([]*core.Tensor, error) {
	r, k := t.recording, t.kind
	if r == nil {
		return outputs, nil
	}
	t.recording = nil
	last := k.recording
	k.recording = r
	reason := r.End(outputs)
	changed := t.changed()
	if reason == nil && len(changed) > 0 {
		reason = core.Errorf(core.StateError, "replay", "the function changes an argument in place, got %v", k.inputs[changed[0]])
	}
	if reason == nil && last != nil && last.Err() == nil {
		if reason = r.Matches(last); reason == nil {
			k.agreed = true
		} else if k.attempts < maxAttempts {
			reason = nil
		}
	}
	if last != nil {
		last.Close()
	}
	if reason != nil {
		err := t.returnChanges(changed)
		outputs = t.swap(outputs)
		k.refuse(reason)
		t.step.tell(reason)
		return outputs, err
	}
	if k.agreed {
		k.attempts = 0
		r.Trim()
	}
	k.keep(outputs)
	return k.copies()
}

// changed returns which arguments the function has changed in place: it had copies of them.
func (t *Turn) changed() (list []int) {
	for i, x := range t.kind.inputs {
		if x.Storage().Version() != t.kind.versions[i] {
			list = append(list, i)
		}
	}
	return list
}

// returnChanges copies what the function has changed to the arguments themselves.
func (t *Turn) returnChanges(changed []int) (err error) {
	core.WithMode(func(m core.Mode) core.Mode { return m.WithGrad(false).WithoutAutocast() }, func() {
		for _, i := range changed {
			if err == nil {
				err = op.CopyInPlace(t.given[i], t.kind.inputs[i]).Err()
			}
		}
	})
	return err
}

// swap returns outputs with arguments in place of the copies that the function had of them.
func (t *Turn) swap(outputs []*core.Tensor) []*core.Tensor {
	outputs = slices.Clone(outputs)
	for i, x := range outputs {
		at := slices.IndexFunc(t.kind.inputs, func(in *core.Tensor) bool {
			return in.Storage() != nil && in.Storage() == x.Storage() && in.Offset() == x.Offset() && in.SameLayout(x)
		})
		if at >= 0 {
			if t.swapped == nil {
				t.swapped = map[int]bool{}
			}
			outputs[i], t.swapped[i] = t.given[at].Alias(false), true
		}
	}
	return outputs
}

// keep keeps what the recorded function returned. What it has made is to be copied if a replay may write it.
func (k *kind) keep(outputs []*core.Tensor) {
	k.dropResults()
	for i, x := range outputs {
		r := result{of: x}
		if made := k.recording.Output(i); made != nil && k.agreed {
			r.of, r.copied = made, true
		} else if k.given(x) {
			r = result{x.Detach().Keep(), true, true}
		}
		k.results = append(k.results, r)
	}
}

// copies returns the results of the last replay.
func (k *kind) copies() (list []*core.Tensor, err error) {
	core.WithMode(func(m core.Mode) core.Mode { return m.WithGrad(false).WithoutAutocast() }, func() {
		for _, r := range k.results {
			x := r.of
			if r.copied {
				if x = op.Clone(r.of); err == nil {
					err = x.Err()
				}
			}
			list = append(list, x)
		}
	})
	return list, err
}

// given reports whether x lies in an argument.
func (k *kind) given(x *core.Tensor) bool {
	return slices.ContainsFunc(k.inputs, func(in *core.Tensor) bool { return in.Storage() != nil && in.Storage() == x.Storage() })
}

// Close ends the turn. If it has not ended yet, because the function failed, its recording is dropped.
func (t *Turn) Close() {
	if t.done {
		return
	}
	t.done = true
	if r := t.recording; r != nil {
		r.End(nil)
		_ = t.returnChanges(t.changed()) // the function's own error is told
		if t.kind.recording != nil {
			t.kind.recording.Close()
		}
		r.Close()
		t.kind.recording = nil
	}
	t.step.mu.Lock()
	t.step.busy = false
	t.step.mu.Unlock()
}

// kindOf describes the tensors, and the modes that operations obey.
func kindOf(inputs []*core.Tensor) string {
	var b strings.Builder
	m := core.CurrentMode()
	fmt.Fprintf(&b, "|%v %v %v %v", m.Settings(), core.Permissions(), m.Context().DefaultDType(), m.Context().Rank())
	if d, err := m.Context().DefaultDevice(); err == nil {
		fmt.Fprintf(&b, " %v", d)
	}
	for _, x := range inputs {
		fmt.Fprintf(&b, "|%v %v %v", x.DType(), x.Shape(), x.Device())
	}
	return b.String()
}

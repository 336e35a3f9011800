// Package replay runs a function of tensors, such as a training step, again and again by launching the calls that it once launched.
package replay

import (
	"sync"

	"github.com/plait-ml/plait/core"
)

const (
	// maxKinds is how many kinds of arguments a step is replayed for.
	maxKinds = 8
	// maxAttempts is how many recordings of one kind are made at most until two of them agree.
	maxAttempts = 5
)

// A Step replays a function. The function runs in full the first time, as what it makes once is made then; it is recorded when it runs again,
// until two recordings agree; from then on the recorded calls are launched without the function. The recordings are kept by the kind of
// arguments: dtypes, shapes and devices of tensors, and the modes that operations obey. If a step cannot be replayed, the function runs in
// full, and the step says so once.
//
// The function must do the same each time, except for what its tensor arguments hold, for random numbers, and for the rates and the count
// of optimisers. Whatever it does besides operations, it does not do again. Tensors that it leaves, such as gradients, stay in the same
// memory, which the next replay overwrites; those that it returns are copies, without a graph.
type Step struct {
	// Tell is called with the reason when the function runs in full for a reason that is not known yet; nil for no report.
	Tell func(reason error)

	mu    sync.Mutex
	busy  bool // in a turn
	kinds map[string]*kind
	told  map[string]bool
}

// Run runs the function, or launches what was recorded of it, and returns its results. key tells arguments apart that are no tensors.
func (s *Step) Run(key string, inputs []*core.Tensor, fn func(inputs []*core.Tensor) ([]*core.Tensor, error)) ([]*core.Tensor, error) {
	t, err := s.Begin(key, inputs)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if t.Replays() {
		return t.Replay()
	}
	outputs, err := fn(t.Inputs())
	if err != nil {
		return nil, err
	}
	return t.End(outputs)
}

// Close releases what the step holds. It can be used again.
func (s *Step) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kinds {
		k.close()
	}
	s.kinds = nil
}

// tell reports a reason that was not reported yet.
func (s *Step) tell(reason error) {
	s.mu.Lock()
	known := s.told[reason.Error()]
	if s.told == nil {
		s.told = map[string]bool{}
	}
	s.told[reason.Error()] = true
	s.mu.Unlock()
	if !known && s.Tell != nil {
		s.Tell(reason)
	}
}

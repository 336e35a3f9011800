package backend

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// A FirstError keeps the first error until Take.
type FirstError struct{ first atomic.Pointer[failure] }

type failure struct{ err error }

// Set stores err unless there is an error already.
func (f *FirstError) Set(err error) { f.first.CompareAndSwap(nil, &failure{err}) }

// Get returns the error, or nil.
func (f *FirstError) Get() error {
	if x := f.first.Load(); x != nil {
		return x.err
	}
	return nil
}

// Take returns the error and clears it.
func (f *FirstError) Take() error {
	if f.first.Load() == nil {
		return nil
	}
	if x := f.first.Swap(nil); x != nil {
		return x.err
	}
	return nil
}

// Replace replaces the error old by better, if old is the stored error.
func (f *FirstError) Replace(old, better error) {
	if x := f.first.Load(); x != nil && x.err == old {
		f.first.CompareAndSwap(x, &failure{better})
	}
}

// Failure returns the first unread error and leaves it unread.
func (s *Stream) Failure() error { return s.Errors.Get() }

// TakeError implements [core.Stream].
func (s *Stream) TakeError() error { return s.Errors.Take() }

// Perform runs a call unless an input failed. An input's error, or an error or panic of run, becomes the error of the outputs; the latter
// also of the stream.
func (s *Stream) Perform(c *core.Call, run func(c *core.Call) error) {
	if err := c.CheckInputs(); err != nil {
		c.Skip(err)
	} else if err = recovered(c, run); err != nil {
		s.FailCall(c, err)
	}
}

// FailCall fails a call that has begun, with err.
func (s *Stream) FailCall(c *core.Call, err error) {
	c.Fail(err)
	s.Errors.Set(err)
}

func recovered(c *core.Call, run func(c *core.Call) error) (err error) {
	defer Recover(c.Op, &err)
	return run(c)
}

// Recover turns a panic into the error of an operation. Use it with defer.
func Recover(op string, err *error) {
	if x := recover(); x != nil {
		*err = core.Errorf(core.StateError, op, "internal error: %v\n%s", x, debug.Stack())
	}
}

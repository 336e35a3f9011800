package backend

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// A FirstError keeps the first error until somebody takes it.
type FirstError struct{ first atomic.Pointer[failure] }

type failure struct{ err error }

// Set keeps err if there is none.
func (f *FirstError) Set(err error) { f.first.CompareAndSwap(nil, &failure{err}) }

// Get returns the error, or nil.
func (f *FirstError) Get() error {
	if x := f.first.Load(); x != nil {
		return x.err
	}
	return nil
}

// Take returns the error and forgets it.
func (f *FirstError) Take() error {
	if f.first.Load() == nil {
		return nil
	}
	if x := f.first.Swap(nil); x != nil {
		return x.err
	}
	return nil
}

// Replace puts a better error in the place of old, if that is the one.
func (f *FirstError) Replace(old, better error) {
	if x := f.first.Load(); x != nil && x.err == old {
		f.first.CompareAndSwap(x, &failure{better})
	}
}

// Failure returns the first unread error, and leaves it unread.
func (s *Stream) Failure() error { return s.Errors.Get() }

// TakeError implements [core.Stream].
func (s *Stream) TakeError() error { return s.Errors.Take() }

// Perform runs a call unless an input failed: then its outputs are what they would not be otherwise, and whoever reads them is told. An
// error or a panic of run is that of the outputs and of the stream.
func (s *Stream) Perform(c *core.Call, run func(c *core.Call) error) {
	if err := c.CheckInputs(); err != nil {
		c.Skip(err)
	} else if err = recovered(c, run); err != nil {
		s.FailCall(c, err)
	}
}

// FailCall makes err the failure of a call that has begun.
func (s *Stream) FailCall(c *core.Call, err error) {
	c.Fail(err)
	s.Errors.Set(err)
}

func recovered(c *core.Call, run func(c *core.Call) error) (err error) {
	defer Recover(c.Op, &err)
	return run(c)
}

// Recover makes a panic the error of an operation. It is deferred.
func Recover(op string, err *error) {
	if x := recover(); x != nil {
		*err = core.Errorf(core.StateError, op, "internal error: %v\n%s", x, debug.Stack())
	}
}

package collective

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
)

// An error may come back to the process that it began in, as the reason why others have failed. It must then be known for the same error, so
// that it counts as reported. So errors travel with an origin, and each process keeps those that it has sent last.

// An origin identifies an error.
type origin struct {
	process uint64 // a random number of the process
	number  uint64
}

// keptErrors is how many sent errors a process keeps.
const keptErrors = 256

var sentErrors = struct {
	sync.Mutex
	process uint64
	next    uint64
	list    [keptErrors]error
}{process: rand.Uint64()}

// originOf returns the origin of the first cause of an error that is sent.
func originOf(err error) origin {
	if o, ok := findOrigin(err); ok {
		return o
	}
	err = firstCause(err)
	s := &sentErrors
	s.Lock()
	defer s.Unlock()
	for i := range min(s.next, keptErrors) { // it may go to several processes
		if !reflect.TypeOf(err).Comparable() {
			break
		}
		if n := s.next - 1 - i; s.list[n%keptErrors] == err {
			return origin{s.process, n}
		}
	}
	s.list[s.next%keptErrors] = err
	s.next++
	return origin{s.process, s.next - 1}
}

func firstCause(err error) error {
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(err) {
		err = cause
	}
	return err
}

// A foreignError is the cause of an error that another process has sent.
type foreignError struct {
	origin
	own error // the cause itself, if it began in this process
}

func (*foreignError) Error() string { return "an error of another process" }

// Is reports whether target has the same cause, perhaps from another message.
func (e *foreignError) Is(target error) bool {
	if o, ok := findOrigin(target); ok {
		return o == e.origin
	}
	cause := firstCause(target)
	return e.own != nil && reflect.TypeOf(cause).Comparable() && cause == e.own
}

// findOrigin returns the origin of an error that has come from another process.
func findOrigin(err error) (origin, bool) {
	switch x := err.(type) {
	case nil:
		return origin{}, false
	case *foreignError:
		return x.origin, true
	case interface{ Unwrap() error }:
		return findOrigin(x.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range x.Unwrap() {
			if o, ok := findOrigin(e); ok {
				return o, true
			}
		}
	}
	return origin{}, false
}

// cause returns an error that keeps the origin.
func (o origin) cause() error {
	s := &sentErrors
	s.Lock()
	defer s.Unlock()
	if o.process == s.process && o.number < s.next && o.number+keptErrors >= s.next {
		return &foreignError{o, s.list[o.number%keptErrors]}
	}
	return &foreignError{origin: o}
}

package core

import (
	"errors"
	"fmt"
)

// A Kind classifies an [Error]. Each kind maps to one exception class of the Python package.
type Kind uint8

// The kinds of errors.
const (
	ValueError       Kind = iota // a bad value of an argument
	ShapeError                   // shapes that do not match; Python: ValueError and RuntimeError
	DTypeError                   // a dtype that the operation does not support; Python: TypeError and RuntimeError
	TypeError                    // a bad type of an argument
	IndexError                   // an axis or an index out of range
	MemoryError                  // an allocation that failed
	NotImplemented               // not supported on this device
	DeviceError                  // a device failed, or operands are on different devices
	StateError                   // a call in the wrong state: a freed graph, a modified saved tensor; Python: RuntimeError
	IOError                      // files
	DistributedError             // ranks that disagree, failed or never arrived; Python: RuntimeError
	MatrixError                  // a matrix that linear algebra cannot handle, such as a singular one; Python: LinAlgError
)

var kindNames = [...]string{"value error", "shape error", "dtype error", "type error", "index error", "memory error",
	"not implemented", "device error", "state error", "i/o error", "distributed error", "matrix error"}

func (k Kind) String() string { return kindNames[k] }

// An Error is a failed operation: its name, what it got and what it wanted.
type Error struct {
	Kind Kind
	Op   string // the operation, such as "matmul"
	Msg  string
	Err  error // the cause, if any
}

func (e *Error) Error() string {
	if e.Op == "" {
		return e.Msg
	}
	return e.Op + ": " + e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an *Error of the given kind for the operation op. A %w verb sets its cause.
func Errorf(kind Kind, op, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Op: op, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// KindOf returns the kind of the first *Error in err's chain, and false if there is none.
func KindOf(err error) (Kind, bool) {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind, true
	}
	return 0, false
}

package core

import (
	"errors"
	"fmt"
)

// A Kind says what an [Error] is about. Each maps to one exception class of the Python package.
type Kind uint8

// The kinds of errors.
const (
	ValueError       Kind = iota // an argument's value
	ShapeError                   // shapes that do not fit; Python: ValueError and RuntimeError
	DTypeError                   // a dtype the operation cannot take; Python: TypeError and RuntimeError
	TypeError                    // an argument of the wrong kind
	IndexError                   // an axis or an index out of range
	MemoryError                  // an allocation that failed
	NotImplemented               // something this device cannot do
	DeviceError                  // a device that failed or does not fit
	StateError                   // a call out of order: a freed graph, a changed saved tensor; Python: RuntimeError
	IOError                      // files
	DistributedError             // ranks that disagree, died or never came; Python: RuntimeError
	MatrixError                  // a matrix that linear algebra cannot take, such as a singular one; Python: LinAlgError
)

var kindNames = [...]string{"value error", "shape error", "dtype error", "type error", "index error", "memory error",
	"not implemented", "device error", "state error", "i/o error", "distributed error", "matrix error"}

func (k Kind) String() string { return kindNames[k] }

// An Error is a failed operation: which one, and what it got and wanted.
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

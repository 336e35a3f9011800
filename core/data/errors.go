package data

import (
	"fmt"
	"runtime/debug"
)

// BatchError says which batch of a pass failed. The batches before and after it are not concerned.
type BatchError struct {
	Batch int // counted from 0 in the pass
	Index int // the sample, or -1 where it is not one sample's fault
	Err   error
}

func (e *BatchError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("data: batch %d: %v", e.Batch, e.Err)
	}
	return fmt.Sprintf("data: batch %d, sample %d: %v", e.Batch, e.Index, e.Err)
}

// Unwrap returns the cause.
func (e *BatchError) Unwrap() error { return e.Err }

// PanicError is a panic of a dataset, a sampler or a collate function.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// recovered turns a running panic into *err; to be deferred.
func recovered(err *error) {
	if value := recover(); value != nil {
		*err = &PanicError{Value: value, Stack: debug.Stack()}
	}
}

package bind

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/capi/python"
	"github.com/plait-ml/plait/core"
)

func init() {
	// Descriptions of tensors are all that the Go heap holds, and operations make them fast: at the usual setting the
	// collector would run after every few thousand of them.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// Busy is the status of a function that did nothing because a queue it would have used is nearly full: call
// [WaitForQueueSpace] and try again.
const Busy = -1

// Version returns the version of Plait, such as "0.1.0".
func Version() string { return version }

// ErrorKind returns the number of an error's kind: 0 value, 1 shape, 2 dtype, 3 type, 4 index, 5 memory, 6 not
// implemented, 7 device, 8 state, 9 input and output, 10 ranks that disagree, died or never came, 11 a matrix that linear algebra cannot take;
// 100 is what is no error: see [PackNext].
func ErrorKind(status Status) int64 {
	if _, ok := handle.Error(status).(*packing); ok {
		return packingKind
	}
	if k, ok := core.KindOf(handle.Error(status)); ok {
		return int64(k)
	}
	return int64(core.StateError)
}

// ErrorMessage returns what an error says: the operation, what it got and what it wanted.
func ErrorMessage(status Status) string {
	if err := handle.Error(status); err != nil {
		return err.Error()
	}
	return "unknown error"
}

// ErrorRelease frees an error.
func ErrorRelease(status Status) Status {
	handle.TakeError(status)
	return 0
}

// failure returns the status that names err.
func failure(err error) Status {
	if err == nil {
		return 0
	}
	return handle.AddError(err)
}

func failf(kind core.Kind, op, format string, args ...any) Status {
	return failure(core.Errorf(kind, op, format, args...))
}

// refuseZero fails for an option that is 0, which Go's options take for the default.
func refuseZero(op, option string) Status {
	return failf(core.ValueError, op, "%s must not be 0", option)
}

// protect turns a panic into the status of the function that defers it.
func protect(op string, status *Status) {
	if r := recover(); r != nil {
		*status = failure(panicError(op, r))
	}
}

func panicError(op string, r any) error {
	if err, ok := r.(error); ok {
		var known *core.Error
		if errors.As(err, &known) {
			return err
		}
	}
	return core.Errorf(core.StateError, op, "internal error: %s\n%s", fmt.Sprint(r), debug.Stack())
}

// queueNearlyFull reports whether an operation might have to wait for space in a queue.
func queueNearlyFull() bool { return core.QueueNearlyFull() }

// slice bounds the waits of functions that are called again, so that their caller can look after signals meanwhile.
const slice = 50 * time.Millisecond

// WaitForQueueSpace waits until operations need not wait for space in a queue, at most for a twentieth of a second.
//
//plait:waits
func WaitForQueueSpace() Status {
	core.WaitForQueueSpace(slice)
	return 0
}

// Python's lock is the foreign lock of package core.
func init() {
	core.SetForeignLockHeld(python.LockHeld)
	core.SetWithoutForeignLock(python.Unlocked)
}

package core

/*
#include <stdint.h>

// The mode of the calling thread: see mode.go.
static __thread uint64_t plaitk_mode;
static uint64_t plaitk_mode_get(void) { return plaitk_mode; }
static uint64_t plaitk_mode_swap(uint64_t m) {
  uint64_t old = plaitk_mode;
  plaitk_mode = m;
  return old;
}
static uintptr_t plaitk_thread_get(void) { return (uintptr_t)&plaitk_mode; }
static __thread uint32_t plaitk_task;
static uint32_t plaitk_task_get(void) { return plaitk_task; }
static uint32_t plaitk_task_swap(uint32_t t) {
  uint32_t old = plaitk_task;
  plaitk_task = t;
  return old;
}
*/
import "C"

import "runtime"

// A Mode is the state of the calling thread that operations obey: gradient recording, autocast, the current [Context] and the [Scope] that
// releases results. It is a thread-local variable in C, because threads come from Python as well as from Go. The zero Mode records
// gradients in the default context without a scope.
//
// A goroutine that changes the mode must be locked to its thread until it restores it. A new goroutine starts with the zero Mode.
type Mode uint64

const (
	modeNoGrad    Mode = 1 << 0
	modeInference Mode = 1 << 1
	modeAnomaly   Mode = 1 << 2
	// Bits 3 to 7 are autocast's: see autocast.go.

	modeCheckGrads Mode = 1 << 8
	// Bits 9 to 11 are the depth from which on forward levels are not seen: see forward.go.
	modeForwardShift = 9
	modeForwardMask  = maxForwardDepth

	modeReplicate Mode = 1 << 12
	modeStrict    Mode = 1 << 13

	modeContextShift = 14
	modeContextMask  = 1<<18 - 1
	modeScopeShift   = 32
)

// CurrentMode returns the mode of the calling thread.
func CurrentMode() Mode { return Mode(C.plaitk_mode_get()) }

// CurrentThread returns a number that no other thread of the process has while the calling thread lives.
func CurrentThread() uintptr { return uintptr(C.plaitk_thread_get()) }

// SwapMode sets the mode of the calling thread and returns the one it had.
func SwapMode(m Mode) Mode { return Mode(C.plaitk_mode_swap(C.uint64_t(m))) }

// WithMode runs fn in the mode that change returns, and restores the old mode, even if fn panics.
func WithMode(change func(Mode) Mode, fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old := CurrentMode()
	SwapMode(change(old))
	defer SwapMode(old)
	fn()
}

var tasks table[any]

func init() { tasks.add(nil) } // id 0 means no task

// CurrentTask returns the value that [WithTask] set on the calling thread, or nil.
func CurrentTask() any {
	if id := uint32(C.plaitk_task_get()); id != 0 {
		return *tasks.get(id)
	}
	return nil
}

// WithTask runs fn with v as the calling thread's task, such as a backward pass. Code called deep inside fn can find it.
func WithTask(v any, fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	id := tasks.add(&v)
	old := C.plaitk_task_swap(C.uint32_t(id))
	defer func() {
		C.plaitk_task_swap(old)
		tasks.remove(id)
	}()
	fn()
}

// Settings returns a number for all of the mode but its context and scope.
func (m Mode) Settings() uint64 { return uint64(m & (1<<modeContextShift - 1)) }

// GradEnabled reports whether operations record gradients.
func (m Mode) GradEnabled() bool { return m&modeNoGrad == 0 }

// WithGrad returns m with the recording of gradients on or off.
func (m Mode) WithGrad(on bool) Mode {
	if on {
		return m &^ modeNoGrad
	}
	return m | modeNoGrad
}

// Inference reports whether m is inference mode, which records no gradients and counts no versions.
func (m Mode) Inference() bool { return m&modeInference != 0 }

// WithInference returns m with inference mode on or off. Inference mode turns gradients off.
func (m Mode) WithInference(on bool) Mode {
	if on {
		return m | modeInference | modeNoGrad
	}
	return m &^ modeInference
}

// Anomaly reports whether every result is checked for NaN (see package autograd).
func (m Mode) Anomaly() bool { return m&modeAnomaly != 0 }

// WithAnomaly returns m with anomaly detection on or off.
func (m Mode) WithAnomaly(on bool) Mode {
	if on {
		return m | modeAnomaly
	}
	return m &^ modeAnomaly
}

// CheckGrads reports whether backward passes that begin in m check derivatives for NaN.
func (m Mode) CheckGrads() bool { return m&modeCheckGrads != 0 }

// WithCheckGrads returns m with that check on or off.
func (m Mode) WithCheckGrads(on bool) Mode {
	if on {
		return m | modeCheckGrads
	}
	return m &^ modeCheckGrads
}

// Replicates reports whether ordinary tensors beside distributed ones count as replicated, the same on all ranks. Elsewhere they do not mix.
func (m Mode) Replicates() bool { return m&modeReplicate != 0 }

// WithReplicates returns m with that on or off.
func (m Mode) WithReplicates(on bool) Mode {
	if on {
		return m | modeReplicate
	}
	return m &^ modeReplicate
}

// Strict reports whether an operation without a rule for distributed tensors fails instead of gathering its inputs.
func (m Mode) Strict() bool { return m&modeStrict != 0 }

// WithStrict returns m with that on or off.
func (m Mode) WithStrict(on bool) Mode {
	if on {
		return m | modeStrict
	}
	return m &^ modeStrict
}

// Context returns m's context.
func (m Mode) Context() *Context {
	return contexts.get(uint32(m >> modeContextShift & modeContextMask))
}

// WithContext returns m in the context c.
func (m Mode) WithContext(c *Context) Mode {
	return m&^(modeContextMask<<modeContextShift) | Mode(c.id)<<modeContextShift
}

func (m Mode) scope() *Scope {
	if id := uint32(m >> modeScopeShift); id != 0 {
		return scopes.get(id)
	}
	return nil
}

// InScopeOf returns m with now's scope.
func (m Mode) InScopeOf(now Mode) Mode {
	const rest = 1<<modeScopeShift - 1
	return m&rest | now&^rest
}

func (m Mode) withScope(s *Scope) Mode {
	m &= 1<<modeScopeShift - 1
	if s != nil {
		m |= Mode(s.id) << modeScopeShift
	}
	return m
}

// NoGrad runs fn without recording gradients.
func NoGrad(fn func()) { WithMode(func(m Mode) Mode { return m.WithGrad(false) }, fn) }

// EnableGrad runs fn with gradients recorded, for use inside [NoGrad].
func EnableGrad(fn func()) { WithMode(func(m Mode) Mode { return m.WithGrad(true) }, fn) }

package bind

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Autocast belongs to the calling thread's mode, apart for devices of the kind "cpu" and for all others.

// AutocastEnabled returns 1 if autocast is on for devices of the kind, else 0.
func AutocastEnabled(kind string) int64 { return truth(core.CurrentMode().Autocast(kind)) }

// AutocastDType returns the dtype that autocast has on devices of the kind.
func AutocastDType(kind string) int64 { return int64(core.CurrentMode().AutocastDType(kind)) }

// AutocastCache returns 1 if casts of parameters are remembered, else 0.
func AutocastCache() int64 { return truth(core.CurrentMode().AutocastCache()) }

// AutocastSet turns autocast on or off for devices of the kind, says in which dtype, and whether casts of parameters are
// remembered. It returns the mode before, for [AutocastRestore].
func AutocastSet(kind string, on bool, dtype int64, cache bool) (status int64) {
	defer protect("autocast", &status)
	before := core.CurrentMode()
	m, err := before.WithAutocastDType(kind, core.DType(dtype))
	if err != nil {
		return failure(err)
	}
	core.SwapMode(m.WithAutocast(kind, on).WithAutocastCache(cache))
	return int64(before)
}

// AutocastRestore makes everything about autocast as it was in a mode, and nothing else.
func AutocastRestore(mode int64) int64 {
	return int64(core.SwapMode(core.CurrentMode().WithAutocastOf(core.Mode(mode))))
}

// AutocastSuspend turns autocast off for every kind of device and returns the mode before, for [ModeSet].
func AutocastSuspend() int64 { return int64(core.SwapMode(core.CurrentMode().WithoutAutocast())) }

// AutocastEnter begins a region at whose end casts are forgotten, if no other surrounds it, and returns how many there are.
func AutocastEnter() int64 { return int64(core.CurrentContext().EnterAutocast()) }

// AutocastLeave ends a region and returns how many surround the calling thread now.
func AutocastLeave() int64 { return int64(core.CurrentContext().LeaveAutocast()) }

// AutocastEnd does what [AutocastRestore] and [AutocastLeave] do.
func AutocastEnd(mode int64) int64 {
	AutocastRestore(mode)
	return AutocastLeave()
}

// AutocastClear forgets the casts of parameters.
func AutocastClear() Status {
	core.CurrentContext().ClearAutocastCache()
	return 0
}

// AutocastPolicy returns what autocast does with the inputs of an operation on devices of the kind: nothing (0), cast them
// to its dtype (1), to float32 (2), or to the widest among them (3). It fails for a name that is not an operation's.
func AutocastPolicy(name string, kind string) int64 {
	r := op.Lookup(name)
	switch {
	case r == nil:
		return failf(core.ValueError, "autocast", "%q is not an operation", name)
	case kind == "cpu":
		return int64(r.Autocast.CPU)
	}
	return int64(r.Autocast.GPU)
}

package bind

import "github.com/plait-ml/plait/core"

// The mode belongs to the calling thread. A caller that changes it sets it back on the same thread.

// ModeGet returns the calling thread's mode, to be given to [ModeSet].
func ModeGet() int64 { return int64(core.CurrentMode()) }

// ModeSet sets the calling thread's mode to one that [ModeGet] returned.
func ModeSet(mode int64) Status {
	m := core.Mode(mode)
	const scopes = 32 // the bits from here on name a scope, which a caller does not change
	if m.Context() == nil || m>>scopes != core.CurrentMode()>>scopes {
		return failf(core.ValueError, "mode", "%d is not a mode", mode)
	}
	core.SwapMode(m)
	return 0
}

// GradEnabled returns 1 if operations of the calling thread record gradients, else 0.
func GradEnabled() int64 { return truth(core.CurrentMode().GradEnabled()) }

// GradSet makes operations of the calling thread record gradients, or not, and returns the mode before.
func GradSet(on bool) int64 {
	m := core.CurrentMode()
	return int64(core.SwapMode(m.WithGrad(on)))
}

// InferenceEnabled returns 1 if the calling thread is in inference mode, else 0.
func InferenceEnabled() int64 { return truth(core.CurrentMode().Inference()) }

// InferenceSet turns inference mode, without gradients and version counts, on or off and returns the mode before.
func InferenceSet(on bool) int64 {
	m := core.CurrentMode()
	next := m.WithInference(on)
	if !on && m.Inference() {
		next = next.WithGrad(true)
	}
	return int64(core.SwapMode(next))
}

// ReplicateSet makes ordinary tensors beside distributed ones count as replicated, or not, and returns the mode before.
func ReplicateSet(on bool) int64 {
	m := core.CurrentMode()
	return int64(core.SwapMode(m.WithReplicates(on)))
}

// CheckGradsEnabled returns 1 if backward passes of the calling thread check derivatives for NaN, else 0.
func CheckGradsEnabled() int64 { return truth(core.CurrentMode().CheckGrads()) }

// CheckGradsSet turns that check on or off and returns the mode before. With it, passes wait for every gradient.
func CheckGradsSet(on bool) int64 {
	m := core.CurrentMode()
	return int64(core.SwapMode(m.WithCheckGrads(on)))
}

// AnomalyEnabled returns 1 if results of the calling thread are checked for NaN as they are made, else 0.
func AnomalyEnabled() int64 { return truth(core.CurrentMode().Anomaly()) }

// AnomalySet turns the check for NaN on or off and returns the mode before. With it, operations wait for their results.
func AnomalySet(on bool) int64 {
	m := core.CurrentMode()
	return int64(core.SwapMode(m.WithAnomaly(on).WithCheckGrads(on)))
}

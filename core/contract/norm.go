package contract

import "github.com/plait-ml/plait/core"

// stats holds all means, then all reciprocal standard deviations: in float64 for a float64 x, otherwise in float32.
var (
	// LayerNorm normalises each row of x.
	LayerNorm = declare(Contract{Name: "layer_norm", Outs: "y stats?", Ins: "x weight? bias?", Ints: "rows n rms", Floats: "eps"})
	// LayerNormBackward writes the requested gradients. It adds arrived to dx; arrived does not share dx's memory.
	LayerNormBackward = declare(Contract{Name: "layer_norm_backward", Outs: "dx? dweight? dbias?", Ins: "x dy weight? stats arrived?",
		Ints: "rows n rms"})
	// GroupNorm normalises each group of channels of x.
	GroupNorm = declare(Contract{Name: "group_norm", Outs: "y stats?", Ins: "x weight? bias?", Ints: "batch channels inner groups", Floats: "eps"})
	// GroupNormBackward writes the requested gradients.
	GroupNormBackward = declare(Contract{Name: "group_norm_backward", Outs: "dx? dweight? dbias?", Ins: "x dy weight? stats",
		Ints: "batch channels inner groups"})
	// BatchNorm normalises each channel of x: by the batch's statistics in training, otherwise by the running ones.
	// Here stats also holds the variances, after the others.
	BatchNorm = declare(Contract{Name: "batch_norm", Outs: "y stats", Ins: "x weight? bias? running_mean? running_var?",
		Ints: "batch channels inner training", Floats: "eps"})
	// BatchNormRunning updates the running statistics by stats, the statistics of count values.
	BatchNormRunning = declare(Contract{Name: "batch_norm_running", Outs: "running_mean running_var", Ins: "stats", Floats: "momentum count"})
	// BatchNormBackward writes the requested gradients.
	BatchNormBackward = declare(Contract{Name: "batch_norm_backward", Outs: "dx? dweight? dbias?", Ins: "x dy weight? stats",
		Ints: "batch channels inner training"})
)

// LayerNormAttrs are the attributes of [LayerNorm], and without eps of [LayerNormBackward].
type LayerNormAttrs struct {
	Rows, N int  // x has shape [Rows, N]
	RMS     bool // root mean square: no mean is subtracted
}

// AddTo adds the attributes to a call and returns it.
func (a LayerNormAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Rows), int64(a.N), Flag(a.RMS))
}

// LayerNormOf reads the attributes of a call.
func LayerNormOf(c *core.Call) LayerNormAttrs {
	return LayerNormAttrs{int(c.Ints[0]), int(c.Ints[1]), c.Ints[2] != 0}
}

// GroupNormAttrs are the attributes of [GroupNorm], and without eps of [GroupNormBackward]. x has shape [batch,
// channels, inner].
type GroupNormAttrs struct{ Batch, Channels, Inner, Groups int }

// AddTo adds the attributes to a call and returns it.
func (a GroupNormAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Batch), int64(a.Channels), int64(a.Inner), int64(a.Groups))
}

// GroupNormOf reads the attributes of a call.
func GroupNormOf(c *core.Call) GroupNormAttrs {
	return GroupNormAttrs{int(c.Ints[0]), int(c.Ints[1]), int(c.Ints[2]), int(c.Ints[3])}
}

// BatchNormAttrs are the attributes of [BatchNorm], and without eps of [BatchNormBackward]. x has shape [batch,
// channels, inner].
type BatchNormAttrs struct {
	Batch, Channels, Inner int
	Training               bool // use the batch's statistics
}

// AddTo adds the attributes to a call and returns it.
func (a BatchNormAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Batch), int64(a.Channels), int64(a.Inner), Flag(a.Training))
}

// BatchNormOf reads the attributes of a call.
func BatchNormOf(c *core.Call) BatchNormAttrs {
	return BatchNormAttrs{int(c.Ints[0]), int(c.Ints[1]), int(c.Ints[2]), c.Ints[3] != 0}
}

// SetEps adds eps, which is added to variances, to a call of a norm.
func SetEps(c *core.Call, eps float64) *core.Call { return c.Float(eps) }

// Eps returns the eps of a call of a norm.
func Eps(c *core.Call) float64 { return c.Floats[0] }

// BatchNormRunningAttrs are the attributes of [BatchNormRunning].
type BatchNormRunningAttrs struct{ Momentum, Count float64 }

// AddTo adds the attributes to a call and returns it.
func (a BatchNormRunningAttrs) AddTo(c *core.Call) *core.Call { return c.Float(a.Momentum, a.Count) }

// BatchNormRunningOf reads the attributes of a call.
func BatchNormRunningOf(c *core.Call) BatchNormRunningAttrs {
	return BatchNormRunningAttrs{c.Floats[0], c.Floats[1]}
}

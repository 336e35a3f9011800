package contract

import "github.com/plait-ml/plait/core"

// Stats are the mean and the reciprocal standard deviation, one after the other, in float64 for a float64 x and otherwise float32.
var (
	// LayerNorm normalises rows of x.
	LayerNorm = declare(Contract{Name: "layer_norm", Outs: "y stats?", Ins: "x weight? bias?", Ints: "rows n rms", Floats: "eps"})
	// LayerNormBackward writes those gradients that are wanted. arrived, which is other memory, is added to dx.
	LayerNormBackward = declare(Contract{Name: "layer_norm_backward", Outs: "dx? dweight? dbias?", Ins: "x dy weight? stats arrived?",
		Ints: "rows n rms"})
	// GroupNorm normalises groups of channels of x.
	GroupNorm = declare(Contract{Name: "group_norm", Outs: "y stats?", Ins: "x weight? bias?", Ints: "batch channels inner groups", Floats: "eps"})
	// GroupNormBackward writes those gradients that are wanted.
	GroupNormBackward = declare(Contract{Name: "group_norm_backward", Outs: "dx? dweight? dbias?", Ins: "x dy weight? stats",
		Ints: "batch channels inner groups"})
	// BatchNorm normalises channels of x, by their own statistics in training and otherwise by the running ones. stats has
	// their variance besides.
	BatchNorm = declare(Contract{Name: "batch_norm", Outs: "y stats", Ins: "x weight? bias? running_mean? running_var?",
		Ints: "batch channels inner training", Floats: "eps"})
	// BatchNormRunning moves running statistics towards stats, which are those of count values.
	BatchNormRunning = declare(Contract{Name: "batch_norm_running", Outs: "running_mean running_var", Ins: "stats", Floats: "momentum count"})
	// BatchNormBackward writes those gradients that are wanted.
	BatchNormBackward = declare(Contract{Name: "batch_norm_backward", Outs: "dx? dweight? dbias?", Ins: "x dy weight? stats",
		Ints: "batch channels inner training"})
)

// LayerNormAttrs are the attributes of [LayerNorm] and, but for eps, of [LayerNormBackward].
type LayerNormAttrs struct {
	Rows, N int  // of which x is made, and the elements of each
	RMS     bool // no mean is subtracted
}

// AddTo adds the attributes to a call and returns it.
func (a LayerNormAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Rows), int64(a.N), Flag(a.RMS))
}

// LayerNormOf reads the attributes of a call.
func LayerNormOf(c *core.Call) LayerNormAttrs {
	return LayerNormAttrs{int(c.Ints[0]), int(c.Ints[1]), c.Ints[2] != 0}
}

// GroupNormAttrs are the attributes of [GroupNorm] and, but for eps, of [GroupNormBackward]: x is seen as [batch, channels, inner].
type GroupNormAttrs struct{ Batch, Channels, Inner, Groups int }

// AddTo adds the attributes to a call and returns it.
func (a GroupNormAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Batch), int64(a.Channels), int64(a.Inner), int64(a.Groups))
}

// GroupNormOf reads the attributes of a call.
func GroupNormOf(c *core.Call) GroupNormAttrs {
	return GroupNormAttrs{int(c.Ints[0]), int(c.Ints[1]), int(c.Ints[2]), int(c.Ints[3])}
}

// BatchNormAttrs are the attributes of [BatchNorm] and, but for eps, of [BatchNormBackward]: x is seen as [batch, channels, inner].
type BatchNormAttrs struct {
	Batch, Channels, Inner int
	Training               bool // the statistics are x's own
}

// AddTo adds the attributes to a call and returns it.
func (a BatchNormAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Batch), int64(a.Channels), int64(a.Inner), Flag(a.Training))
}

// BatchNormOf reads the attributes of a call.
func BatchNormOf(c *core.Call) BatchNormAttrs {
	return BatchNormAttrs{int(c.Ints[0]), int(c.Ints[1]), int(c.Ints[2]), c.Ints[3] != 0}
}

// SetEps adds to a call of a norm what is added to variances.
func SetEps(c *core.Call, eps float64) *core.Call { return c.Float(eps) }

// Eps returns that.
func Eps(c *core.Call) float64 { return c.Floats[0] }

// BatchNormRunningAttrs are the attributes of [BatchNormRunning].
type BatchNormRunningAttrs struct{ Momentum, Count float64 }

// AddTo adds the attributes to a call and returns it.
func (a BatchNormRunningAttrs) AddTo(c *core.Call) *core.Call { return c.Float(a.Momentum, a.Count) }

// BatchNormRunningOf reads the attributes of a call.
func BatchNormRunningOf(c *core.Call) BatchNormRunningAttrs {
	return BatchNormRunningAttrs{c.Floats[0], c.Floats[1]}
}

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

// GroupNormAttrs are the attributes of [GroupNorm], and without eps of [GroupNormBackward]. x has shape [batch,
// channels, inner].
type GroupNormAttrs struct{ Batch, Channels, Inner, Groups int }

// BatchNormAttrs are the attributes of [BatchNorm], and without eps of [BatchNormBackward]. x has shape [batch,
// channels, inner].
type BatchNormAttrs struct {
	Batch, Channels, Inner int
	Training               bool // use the batch's statistics
}

// SetEps adds eps, which is added to variances, to a call of a norm.
func SetEps(c *core.Call, eps float64) *core.Call { return c.Float(eps) }

// Eps returns the eps of a call of a norm.
func Eps(c *core.Call) float64 { return c.Floats[0] }

// BatchNormRunningAttrs are the attributes of [BatchNormRunning].
type BatchNormRunningAttrs struct{ Momentum, Count float64 }

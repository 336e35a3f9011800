package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// GroupNorm normalises x of shape [N, C, ...] to mean 0 and variance 1 over each of the given number of groups of
// channels of each sample, then multiplies by weight and adds bias, of shape [C], which may be nil.
//
// Wu, He: Group normalization, 2018.
func GroupNorm(x *core.Tensor, groups int, weight, bias *core.Tensor, eps float64) *core.Tensor {
	if parts := distributed(x, weight, bias); parts != nil {
		return handOn(parts, "group_norm", x, groups, weight, bias, eps)
	}
	return groupNorm("group_norm", x, groups, weight, bias, eps)
}

// InstanceNorm normalises x of shape [N, C, ...] over each channel of each sample, then multiplies by weight and adds
// bias, of shape [C], which may be nil. runningMean and runningVar, of shape [C] and nil together, move by momentum towards
// the means of the samples' statistics. Without useInputStats they are used in place of the samples' own.
//
// Ulyanov, Vedaldi, Lempitsky: Instance normalization, 2016.
func InstanceNorm(x, runningMean, runningVar, weight, bias *core.Tensor, useInputStats bool, momentum, eps float64) *core.Tensor {
	if parts := distributed(x, runningMean, runningVar, weight, bias); parts != nil {
		return handOn(parts, "instance_norm", x, runningMean, runningVar, weight, bias, useInputStats, momentum, eps)
	}
	const name = "instance_norm"
	if !useInputStats {
		return batchNorm(name, x, runningMean, runningVar, weight, bias, false, momentum, eps)
	}
	if x != nil && x.Err() == nil && !x.IsNumber() && x.Dim() >= 2 && x.Numel() == x.Size(0)*x.Size(1) && x.Numel() > 0 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, name, "want more than one element per channel of a sample, got shape %v", x.Shape()))
	}
	channels := 1
	if x != nil && x.Dim() >= 2 {
		channels = max(x.Size(1), 1)
	}
	y := groupNorm(name, x, channels, weight, bias, eps)
	if y.Err() != nil || runningMean == nil && runningVar == nil {
		return y
	}
	if err := moveInstanceStats(x, runningMean, runningVar, momentum); err != nil {
		y.Release()
		return core.ErrorTensor(err)
	}
	return y
}

// moveInstanceStats moves the running statistics towards the means over the samples of their means and variances.
func moveInstanceStats(x, runningMean, runningVar *core.Tensor, momentum float64) error {
	if runningMean == nil || runningVar == nil {
		return core.Errorf(core.TypeError, "instance_norm", "got one running statistic, want both or none")
	}
	var err error
	core.Underived(func() {
		core.Tidy(func() {
			flat := castTo(Reshape(x, x.Size(0), x.Size(1), -1), statType(x.DType()))
			n := float64(flat.Size(2))
			mean := Mean(flat, []int{2}, true)
			centred := Sub(flat, mean)
			variance := Mul(Mean(Mul(centred, centred), []int{2}, false), core.Num(n/(n-1)))
			move := func(running, now *core.Tensor) {
				moved := Add(Mul(running, core.Num(1-momentum)), Mul(castTo(now, running.DType()), core.Num(momentum)))
				if e := CopyInPlace(running, moved).Err(); err == nil {
					err = e
				}
			}
			move(runningMean, Mean(Reshape(mean, x.Size(0), -1), []int{0}, false))
			move(runningVar, Mean(variance, []int{0}, false))
		})
	})
	return err
}

func groupNorm(name string, x *core.Tensor, groups int, weight, bias *core.Tensor, eps float64) *core.Tensor {
	op := begin(name, &x, optional(&weight), optional(&bias))
	op.floatTensor(x)
	op.normParams(x, weight, bias)
	batch, channels, inner := op.channels(x)
	if op.err == nil && (groups < 1 || channels%groups != 0) {
		op.failf(core.ShapeError, "%d channels do not divide into %d groups", channels, groups)
	}
	op.normShape("weight", weight, []int{channels})
	op.normShape("bias", bias, []int{channels})
	in, w, b := op.dense(x), op.dense(weight), op.dense(bias)
	y := op.resultLike(x)
	if op.err != nil {
		return op.fail()
	}
	var stats *core.Tensor
	if op.grad {
		if stats = op.temp(statType(x.DType()), 2, batch*groups); op.err != nil {
			return op.fail()
		}
	}
	info := groupNormInfo{batch, channels, inner, groups, eps}
	op.launch(contract.SetEps(info.attrs(op.call(contract.GroupNorm).Out(y).Out(stats).In(in).In(w).In(b)), eps))
	if op.grad {
		n := op.node(groupNormDeriv, x, weight, bias).Save(x, weight, stats)
		n.Any = info
		op.attach(n, y)
	}
	return op.done(y)
}

type groupNormInfo struct {
	batch, channels, inner, groups int
	eps                            float64
}

func (i groupNormInfo) attrs(c *core.Call) *core.Call {
	return contract.GroupNormAttrs{Batch: i.batch, Channels: i.channels, Inner: i.inner, Groups: i.groups}.AddTo(c)
}

func groupNormDeriv(ctx *core.BackwardContext) {
	info := ctx.Node.Any.(groupNormInfo)
	x, w, stats := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2)
	if ctx.CreateGraph() {
		per := info.channels / info.groups
		v := normView{shape: []int{info.batch, info.groups, per, info.inner}, params: []int{info.groups, per, 1}, dims: []int{2, 3}, eps: info.eps}
		v.derive(ctx, x, w)
		return
	}
	normBackward(ctx, contract.GroupNormBackward, x, w, stats, info.attrs)
}

// channels returns the sizes of x as [batch, channels, inner]; it fails unless x has at least two dimensions.
func (op *opContext) channels(x *core.Tensor) (batch, channels, inner int) {
	if op.err != nil {
		return 0, 0, 0
	}
	if x.Dim() < 2 {
		op.failf(core.ShapeError, "got an input of shape %v, want [N, C, ...]", x.Shape())
		return 0, 0, 0
	}
	s := x.Shape()
	return s[0], s[1], core.Numel(s[2:])
}

func init() {
	weight := Arg{Name: "weight", Optional: true, Doc: "factors, one per channel"}
	bias := Arg{Name: "bias", Optional: true, Doc: "summands, one per channel"}
	eps := Arg{Name: "eps", Default: defaultEps, Doc: "added to the variance"}
	register("norm",
		Row{Name: "group_norm", Func: GroupNorm, Memory: true,
			Doc:  "The input [N, C, ...], normalised to mean 0 and variance 1 over groups of the channels of each sample.",
			Args: []Arg{{Name: "input"}, {Name: "num_groups", Doc: "a divisor of C"}, weight, bias, eps},
			Samples: []Sample{
				{Name: "short", Args: []any{Shaped(2, 6, 3), 2, Shaped(6), Shaped(6), 1e-3}, Loose: 8},
				{Name: "long", Args: []any{Shaped(2, 4, 5, 4), 2, Shaped(4), Shaped(4), 1e-3}, Loose: 8},
				{Name: "plain", Args: []any{Shaped(3, 4, 17), 4, nil, nil, 1e-3}, Loose: 8},
				{Name: "weight only", Args: []any{Shaped(3, 4, 2), 1, Shaped(4), nil, 1e-3}, Loose: 8},
				{Name: "2-d", Args: []any{Shaped(3, 6), 2, Shaped(6), Shaped(6), 0.1}, Loose: 8},
				{Name: "no samples", Args: []any{Shaped(0, 6, 20), 2, Shaped(6), Shaped(6), 0.1}},
			}},
		Row{Name: "instance_norm", Func: InstanceNorm, Memory: true,
			Doc: "The input [N, C, ...], normalised to mean 0 and variance 1 over each channel of each sample.",
			Args: []Arg{{Name: "input"}, {Name: "running_mean", Optional: true, Doc: "changed in place unless absent"},
				{Name: "running_var", Optional: true, Doc: "changed in place unless absent"}, weight, bias,
				{Name: "use_input_stats", Default: true, Doc: "normalise by the input's own statistics"},
				{Name: "momentum", Default: 0.1, Doc: "how far the running statistics move"}, eps},
			Samples: []Sample{
				{Name: "short", Args: []any{Shaped(2, 3, 5), nil, nil, Shaped(3), Shaped(3), true, 0.1, 1e-3}, Loose: 8},
				{Name: "long", Args: []any{Shaped(2, 3, 4, 5), nil, nil, Shaped(3), nil, true, 0.1, 1e-3}, Loose: 8},
				{Name: "plain", Args: []any{Shaped(2, 3, 4), nil, nil, nil, nil, true, 0.1, 1e-3}, Loose: 8},
			}},
	)
}

package op

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Dropout sets each element of x to 0 with probability p, and multiplies the others by 1/(1-p), in training; otherwise it
// returns x. Which elements stay is not stored: the gradient draws the same numbers again.
//
// Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov: Dropout, JMLR 2014.
func Dropout(x *core.Tensor, p float64, training bool) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "dropout", x, p, training)
	}
	if x.Err() == nil && x.DType().IsComplex() {
		return compose("dropout", func() *core.Tensor {
			part := x.DType().Part()
			return Mul(x, Dropout(OnesLike(x, TensorOptions{DType: &part}), p, training))
		})
	}
	op := begin("dropout", &x)
	op.floatTensor(x)
	op.probability(p)
	if op.err != nil {
		return op.fail()
	}
	if !training || p == 0 {
		return x.Alias(true)
	}
	seed, offset := op.drawWords(x.Numel())
	return dropCounted(x, p, seed, offset)
}

// Dropout1d sets whole channels of x, of shape [N, C, L] or [C, L], to 0; see [Dropout].
func Dropout1d(x *core.Tensor, p float64, training bool) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "dropout1d", x, p, training)
	}
	if x != nil && x.Err() == nil && !x.IsNumber() && x.Dim() != 2 && x.Dim() != 3 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "dropout1d", "got an input of shape %v, want [N, C, L] or [C, L]", x.Shape()))
	}
	return dropChannels("dropout1d", x, p, training, 3)
}

// Dropout2d sets whole channels of x, of shape [N, C, H, W], to 0; see [Dropout]. As in PyTorch, the first two dimensions
// of other shapes are taken for N and C.
func Dropout2d(x *core.Tensor, p float64, training bool) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "dropout2d", x, p, training)
	}
	return dropChannels("dropout2d", x, p, training, 0)
}

// Dropout3d sets whole channels of x, of shape [N, C, D, H, W] or [C, D, H, W], to 0; see [Dropout]. As in PyTorch, the first
// dimension of other shapes is taken for C.
func Dropout3d(x *core.Tensor, p float64, training bool) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "dropout3d", x, p, training)
	}
	return dropChannels("dropout3d", x, p, training, 5)
}

// AlphaDropout drops elements with probability p so that inputs of mean 0 and variance 1 keep these: a dropped element
// becomes what selu tends to for -inf, and the result is scaled and shifted.
//
// Klambauer, Unterthiner, Mayr, Hochreiter: Self-normalizing neural networks, 2017.
func AlphaDropout(x *core.Tensor, p float64, training bool) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "alpha_dropout", x, p, training)
	}
	return alphaDropout("alpha_dropout", x, p, training, false)
}

// FeatureAlphaDropout is [AlphaDropout] of whole channels of x, of shape [N, C, ...].
func FeatureAlphaDropout(x *core.Tensor, p float64, training bool) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "feature_alpha_dropout", x, p, training)
	}
	return alphaDropout("feature_alpha_dropout", x, p, training, true)
}

func (op *opContext) probability(p float64) {
	if !(p >= 0 && p <= 1) {
		op.failf(core.ValueError, "the probability must lie between 0 and 1, got %v", p)
	}
}

// choosable fails unless the first dimensions of x have channels to choose among. Where none or all are dropped there is no choice.
func (op *opContext) choosable(x *core.Tensor, lead int) {
	if x.Dim() < lead && x.Numel() > 0 {
		op.failf(core.ShapeError, "got an input of shape %v, want [N, C, ...]", x.Shape())
	}
}

// drawWords takes n words from the generator of the op's device.
func (op *opContext) drawWords(n int) (seed, offset uint64) {
	op.ownNumbers()
	return op.mode.Context().Generator(op.stream.Device()).Next(uint64(n+3) / 4)
}

// dropCounted drops elements by the words of a generator from offset on.
func dropCounted(x *core.Tensor, p float64, seed, offset uint64) *core.Tensor {
	op := begin("dropout").with(x)
	in := op.dense(x)
	y := op.outLike(x)
	if op.err != nil {
		return op.fail()
	}
	c := op.call(contract.Dropout).Out(y).In(in)
	contract.DropoutAttrs{Seed: int64(seed), Offset: int64(offset), P: p, Scale: keepScale(p)}.AddTo(c)
	op.launch(c)
	if op.grad {
		n := op.node(dropoutDeriv, x)
		n.Floats = []float64{p}
		n.Any = [2]uint64{seed, offset}
		op.attach(n, y)
	}
	return op.done(y)
}

// The derivative is the same dropout, of the gradient.
func dropoutDeriv(ctx *core.BackwardContext) {
	counter := ctx.Node.Any.([2]uint64)
	ctx.Set(0, dropCounted(ctx.Grad(), ctx.Node.Floats[0], counter[0], counter[1]))
}

// keepMask returns a tensor like x of the given shape whose elements are scale with probability 1-p, else 0.
func keepMask(name string, x *core.Tensor, shape []int, p, scale float64) *core.Tensor {
	op := begin(name).with(x)
	op.grad = false
	mask := op.out(x.DType(), shape)
	if op.err != nil {
		return op.fail()
	}
	seed, offset := op.drawWords(core.Numel(shape))
	op.launch(contract.DropoutAttrs{Seed: int64(seed), Offset: int64(offset), P: p, Scale: scale}.AddTo(op.call(contract.Dropout).Out(mask).In(nil)))
	return op.done(mask)
}

// dropChannels drops channels. Only inputs with `batched` dimensions have a batch, or all if that is 0.
func dropChannels(name string, x *core.Tensor, p float64, training bool, batched int) *core.Tensor {
	op := begin(name, &x)
	op.floatTensor(x)
	op.probability(p)
	lead := 2
	if op.err == nil && batched > 0 && x.Dim() != batched {
		lead = 1
	}
	if op.err == nil && training && p > 0 && p < 1 {
		op.choosable(x, lead)
	}
	if op.err != nil {
		return op.fail()
	}
	if !training || p == 0 {
		return x.Alias(true)
	}
	return op.compose(func() *core.Tensor {
		return Mul(x, keepMask(name, x, channelShape(x, lead), p, keepScale(p)))
	})
}

// keepScale is what an element that is kept is multiplied by.
func keepScale(p float64) float64 {
	if p >= 1 {
		return 0
	}
	return 1 / (1 - p)
}

// channelShape is x's shape with all but the first dimensions 1.
func channelShape(x *core.Tensor, lead int) []int {
	shape := make([]int, x.Dim())
	for i := range shape {
		shape[i] = 1
		if i < lead {
			shape[i] = x.Size(i)
		}
	}
	return shape
}

// seluFloor is what selu tends to for -inf: minus its scale times its alpha.
const seluFloor = -1.7580993408473766

func alphaDropout(name string, x *core.Tensor, p float64, training, channels bool) *core.Tensor {
	op := begin(name, &x)
	op.floatTensor(x)
	op.probability(p)
	if op.err == nil && channels && training && p > 0 && p < 1 {
		op.choosable(x, 2)
	}
	if op.err != nil {
		return op.fail()
	}
	if !training || p == 0 {
		return x.Alias(true)
	}
	shape := x.Shape()
	if channels {
		shape = channelShape(x, 2)
	}
	if p == 1 {
		return op.compose(func() *core.Tensor { return Mul(x, keepMask(name, x, shape, 1, 0)) })
	}
	// With q = 1-p kept, mean 0 and variance 1 come back by the factor and the shift below.
	factor := 1 / math.Sqrt((seluFloor*seluFloor*p+1)*(1-p))
	return op.compose(func() *core.Tensor {
		keep := keepMask(name, x, shape, p, factor)
		// Dropped: factor*floor; kept: factor*x; then both shifted by -factor*floor*p.
		shift := Add(Mul(keep, core.Num(-seluFloor)), core.Num(factor*seluFloor-factor*seluFloor*p))
		return Add(Mul(x, keep), shift)
	})
}

func init() {
	args := []Arg{{Name: "input"}, {Name: "p", Default: 0.5, Doc: "the probability of being dropped"},
		{Name: "training", Default: true, Doc: "whether anything is dropped at all"}}
	off := func(shape ...int) []Sample {
		return []Sample{{Name: "off", Args: []any{Shaped(shape...), 0.5, false}}, {Name: "nothing", Args: []any{Shaped(shape...), 0.0, true}},
			{Name: "everything", Args: []any{Shaped(shape...), 1.0, true}}}
	}
	register("dropout",
		Row{Name: "dropout", Func: Dropout, Shares: true, Args: args, Memory: true, Samples: off(3, 4),
			Doc: "The input with elements set to 0 at random, the others scaled to keep the expectation."},
		Row{Name: "dropout1d", Func: Dropout1d, Shares: true, Args: args, Memory: true, Samples: off(2, 3, 4),
			Doc: "The input [N, C, L] with whole channels set to 0 at random."},
		Row{Name: "dropout2d", Func: Dropout2d, Shares: true, Args: args, Memory: true, Samples: off(2, 3, 2, 2),
			Doc: "The input [N, C, H, W] with whole channels set to 0 at random."},
		Row{Name: "dropout3d", Func: Dropout3d, Shares: true, Args: args, Memory: true, Samples: off(2, 3, 2, 2, 2),
			Doc: "The input [N, C, D, H, W] with whole channels set to 0 at random."},
		Row{Name: "alpha_dropout", Func: AlphaDropout, Shares: true, Args: args, Memory: true, Samples: off(3, 4),
			Doc: "Dropout that keeps the mean and variance of selu networks."},
		Row{Name: "feature_alpha_dropout", Func: FeatureAlphaDropout, Shares: true, Args: args, Memory: true, Samples: off(2, 3, 4),
			Doc: "Dropout of whole channels that keeps the mean and variance of selu networks."},
	)
}

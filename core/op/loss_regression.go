package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

var (
	mseOp = elementwise("mse_loss", "x, t", "d = x - t; d * d", "2*grad*(x - t)", "2*grad*(t - x)")
	l1Op  = elementwise("l1_loss", "x, t", "abs(x - t)", "grad*sign(x - t)", "grad*sign(t - x)")

	smoothL1Op = elementwise("smooth_l1_loss", "x, t; beta", "d = abs(x - t); where(d < beta, 0.5*d*d/beta, d - 0.5*beta)",
		"d = x - t; grad*where(abs(d) >= beta, sign(d), d/beta)", "d = t - x; grad*where(abs(d) >= beta, sign(d), d/beta)")
	huberOp = elementwise("huber_loss", "x, t; delta", "d = abs(x - t); where(d <= delta, 0.5*d*d, delta*(d - 0.5*delta))",
		"d = x - t; grad*where(abs(d) > delta, delta*sign(d), d)", "d = t - x; grad*where(abs(d) > delta, delta*sign(d), d)")

	// The variance's gradient is that of the value it is raised to.
	gaussianNLLOp = elementwise("gaussian_nll_loss", "x, t, v; eps", "w = max(v, eps); d = x - t; 0.5*(log(w) + d*d/w)",
		"grad*(x - t)/max(v, eps)", "grad*(t - x)/max(v, eps)", "w = max(v, eps); d = (x - t)/w; 0.5*grad*(1/w - d*d)")
	poissonNLLOp = elementwise("poisson_nll_loss", "x, t; eps", "x - t*log(x + eps)",
		"grad*(1 - t/(x + eps))", "-grad*log(x + eps)").
		overComplex("a = log(hypot(xr + eps, xi)); b = atan2(xi, xr + eps); xr - tr*a + ti*b, xi - tr*b - ti*a")
	poissonLogNLLOp = elementwise("poisson_log_nll_loss", "x, t", "exp(x) - t*x", "grad*(exp(x) - t)", "-grad*x").
			overComplex("e = exp(xr); e*cos(xi) - tr*xr + ti*xi, where(xi == 0, xi, e*sin(xi)) - tr*xi - ti*xr")
	// Stirling's approximation of log(t!), for t > 1.
	stirlingOp = elementwise("stirling", "t", "where(t > 1, t*log(t) - t + 0.5*log(6.283185307179586*t), 0)",
		"where(t > 1, grad*(log(t) + 0.5/t), 0)")
)

// lossReduction returns a loss that was computed for each element, reduced.
func lossReduction(op *opContext, elements func() *core.Tensor, reduction string) *core.Tensor {
	code := op.reductionCode(reduction)
	return op.compose(func() *core.Tensor {
		e := elements()
		switch code {
		case contract.LossNone:
			return e
		case contract.LossMean:
			return Mean(e, nil, false)
		}
		return Sum(e, nil, false)
	})
}

// pairLoss is a loss of an elementwise operation on an input and a target that broadcast, one of which is floating point.
func pairLoss(e *Elementwise, attrs []float64, x, target *core.Tensor, reduction string) *core.Tensor {
	op := begin(e.Name, &x, &target)
	return op.pairLoss(e, attrs, x, target, reduction)
}

func (op *opContext) pairLoss(e *Elementwise, attrs []float64, x, target *core.Tensor, reduction string) *core.Tensor {
	op.tensors(x, target)
	if op.err == nil && !core.ResultType(x, target).IsFloat() {
		op.failf(core.DTypeError, "the input or the target must be floating point, got %v and %v", x.DType(), target.DType())
	}
	return lossReduction(op, func() *core.Tensor { return e.apply(attrs, x, target) }, reduction)
}

// MSELoss returns the squares (x - target)^2, averaged ("mean", also the empty string), summed ("sum") or as they are
// ("none").
func MSELoss(x, target *core.Tensor, reduction string) *core.Tensor {
	if parts := distributed(x, target); parts != nil {
		return handOn(parts, "mse_loss", x, target, reduction)
	}
	return pairLoss(mseOp, nil, x, target, reduction)
}

// L1Loss returns |x - target|, reduced as in [MSELoss], which is real of complex numbers too. Of integers the elements and their sum are integers, which have no mean.
func L1Loss(x, target *core.Tensor, reduction string) *core.Tensor {
	if parts := distributed(x, target); parts != nil {
		return handOn(parts, "l1_loss", x, target, reduction)
	}
	op := begin("l1_loss", &x, &target)
	op.tensors(x, target)
	if op.err == nil && isComplex(x, target) {
		return lossReduction(&op, func() *core.Tensor { return Abs(Sub(x, target)) }, reduction)
	}
	if op.err != nil || core.ResultType(x, target).IsFloat() {
		return op.pairLoss(l1Op, nil, x, target, reduction)
	}
	op.countable("the input", x)
	op.countable("the target", target)
	return lossReduction(&op, func() *core.Tensor { return l1Op.apply(nil, x, target) }, reduction)
}

// SmoothL1Loss returns (x - target)^2/(2 beta) where that distance is below beta and |x - target| - beta/2 elsewhere,
// reduced as in [MSELoss].
//
// Girshick: Fast R-CNN, 2015.
func SmoothL1Loss(x, target *core.Tensor, reduction string, beta float64) *core.Tensor {
	if parts := distributed(x, target); parts != nil {
		return handOn(parts, "smooth_l1_loss", x, target, reduction, beta)
	}
	if !(beta >= 0) {
		return core.ErrorTensor(core.Errorf(core.ValueError, "smooth_l1_loss", "beta must not be negative, got %v", beta))
	}
	if beta == 0 {
		return L1Loss(x, target, reduction)
	}
	return pairLoss(smoothL1Op, []float64{beta}, x, target, reduction)
}

// HuberLoss returns (x - target)^2/2 where that distance is at most delta and delta (|x - target| - delta/2) elsewhere,
// reduced as in [MSELoss].
func HuberLoss(x, target *core.Tensor, reduction string, delta float64) *core.Tensor {
	if parts := distributed(x, target); parts != nil {
		return handOn(parts, "huber_loss", x, target, reduction, delta)
	}
	if !(delta > 0) {
		return core.ErrorTensor(core.Errorf(core.ValueError, "huber_loss", "delta must be positive, got %v", delta))
	}
	if x != nil && x.Err() == nil && !x.DType().IsFloat() {
		return core.ErrorTensor(core.Errorf(core.DTypeError, "huber_loss", "the input must be floating point, got %v", x.DType()))
	}
	return pairLoss(huberOp, []float64{delta}, x, target, reduction)
}

// PoissonNLLOptions are the optional arguments of [PoissonNLLLoss].
type PoissonNLLOptions struct {
	// Rate says that the input is the rate itself, not its logarithm.
	Rate bool
	// Full adds Stirling's approximation of log(target!).
	Full bool
	// Eps is added to a rate before its logarithm is taken; nil stands for 1e-8.
	Eps *float64
	// Reduction is "mean" (the default), "sum" or "none".
	Reduction string
}

// PoissonNLLLoss returns the negative log likelihood of target under a Poisson distribution, without the term log(target!):
// exp(x) - target*x.
func PoissonNLLLoss(x, target *core.Tensor, o PoissonNLLOptions) *core.Tensor {
	if parts := distributed(x, target); parts != nil {
		return handOn(parts, "poisson_nll_loss", x, target, o)
	}
	op := begin("poisson_nll_loss", &x, &target)
	op.tensors(x, target)
	op.countable("the target", target)
	return lossReduction(&op, func() *core.Tensor {
		return compose("poisson_nll_loss", func() *core.Tensor {
			var e *core.Tensor
			if o.Rate {
				e = poissonNLLOp.apply([]float64{valueOr(o.Eps, 1e-8)}, x, target)
			} else {
				e = poissonLogNLLOp.apply(nil, x, target)
			}
			if o.Full {
				e = Add(e, stirlingOp.apply(nil, target))
			}
			return e
		})
	}, o.Reduction)
}

// halfLogTwoPi is log(2 pi)/2.
const halfLogTwoPi = 0.9189385332046727

// gaussianNLL returns the terms of the loss.
func gaussianNLL(x, target, variance *core.Tensor, eps float64) *core.Tensor {
	if !isComplex(x, target) {
		return gaussianNLLOp.apply([]float64{eps}, x, target, variance)
	}
	var raise *core.Tensor
	core.Underived(func() { raise = Sub(Maximum(variance, core.Num(eps)), variance) })
	v := Add(variance, raise)
	return Mul(Add(Log(v), Div(Square(Sub(x, target)), v)), core.Num(0.5))
}

// GaussianNLLLoss returns (log(v) + (x - target)^2/v)/2 with v the larger of variance and eps, reduced as in [MSELoss]; full
// adds log(2 pi)/2. The variance has x's shape, or that without its last dimension or with size 1 there.
func GaussianNLLLoss(x, target, variance *core.Tensor, full bool, eps float64, reduction string) *core.Tensor {
	if parts := distributed(x, target, variance); parts != nil {
		return handOn(parts, "gaussian_nll_loss", x, target, variance, full, eps, reduction)
	}
	op := begin("gaussian_nll_loss", &x, &target, &variance)
	if op.err == nil && !x.DType().IsComplex() {
		op.floatTensor(x)
	}
	op.floatTensor(variance)
	if op.err == nil && variance.Dim() == x.Dim()-1 && variance.Dim() > 0 || op.err == nil && x.Dim() == 1 && variance.Dim() == 0 {
		variance = Unsqueeze(variance, -1)
		defer variance.Release()
	}
	return lossReduction(&op, func() *core.Tensor {
		e := gaussianNLL(x, target, variance, eps)
		if !full {
			return e
		}
		return Add(e, core.Num(halfLogTwoPi))
	}, reduction)
}

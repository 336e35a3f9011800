package nn

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// The activations are layers without parameters, but for [PReLU]. Within a Forward of one's own, the functions of package
// op do as well.

// NewReLU returns max(x, 0).
func NewReLU() *Func { return named("ReLU", "", op.Relu) }

// NewReLU6 returns x clamped to [0, 6].
func NewReLU6() *Func { return named("ReLU6", "", op.Relu6) }

// NewLeakyReLU returns x where it is positive and slope x elsewhere; PyTorch's default is 0.01.
func NewLeakyReLU(slope float64) *Func {
	return named("LeakyReLU", fmt.Sprintf("negative_slope=%v", slope), func(x *core.Tensor) *core.Tensor { return op.LeakyRelu(x, slope) })
}

// NewELU returns x where it is positive and alpha (exp(x) - 1) elsewhere (Clevert et al. 2016); PyTorch's default is 1.
func NewELU(alpha float64) *Func {
	return named("ELU", fmt.Sprintf("alpha=%v", alpha), func(x *core.Tensor) *core.Tensor { return op.Elu(x, alpha) })
}

// NewCELU returns the continuously differentiable ELU (Barron 2017); PyTorch's default is 1.
func NewCELU(alpha float64) *Func {
	return named("CELU", fmt.Sprintf("alpha=%v", alpha), func(x *core.Tensor) *core.Tensor { return op.Celu(x, alpha) })
}

// NewSELU returns the self-normalising ELU (Klambauer et al. 2017).
func NewSELU() *Func { return named("SELU", "", op.Selu) }

// NewGELU returns x times the normal distribution's function of x (Hendrycks and Gimpel 2016); approximate is "none" or
// "tanh".
func NewGELU(approximate string) *Func {
	return named("GELU", fmt.Sprintf("approximate=%q", approximate), func(x *core.Tensor) *core.Tensor { return op.Gelu(x, approximate) })
}

// NewSiLU returns x sigmoid(x) (Elfwing et al. 2017).
func NewSiLU() *Func { return named("SiLU", "", op.Silu) }

// NewMish returns x tanh(softplus(x)) (Misra 2019).
func NewMish() *Func { return named("Mish", "", op.Mish) }

// NewSigmoid returns 1 / (1 + exp(-x)).
func NewSigmoid() *Func { return named("Sigmoid", "", op.Sigmoid) }

// NewLogSigmoid returns log(1 / (1 + exp(-x))).
func NewLogSigmoid() *Func { return named("LogSigmoid", "", op.Logsigmoid) }

// NewTanh returns the hyperbolic tangent.
func NewTanh() *Func { return named("Tanh", "", op.Tanh) }

// NewHardtanh returns x clamped to [low, high]; PyTorch's defaults are -1 and 1.
func NewHardtanh(low, high float64) *Func {
	return named("Hardtanh", fmt.Sprintf("min_val=%v, max_val=%v", low, high), func(x *core.Tensor) *core.Tensor { return op.Hardtanh(x, low, high) })
}

// NewHardsigmoid returns relu6(x + 3) / 6.
func NewHardsigmoid() *Func { return named("Hardsigmoid", "", op.Hardsigmoid) }

// NewHardswish returns x hardsigmoid(x) (Howard et al. 2019).
func NewHardswish() *Func { return named("Hardswish", "", op.Hardswish) }

// NewHardshrink returns x where its size is above lambda, else 0; PyTorch's default is 0.5.
func NewHardshrink(lambda float64) *Func {
	return named("Hardshrink", fmt.Sprint(lambda), func(x *core.Tensor) *core.Tensor { return op.Hardshrink(x, lambda) })
}

// NewSoftshrink returns x moved towards 0 by lambda, as far as 0; PyTorch's default is 0.5.
func NewSoftshrink(lambda float64) *Func {
	return named("Softshrink", fmt.Sprint(lambda), func(x *core.Tensor) *core.Tensor { return op.Softshrink(x, lambda) })
}

// NewTanhshrink returns x - tanh(x).
func NewTanhshrink() *Func { return named("Tanhshrink", "", op.Tanhshrink) }

// NewSoftsign returns x / (1 + |x|).
func NewSoftsign() *Func { return named("Softsign", "", op.Softsign) }

// NewSoftplus returns log(1 + exp(beta x)) / beta, and x itself where beta x is above threshold; PyTorch's defaults are 1
// and 20.
func NewSoftplus(beta, threshold float64) *Func {
	return named("Softplus", fmt.Sprintf("beta=%v, threshold=%v", beta, threshold), func(x *core.Tensor) *core.Tensor { return op.Softplus(x, beta, threshold) })
}

// NewThreshold returns x where it is above threshold, else value.
func NewThreshold(threshold, value float64) *Func {
	return named("Threshold", fmt.Sprintf("threshold=%v, value=%v", threshold, value), func(x *core.Tensor) *core.Tensor { return op.Threshold(x, threshold, value) })
}

// NewGLU returns the first half of dimension dim times the sigmoid of the second (Dauphin et al. 2017).
func NewGLU(dim int) *Func {
	return named("GLU", fmt.Sprintf("dim=%d", dim), func(x *core.Tensor) *core.Tensor { return op.Glu(x, dim) })
}

// NewSoftmax returns softmax along dimension dim.
func NewSoftmax(dim int) *Func {
	return named("Softmax", fmt.Sprintf("dim=%d", dim), func(x *core.Tensor) *core.Tensor { return op.Softmax(x, dim) })
}

// NewLogSoftmax returns the logarithm of softmax along dimension dim.
func NewLogSoftmax(dim int) *Func {
	return named("LogSoftmax", fmt.Sprintf("dim=%d", dim), func(x *core.Tensor) *core.Tensor { return op.LogSoftmax(x, dim) })
}

// NewSoftmin returns softmax of -x along dimension dim.
func NewSoftmin(dim int) *Func {
	return named("Softmin", fmt.Sprintf("dim=%d", dim), func(x *core.Tensor) *core.Tensor { return op.Softmin(x, dim) })
}

// PReLU is x where it is positive and weight*x elsewhere (He et al. 2015).
type PReLU struct {
	Base
	Weight *core.Tensor // [1] or [channels]
}

// NewPReLU returns a layer with the given number of slopes, 1 or one a channel, all starting at init.
func NewPReLU(num int, init float64) *PReLU { return &PReLU{Weight: newParameter(fillWith(init), num)} }

// Forward maps [n, channels, ...] to itself.
func (p *PReLU) Forward(x *core.Tensor) *core.Tensor { return op.Prelu(x, p.Weight) }

// RReLU is x where it is positive and a random multiple of it elsewhere (Xu et al. 2015).
type RReLU struct {
	Base
	Lower, Upper float64 // of the slopes
}

// NewRReLU returns a layer with slopes between lower and upper; PyTorch's defaults are 1/8 and 1/3.
func NewRReLU(lower, upper float64) *RReLU { return &RReLU{Lower: lower, Upper: upper} }

// Forward draws slopes in training, and takes their mean in evaluation.
func (r *RReLU) Forward(x *core.Tensor) *core.Tensor {
	return op.Rrelu(x, r.Lower, r.Upper, r.Training())
}

func (r *RReLU) describe() (name, arguments string) {
	return "", fmt.Sprintf("lower=%v, upper=%v", r.Lower, r.Upper)
}

package nn

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// The functions that begin with Init overwrite a tensor, also one that requires a gradient, and return it, or a tensor
// that carries the error. They draw from the rank's generator.

// overwrite runs fn without recording and returns t, or what fn failed with.
func overwrite(t *core.Tensor, fn func() *core.Tensor) *core.Tensor {
	out := t
	core.NoGrad(func() {
		if r := fn(); r.Err() != nil {
			out = r
		}
	})
	return out
}

// InitUniform fills t with uniform random numbers in [low, high).
func InitUniform(t *core.Tensor, low, high float64) *core.Tensor {
	return overwrite(t, func() *core.Tensor { return op.UniformInPlace(t, low, high, op.RandomOptions{}) })
}

// InitNormal fills t with normal random numbers.
func InitNormal(t *core.Tensor, mean, std float64) *core.Tensor {
	return overwrite(t, func() *core.Tensor { return op.NormalInPlace(t, mean, std, op.RandomOptions{}) })
}

// InitTruncNormal fills t with normal random numbers on condition that they lie in [low, high].
func InitTruncNormal(t *core.Tensor, mean, std, low, high float64) *core.Tensor {
	return overwrite(t, func() *core.Tensor { return op.TruncNormalInPlace(t, mean, std, low, high, op.RandomOptions{}) })
}

// InitConstant fills t with v.
func InitConstant(t *core.Tensor, v float64) *core.Tensor {
	return overwrite(t, func() *core.Tensor { return op.FillInPlace(t, core.Num(v)) })
}

// InitZeros fills t with 0.
func InitZeros(t *core.Tensor) *core.Tensor { return InitConstant(t, 0) }

// InitOnes fills t with 1.
func InitOnes(t *core.Tensor) *core.Tensor { return InitConstant(t, 1) }

// InitEye makes the matrix t the identity, as far as it is square.
func InitEye(t *core.Tensor) *core.Tensor {
	if err := dims("init_eye", t, 2, 2); err != nil {
		return core.ErrorTensor(err)
	}
	return fill(t, func(v []float64) {
		cols := t.Size(1)
		for i := range min(t.Size(0), cols) {
			v[i*cols+i] = 1
		}
	})
}

// InitDirac makes the weight of a convolution, [out, in/groups, k...], pass as many channels of each group as it can
// unchanged.
func InitDirac(t *core.Tensor, groups int) *core.Tensor {
	if err := dims("init_dirac", t, 3, 5); err != nil {
		return core.ErrorTensor(err)
	}
	if groups < 1 || t.Size(0)%groups != 0 {
		return core.ErrorTensor(core.Errorf(core.ValueError, "init_dirac", "the first size must be a multiple of the groups, got %d and %d", t.Size(0), groups))
	}
	return fill(t, func(v []float64) {
		shape := t.Shape()
		taps, centre := 1, 0
		for _, k := range shape[2:] {
			taps *= k
			centre = centre*k + k/2
		}
		per := shape[0] / groups
		for g := range groups {
			for i := range min(per, shape[1]) {
				v[((g*per+i)*shape[1]+i)*taps+centre] = 1
			}
		}
	})
}

// dims returns an error unless t has from low to high dimensions.
func dims(name string, t *core.Tensor, low, high int) error {
	if err := t.Usable(name); err != nil {
		return err
	}
	if t.Dim() < low || t.Dim() > high {
		return core.Errorf(core.ShapeError, name, "want from %d to %d dimensions, got shape %v", low, high, t.Shape())
	}
	return nil
}

// fill overwrites t with what set makes of zeros.
func fill(t *core.Tensor, set func(v []float64)) *core.Tensor {
	v := make([]float64, t.Numel())
	set(v)
	return overwrite(t, func() *core.Tensor {
		src := core.FromSlice(v, t.Shape()...)
		defer src.Release()
		return op.CopyInPlace(t, src)
	})
}

// fans returns the numbers of inputs and outputs of one unit of a weight [out, in, k...].
func fans(name string, t *core.Tensor) (in, out float64, err error) {
	if err := dims(name, t, 2, 1<<30); err != nil {
		return 0, 0, err
	}
	taps := core.Numel(t.Shape()[2:])
	return float64(t.Size(1) * taps), float64(t.Size(0) * taps), nil
}

// InitXavierUniform fills the weight t with uniform random numbers of variance gain^2 2 / (inputs + outputs): Glorot and
// Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks".
func InitXavierUniform(t *core.Tensor, gain float64) *core.Tensor {
	in, out, err := fans("init_xavier_uniform", t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	bound := gain * math.Sqrt(6/(in+out))
	return InitUniform(t, -bound, bound)
}

// InitXavierNormal is [InitXavierUniform] with normal numbers.
func InitXavierNormal(t *core.Tensor, gain float64) *core.Tensor {
	in, out, err := fans("init_xavier_normal", t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return InitNormal(t, 0, gain*math.Sqrt(2/(in+out)))
}

// KaimingOptions describe [InitKaimingUniform] and [InitKaimingNormal].
type KaimingOptions struct {
	FanOut       bool    // keep the variance of gradients, not of activations
	Nonlinearity string  // that follows; "" means "leaky_relu"
	Slope        float64 // of leaky_relu for negative inputs; 0 makes it relu
}

func (o KaimingOptions) std(name string, t *core.Tensor) (float64, error) {
	in, out, err := fans(name, t)
	if err != nil {
		return 0, err
	}
	if o.FanOut {
		in = out
	}
	if o.Nonlinearity == "" {
		o.Nonlinearity = "leaky_relu"
	}
	gain, err := gain(o.Nonlinearity, o.Slope)
	return gain / math.Sqrt(max(in, 1)), err
}

// InitKaimingUniform fills the weight t with uniform random numbers of variance gain^2 / inputs: He, Zhang, Ren and Sun
// 2015, "Delving deep into rectifiers".
func InitKaimingUniform(t *core.Tensor, o KaimingOptions) *core.Tensor {
	std, err := o.std("init_kaiming_uniform", t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	bound := math.Sqrt(3) * std
	return InitUniform(t, -bound, bound)
}

// InitKaimingNormal is [InitKaimingUniform] with normal numbers.
func InitKaimingNormal(t *core.Tensor, o KaimingOptions) *core.Tensor {
	std, err := o.std("init_kaiming_normal", t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return InitNormal(t, 0, std)
}

// Gain returns the factor by which a nonlinearity wants weights to be larger: "linear", "sigmoid", "tanh", "relu", "selu"
// or "leaky_relu", the last with its slope for negative inputs (PyTorch's default is 0.01).
func Gain(nonlinearity string, slope float64) (float64, error) { return gain(nonlinearity, slope) }

func gain(nonlinearity string, slope float64) (float64, error) {
	switch nonlinearity {
	case "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid":
		return 1, nil
	case "tanh":
		return 5.0 / 3, nil
	case "relu":
		return math.Sqrt2, nil
	case "leaky_relu":
		return math.Sqrt(2 / (1 + slope*slope)), nil
	case "selu":
		return 0.75, nil
	}
	return 0, core.Errorf(core.ValueError, "gain", "unknown nonlinearity, got %q", nonlinearity)
}

// InitSparse fills the matrix t with normal random numbers, but a part of each column, chosen at random, with 0: Martens
// 2010, "Deep learning via Hessian-free optimization".
func InitSparse(t *core.Tensor, sparsity, std float64) *core.Tensor {
	if err := dims("init_sparse", t, 2, 2); err != nil {
		return core.ErrorTensor(err)
	}
	if !(sparsity >= 0 && sparsity <= 1) {
		return core.ErrorTensor(core.Errorf(core.ValueError, "init_sparse", "the sparsity must be in [0, 1], got %v", sparsity))
	}
	rows, cols := t.Size(0), t.Size(1)
	zeros := int(math.Ceil(sparsity * float64(rows)))
	if r := InitNormal(t, 0, std); r.Err() != nil || zeros == 0 || cols == 0 {
		return r
	}
	// The rows of a column with the smallest of random numbers become 0.
	v, err := core.Values[float64](t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	for c := range cols {
		p := op.Randperm(rows)
		order, err := core.Values[int64](p)
		p.Release()
		if err != nil {
			return core.ErrorTensor(err)
		}
		for _, r := range order[:zeros] {
			v[int(r)*cols+c] = 0
		}
	}
	return fill(t, func(out []float64) { copy(out, v) })
}

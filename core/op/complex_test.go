package op_test

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// complexNumbers returns numbers of all quadrants and absolute values from 0.3 to 1.7.
func complexNumbers(n int) []complex128 {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	out := make([]complex128, n)
	for i := range out {
		out[i] = cmplx.Rect(0.3+1.4*random.Float64(), 2*math.Pi*random.Float64())
	}
	return out
}

// complexes returns a new tensor of such numbers.
func complexes(shape ...int) *core.Tensor {
	return core.FromSlice(complexNumbers(core.Numel(shape)), shape...)
}

var unaryComplex = map[string]struct {
	op   func(x *core.Tensor) *core.Tensor
	want func(z complex128) complex128
}{
	"neg":        {op.Neg, func(z complex128) complex128 { return -z }},
	"square":     {op.Square, func(z complex128) complex128 { return z * z }},
	"reciprocal": {op.Reciprocal, func(z complex128) complex128 { return 1 / z }},
	"conj":       {op.Conj, cmplx.Conj},
	"sgn":        {op.Sgn, func(z complex128) complex128 { return z / complex(cmplx.Abs(z), 0) }},
	"exp":        {op.Exp, cmplx.Exp},
	"exp2":       {op.Exp2, func(z complex128) complex128 { return cmplx.Pow(2, z) }},
	"expm1":      {op.Expm1, func(z complex128) complex128 { return cmplx.Exp(z) - 1 }},
	"log":        {op.Log, cmplx.Log},
	"log2":       {op.Log2, func(z complex128) complex128 { return cmplx.Log(z) / math.Ln2 }},
	"log10":      {op.Log10, cmplx.Log10},
	"log1p":      {op.Log1p, func(z complex128) complex128 { return cmplx.Log(1 + z) }},
	"sqrt":       {op.Sqrt, cmplx.Sqrt},
	"rsqrt":      {op.Rsqrt, func(z complex128) complex128 { return 1 / cmplx.Sqrt(z) }},
	"sin":        {op.Sin, cmplx.Sin}, "cos": {op.Cos, cmplx.Cos}, "tan": {op.Tan, cmplx.Tan},
	"asin": {op.Asin, cmplx.Asin}, "acos": {op.Acos, cmplx.Acos}, "atan": {op.Atan, cmplx.Atan},
	"sinh": {op.Sinh, cmplx.Sinh}, "cosh": {op.Cosh, cmplx.Cosh}, "tanh": {op.Tanh, cmplx.Tanh},
	"asinh": {op.Asinh, cmplx.Asinh}, "acosh": {op.Acosh, cmplx.Acosh}, "atanh": {op.Atanh, cmplx.Atanh},
	"sigmoid":         {op.Sigmoid, func(z complex128) complex128 { return 1 / (1 + cmplx.Exp(-z)) }},
	"sinc":            {op.Sinc, func(z complex128) complex128 { return cmplx.Sin(math.Pi*z) / (math.Pi * z) }},
	"silu":            {op.Silu, func(z complex128) complex128 { return z / (1 + cmplx.Exp(-z)) }},
	"tanhshrink":      {op.Tanhshrink, func(z complex128) complex128 { return z - cmplx.Tanh(z) }},
	"softsign":        {op.Softsign, func(z complex128) complex128 { return z / complex(1+cmplx.Abs(z), 0) }},
	"pow of a number": {func(x *core.Tensor) *core.Tensor { return op.Pow(core.ComplexNum(1+2i), x) }, func(z complex128) complex128 { return cmplx.Pow(1+2i, z) }},
	"pow to a number": {func(x *core.Tensor) *core.Tensor { return op.Pow(x, core.ComplexNum(1+2i)) }, func(z complex128) complex128 { return cmplx.Pow(z, 1+2i) }},
	"mul by a number": {func(x *core.Tensor) *core.Tensor { return op.Mul(core.ComplexNum(1+2i), x) }, func(z complex128) complex128 { return (1 + 2i) * z }},
	"cube":            {func(x *core.Tensor) *core.Tensor { return op.Pow(x, core.Num(3)) }, func(z complex128) complex128 { return z * z * z }},
	"pow":             {func(x *core.Tensor) *core.Tensor { return op.Pow(x, core.Num(1.7)) }, func(z complex128) complex128 { return cmplx.Pow(z, 1.7) }},
	"abs":             {op.Abs, func(z complex128) complex128 { return complex(cmplx.Abs(z), 0) }},
	"angle":           {op.Angle, func(z complex128) complex128 { return complex(cmplx.Phase(z), 0) }},
	"real":            {op.Real, func(z complex128) complex128 { return complex(real(z), 0) }},
	"imag":            {op.Imag, func(z complex128) complex128 { return complex(imag(z), 0) }},
}

// TestComplexFunctions compares functions of one complex number with Go's, and their derivatives with differences.
func TestComplexFunctions(t *testing.T) {
	coretest.SkipUnderRace(t)
	for name, f := range unaryComplex {
		t.Run(name, func(t *testing.T) {
			x := complexes(4, 3).SetRequiresGrad(true)
			got, err := core.Values[complex128](op.To(f.op(x), core.Complex128))
			require.NoError(t, err)
			for i, z := range complexNumbers(12) {
				require.InDelta(t, 0, cmplx.Abs(got[i]-f.want(z)), 1e-12*(1+cmplx.Abs(f.want(z))), "of %v: got %v, want %v", z, got[i], f.want(z))
			}
			single, err := core.Values[complex128](op.To(f.op(op.To(x, core.Complex64)), core.Complex128))
			require.NoError(t, err)
			for i, z := range complexNumbers(12) {
				require.InDelta(t, 0, cmplx.Abs(single[i]-f.want(z)), 3e-5*(1+cmplx.Abs(f.want(z))), "of %v: got %v, want %v", z, single[i], f.want(z))
			}
			fn := func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{f.op(in[0])} }
			require.NoError(t, autograd.Check(fn, []*core.Tensor{x}, 1e-6, 1e-6, 1e-6))
			require.NoError(t, autograd.CheckDouble(fn, []*core.Tensor{complexes(3).SetRequiresGrad(true)}, 1e-5, 1e-5, 1e-5))
		})
	}
}

// TestComplexPairs does so for functions of two numbers, of which one may be real.
func TestComplexPairs(t *testing.T) {
	coretest.SkipUnderRace(t)
	for name, f := range map[string]struct {
		op   func(x, y *core.Tensor) *core.Tensor
		want func(x, y complex128) complex128
	}{
		"add":             {op.Add, func(x, y complex128) complex128 { return x + y }},
		"add_scaled":      {func(x, y *core.Tensor) *core.Tensor { return op.AddScaled(x, y, 0.75) }, func(x, y complex128) complex128 { return x + 0.75*y }},
		"sub":             {op.Sub, func(x, y complex128) complex128 { return x - y }},
		"mul":             {op.Mul, func(x, y complex128) complex128 { return x * y }},
		"div":             {op.Div, func(x, y complex128) complex128 { return x / y }},
		"pow":             {op.Pow, cmplx.Pow},
		"logaddexp":       {op.Logaddexp, func(x, y complex128) complex128 { return cmplx.Log(cmplx.Exp(x) + cmplx.Exp(y)) }},
		"pow of negative": {func(x, y *core.Tensor) *core.Tensor { return op.Pow(op.Neg(x), y) }, func(x, y complex128) complex128 { return cmplx.Pow(complex(-real(x), 0-imag(x)), y) }},
		"where":           {func(x, y *core.Tensor) *core.Tensor { return op.Where(core.FromSlice([]bool{true, false, true}), x, y) }, nil},
		"lerp":            {func(x, y *core.Tensor) *core.Tensor { return op.Lerp(x, y, core.Num(0.3)) }, func(x, y complex128) complex128 { return 0.7*x + 0.3*y }},
		"addcmul":         {func(x, y *core.Tensor) *core.Tensor { return op.Addcmul(x, x, y, 0.5) }, func(x, y complex128) complex128 { return x + 0.5*x*y }},
		"addcdiv":         {func(x, y *core.Tensor) *core.Tensor { return op.Addcdiv(x, x, y, 0.5) }, func(x, y complex128) complex128 { return x + 0.5*x/y }},
	} {
		t.Run(name, func(t *testing.T) {
			numbers := complexNumbers(6)
			x, y := complexes(2, 3), core.FromSlice(numbers[3:])
			r := op.Real(y)
			for i, in := range [][]*core.Tensor{{x, y}, {x, r}, {r, x}, {x, core.Num(1.5)}} {
				fn := func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{f.op(in[0], in[1])} }
				if f.want != nil {
					got, err := core.Values[complex128](fn(in)[0])
					require.NoError(t, err)
					for k, z := range numbers {
						w := numbers[3+k%3]
						a, b := z, w
						switch i {
						case 1:
							b = complex(real(w), 0)
						case 2:
							a, b = complex(real(w), 0), z
						case 3:
							b = 1.5
						}
						want := f.want(a, b)
						require.InDelta(t, 0, cmplx.Abs(got[k]-want), 1e-12*(1+cmplx.Abs(want)), "of %v and %v: got %v, want %v", a, b, got[k], want)
					}
				}
				for j, v := range in {
					if !v.IsNumber() {
						in[j] = op.Abs(v).Detach()
						if v.DType().IsComplex() {
							in[j] = op.Clone(v)
						}
						in[j].SetRequiresGrad(true)
					}
				}
				require.NoError(t, autograd.Check(fn, in, 1e-6, 1e-6, 1e-6), "%d", i)
				require.NoError(t, autograd.CheckDouble(fn, in, 1e-5, 1e-5, 1e-5), "%d", i)
			}
		})
	}
}

// TestComplexMoves checks the gradients of operations that move complex numbers and add them up, in several layouts.
func TestComplexMoves(t *testing.T) {
	coretest.SkipUnderRace(t)
	index := core.FromSlice([]int64{2, 0, 2})
	other := complexes(3, 4)
	for name, fn := range map[string]func(x *core.Tensor) *core.Tensor{
		"clone":        op.Clone,
		"transpose":    func(x *core.Tensor) *core.Tensor { return op.Clone(op.Transpose(x, 0, 1)) },
		"slice":        func(x *core.Tensor) *core.Tensor { return op.Slice(x, 1, 1, 4, 2) },
		"expand":       func(x *core.Tensor) *core.Tensor { return op.Mul(op.Expand(op.Narrow(x, 0, 0, 1), 3, 4), other) },
		"sum":          func(x *core.Tensor) *core.Tensor { return op.Sum(x, []int{0}, false) },
		"sum all":      func(x *core.Tensor) *core.Tensor { return op.Sum(x, nil, false) },
		"mean":         func(x *core.Tensor) *core.Tensor { return op.Mean(x, []int{1}, true) },
		"logcumsumexp": func(x *core.Tensor) *core.Tensor { return op.LogCumSumExp(op.Mul(x, core.Num(3)), 1) },
		"renorm":       func(x *core.Tensor) *core.Tensor { return op.Renorm(x, 2, 0, 0.9) },
		"rms_norm":     func(x *core.Tensor) *core.Tensor { return op.RMSNorm(x, []int{4}, op.Select(other, 0, 0), 0.5) },
		"avg_pool1d":   func(x *core.Tensor) *core.Tensor { return op.AdaptiveAvgPool1d(x, []int{3}) },
		"scatter_reduce": func(x *core.Tensor) *core.Tensor {
			return op.ScatterReduce(x, 0, op.Expand(op.Reshape(index, 3, 1), 3, 4), op.Mul(x, other), "prod", false)
		},
		"addmm_": func(x *core.Tensor) *core.Tensor {
			return op.AddMMInPlace(op.Clone(x), op.Square(x), op.MatMul(op.Transpose(other, 0, 1), x), 0.5, 2)
		},
		"cumsum":        func(x *core.Tensor) *core.Tensor { return op.CumSum(x, 1) },
		"cat":           func(x *core.Tensor) *core.Tensor { return op.Cat([]*core.Tensor{x, op.Real(x), other}, 0) },
		"stack":         func(x *core.Tensor) *core.Tensor { return op.Stack([]*core.Tensor{x, other}, -1) },
		"flip":          func(x *core.Tensor) *core.Tensor { return op.Flip(x, []int{1}) },
		"roll":          func(x *core.Tensor) *core.Tensor { return op.Roll(x, []int{1, 2}, []int{0, 1}) },
		"pad":           func(x *core.Tensor) *core.Tensor { return op.Pad(x, []int{1, 2, 0, 1}, op.PadOptions{Value: 0.5}) },
		"pad reflect":   func(x *core.Tensor) *core.Tensor { return op.Pad(x, []int{1, 2}, op.PadOptions{Mode: "reflect"}) },
		"tril":          func(x *core.Tensor) *core.Tensor { return op.Tril(x, 0) },
		"index_select":  func(x *core.Tensor) *core.Tensor { return op.IndexSelect(x, 0, index) },
		"index_add":     func(x *core.Tensor) *core.Tensor { return op.IndexAdd(x, 0, index, op.Mul(x, x)) },
		"gather":        func(x *core.Tensor) *core.Tensor { return op.Gather(x, 0, op.Reshape(index, 3, 1)) },
		"masked_select": func(x *core.Tensor) *core.Tensor { return op.MaskedSelect(x, op.Gt(op.Real(x), core.IntNum(0))) },
		"masked_fill": func(x *core.Tensor) *core.Tensor {
			return op.MaskedFill(x, op.Gt(op.Real(other), core.IntNum(0)), core.Num(2))
		},
		"to":           func(x *core.Tensor) *core.Tensor { return op.To(op.Real(op.To(x, core.Complex128)), core.Complex128) },
		"view_as_real": op.ViewAsReal,
		"parts":        func(x *core.Tensor) *core.Tensor { return op.ViewAsComplex(op.Square(op.ViewAsReal(x))) },
		"matmul":       func(x *core.Tensor) *core.Tensor { return op.MatMul(x, op.Transpose(op.Conj(other), 0, 1)) },
		"matmul right": func(x *core.Tensor) *core.Tensor { return op.MatMul(op.Transpose(other, 0, 1), x) },
		"gram":         func(x *core.Tensor) *core.Tensor { return op.MatMul(op.Conj(op.Transpose(x, 0, 1)), x) },
		"mv":           func(x *core.Tensor) *core.Tensor { return op.MV(x, op.Select(other, 0, 0)) },
		"in place": func(x *core.Tensor) *core.Tensor {
			y := op.Clone(x)
			op.MulInPlace(op.Select(y, 0, 1), op.Select(x, 0, 0))
			op.CopyInPlace(op.Imag(op.Select(y, 0, 0)), op.Square(op.Real(op.Select(x, 0, 2))))
			op.AddInPlace(op.Select(op.ViewAsReal(y), 2, 0), core.Num(3))
			return op.Mul(y, other)
		},
		"in place on parts": func(x *core.Tensor) *core.Tensor {
			y := op.Clone(op.ViewAsReal(x))
			op.MulInPlace(op.ViewAsComplex(op.Select(y, 0, 1)), op.Select(other, 0, 0))
			return op.Mul(y, y)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for layout, x := range []*core.Tensor{complexes(3, 4), op.Transpose(complexes(4, 3), 0, 1), op.Slice(complexes(3, 9), 1, 1, 9, 2)} {
				x = x.Detach().SetRequiresGrad(true)
				f := func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{fn(in[0])} }
				require.NoError(t, autograd.Check(f, []*core.Tensor{x}, 1e-6, 1e-6, 1e-6), "layout %d", layout)
			}
			require.NoError(t, autograd.CheckDouble(func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{op.Mul(fn(in[0]), fn(in[0]))} },
				[]*core.Tensor{complexes(3, 4).SetRequiresGrad(true)}, 1e-5, 1e-5, 1e-5))
		})
	}
}

// TestComplexFormulasKeepTheirAccuracy evaluates functions where the usual formulas cancel, overflow or divide by zero. The values
// are those of Python's cmath.
func TestComplexFormulasKeepTheirAccuracy(t *testing.T) {
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		fn   func(x *core.Tensor) *core.Tensor
		z    complex128
		want complex128
	}{
		"atanh near -1":       {op.Atanh, complex(-1, 1e-7), complex(-8.405621415759134, 0.7853981883974483)},
		"atan near i":         {op.Atan, complex(1e-4, 1), complex(0.7854231633974275, 4.951743776893064)},
		"atan of infinity":    {op.Atan, complex(inf, 0), complex(math.Pi/2, 0)},
		"atanh of a large i":  {op.Atanh, 1e300i, complex(0, math.Pi/2)},
		"sigmoid far left":    {op.Sigmoid, -40, complex(math.Exp(-40), 0)},
		"sinh that overflows": {op.Sinh, 1000, complex(inf, 0)},
		"sinc of 0":           {op.Sinc, 0, 1},
		"sinc near 0":         {op.Sinc, complex(1e-200, 1e-200), 1},
		"silu far left":       {op.Silu, -40, complex(-40*math.Exp(-40), 0)},
		"division by zero":    {func(x *core.Tensor) *core.Tensor { return op.Div(x, core.Num(0)) }, complex(1, 1), complex(inf, inf)},
	} {
		got, err := c.fn(core.Scalar(c.z)).Complex()
		require.NoError(t, err, name)
		for _, part := range [][2]float64{{real(got), real(c.want)}, {imag(got), imag(c.want)}} {
			require.True(t, part[0] == part[1] || math.Abs(part[0]-part[1]) <= 1e-9*math.Abs(part[1]), "%s: got %v, want %v", name, got, c.want)
		}
	}
}

// TestComplexSumsOfExponentialsKeepTheirTurns: the imaginary parts of logarithms of sums are those of adding one number after the other, also
// far from 0.
func TestComplexSumsOfExponentialsKeepTheirTurns(t *testing.T) {
	add := func(sum, z complex128) complex128 {
		least, most := z, sum
		if real(z) >= real(sum) {
			least, most = sum, z
		}
		return most + cmplx.Log(1+cmplx.Exp(least-most))
	}
	for n := 1; n < 60; n++ {
		numbers := complexNumbers(n)
		for i := range numbers {
			numbers[i] *= complex(float64(2+n%9), 0)
		}
		want := make([]complex128, n)
		for i, z := range numbers {
			if want[i] = z; i > 0 {
				want[i] = add(want[i-1], z)
			}
		}
		x := core.FromSlice(numbers)
		for _, got := range [][]complex128{complexValues(t, op.LogCumSumExp(x, 0)), complexValues(t, op.LogCumSumExp(op.Reshape(x, n, 1), 0))} {
			for i := range want {
				require.InDelta(t, 0, cmplx.Abs(got[i]-want[i]), 1e-11*(1+cmplx.Abs(want[i])), "of %d, element %d: got %v, want %v", n, i, got[i], want[i])
			}
		}
	}
	inf, nan := math.Inf(1), math.NaN()
	got := complexValues(t, op.Logaddexp(core.FromSlice([]complex128{complex(-inf, 1), complex(-inf, 0), complex(inf, 0), complex(nan, 0), complex(1, nan)}),
		core.FromSlice([]complex128{complex(-inf, 2), 1 + 2i, complex(inf, 0), complex(-inf, 0), complex(-inf, 0)})))
	require.Equal(t, []complex128{complex(-inf, 2), 1 + 2i, complex(inf, 0)}, got[:3])
	for _, z := range got[3:] {
		require.True(t, math.IsNaN(real(z)) && math.IsNaN(imag(z)), "%v", z)
	}
}

// TestComplexConvolutions compares convolutions of complex numbers with those of their parts.
func TestComplexConvolutions(t *testing.T) {
	o, transposed := op.ConvOptions{Stride: []int{2}, Padding: []int{1}, Groups: 2}, op.ConvTransposeOptions{Stride: []int{2}, Padding: []int{1}, Groups: 2}
	for name, conv := range map[string]func(x, w, b *core.Tensor) *core.Tensor{
		"conv2d":           func(x, w, b *core.Tensor) *core.Tensor { return op.Conv2d(x, w, b, o) },
		"conv_transpose2d": func(x, w, b *core.Tensor) *core.Tensor { return op.ConvTranspose2d(x, w, b, transposed) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, shape := range [][]int{{3, 4, 5, 6}, {4, 5, 6}} {
				x, w, b := complexes(shape...), complexes(4, 2, 3, 2), complexes(4)
				re := op.Sub(conv(op.Real(x), op.Real(w), op.Real(b)), conv(op.Imag(x), op.Imag(w), nil))
				im := op.Add(conv(op.Real(x), op.Imag(w), op.Imag(b)), conv(op.Imag(x), op.Real(w), nil))
				got, want := complexValues(t, conv(x, w, b)), complexValues(t, op.Complex(re, im))
				require.Less(t, distance(got, want), 1e-14)
			}
		})
	}
	require.ErrorContains(t, op.Conv2d(complexes(1, 4, 5, 6), op.Ones(4, 4, 3, 3), nil, op.ConvOptions{}).Err(), "one dtype")
}

// TestInterleavedOperands checks operands whose elements lie in turn in memory, as the parts of complex numbers do, and which
// kernels read and write together, in every dtype and with short and long rows.
func TestInterleavedOperands(t *testing.T) {
	for _, d := range []core.DType{core.Bool, core.Uint8, core.Int16, core.Int32, core.Int64, core.Float16, core.Float32, core.Float64, core.Complex64} {
		for _, cols := range []int{1, 7, 33, 3000} {
			core.Tidy(func() {
				core.ManualSeed(3)
				x := op.To(op.Randint(-9, 9, 3, 2, 2*cols), d)
				if d.IsComplex() {
					x = op.Complex(op.Randn(3, 2, 2*cols), op.Randn(3, 2, 2*cols))
				}
				for _, whole := range []*core.Tensor{x, op.Transpose(x, 0, 1), op.Narrow(x, 0, 1, 2)} {
					a, b := op.Slice(whole, 2, 0, 2*cols, 2), op.Slice(whole, 2, 1, 2*cols, 2)
					require.True(t, same(t, op.Mul(op.Contiguous(a), op.Contiguous(b)), op.Mul(a, b)), "%v %v", d, whole.Strides())
					require.True(t, same(t, op.Mul(op.Contiguous(b), op.Contiguous(a)), op.Mul(b, a)), "%v %v, swapped", d, whole.Strides())
					if d == core.Bool { // as which kernels compute it
						require.True(t, same(t, op.LogicalAnd(op.Contiguous(a), op.Contiguous(b)), op.LogicalAnd(a, b)))
					}
				}
				held := op.Clone(x)
				a, b := op.Slice(held, 2, 0, 2*cols, 2), op.Slice(held, 2, 1, 2*cols, 2)
				want := op.Mul(op.Contiguous(a), op.Contiguous(b))
				require.NoError(t, op.MulInPlace(a, b).Err())
				for got, want := range map[*core.Tensor]*core.Tensor{a: want, b: op.Slice(x, 2, 1, 2*cols, 2)} {
					require.True(t, same(t, want, got), "%v in place", d)
				}
			})
		}
	}
}

// same reports whether two tensors have the same shape and elements.
func same(t *testing.T, x, y *core.Tensor) bool {
	v, err := core.Values[bool](op.Equal(x, y))
	require.NoError(t, err)
	return v[0]
}

// TestAProductThatIgnoresItsInput checks that an input times zero has a gradient, of zeros.
func TestAProductThatIgnoresItsInput(t *testing.T) {
	core.Tidy(func() {
		x := op.Complex(op.Randn(2, 2), op.Randn(2, 2)).Detach().SetRequiresGrad(true)
		y := op.AddMM(x, x.Detach(), x.Detach(), 0, 1)
		grads, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, []*core.Tensor{y}, autograd.Options{})
		require.NoError(t, err)
		require.True(t, same(t, op.ZerosLike(x, op.TensorOptions{}), grads[0]))
	})
}

package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// LayerNorm normalises x to mean 0 and variance 1 over its last dimensions, of sizes shape, then multiplies by weight and
// adds bias, which have that shape and may be nil. eps is added to the variance.
//
// Ba, Kiros, Hinton: Layer normalization, 2016.
func LayerNorm(x *core.Tensor, shape []int, weight, bias *core.Tensor, eps float64) *core.Tensor {
	if parts := distributed(x, weight, bias); parts != nil {
		return handOn(parts, "layer_norm", x, shape, weight, bias, eps)
	}
	return rowNorm("layer_norm", x, shape, weight, bias, eps, false)
}

// RMSNorm divides x by the root of its mean square over its last dimensions, of sizes shape, then multiplies by weight,
// which has that shape and may be nil. eps is added to the mean square; NaN stands for the distance from 1 to the next
// number of the dtype in which it is computed, float32 for halves.
//
// Zhang, Sennrich: Root mean square layer normalization, 2019.
func RMSNorm(x *core.Tensor, shape []int, weight *core.Tensor, eps float64) *core.Tensor {
	if parts := distributed(x, weight); parts != nil {
		return handOn(parts, "rms_norm", x, shape, weight, eps)
	}
	if eps != eps && x != nil {
		eps = machineEpsilon(statType(x.DType().Part()))
	}
	if x != nil && x.Err() == nil && x.DType().IsComplex() {
		return complexRMSNorm(x, shape, weight, eps)
	}
	return rowNorm("rms_norm", x, shape, weight, nil, eps, true)
}

// complexRMSNorm divides by the root of the mean of the squares, which are complex as in PyTorch: the result is not of unit size.
func complexRMSNorm(x *core.Tensor, shape []int, weight *core.Tensor, eps float64) *core.Tensor {
	op := begin("rms_norm", &x, optional(&weight))
	op.normalised(x, shape, weight, nil)
	return op.compose(func() *core.Tensor {
		dims := make([]int, len(shape))
		for i := range dims {
			dims[i] = i - len(shape)
		}
		y := Mul(x, Rsqrt(Add(Mean(Square(x), dims, true), core.Num(eps))))
		if weight != nil {
			y = Mul(y, weight)
		}
		return y
	})
}

// normalised fails unless shape is that of the last dimensions of x, and of weight and bias where they are given.
func (op *opContext) normalised(x *core.Tensor, shape []int, weight, bias *core.Tensor) {
	if op.err != nil {
		return
	}
	if s := x.Shape(); len(shape) == 0 || len(shape) > len(s) || !slices.Equal(shape, s[len(s)-len(shape):]) {
		op.failf(core.ShapeError, "the normalised dimensions must be the input's last ones, got %v for an input of shape %v", shape, s)
	}
	op.normShape("weight", weight, shape)
	op.normShape("bias", bias, shape)
}

// machineEpsilon returns the distance from 1 to the next number.
func machineEpsilon(d core.DType) float64 {
	switch d {
	case core.Float16:
		return 0x1p-10
	case core.BFloat16:
		return 0x1p-7
	case core.Float32:
		return 0x1p-23
	}
	return 0x1p-52
}

func rowNorm(name string, x *core.Tensor, shape []int, weight, bias *core.Tensor, eps float64, rms bool) *core.Tensor {
	op := begin(name, &x, optional(&weight), optional(&bias))
	op.floatTensor(x)
	op.normParams(x, weight, bias)
	op.normalised(x, shape, weight, bias)
	in, w, b := op.dense(x), op.dense(weight), op.dense(bias)
	y := op.resultLike(x)
	if op.err != nil {
		return op.fail()
	}
	n := core.Numel(shape)
	rows := 0
	if n > 0 {
		rows = x.Numel() / n
	}
	var stats *core.Tensor
	if op.grad {
		if stats = op.temp(statType(x.DType()), 2, rows); op.err != nil {
			return op.fail()
		}
	}
	c := op.call(contract.LayerNorm).Out(y).Out(stats).In(in).In(w).In(b)
	op.launch(contract.SetEps(contract.LayerNormAttrs{Rows: rows, N: n, RMS: rms}.AddTo(c), eps))
	if op.grad {
		node := op.node(rowNormDeriv, x, weight, bias).Save(x, weight, stats)
		node.Any = rowNormInfo{rows: rows, n: n, rms: rms, eps: eps}
		op.attach(node, y)
	}
	return op.done(y)
}

type rowNormInfo struct {
	rows, n int
	rms     bool
	eps     float64
}

func rowNormDeriv(ctx *core.BackwardContext) {
	info := ctx.Node.Any.(rowNormInfo)
	x, w, stats := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2)
	if ctx.CreateGraph() {
		v := normView{dims: []int{1}, eps: info.eps, rms: info.rms, shape: []int{info.rows, info.n}, params: []int{info.n}}
		v.derive(ctx, x, w)
		return
	}
	arrived, _ := ctx.Arrived(0) // such as the gradient of a residual connection
	op := begin(ctx.Node.Name+"_backward").with(x, ctx.Grad(), w, stats, arrived)
	in, g, wd := op.dense(x), op.dense(ctx.Grad()), op.dense(w)
	dx, dw, db := op.normGrads(ctx)
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	c := op.call(contract.LayerNormBackward).Out(dx).Out(dw).Out(db).In(in).In(g).In(wd).In(stats).In(arrived)
	op.launch(contract.LayerNormAttrs{Rows: info.rows, N: info.n, RMS: info.rms}.AddTo(c))
	if dx != nil {
		ctx.SetSum(0, dx)
	}
	setGrads(ctx, nil, dw, db)
}

// statType is the dtype in which data of dtype d is summed.
func statType(d core.DType) core.DType {
	if d == core.Float64 {
		return d
	}
	return core.Float32
}

// normParams fails unless the parameters that are given share a floating dtype that goes with x's: the same, or float32
// for half precision.
func (op *opContext) normParams(x *core.Tensor, params ...*core.Tensor) {
	if op.err != nil {
		return
	}
	var first *core.Tensor
	for _, p := range params {
		switch {
		case p == nil:
		case p.IsNumber():
			op.failf(core.TypeError, "got a number for a parameter, want a tensor")
		case p.DType() != x.DType() && (p.DType() != core.Float32 || x.DType() == core.Float64 || !x.DType().IsFloat()):
			op.failf(core.DTypeError, "parameters of %v for an input of %v", p.DType(), x.DType())
		case first == nil:
			first = p
		case p.DType() != first.DType():
			op.failf(core.DTypeError, "parameters of different dtypes, got %v and %v", first.DType(), p.DType())
		}
	}
}

func (op *opContext) normShape(what string, t *core.Tensor, want []int) {
	if op.err == nil && t != nil && !slices.Equal(t.Shape(), want) {
		op.failf(core.ShapeError, "%s of shape %v, want %v", what, t.Shape(), want)
	}
}

// normGrads allocates the gradients of input, weight and bias that are wanted.
func (op *opContext) normGrads(ctx *core.BackwardContext) (dx, dw, db *core.Tensor) {
	var out [3]*core.Tensor
	for i := range out {
		if ctx.Needs(i) {
			out[i] = op.out(ctx.InputDType(i), ctx.InputShape(i))
		}
	}
	return out[0], out[1], out[2]
}

// setGrads sets the gradients that are not nil.
func setGrads(ctx *core.BackwardContext, grads ...*core.Tensor) {
	for i, g := range grads {
		if g != nil {
			ctx.Set(i, g)
		}
	}
}

// A normView says how a normalisation sees its input: reshaped to shape, with statistics over dims, and with parameters
// that broadcast from the shape params.
type normView struct {
	shape, params []int
	dims          []int
	rms           bool
	eps           float64
	mean, rstd    *core.Tensor // where they are constants, of a shape that broadcasts
}

// derive sets the gradients of input, weight and bias by operations that can be differentiated again:
// with g = dy*w and h = (x - mean)*rstd, dx = rstd*(g - mean(g) - h*mean(g*h)).
func (v *normView) derive(ctx *core.BackwardContext, x, w *core.Tensor) {
	dtype := statType(x.DType())
	xv := Reshape(castTo(x, dtype), v.shape...)
	dy := Reshape(castTo(ctx.Grad(), dtype), v.shape...)
	g := dy
	if w != nil {
		g = Mul(dy, Reshape(castTo(w, dtype), v.params...))
	}
	mean, rstd, centred := v.mean, v.rstd, xv
	if rstd == nil {
		if !v.rms {
			mean = Mean(xv, v.dims, true)
			centred = Sub(xv, mean)
		}
		rstd = Rsqrt(Add(Mean(Mul(centred, centred), v.dims, true), core.Num(v.eps)))
	} else {
		centred = Sub(xv, mean)
	}
	h := Mul(centred, rstd)
	if ctx.Needs(0) {
		dx := g
		if v.rstd == nil {
			dx = Sub(dx, Mul(h, Mean(Mul(g, h), v.dims, true)))
			if !v.rms {
				dx = Sub(dx, Mean(g, v.dims, true))
			}
		}
		ctx.Set(0, castTo(Reshape(Mul(dx, rstd), ctx.InputShape(0)...), ctx.InputDType(0)))
	}
	if ctx.Needs(1) {
		ctx.Set(1, castTo(Reshape(sumTo(Mul(dy, h), v.params), ctx.InputShape(1)...), ctx.InputDType(1)))
	}
	if ctx.Needs(2) {
		ctx.Set(2, castTo(Reshape(sumTo(dy, v.params), ctx.InputShape(2)...), ctx.InputDType(2)))
	}
}

// defaultEps is what norms add to the variance unless told otherwise.
const defaultEps = 1e-5

func init() {
	shapeArg := Arg{Name: "normalized_shape", Doc: "the sizes of the input's last dimensions, over which it is normalised"}
	weight := Arg{Name: "weight", Optional: true, Doc: "factors, of the normalised shape"}
	bias := Arg{Name: "bias", Optional: true, Doc: "summands, of the normalised shape"}
	register("norm",
		Row{Name: "layer_norm", Func: LayerNorm, Memory: true,
			Doc: "The input, normalised to mean 0 and variance 1 over its last dimensions.",
			Args: []Arg{{Name: "input"}, shapeArg, weight, bias,
				{Name: "eps", Default: defaultEps, Doc: "added to the variance"}},
			Samples: []Sample{
				{Name: "affine", Args: []any{Shaped(4, 6), []int{6}, Shaped(6), Shaped(6), defaultEps}, Loose: 4},
				{Name: "3-d", Args: []any{Shaped(2, 3, 5), []int{5}, Shaped(5), Shaped(5), defaultEps}, Loose: 4},
				{Name: "two dimensions", Args: []any{Shaped(3, 2, 4), []int{2, 4}, Shaped(2, 4), nil, 0.1}, Loose: 4},
				{Name: "plain", Args: []any{Shaped(3, 7), []int{7}, nil, nil, 1e-3}, Loose: 4},
				{Name: "bias only", Args: []any{Shaped(3, 7), []int{7}, nil, Shaped(7), 1e-3}, Loose: 4},
				{Name: "many rows", Args: []any{Shaped(70, 3), []int{3}, Shaped(3), Shaped(3), 0.1}, Loose: 8},
				{Name: "no rows", Args: []any{Shaped(0, 3), []int{3}, Shaped(3), Shaped(3), 0.1}},
			}},
		Row{Name: "rms_norm", Func: RMSNorm, Memory: true,
			Doc: "The input, divided by the root of its mean square over its last dimensions.",
			Args: []Arg{{Name: "input"}, shapeArg, weight,
				{Name: "eps", Doc: "added to the mean square; NaN: the machine epsilon of the dtype, or of float32 for shorter ones"}},
			Samples: []Sample{
				{Name: "weight", Args: []any{Shaped(4, 6), []int{6}, Shaped(6), math.NaN()}, Loose: 4},
				{Name: "3-d", Args: []any{Shaped(2, 3, 5), []int{5}, Shaped(5), 1e-5}, Loose: 4},
				{Name: "two dimensions", Args: []any{Shaped(3, 2, 4), []int{2, 4}, nil, 0.1}, Loose: 4},
				{Name: "no rows", Args: []any{Shaped(0, 3), []int{3}, Shaped(3), 0.1}},
			}},
	)
}

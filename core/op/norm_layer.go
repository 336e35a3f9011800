package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

var (
	layerNormKernel         = core.Kernel("layer_norm")
	layerNormBackwardKernel = core.Kernel("layer_norm_backward")
)

// LayerNorm normalises x to mean 0 and variance 1 over its last dimensions, of sizes shape, then multiplies by weight and
// adds bias, which have that shape and may be nil. eps is added to the variance.
//
// Ba, Kiros, Hinton: Layer normalization, 2016.
func LayerNorm(x *core.Tensor, shape []int, weight, bias *core.Tensor, eps float64) *core.Tensor {
	return rowNorm("layer_norm", x, shape, weight, bias, eps, false)
}

// RMSNorm divides x by the root of its mean square over its last dimensions, of sizes shape, then multiplies by weight,
// which has that shape and may be nil. eps is added to the mean square; NaN stands for the distance from 1 to the next
// number of x's dtype.
//
// Zhang, Sennrich: Root mean square layer normalization, 2019.
func RMSNorm(x *core.Tensor, shape []int, weight *core.Tensor, eps float64) *core.Tensor {
	defer autocast("rms_norm", &x, &weight).end()
	if eps != eps && x != nil {
		eps = machineEpsilon(x.DType())
	}
	return rowNorm("rms_norm", x, shape, weight, nil, eps, true)
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
	defer autocast(name, &x, &weight, &bias).end()
	a := begin(name, x, weight, bias)
	a.floatTensor(x)
	a.normParams(x, weight, bias)
	if a.err == nil {
		if s := x.Shape(); len(shape) == 0 || len(shape) > len(s) || !slices.Equal(shape, s[len(s)-len(shape):]) {
			a.failf(core.ShapeError, "the normalised dimensions must be the input's last ones, got %v for an input of shape %v", shape, s)
		}
		a.normShape("weight", weight, shape)
		a.normShape("bias", bias, shape)
	}
	in, w, b := a.dense(x), a.dense(weight), a.dense(bias)
	y := a.outLike(x)
	if a.err != nil {
		return a.fail()
	}
	n := core.Numel(shape)
	rows := 0
	if n > 0 {
		rows = x.Numel() / n
	}
	var stats *core.Tensor
	if a.grad {
		if stats = a.temp(statType(x.DType()), 2, rows); a.err != nil {
			return a.fail()
		}
	}
	a.launch(a.call(layerNormKernel).Out(y).Out(stats).In(in).In(w).In(b).Int(int64(rows), int64(n)).Bool(rms).Float(eps))
	if a.grad {
		node := a.node(rowNormDeriv, x, weight, bias).Save(x, weight, stats)
		node.Any = rowNormInfo{rows: rows, n: n, rms: rms, eps: eps}
		a.attach(node, y)
	}
	return a.done(y)
}

type rowNormInfo struct {
	rows, n int
	rms     bool
	eps     float64
}

func rowNormDeriv(d *core.Derivation) {
	info := d.Node.Any.(rowNormInfo)
	x, w, stats := d.Saved(0), d.Saved(1), d.Saved(2)
	if d.CreateGraph() {
		v := normView{dims: []int{1}, eps: info.eps, rms: info.rms, shape: []int{info.rows, info.n}, params: []int{info.n}}
		v.derive(d, x, w)
		return
	}
	arrived, _ := d.Arrived(0) // such as the gradient of a residual connection
	a := begin(d.Node.Name+"_backward", x, d.Grad(), w, stats, arrived)
	in, g, wd := a.dense(x), a.dense(d.Grad()), a.dense(w)
	dx, dw, db := a.normGrads(d)
	if a.err != nil {
		d.Fail(a.err)
		return
	}
	a.launch(a.call(layerNormBackwardKernel).Out(dx).Out(dw).Out(db).In(in).In(g).In(wd).In(stats).In(arrived).
		Int(int64(info.rows), int64(info.n)).Bool(info.rms))
	if dx != nil {
		d.SetSum(0, dx)
	}
	setGrads(d, nil, dw, db)
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
func (a *application) normParams(x *core.Tensor, params ...*core.Tensor) {
	if a.err != nil {
		return
	}
	var first *core.Tensor
	for _, p := range params {
		switch {
		case p == nil:
		case p.IsNumber():
			a.failf(core.TypeError, "got a number for a parameter, want a tensor")
		case p.DType() != x.DType() && (p.DType() != core.Float32 || x.DType() == core.Float64 || !x.DType().IsFloat()):
			a.failf(core.DTypeError, "parameters of %v for an input of %v", p.DType(), x.DType())
		case first == nil:
			first = p
		case p.DType() != first.DType():
			a.failf(core.DTypeError, "parameters of different dtypes, got %v and %v", first.DType(), p.DType())
		}
	}
}

func (a *application) normShape(what string, t *core.Tensor, want []int) {
	if a.err == nil && t != nil && !slices.Equal(t.Shape(), want) {
		a.failf(core.ShapeError, "%s of shape %v, want %v", what, t.Shape(), want)
	}
}

// normGrads allocates the gradients of input, weight and bias that are wanted.
func (a *application) normGrads(d *core.Derivation) (dx, dw, db *core.Tensor) {
	var out [3]*core.Tensor
	for i := range out {
		if d.Needs(i) {
			out[i] = a.out(d.InputDType(i), d.InputShape(i))
		}
	}
	return out[0], out[1], out[2]
}

// setGrads sets the gradients that are not nil.
func setGrads(d *core.Derivation, grads ...*core.Tensor) {
	for i, g := range grads {
		if g != nil {
			d.Set(i, g)
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
func (v *normView) derive(d *core.Derivation, x, w *core.Tensor) {
	dtype := statType(x.DType())
	xv := Reshape(castTo(x, dtype), v.shape...)
	dy := Reshape(castTo(d.Grad(), dtype), v.shape...)
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
	if d.Needs(0) {
		dx := g
		if v.rstd == nil {
			dx = Sub(dx, Mul(h, Mean(Mul(g, h), v.dims, true)))
			if !v.rms {
				dx = Sub(dx, Mean(g, v.dims, true))
			}
		}
		d.Set(0, castTo(Reshape(Mul(dx, rstd), d.InputShape(0)...), d.InputDType(0)))
	}
	if d.Needs(1) {
		d.Set(1, castTo(Reshape(sumTo(Mul(dy, h), v.params), d.InputShape(1)...), d.InputDType(1)))
	}
	if d.Needs(2) {
		d.Set(2, castTo(Reshape(sumTo(dy, v.params), d.InputShape(2)...), d.InputDType(2)))
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
				{Name: "eps", Doc: "added to the mean square; NaN: the dtype's machine epsilon"}},
			Samples: []Sample{
				{Name: "weight", Args: []any{Shaped(4, 6), []int{6}, Shaped(6), math.NaN()}, Loose: 4},
				{Name: "3-d", Args: []any{Shaped(2, 3, 5), []int{5}, Shaped(5), 1e-5}, Loose: 4},
				{Name: "two dimensions", Args: []any{Shaped(3, 2, 4), []int{2, 4}, nil, 0.1}, Loose: 4},
				{Name: "no rows", Args: []any{Shaped(0, 3), []int{3}, Shaped(3), 0.1}},
			}},
	)
}

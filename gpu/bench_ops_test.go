package gpu_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// An opBench is an operation with its operands, which are made when it is measured.
type opBench struct {
	name string
	make func(o *opOperands) func()
}

// opOperands makes the operands of [BenchmarkOps].
type opOperands struct {
	b   *testing.B
	d   *gpu.Device
	rng *rand.Rand
}

func (o *opOperands) floats(shape ...int) *core.Tensor {
	return op.RandnWith(shape, op.RandomOptions{Device: o.d})
}

func (o *opOperands) integers(below int, shape ...int) *core.Tensor {
	return op.ToDevice(indicesBelow(o.rng, below, shape...), o.d)
}

// gradients returns a function that computes the gradients of fn's result.
func (o *opOperands) gradients(fn func() *core.Tensor, of ...*core.Tensor) func() {
	y := fn()
	g := op.OnesLike(y, op.TensorOptions{})
	return func() {
		_, err := autograd.Grad([]*core.Tensor{y}, of, []*core.Tensor{g}, autograd.Options{RetainGraph: true})
		require.NoError(o.b, err)
	}
}

const (
	benchSide = 4096
	benchLong = 4 << 20
)

// unary returns the benchmark of an operation on a matrix.
func unary(name string, fn func(x *core.Tensor)) opBench {
	return opBench{name, func(o *opOperands) func() {
		x := o.floats(benchSide, benchSide)
		return func() { fn(x) }
	}}
}

// image returns the benchmark of an operation on images.
func image(name string, fn func(x *core.Tensor)) opBench {
	return opBench{name, func(o *opOperands) func() {
		x := o.floats(32, 64, 56, 56)
		return func() { fn(x) }
	}}
}

var opBenches = []opBench{
	image("adaptive_avg_pool2d", func(x *core.Tensor) { op.AdaptiveAvgPool2d(x, []int{1}) }),
	image("avg_pool2d", func(x *core.Tensor) { op.AvgPool2d(x, []int{2}, op.AvgPoolOptions{}) }),
	image("max_pool2d", func(x *core.Tensor) { op.MaxPool2d(x, []int{2}, op.MaxPoolOptions{}) }),
	image("pad", func(x *core.Tensor) { op.Pad(x, []int{1, 1, 1, 1}, op.PadOptions{}) }),
	{"conv depthwise", func(o *opOperands) func() { return depthwise(o, nil) }},
	{"conv depthwise, input", func(o *opOperands) func() { return depthwise(o, func(x, _ *core.Tensor) *core.Tensor { return x }) }},
	{"conv depthwise, weight", func(o *opOperands) func() { return depthwise(o, func(_, w *core.Tensor) *core.Tensor { return w }) }},
	{"one_hot", func(o *opOperands) func() {
		i := o.integers(benchSide, benchSide)
		return func() { op.OneHot(i, benchSide) }
	}},
	{"unique int64", func(o *opOperands) func() {
		i := o.integers(100_000, benchLong)
		return func() { op.Unique(i, nil, everyResult) }
	}},
	{"bincount", func(o *opOperands) func() {
		i := o.integers(1000, benchLong)
		return func() { op.BinCount(i, nil, 0) }
	}},
	{"nonzero", func(o *opOperands) func() {
		x := op.Gt(o.floats(benchLong), core.Num(0))
		return func() { op.NonZero(x) }
	}},
	unary("masked_select", func(x *core.Tensor) { op.MaskedSelect(x, op.Gt(x, core.Num(0))) }),
	{"scatter_add", func(o *opOperands) func() {
		x, v, i := o.floats(benchSide, benchSide), o.floats(benchSide, benchSide), o.integers(benchSide, benchSide, benchSide)
		return func() { op.ScatterAdd(x, 1, i, v) }
	}},
	{"index_put accumulate", func(o *opOperands) func() {
		x, v, i := o.floats(benchLong), o.floats(benchLong), o.integers(benchLong, benchLong)
		return func() { op.IndexPut(x, []*core.Tensor{i}, v, true) }
	}},
	{"embedding", func(o *opOperands) func() {
		w, i := o.floats(50257, 768), o.integers(50257, 8, 1024)
		return func() { op.Embedding(i, w, op.EmbeddingOptions{}) }
	}},
	{"embedding, weight", func(o *opOperands) func() {
		w, i := o.floats(50257, 768).SetRequiresGrad(true), o.integers(50257, 8, 1024)
		return o.gradients(func() *core.Tensor { return op.Embedding(i, w, op.EmbeddingOptions{}) }, w)
	}},
	{"gather", func(o *opOperands) func() {
		x, i := o.floats(benchSide, benchSide), o.integers(benchSide, benchSide, benchSide)
		return func() { op.Gather(x, 1, i) }
	}},
	{"index_select", func(o *opOperands) func() {
		x, i := o.floats(benchSide, benchSide), o.integers(benchSide, benchSide)
		return func() { op.IndexSelect(x, 0, i) }
	}},
	{"take", func(o *opOperands) func() {
		x, i := o.floats(benchSide, benchSide), o.integers(benchSide*benchSide, benchLong)
		return func() { op.Take(x, i) }
	}},
	{"sort", func(o *opOperands) func() {
		x := o.floats(benchLong)
		return func() { op.Sort(x, 0, op.SortOptions{}) }
	}},
	unary("sort rows", func(x *core.Tensor) { op.Sort(x, 1, op.SortOptions{}) }),
	unary("topk", func(x *core.Tensor) { op.TopK(x, 10, 1, true, true) }),
	unary("median", func(x *core.Tensor) { op.Median(x, 1, false) }),
	{"cdist", func(o *opOperands) func() {
		x, y := o.floats(benchSide, 64), o.floats(benchSide, 64)
		return func() { op.CDist(x, y, 2, op.CDistOptions{}) }
	}},
	{"cdist, gradients", func(o *opOperands) func() {
		x, y := o.floats(benchSide, 64).SetRequiresGrad(true), o.floats(benchSide, 64).SetRequiresGrad(true)
		return o.gradients(func() *core.Tensor { return op.CDist(x, y, 2, op.CDistOptions{}) }, x, y)
	}},
	{"multinomial", func(o *opOperands) func() {
		x := op.Abs(o.floats(benchSide, benchSide))
		return func() { op.Multinomial(x, 10, true, op.RandomOptions{}) }
	}},
	{"int64 add", func(o *opOperands) func() {
		x := o.integers(100, benchLong)
		return func() { op.Add(x, x) }
	}},
	{"int64 sum", func(o *opOperands) func() {
		x := o.integers(100, benchLong)
		return func() { op.Sum(x, nil, false) }
	}},
	unary("gelu", func(x *core.Tensor) { op.Gelu(x, "none") }),
	unary("dropout", func(x *core.Tensor) { op.Dropout(x, 0.5, true) }),
	{"randn", func(o *opOperands) func() { return func() { o.floats(benchSide, benchSide) } }},
	unary("pow", func(x *core.Tensor) { op.Pow(x, core.Num(2.5)) }),
	unary("sum", func(x *core.Tensor) { op.Sum(x, nil, false) }),
	unary("sum of rows", func(x *core.Tensor) { op.Sum(x, []int{1}, false) }),
	unary("sum of columns", func(x *core.Tensor) { op.Sum(x, []int{0}, false) }),
	unary("norm", func(x *core.Tensor) { op.Norm(x, 2, nil, op.ReduceOptions{}) }),
	unary("max", func(x *core.Tensor) { op.Amax(x, nil, false) }),
	unary("argmax", func(x *core.Tensor) { op.ArgMax(x, []int{1}, false) }),
	unary("flip", func(x *core.Tensor) { op.Flip(x, []int{1}) }),
	unary("tril", func(x *core.Tensor) { op.Tril(x, 0) }),
	unary("cat", func(x *core.Tensor) { op.Cat([]*core.Tensor{x, x}, 0) }),
}

func depthwise(o *opOperands, of func(x, w *core.Tensor) *core.Tensor) func() {
	x, w := o.floats(32, 64, 56, 56).SetRequiresGrad(of != nil), o.floats(64, 1, 3, 3).SetRequiresGrad(of != nil)
	conv := func() *core.Tensor { return op.Conv2d(x, w, nil, op.ConvOptions{Padding: []int{1}, Groups: 64}) }
	if of == nil {
		return func() { conv() }
	}
	return o.gradients(conv, of(x, w))
}

// BenchmarkOps measures single operations in sizes that fill a large GPU: matrices of 4096 x 4096, vectors of 4 Mi elements, and images of
// 32 x 64 x 56 x 56. With -benchtime=20x, 20 calls are queued, and then waited for.
func BenchmarkOps(b *testing.B) {
	d := hardwareGPU(b)
	for _, c := range opBenches {
		b.Run(c.name, func(b *testing.B) {
			core.Tidy(func() {
				o := &opOperands{b, d, rand.New(rand.NewPCG(1, 2))}
				fn := c.make(o)
				before := d.Traffic().Dispatches
				benchmark(b, d, fn)
				b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms/op")
				b.ReportMetric(float64(d.Traffic().Dispatches-before)/float64(b.N+1), "dispatches")
			})
		})
	}
}

package op

import (
	"math"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A band is a linear map along one dimension: element j of the result is the weighted sum of count elements of the input from
// first on. Windows move up with j, so that a band's transpose is one too.
type band struct {
	in      int
	windows []int64 // first and count of each element of the result
	weights []float64
	shift   int // of bytes: weights are multiplied by 2^shift and rounded

	transpose func() *band
}

func newBand(in int, windows []int64, rows [][]float64) *band {
	b, taps := &band{in: in, windows: windows}, 1
	b.transpose = sync.OnceValue(b.transposed)
	for _, row := range rows {
		taps = max(taps, len(row))
	}
	b.weights = make([]float64, taps*len(rows))
	for j, row := range rows {
		copy(b.weights[taps*j:], row)
	}
	return b
}

func (b *band) out() int { return len(b.windows) / 2 }

// row returns the first element of the input that element j of the result is made of, and the weights of those from there.
func (b *band) row(j int) (first int, weights []float64) {
	taps := len(b.weights) / b.out()
	return int(b.windows[2*j]), b.weights[taps*j:][:b.windows[2*j+1]]
}

func (b *band) transposed() *band {
	rows, windows := make([][]float64, b.in), make([]int64, 2*b.in)
	for j := range b.out() {
		first, weights := b.row(j)
		for k, w := range weights {
			i := first + k
			if rows[i] == nil {
				windows[2*i] = int64(j)
			}
			rows[i] = append(rows[i], w)
			windows[2*i+1]++
		}
	}
	t := newBand(b.out(), windows, rows)
	t.transpose = func() *band { return b }
	return t
}

// apply maps dimension dim of x.
func (b *band) apply(x *core.Tensor, dim int) *core.Tensor {
	op := begin("interpolate").with(x)
	if op.err != nil {
		return op.fail()
	}
	shape := slices.Clone(x.Shape())
	shape[dim] = b.out()
	y := op.out(x.DType(), shape)
	in := op.dense(x)
	if op.err != nil {
		return op.fail()
	}
	c := op.call(contract.Resample).Out(y).In(in)
	contract.ResampleAttrs{Dim: dim, Shift: b.shift, Windows: b.windows, Weights: b.weights}.AddTo(c)
	c.Work *= 4
	op.launch(c)
	if op.grad {
		n := op.node(func(ctx *core.BackwardContext) {
			ctx.Set(0, b.transpose().apply(ctx.Grad(), dim))
		}, x)
		op.attach(n, y)
	}
	return op.done(y)
}

// round makes the weights integers of 16 bits with as many digits as these hold.
func (b *band) round() {
	largest := 0.0
	for _, w := range b.weights {
		largest = max(largest, w)
	}
	for b.shift < 22 && int(0.5+largest*float64(int(2)<<b.shift)) < 1<<15 {
		b.shift++
	}
	for i, w := range b.weights {
		b.weights[i] = math.Round(math.Ldexp(w, b.shift))
	}
}

// scaleOf returns how many elements of the input there are for each of the result in dimension i.
func (p *interpolation) scaleOf(i int) float64 {
	switch {
	case p.align && p.out[i] == 1:
		return 0
	case p.align:
		return float64(p.in[i]-1) / float64(p.out[i]-1)
	case p.scale[i] > 0:
		return 1 / p.scale[i]
	}
	return float64(p.in[i]) / float64(p.out[i])
}

// band returns the map along spatial dimension i.
func (p *interpolation) band(i int) *band {
	if p.filter == nil {
		return p.neighbours(i)
	}
	scale := p.scaleOf(i)
	width := max(scale, 1) // of an element of the input or of the result, whichever is larger
	reach := width * p.filter.reach
	rows, windows := make([][]float64, p.out[i]), make([]int64, 0, 2*p.out[i])
	for j := range rows {
		centre := scale * (float64(j) + 0.5)
		first, end := max(int(centre-reach+0.5), 0), min(int(centre+reach+0.5), p.in[i])
		row, sum := make([]float64, end-first), 0.0
		for k := range row {
			row[k] = p.filter.weight(math.Abs(float64(first+k)-centre+0.5) / width)
			sum += row[k]
		}
		for k := range row {
			if sum != 0 {
				row[k] /= sum
			}
		}
		rows[j], windows = row, append(windows, int64(first), int64(len(row)))
	}
	return newBand(p.in[i], windows, rows)
}

// neighbours returns the map along spatial dimension i that takes the nearest two or four elements, where those at the border
// are repeated outside.
func (p *interpolation) neighbours(i int) *band {
	scale, f := p.scaleOf(i), &linearFilter
	if p.mode == contract.InterpolateCubic {
		f = &cubicFilter
	}
	last := p.in[i] - 1
	rows, windows := make([][]float64, p.out[i]), make([]int64, 0, 2*p.out[i])
	for j := range rows {
		at := (float64(j)+0.5)*scale - 0.5
		if p.align {
			at = float64(j) * scale
		}
		start := int(math.Floor(at)) + 1 - int(f.reach)
		first := min(max(start, 0), last)
		row := make([]float64, min(max(start+2*int(f.reach)-1, 0), last)-first+1)
		for k := start; k < start+2*int(f.reach); k++ {
			row[min(max(k, 0), last)-first] += f.weight(math.Abs(at - float64(k)))
		}
		rows[j], windows = row, append(windows, int64(first), int64(len(row)))
	}
	return newBand(p.in[i], windows, rows)
}

// A filter is the weight of an element by its distance, in elements, and how far it reaches.
type filter struct {
	reach  float64
	weight func(distance float64) float64
}

var (
	linearFilter = filter{1, func(x float64) float64 { return max(1-x, 0) }}
	// Without antialias the slope at distance 1 is -0.75, and with it -0.5, of which the error is of the third order (Keys 1981).
	cubicFilter   = filter{2, func(x float64) float64 { return keysWeight(x, -0.75) }}
	catmullFilter = filter{2, func(x float64) float64 { return keysWeight(x, -0.5) }}
	// A sinc, windowed by its own main lobe stretched threefold (Duchon 1979).
	lanczosFilter = filter{3, func(x float64) float64 {
		if x >= 3 {
			return 0
		}
		return sinc(x) * sinc(x/3)
	}}
)

// keysWeight is Keys' cubic convolution with slope a at distance 1.
func keysWeight(x, a float64) float64 {
	switch {
	case x < 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return (((x-5)*x+8)*x - 4) * a
	}
	return 0
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return math.Sin(math.Pi*x) / (math.Pi * x)
}

// separate resamples images along rows and then along columns. Bytes are rounded after each, as Pillow and PyTorch do. Halves are rounded
// once.
func (p *interpolation) separate(x *core.Tensor) *core.Tensor {
	d := x.DType()
	y := x
	if d.IsFloat() {
		y = castTo(x, statType(d))
	}
	for i := len(p.in) - 1; i >= 0; i-- {
		if p.in[i] == p.out[i] && p.scaleOf(i) == 1 {
			continue // stays as it is
		}
		b := p.band(i)
		if p.bytes {
			b.round()
		}
		y = b.apply(y, i+2)
	}
	if y = castTo(y, d); y == x {
		return Clone(x)
	}
	return y
}

package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

// A gridMatrix is the sparse matrix that makes values of the elements of all channels. It has a row for each place, with an entry for each
// neighbour.
type gridMatrix struct {
	csr
	samples, points, plane int
	weight                 *core.Tensor   // of each neighbour: [samples, taps, points]
	shares                 []*core.Tensor // its factors along the dimensions
}

// matrix returns the matrix of an input and a grid, or an error tensor.
func (o GridSampleOptions) matrix(x, grid *core.Tensor) (m gridMatrix, err *core.Tensor) {
	sizes := x.Shape()[2:]
	k := len(sizes)
	m = gridMatrix{samples: x.Size(0), points: core.Numel(grid.Shape()[1 : k+1]), plane: core.Numel(sizes)}
	starts := Arange(nil, core.IntNum(int64(m.samples)), nil, TensorOptions{Device: x.Device()})
	index, step := Mul(Reshape(starts, m.samples, 1, 1), core.IntNum(int64(m.plane))), m.plane
	for i, size := range sizes {
		step /= size
		at, share := neighbours(o.taps(m.coordinate(grid, i), size, k), x, size)
		if at.Err() != nil {
			return m, at
		}
		index = combined(Add, index, Mul(at, core.IntNum(int64(step))))
		m.shares = append(m.shares, share)
	}
	m.weight = weightsOf(m.shares)
	if err := firstBroken(index, m.weight); err != nil {
		return m, err
	}
	taps := m.weight.Size(1)
	entries := m.samples * m.points * taps
	m.crow = Arange(nil, core.IntNum(int64(entries+1)), core.IntNum(int64(taps)), TensorOptions{Device: x.Device()})
	m.col = m.entries(index)
	return m, nil
}

// coordinate returns the grid's coordinates along the i-th dimension: [samples, points].
func (m *gridMatrix) coordinate(grid *core.Tensor, i int) *core.Tensor {
	return Reshape(Select(grid, -1, len(grid.Shape())-3-i), m.samples, m.points)
}

// entries returns what [samples, taps, points] has for the entries of the matrix.
func (m *gridMatrix) entries(t *core.Tensor) *core.Tensor {
	taps := m.weight.Size(1)
	return Reshape(Transpose(Expand(t, m.samples, taps, m.points), 1, 2), m.samples*m.points*taps)
}

// channelsLast returns [n, c, dims...] as [n * dims, c].
func channelsLast(t *core.Tensor) *core.Tensor {
	return Reshape(Transpose(Flatten(t, 2, -1), 1, 2), t.Size(0)*core.Numel(t.Shape()[2:]), t.Size(1))
}

// channelsSecond returns [n * dims, c] as the shape [n, c, dims...].
func channelsSecond(t *core.Tensor, shape []int) *core.Tensor {
	return Reshape(Contiguous(Transpose(Reshape(t, shape[0], core.Numel(shape[2:]), shape[1]), 1, 2)), shape...)
}

// sums returns the values by the matrix. The derivatives of that product are such products too.
func (o GridSampleOptions) sums(x, grid *core.Tensor) *core.Tensor {
	m, err := o.matrix(x, grid)
	if err != nil {
		return err
	}
	rows := CSRMatmul(m.crow, m.col, m.entries(m.weight), channelsLast(x), CSROptions{})
	if len(m.shares) == 2 && o.PaddingMode == "zeros" && o.Mode != "nearest" { // what is not a number has no neighbours, and stays so
		g := Reshape(grid.Detach(), m.samples*m.points, 2)
		rows = Add(rows, Sum(Sub(g, g), []int{1}, true))
	}
	return channelsSecond(rows, append([]int{x.Size(0), x.Size(1)}, grid.Shape()[1:len(grid.Shape())-1]...))
}

// gradients sets the gradients of the input and the grid, as functions that have derivatives themselves.
func (o GridSampleOptions) gradients(ctx *core.BackwardContext, x, grid, g *core.Tensor) {
	m, err := o.matrix(x, grid)
	if err != nil {
		ctx.Fail(err.Err())
		return
	}
	rows := channelsLast(g)
	if ctx.Needs(0) {
		t := m.transposed(m.samples * m.plane)
		ctx.Set(0, channelsSecond(CSRMatmul(t.crow, t.col, m.entries(m.weight), rows, t.options()), x.Shape()))
	}
	if !ctx.Needs(1) {
		return
	}
	taps := m.weight.Size(1)
	dots := CSRSampledMatmul(m.crow, m.col, rows, channelsLast(x), CSROptions{})
	dots = Transpose(Reshape(dots, m.samples, m.points, taps), 1, 2)
	coordinates := make([]*core.Tensor, len(m.shares))
	for i, size := range x.Shape()[2:] {
		factors := slices.Clone(m.shares)
		factors[i] = o.slopes(m.coordinate(grid, i), size, len(m.shares))
		coordinates[len(coordinates)-1-i] = Sum(Mul(dots, weightsOf(factors)), []int{1}, false)
	}
	ctx.Set(1, Reshape(Stack(coordinates, -1), grid.Shape()...))
}

// weightsOf returns the products of shares along the dimensions: those of each neighbour.
func weightsOf(shares []*core.Tensor) *core.Tensor {
	weight := shares[0]
	for _, s := range shares[1:] {
		weight = combined(Mul, weight, s)
	}
	return weight
}

// combined joins each of a [n, p, points] with each of b [n, q, points]: [n, p * q, points].
func combined(join func(x, y *core.Tensor) *core.Tensor, a, b *core.Tensor) *core.Tensor {
	return Flatten(join(Unsqueeze(a, 2), Unsqueeze(b, 1)), 1, 2)
}

// neighbours returns the indices along a dimension of x, and the shares, of the neighbours of all points: [n, taps, points]. Those outside have the
// share 0 and the index 0.
func neighbours(taps []tap, x *core.Tensor, size int) (at, share *core.Tensor) {
	var places, shares []*core.Tensor
	for _, t := range taps {
		places = append(places, t.at)
		if t.share != nil {
			shares = append(shares, t.share)
		}
	}
	p := Stack(places, 1)
	inside := within(p, size)
	if len(shares) > 0 {
		share = Where(inside, Stack(shares, 1), core.Num(0))
	} else {
		share = castTo(inside, x.DType())
	}
	return castTo(Where(inside, p, core.Num(0)), core.Int64), share
}

// within says which places along a dimension are elements.
func within(p *core.Tensor, size int) *core.Tensor {
	return LogicalAnd(Ge(p, core.Num(0)), Le(p, core.Num(float64(size-1))))
}

// slopes returns the derivatives of the shares of [GridSampleOptions.taps]: [n, taps, points].
func (o GridSampleOptions) slopes(g *core.Tensor, size, dims int) *core.Tensor {
	taps := o.taps(g, size, dims)
	list := make([]*core.Tensor, len(taps))
	p := o.place(g, size)
	low := Floor(p.Detach())
	for i, t := range taps {
		var slope *core.Tensor
		switch o.Mode {
		case "nearest":
			slope = ZerosLike(p, TensorOptions{})
		case "bicubic":
			slope = Mul(keysSlope(Sub(p, low), i), core.Num(o.scale(size)))
		default:
			slope = Mul(o.paddedSlope(p.Detach(), size, dims), core.Num(o.scale(size)*float64(2*i-1)))
		}
		list[i] = Mul(slope, castTo(within(t.at.Detach(), size), slope.DType()))
	}
	return Stack(list, 1)
}

// A tap is what one of the neighbours of each place along a dimension gives: its index, and its share, nil for all.
type tap struct{ at, share *core.Tensor }

// taps returns the neighbours along one of several dimensions of the coordinates g, [n, points].
func (o GridSampleOptions) taps(g *core.Tensor, size, dims int) []tap {
	p := o.place(g, size)
	if o.Mode == "bicubic" {
		low := Floor(p.Detach())
		t := Sub(p, low)
		var out []tap
		for i := range 4 {
			out = append(out, tap{o.padded(Add(low, core.Num(float64(i-1))), size, dims), keys(t, i)})
		}
		return out
	}
	p = o.padded(p, size, dims)
	if o.Mode == "nearest" {
		return []tap{{Round(p.Detach()), nil}}
	}
	low := Floor(p.Detach())
	share := Sub(p, low)
	return []tap{{low, Sub(core.Num(1), share)}, {Add(low, core.Num(1)), share}}
}

// keys returns the share of the i-th of four neighbours of a place that is t, from 0 to 1, behind the second (Keys 1981).
func keys(t *core.Tensor, i int) *core.Tensor {
	c := cubic[i]
	sum := Mul(t, core.Num(c[3]))
	for _, c := range []float64{c[2], c[1]} {
		sum = Mul(Add(sum, core.Num(c)), t)
	}
	return Add(sum, core.Num(c[0]))
}

// keysSlope returns the derivative of keys.
func keysSlope(t *core.Tensor, i int) *core.Tensor {
	c := cubic[i]
	return Add(Mul(Add(Mul(t, core.Num(3*c[3])), core.Num(2*c[2])), t), core.Num(c[1]))
}

// cubic has the coefficients of 1, t, t^2 and t^3 of the four neighbours' shares.
var cubic = [...][4]float64{{0, keysA, -2 * keysA, keysA}, {1, 0, -keysA - 3, keysA + 2}, {0, -keysA, 2*keysA + 3, -keysA - 2}, {0, 0, keysA, -keysA}}

const keysA = -0.75

// place returns where coordinates g from -1 to 1 lie among the indices of a dimension.
func (o GridSampleOptions) place(g *core.Tensor, size int) *core.Tensor {
	p := Mul(Add(g, core.Num(1)), core.Num(o.scale(size)))
	if o.AlignCorners {
		return p
	}
	return Sub(p, core.Num(0.5))
}

// scale returns how many elements of a dimension one unit of a coordinate is.
func (o GridSampleOptions) scale(size int) float64 {
	if o.AlignCorners {
		return float64(size-1) / 2
	}
	return float64(size) / 2
}

// padded returns the places p along a dimension with those outside moved to where the padding has its elements from. NaN, and infinities
// that would be reflected, become the first place of an image and the last of a volume, as in PyTorch.
func (o GridSampleOptions) padded(p *core.Tensor, size, dims int) *core.Tensor {
	lost := core.Num(0)
	if dims == 3 {
		lost = core.Num(float64(size - 1))
	}
	switch o.PaddingMode {
	case "border":
		p = Where(Eq(p, p), p, lost)
	case "reflection":
		p = Where(Lt(Abs(p.Detach()), core.Num(math.Inf(1))), p, lost)
		if folded, low, span := o.folded(p, size); span == 0 {
			p = Mul(p, core.Num(0))
		} else {
			p = Add(Sub(core.Num(span), Abs(Sub(folded, core.Num(span)))), core.Num(low))
		}
	}
	if o.PaddingMode != "zeros" {
		p = Clamp(p, core.Num(0), core.Num(float64(size-1)))
	}
	return p
}

// folded returns how far places are behind low, where what is reflected begins, up to twice its span.
func (o GridSampleOptions) folded(p *core.Tensor, size int) (folded *core.Tensor, low, span float64) {
	span = float64(size - 1)
	if !o.AlignCorners {
		low, span = -0.5, float64(size)
	}
	if span == 0 {
		return nil, low, span
	}
	return Remainder(Sub(p, core.Num(low)), core.Num(2*span)), low, span
}

// paddedSlope returns the derivative of padded: 1, -1 or 0.
func (o GridSampleOptions) paddedSlope(p *core.Tensor, size, dims int) *core.Tensor {
	slope := OnesLike(p, TensorOptions{})
	if o.PaddingMode == "zeros" {
		return slope
	}
	if o.PaddingMode == "reflection" {
		if folded, _, span := o.folded(p, size); span > 0 {
			slope = Where(Lt(folded, core.Num(span)), slope, core.Num(-1))
		}
	}
	q := o.padded(p, size, dims)
	return Where(LogicalAnd(Gt(q, core.Num(0)), Lt(q, core.Num(float64(size-1)))), slope, core.Num(0))
}

package conv

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// sizes returns the number of elements of x, w and y.
func (g *geometry) sizes() (x, w, y int64) {
	x, w, y = g.n*g.cin, g.cout*(g.cin/g.groups), g.n*g.cout
	for d := range 3 {
		x, w, y = x*g.in[d], w*g.kernel[d], y*g.out[d]
	}
	return
}

// each calls f for every product of the convolution, with its indices in x, w and y.
func (g *geometry) each(f func(x, w, y int64)) {
	cg, og := g.cin/g.groups, g.cout/g.groups
	for n := range g.n {
		for o := range g.cout {
			for z := range g.out[0] {
				for y := range g.out[1] {
					for x := range g.out[2] {
						yi := (((n*g.cout+o)*g.out[0]+z)*g.out[1]+y)*g.out[2] + x
						for c := range cg {
							for i := range g.kernel[0] {
								for j := range g.kernel[1] {
									for k := range g.kernel[2] {
										iz := z*g.stride[0] + i*g.dilation[0] - g.padding[0]
										iy := y*g.stride[1] + j*g.dilation[1] - g.padding[1]
										ix := x*g.stride[2] + k*g.dilation[2] - g.padding[2]
										if iz < 0 || iy < 0 || ix < 0 || iz >= g.in[0] || iy >= g.in[1] || ix >= g.in[2] {
											continue
										}
										xi := (((n*g.cin+o/og*cg+c)*g.in[0]+iz)*g.in[1]+iy)*g.in[2] + ix
										wi := (((o*cg+c)*g.kernel[0]+i)*g.kernel[1]+j)*g.kernel[2] + k
										f(xi, wi, yi)
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

// A buffer is an array of elements that ends where an unmapped page begins.
type buffer struct{ *rawtensor.Tensor }

func newBuffer(t testing.TB, dtype, n int64) *buffer {
	return &buffer{rawtensor.New(t, int(dtype), int(n))}
}

func (b *buffer) ptr() unsafe.Pointer { return b.Ptr }

func (b *buffer) set(v []float64) {
	for i, x := range v {
		b.Set(x, i)
	}
}

func (b *buffer) get() []float64 {
	v := make([]float64, b.Numel())
	for i := range v {
		v[i] = b.Value(i)
	}
	return v
}

func random(r *rand.Rand, n int64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(r.IntN(17)-8) / 8
	}
	return v
}

// scratch returns memory filled with NaN, so that a read of unwritten memory shows.
func scratch(bytes int) unsafe.Pointer { return scratchOf(bytes, 0x7ff87ff87ff87ff8|0xffffffff) }

// ones are two float32. A filter whose result is NaN is computed anew by taps, so there a read of unwritten memory shows with them alone.
const ones = 0x3f8000003f800000

// scratchOf is scratch filled with a word.
func scratchOf(bytes int, word uint64) unsafe.Pointer {
	words := make([]uint64, bytes/8+16)
	for i := range words {
		words[i] = word
	}
	p := unsafe.Pointer(&words[0])
	return unsafe.Add(p, (64-uintptr(p)%64)%64)
}

func tolerance(dtype int64) float64 {
	return map[int64]float64{rawtensor.Float16: 1e-3, rawtensor.BFloat16: 8e-3, rawtensor.Float32: 1e-5, rawtensor.Float64: 1e-13}[dtype]
}

func requireClose(t *testing.T, want, got []float64, tol float64, what string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if !(math.Abs(want[i]-got[i]) <= tol*(1+math.Abs(want[i]))) {
			require.Failf(t, what, "element %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

func check(t *testing.T, g geometry, p *pool.Pool) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	nx, nw, ny := g.sizes()
	vx, vw, vb, vy, vc := random(r, nx), random(r, nw), random(r, g.cout), random(r, ny), random(r, g.cin)
	y, dx, dw := make([]float64, ny), make([]float64, nx), make([]float64, nw)
	plane := int64(1)
	for d := range 3 {
		plane *= g.out[d]
	}
	for i := range y {
		y[i] = vb[int64(i)/plane%g.cout]
	}
	g.each(func(xi, wi, yi int64) {
		y[yi] += vx[xi] * vw[wi]
		dx[xi] += vy[yi] * vw[wi]
		dw[wi] += vy[yi] * vx[xi]
	})
	buf := func(v []float64) *buffer {
		b := newBuffer(t, g.dtype, int64(len(v)))
		b.set(v)
		return b
	}
	x, w, b, dy := buf(vx), buf(vw), buf(vb), buf(vy)
	tol := tolerance(g.dtype)

	out := newBuffer(t, g.dtype, ny)
	g.forward(p.Ptr(), x.ptr(), w.ptr(), b.ptr(), out.ptr(), scratch(g.forwardScratch(p.Ptr())))
	requireClose(t, y, out.get(), tol, "forward")
	g.forward(p.Ptr(), x.ptr(), w.ptr(), b.ptr(), out.ptr(), scratchOf(g.forwardScratch(p.Ptr()), ones))
	requireClose(t, y, out.get(), tol, "forward, in other memory")

	out = newBuffer(t, g.dtype, nx)
	g.inputGrad(p.Ptr(), dy.ptr(), w.ptr(), nil, out.ptr(), scratch(g.inputGradScratch(p.Ptr())))
	requireClose(t, dx, out.get(), tol, "input gradient")
	g.inputGrad(p.Ptr(), dy.ptr(), w.ptr(), nil, out.ptr(), scratchOf(g.inputGradScratch(p.Ptr()), ones))
	requireClose(t, dx, out.get(), tol, "input gradient, in other memory")

	plane = g.in[0] * g.in[1] * g.in[2]
	for i := range dx {
		dx[i] += vc[int64(i)/plane%g.cin]
	}
	c := buf(vc)
	out = newBuffer(t, g.dtype, nx)
	g.inputGrad(p.Ptr(), dy.ptr(), w.ptr(), c.ptr(), out.ptr(), scratch(g.inputGradScratch(p.Ptr())))
	requireClose(t, dx, out.get(), tol, "transposed convolution with bias")

	out = newBuffer(t, g.dtype, nw)
	g.weightGrad(p.Ptr(), x.ptr(), dy.ptr(), out.ptr(), scratch(g.weightGradScratch(p.Ptr())))
	requireClose(t, dw, out.get(), tol*math.Sqrt(float64(g.n*plane)), "weight gradient")
	runtime.KeepAlive(p)
}

// shape returns a geometry of 1 to 3 dimensions. It computes the output size.
func shape(n, groups, cin, cout int64, in, kernel, stride, padding, dilation []int64) geometry {
	g := geometry{dtype: rawtensor.Float32, n: n, groups: groups, cin: cin, cout: cout}
	for d := range 3 {
		g.in[d], g.kernel[d], g.stride[d], g.dilation[d] = 1, 1, 1, 1
		if i := d - 3 + len(in); i >= 0 {
			g.in[d], g.kernel[d], g.stride[d], g.padding[d], g.dilation[d] = in[i], kernel[i], stride[i], padding[i], dilation[i]
		}
		g.out[d] = (g.in[d]+2*g.padding[d]-g.dilation[d]*(g.kernel[d]-1)-1)/g.stride[d] + 1
	}
	return g
}

type dims = []int64

func cases() map[string]geometry {
	return map[string]geometry{
		"1d":                  shape(2, 1, 3, 5, dims{11}, dims{3}, dims{1}, dims{1}, dims{1}),
		"1d long":             shape(1, 1, 2, 3, dims{5000}, dims{7}, dims{2}, dims{3}, dims{3}),
		"1d wide kernel":      shape(3, 2, 4, 6, dims{40}, dims{33}, dims{1}, dims{0}, dims{1}),
		"2d":                  shape(2, 1, 3, 9, dims{13, 17}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d full vectors":     shape(3, 1, 4, 8, dims{8, 32}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d stride":           shape(3, 1, 5, 7, dims{14, 15}, dims{3, 5}, dims{2, 3}, dims{1, 2}, dims{1, 1}),
		"2d stride, tail":     shape(2, 1, 3, 4, dims{12, 12}, dims{3, 3}, dims{2, 2}, dims{0, 0}, dims{1, 1}),
		"2d stride > kernel":  shape(2, 1, 4, 3, dims{13, 11}, dims{2, 1}, dims{3, 4}, dims{0, 0}, dims{1, 1}),
		"2d dilation":         shape(2, 1, 3, 6, dims{19, 16}, dims{3, 3}, dims{1, 1}, dims{2, 2}, dims{2, 2}),
		"2d dilation, stride": shape(2, 1, 3, 6, dims{19, 16}, dims{3, 4}, dims{2, 3}, dims{2, 4}, dims{3, 2}),
		"2d even dilation":    shape(1, 1, 2, 2, dims{19, 16}, dims{3, 4}, dims{4, 2}, dims{2, 4}, dims{2, 4}),
		"2d groups":           shape(2, 3, 6, 9, dims{9, 10}, dims{3, 3}, dims{2, 1}, dims{1, 1}, dims{1, 1}),
		"2d depthwise":        shape(2, 19, 19, 19, dims{12, 37}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d depthwise stride": shape(3, 17, 17, 17, dims{9, 12}, dims{3, 5}, dims{2, 3}, dims{1, 2}, dims{1, 1}),
		"2d depthwise taps":   shape(2, 9, 9, 9, dims{8, 9}, dims{2, 3}, dims{3, 4}, dims{1, 3}, dims{2, 3}),
		"2d depthwise images": shape(41, 3, 3, 3, dims{20, 19}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d depthwise large":  shape(1, 2, 2, 2, dims{190, 200}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"1d depthwise":        shape(2, 30, 30, 30, dims{500}, dims{4}, dims{1}, dims{3}, dims{1}),
		"3d depthwise":        shape(2, 5, 5, 5, dims{4, 6, 5}, dims{2, 3, 3}, dims{1, 2, 1}, dims{1, 1, 1}, dims{1, 1, 2}),
		"2d depthwise x2":     shape(2, 7, 7, 14, dims{12, 9}, dims{5, 3}, dims{2, 2}, dims{2, 1}, dims{1, 1}),
		"2d 1x1":              shape(3, 1, 10, 21, dims{7, 7}, dims{1, 1}, dims{1, 1}, dims{0, 0}, dims{1, 1}),
		"2d 1x1 stride":       shape(3, 1, 10, 4, dims{7, 8}, dims{1, 1}, dims{2, 2}, dims{0, 0}, dims{1, 1}),
		"2d patches":          shape(2, 1, 3, 12, dims{16, 16}, dims{4, 4}, dims{4, 4}, dims{0, 0}, dims{1, 1}),
		"2d whole image":      shape(37, 1, 6, 20, dims{5, 5}, dims{5, 5}, dims{1, 1}, dims{0, 0}, dims{1, 1}),
		"2d tiny images":      shape(9, 1, 40, 33, dims{2, 2}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d many outputs":     shape(1, 1, 20, 140, dims{4, 5}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d many inputs":      shape(1, 1, 130, 20, dims{4, 5}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d big padding":      shape(2, 1, 2, 3, dims{3, 4}, dims{2, 2}, dims{1, 1}, dims{4, 5}, dims{1, 1}),
		"2d rows of blocks":   shape(1, 1, 3, 16, dims{60, 70}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d row blocks":       shape(3, 1, 12, 140, dims{16, 16}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d row blocks, in":   shape(3, 1, 140, 12, dims{16, 17}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d row blocks, some": shape(2, 2, 16, 140, dims{9, 13}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"2d row blocks, step": shape(3, 1, 70, 70, dims{19, 17}, dims{3, 3}, dims{2, 2}, dims{1, 1}, dims{1, 1}),
		"3d":                  shape(2, 1, 3, 4, dims{5, 6, 7}, dims{3, 3, 3}, dims{1, 1, 1}, dims{1, 1, 1}, dims{1, 1, 1}),
		"3d stride":           shape(2, 2, 4, 6, dims{7, 8, 9}, dims{2, 3, 3}, dims{2, 3, 2}, dims{1, 0, 1}, dims{2, 1, 2}),
		"3d blocks":           shape(1, 1, 2, 2, dims{9, 20, 40}, dims{3, 1, 3}, dims{1, 1, 1}, dims{1, 0, 1}, dims{1, 1, 1}),
		"product":             shape(3, 1, 64, 66, dims{4, 4}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"product, 1 element":  shape(5, 1, 70, 64, dims{1, 1}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"product, 1 image":    shape(1, 1, 64, 72, dims{3, 5}, dims{3, 2}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"product, 1 tap":      shape(3, 1, 80, 64, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{0, 0}, dims{1, 1}),
		"product, images":     shape(3, 1, 9, 17, dims{7, 8}, dims{1, 1}, dims{1, 1}, dims{0, 0}, dims{1, 1}),
		"product, patches":    shape(2, 1, 5, 130, dims{20, 24}, dims{4, 4}, dims{4, 4}, dims{0, 0}, dims{1, 1}),
		"product, stride":     shape(2, 1, 65, 64, dims{7, 6}, dims{3, 3}, dims{2, 2}, dims{1, 1}, dims{1, 1}),
		"product, no padding": shape(3, 1, 64, 64, dims{9, 10}, dims{3, 3}, dims{2, 2}, dims{0, 0}, dims{1, 1}),
		"product, step":       shape(2, 1, 24, 72, dims{30, 27}, dims{3, 5}, dims{2, 3}, dims{1, 2}, dims{1, 1}),
		"product, some taps":  shape(2, 1, 64, 64, dims{3, 4}, dims{4, 5}, dims{1, 1}, dims{3, 6}, dims{2, 3}),
		"product, groups":     shape(2, 2, 128, 132, dims{3, 4}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"product, columns":    shape(1, 1, 128, 128, dims{3, 11}, dims{2, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"product, 1d":         shape(4, 1, 64, 64, dims{9}, dims{5}, dims{2}, dims{2}, dims{1}),
		"product, 3d":         shape(2, 1, 64, 64, dims{2, 3, 2}, dims{3, 3, 3}, dims{1, 1, 1}, dims{1, 1, 1}, dims{1, 1, 1}),
		"pairs":               shape(3, 1, 18, 24, dims{12, 13}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"pairs, odd":          shape(2, 1, 19, 21, dims{8, 8}, dims{5, 5}, dims{1, 1}, dims{2, 2}, dims{1, 1}),
		"pairs, stride":       shape(5, 1, 17, 34, dims{7, 9}, dims{3, 3}, dims{2, 2}, dims{1, 1}, dims{1, 1}),
		"pairs, steps":        shape(2, 1, 16, 16, dims{17, 20}, dims{3, 4}, dims{3, 2}, dims{1, 1}, dims{1, 2}),
		"pairs, groups":       shape(3, 3, 51, 60, dims{5, 6}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"pairs, dilation":     shape(2, 1, 16, 33, dims{9, 32}, dims{3, 3}, dims{1, 1}, dims{2, 3}, dims{2, 3}),
		"pairs, tiny images":  shape(21, 1, 30, 16, dims{1, 2}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"pairs, 1d":           shape(3, 1, 20, 18, dims{37}, dims{7}, dims{2}, dims{3}, dims{1}),
		"pairs, 3d":           shape(2, 1, 16, 17, dims{3, 5, 6}, dims{3, 3, 3}, dims{1, 2, 1}, dims{1, 1, 1}, dims{1, 1, 1}),
		"filter":              shape(2, 1, 16, 24, dims{13, 15}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"filter, no padding":  shape(1, 1, 17, 19, dims{18, 33}, dims{3, 3}, dims{1, 1}, dims{0, 0}, dims{1, 1}),
		"filter, padding":     shape(1, 1, 16, 16, dims{15, 20}, dims{3, 3}, dims{1, 1}, dims{2, 1}, dims{1, 1}),
		"filter, padding 2":   shape(2, 1, 18, 16, dims{9, 16}, dims{3, 3}, dims{1, 1}, dims{1, 2}, dims{1, 1}),
		"filter, groups":      shape(2, 2, 32, 40, dims{12, 11}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"filter, images":      shape(11, 1, 16, 17, dims{6, 5}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"filter, row blocks":  shape(2, 1, 20, 270, dims{12, 11}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"filter, long lines":  shape(1, 1, 16, 16, dims{4, 271}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"no images":           shape(0, 1, 3, 4, dims{5, 5}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"no channels out":     shape(2, 1, 3, 0, dims{5, 5}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
		"no channels in":      shape(2, 1, 0, 4, dims{5, 5}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1}),
	}
}

func TestAgainstLoops(t *testing.T) {
	defer limitISA(2)
	p := pool.New(3)
	defer p.Close()
	for _, level := range []int{2, 1, 0} {
		if limitISA(level) != level {
			continue
		}
		for name, g := range cases() {
			for _, dtype := range []int64{rawtensor.Float32, rawtensor.Float64, rawtensor.Float16, rawtensor.BFloat16} {
				g.dtype = dtype
				t.Run(fmt.Sprintf("%s/isa%d/dtype%d", name, level, dtype), func(t *testing.T) { check(t, g, p) })
			}
		}
	}
}

// Random geometries reach combinations that no other test has.
func TestRandomGeometries(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := pool.New(2)
	defer p.Close()
	for range 300 {
		nd := 1 + r.IntN(3)
		var in, kernel, stride, padding, dilation dims
		for range nd {
			k, d, pad := int64(1+r.IntN(4)), int64(1+r.IntN(3)), int64(r.IntN(4))
			kernel, dilation, padding = append(kernel, k), append(dilation, d), append(padding, pad)
			stride = append(stride, int64(1+r.IntN(4)))
			in = append(in, max(d*(k-1)+1-2*pad, 0)+int64(1+r.IntN(12)))
		}
		groups := int64(1 + r.IntN(3))
		g := shape(int64(1+r.IntN(4)), groups, groups*int64(1+r.IntN(5)), groups*int64(1+r.IntN(10)), in, kernel, stride, padding, dilation)
		if g.dtype = rawtensor.Float32; r.IntN(2) == 0 {
			g.dtype = rawtensor.Float64
		}
		t.Run(fmt.Sprintf("%+v", g), func(t *testing.T) { check(t, g, p) })
	}
}

// The results have the same bits for any number of threads.
func TestBitsDoNotDependOnThreads(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	shapes := cases()
	for name, g := range cases() {
		g.dtype = rawtensor.BFloat16
		shapes[name+" in bfloat16"] = g
	}
	for name, g := range shapes {
		nx, nw, ny := g.sizes()
		fill := func(n int64) *buffer {
			b := newBuffer(t, g.dtype, n)
			v := make([]float64, n)
			for i := range v {
				v[i] = r.NormFloat64()
			}
			b.set(v)
			return b
		}
		x, w, dy := fill(nx), fill(nw), fill(ny)
		var first [3][]float64
		for _, threads := range []int{1, 2, 5} {
			p := pool.New(threads)
			y, dx, dw := newBuffer(t, g.dtype, ny), newBuffer(t, g.dtype, nx), newBuffer(t, g.dtype, nw)
			g.forward(p.Ptr(), x.ptr(), w.ptr(), nil, y.ptr(), scratch(g.forwardScratch(p.Ptr())))
			g.inputGrad(p.Ptr(), dy.ptr(), w.ptr(), nil, dx.ptr(), scratch(g.inputGradScratch(p.Ptr())))
			g.weightGrad(p.Ptr(), x.ptr(), dy.ptr(), dw.ptr(), scratch(g.weightGradScratch(p.Ptr())))
			p.Close()
			got := [3][]float64{y.get(), dx.get(), dw.get()}
			if threads == 1 {
				first = got
			}
			require.Equal(t, first, got, name)
		}
	}
}

// A convolution of more images than a block of a product holds is that of its parts.
func TestBlocksOfImages(t *testing.T) {
	const n = 9
	g := shape(n, 1, 64, 64, dims{32, 32}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1})
	r := rand.New(rand.NewPCG(7, 8))
	nx, nw, ny := g.sizes()
	buf := func(n int64, at int64, from []float64) *buffer {
		b := newBuffer(t, g.dtype, n)
		b.set(from[at : at+n])
		return b
	}
	vx, vw, vy := random(r, nx), random(r, nw), random(r, ny)
	p := pool.New(2)
	defer p.Close()
	run := func(at, images int64) [3][]float64 {
		g := g
		g.n = images
		x, w, dy := buf(nx/n*images, nx/n*at, vx), buf(nw, 0, vw), buf(ny/n*images, ny/n*at, vy)
		y, dx, dw := newBuffer(t, g.dtype, ny/n*images), newBuffer(t, g.dtype, nx/n*images), newBuffer(t, g.dtype, nw)
		g.forward(p.Ptr(), x.ptr(), w.ptr(), nil, y.ptr(), scratch(g.forwardScratch(p.Ptr())))
		g.inputGrad(p.Ptr(), dy.ptr(), w.ptr(), nil, dx.ptr(), scratch(g.inputGradScratch(p.Ptr())))
		g.weightGrad(p.Ptr(), x.ptr(), dy.ptr(), dw.ptr(), scratch(g.weightGradScratch(p.Ptr())))
		return [3][]float64{y.get(), dx.get(), dw.get()}
	}
	whole, dw := run(0, n), make([]float64, nw)
	for i := range int64(n) {
		part := run(i, 1)
		requireClose(t, part[0], whole[0][ny/n*i:ny/n*(i+1)], 1e-5, "forward")
		requireClose(t, part[1], whole[1][nx/n*i:nx/n*(i+1)], 1e-5, "input gradient")
		for k, v := range part[2] {
			dw[k] += v
		}
	}
	requireClose(t, dw, whole[2], 1e-4, "weight gradient")
}

// In bfloat16, too, and with the same bits.
func TestBlocksOfImagesInPairs(t *testing.T) {
	const n = 5
	g := shape(n, 1, 130, 16, dims{64, 65}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1})
	g.dtype = rawtensor.BFloat16
	r := rand.New(rand.NewPCG(9, 10))
	nx, nw, ny := g.sizes()
	vx, vw := random(r, nx), random(r, nw)
	p := pool.New(2)
	defer p.Close()
	run := func(at, images int64) []float64 {
		g := g
		g.n = images
		x, w, y := newBuffer(t, g.dtype, nx/n*images), newBuffer(t, g.dtype, nw), newBuffer(t, g.dtype, ny/n*images)
		x.set(vx[nx/n*at : nx/n*(at+images)])
		w.set(vw)
		g.forward(p.Ptr(), x.ptr(), w.ptr(), nil, y.ptr(), scratchOf(g.forwardScratch(p.Ptr()), ones))
		return y.get()
	}
	whole := run(0, n)
	for i := range int64(n) {
		require.Equal(t, run(i, 1), whole[ny/n*i:ny/n*(i+1)])
	}
}

// The rows of a result are those of a convolution of fewer rows, whose blocks are cut otherwise.
func TestRowsInParts(t *testing.T) {
	const rows, first = 80, 64
	for _, channels := range []int64{32, 2600} { // blocks of rows share the transformed input, or it is too large for that
		g := shape(4, 1, channels, rows, dims{14, 14}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1})
		r := rand.New(rand.NewPCG(11, 12))
		nx, nw, ny := g.sizes()
		vx, vw := random(r, nx), random(r, nw)
		run := func(from, to int64) []float64 {
			g := g
			g.cout = to - from
			x, w, y := newBuffer(t, g.dtype, nx), newBuffer(t, g.dtype, nw/rows*g.cout), newBuffer(t, g.dtype, ny/rows*g.cout)
			x.set(vx)
			w.set(vw[nw/rows*from : nw/rows*to])
			g.forward(nil, x.ptr(), w.ptr(), nil, y.ptr(), scratchOf(g.forwardScratch(nil), ones))
			return y.get()
		}
		whole, low, high := run(0, rows), run(0, first), run(first, rows)
		plane := ny / rows / g.n
		for i := range g.n {
			image := whole[i*rows*plane : (i+1)*rows*plane]
			require.Equal(t, low[i*first*plane:(i+1)*first*plane], image[:first*plane])
			require.Equal(t, high[i*(rows-first)*plane:(i+1)*(rows-first)*plane], image[first*plane:])
		}
	}
}

// An infinity reaches the results that read it, and no others.
func TestInfinityThatSomeResultsRead(t *testing.T) {
	for _, name := range []string{"2d", "filter", "filter, groups", "filter, images", "product, groups"} {
		g := cases()[name]
		r := rand.New(rand.NewPCG(9, 10))
		nx, nw, ny := g.sizes()
		vx, vw, vy, y, dx := random(r, nx), random(r, nw), random(r, ny), make([]float64, ny), make([]float64, nx)
		vx[nx/2], vx[3], vy[ny/3], vy[1] = math.Inf(1), math.MaxFloat32, math.Inf(-1), math.NaN()
		x, w, dy := newBuffer(t, g.dtype, nx), newBuffer(t, g.dtype, nw), newBuffer(t, g.dtype, ny)
		x.set(vx)
		w.set(vw)
		dy.set(vy)
		vx, vw, vy = x.get(), w.get(), dy.get()
		g.each(func(xi, wi, yi int64) {
			y[yi] += vx[xi] * vw[wi]
			dx[xi] += vy[yi] * vw[wi]
		})
		out := newBuffer(t, g.dtype, ny)
		g.forward(nil, x.ptr(), w.ptr(), nil, out.ptr(), scratch(g.forwardScratch(nil)))
		requireFiniteAlike(t, y, out.get(), name+": forward")
		out = newBuffer(t, g.dtype, nx)
		g.inputGrad(nil, dy.ptr(), w.ptr(), nil, out.ptr(), scratch(g.inputGradScratch(nil)))
		requireFiniteAlike(t, dx, out.get(), name+": input gradient")
	}
}

// requireFiniteAlike checks the numbers that are far from overflow, infinities and NaN.
func requireFiniteAlike(t *testing.T, want, got []float64, what string) {
	t.Helper()
	for i, v := range want {
		switch {
		case math.Abs(v) < 1e6:
			require.InDelta(t, v, got[i], 1e-4, "%s: element %d", what, i)
		case math.IsInf(v, 0):
			require.Equal(t, v, got[i], "%s: element %d", what, i)
		case math.IsNaN(v):
			require.True(t, math.IsNaN(got[i]), "%s: element %d is %v, want NaN", what, i, got[i])
		}
	}
}

// An infinity that no tap reads does not reach the weight gradient.
func TestInfinityThatNoTapReads(t *testing.T) {
	for _, in := range []int64{8, 40} {
		g := shape(1, 1, 1, 4, dims{in, in}, dims{2, 2}, dims{3, 3}, dims{0, 0}, dims{1, 1})
		g.out[1], g.out[2] = in/4, in/4
		nx, nw, ny := g.sizes()
		x, dy, dw := newBuffer(t, g.dtype, nx), newBuffer(t, g.dtype, ny), newBuffer(t, g.dtype, nw)
		touched := make([]bool, nx)
		g.each(func(xi, _, _ int64) { touched[xi] = true })
		v := make([]float64, nx)
		for i := range v {
			v[i] = 1
			if !touched[i] {
				v[i] = math.Inf(1)
			}
		}
		x.set(v)
		ones := make([]float64, ny)
		for i := range ones {
			ones[i] = 1
		}
		dy.set(ones)
		g.weightGrad(nil, x.ptr(), dy.ptr(), dw.ptr(), scratch(g.weightGradScratch(nil)))
		for _, v := range dw.get() {
			require.Equal(t, float64(g.out[1]*g.out[2]), v)
		}
	}
}

// An infinity reaches the weight gradient of the taps that read it, and no other tap's.
func TestInfinityThatSomeTapsRead(t *testing.T) {
	for _, dtype := range []int64{rawtensor.Float32, rawtensor.Float64, rawtensor.Float16} {
		for _, step := range []int64{1, 2} {
			g := shape(3, 4, 4, 4, dims{7, 9}, dims{3, 3}, dims{step, step}, dims{0, 0}, dims{1, 1})
			g.dtype = dtype
			nx, nw, ny := g.sizes()
			v, ones, want := make([]float64, nx), make([]float64, ny), make([]float64, nw)
			for i := range v {
				v[i] = 1
			}
			for i := range ones {
				ones[i] = 1
			}
			v[62], v[63+8] = math.Inf(1), math.Inf(-1) // the last element of a channel, the last of another's first row
			g.each(func(xi, wi, yi int64) { want[wi] += v[xi] * ones[yi] })
			x, dy, dw := newBuffer(t, dtype, nx), newBuffer(t, dtype, ny), newBuffer(t, dtype, nw)
			x.set(v)
			dy.set(ones)
			g.weightGrad(nil, x.ptr(), dy.ptr(), dw.ptr(), scratch(g.weightGradScratch(nil)))
			require.Equal(t, want, dw.get())
		}
	}
}

package gpu

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
)

func init() {
	core.RegisterBackend(core.Backend{Kind: "fakeproducts", Count: func() int { return 2 }, Open: func(index, ordinal int) (core.Device, error) {
		f := &fakeProductDriver{}
		if index == 1 {
			f.missing = errors.New("libproducts.so.1 is not installed")
		}
		return newDevice(index, ordinal, adapter{Adapter: f.Adapters()[0], driver: f})
	}})
}

// A fakeProductDriver is a fakeDriver with a library that computes matrix products on the host, but nothing else.
type fakeProductDriver struct {
	fakeDriver
	missing error
}

func (f *fakeProductDriver) Open(int) (driver.GPU, error) {
	return &fakeProductGPU{fakeGPU: fakeGPU{programs: map[string]int{}}, missing: f.missing}, nil
}

type fakeProductGPU struct {
	fakeGPU
	missing  error
	products []driver.Product // those that were run
}

func (g *fakeProductGPU) Products() error                    { return g.missing }
func (g *fakeProductGPU) NewCommandList() driver.CommandList { return &fakeProductList{gpu: g} }

func (g *fakeProductGPU) Submit(l driver.CommandList, params driver.Buffer, data []byte, s driver.Status) {
	g.fakeGPU.Submit(&l.(*fakeProductList).fakeList, params, data, s)
}

type fakeProductList struct {
	fakeList
	gpu *fakeProductGPU
}

// refusedK is a K for which the library has no algorithm.
const refusedK = 13

// Product implements [driver.ProductList].
func (l *fakeProductList) Product(p *driver.Product) (bool, error) {
	if p.K == refusedK {
		return false, nil
	}
	q := *p
	l.commands = append(l.commands, func(*fakeGPU) {
		multiply(&q)
		l.gpu.products = append(l.gpu.products, q)
	})
	return true, nil
}

// multiply computes a product in float64.
func multiply(p *driver.Product) {
	index := func(m driver.Matrix, n, row, col int) int {
		if m.Columns {
			row, col = col, row
		}
		return n*m.Next + row*m.Step + col
	}
	bytes := func(r driver.Range) []byte { return r.Buffer.(*fakeBuffer).memory[r.Offset:] }
	for n := range p.Count {
		for i := range p.M {
			for j := range p.N {
				sum := 0.0
				for k := range p.K {
					sum += loadFloat(bytes(p.A.Range), p.Factors, index(p.A, n, i, k)) * loadFloat(bytes(p.B.Range), p.Factors, index(p.B, n, k, j))
				}
				sum *= p.Alpha
				at := index(p.C, n, i, j)
				if p.Beta != 0 {
					sum += p.Beta * loadFloat(bytes(p.C.Range), p.Result, at)
				}
				if p.Bias.Buffer != nil {
					sum += loadFloat(bytes(p.Bias), p.Result, j)
				}
				storeFloat(bytes(p.C.Range), p.Result, at, sum)
			}
		}
	}
}

func loadFloat(b []byte, t core.DType, i int) float64 {
	b = b[i*t.Size():]
	switch t {
	case core.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case core.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case core.Float16:
		return float64(core.Float16Value(binary.LittleEndian.Uint16(b)))
	}
	return float64(core.BFloat16Value(binary.LittleEndian.Uint16(b)))
}

func storeFloat(b []byte, t core.DType, i int, v float64) {
	b = b[i*t.Size():]
	switch t {
	case core.Float64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(v))
	case core.Float32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
	case core.Float16:
		binary.LittleEndian.PutUint16(b, core.Float16Bits(float32(v)))
	default:
		binary.LittleEndian.PutUint16(b, core.BFloat16Bits(float32(v)))
	}
}

// Products returns the products that a device with a fake library has run since the last call.
func Products(d *Device) (list []driver.Product) {
	d.thread.do(func() {
		g := d.thread.gpu.(*fakeProductGPU)
		list, g.products = g.products, nil
	})
	return list
}

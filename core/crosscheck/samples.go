package crosscheck

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A Maker makes the tensors of a sample twice: on the CPU and on a device.
type Maker struct {
	Device core.Device
	DType  core.DType // of the tensors for which the sample leaves it open
	Sliced bool       // tensors are strided views of larger storages
	Rand   *rand.Rand

	// CPU and There are the tensors made so far, those on the CPU and the equal ones on the device.
	CPU, There []*core.Tensor
}

// Rand returns a random generator for a name and a number.
func Rand(name string, n int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(n)))
}

// Arguments returns the arguments of a sample with tensors on the CPU, and with tensors on the device.
func (m *Maker) Arguments(s op.Sample) (cpu, there []any) {
	if s.Dense {
		m.Sliced = false
	}
	for _, a := range s.Args {
		switch x := a.(type) {
		case op.T:
			c, g := m.make(x)
			cpu, there = append(cpu, c), append(there, g)
		case []op.T:
			var cs, gs []*core.Tensor
			for _, e := range x {
				c, g := m.make(e)
				cs, gs = append(cs, c), append(gs, g)
			}
			cpu, there = append(cpu, cs), append(there, gs)
		default:
			cpu, there = append(cpu, a), append(there, a)
		}
	}
	return cpu, there
}

func (m *Maker) make(s op.T) (cpu, there *core.Tensor) {
	d := m.DType
	if s.Fixed {
		d = s.DType
	}
	cpu = m.strided(op.To(op.Reshape(core.FromSlice(m.values(s), core.Numel(s.Shape)), s.Shape...), d), nil)
	there = op.ToDevice(cpu, m.Device)
	if m.Sliced && len(s.Shape) > 0 {
		there = m.strided(there, m.Device)
	}
	if d.IsFloat() && !s.NoGrad {
		cpu, there = cpu.Detach().SetRequiresGrad(true), there.Detach().SetRequiresGrad(true)
	}
	m.CPU, m.There = append(m.CPU, cpu), append(m.There, there)
	return cpu, there
}

// strided returns t itself, or with Sliced a strided view with its elements.
func (m *Maker) strided(t *core.Tensor, dev core.Device) *core.Tensor {
	if !m.Sliced || t.Dim() == 0 {
		return t
	}
	d, wide := t.DType(), append([]int{}, t.Shape()...)
	last := 2*wide[len(wide)-1] + 1
	wide[len(wide)-1] = last
	view := op.Slice(op.Full(wide, core.Num(77), op.TensorOptions{DType: &d, Device: dev}), -1, 1, last, 2)
	return op.CopyInPlace(view, t)
}

// values returns the elements of a described tensor.
func (m *Maker) values(s op.T) []float64 {
	if s.Values != nil {
		return s.Values
	}
	n := core.Numel(s.Shape)
	v := make([]float64, n)
	order := m.Rand.Perm(n)
	for i := range v {
		switch {
		case s.Distinct && s.Low == 0 && s.High == 0:
			v[i] = (float64(order[i]) + 0.5 - float64(n)/2) * 0.25
		case s.Distinct:
			v[i] = s.Low + (s.High-s.Low)*(float64(order[i])+0.5)/float64(n)
		case s.Low == 0 && s.High == 0:
			v[i] = math.Copysign(0.1+0.9*m.Rand.Float64(), m.Rand.Float64()-0.5)
		default:
			v[i] = s.Low + (s.High-s.Low)*m.Rand.Float64()
		}
	}
	return v
}

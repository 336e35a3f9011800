package gpu_test

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// A maker creates the tensors of a sample twice: on the CPU and on the GPU.
type maker struct {
	rng    *rand.Rand
	dtype  core.DType
	sliced bool
	cpu    []*core.Tensor
	gpu    []*core.Tensor
	device core.Device
}

// newRand returns a random generator for a name and a number.
func newRand(name string, n int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(n)))
}

func (m *maker) values(s op.T, n int) []float64 {
	if s.Values != nil {
		return s.Values
	}
	v := make([]float64, n)
	order := m.rng.Perm(n)
	for i := range v {
		switch {
		case s.Distinct && s.Low == 0 && s.High == 0:
			v[i] = (float64(order[i]) + 0.5 - float64(n)/2) * 0.25
		case s.Distinct:
			v[i] = s.Low + (s.High-s.Low)*(float64(order[i])+0.5)/float64(n)
		case s.Low == 0 && s.High == 0:
			v[i] = math.Copysign(0.1+0.9*m.rng.Float64(), m.rng.Float64()-0.5)
		default:
			v[i] = s.Low + (s.High-s.Low)*m.rng.Float64()
		}
	}
	return v
}

// place returns a tensor of the values. A sliced one is a strided view of a larger storage.
func (m *maker) place(values []float64, d core.DType, shape []int) *core.Tensor {
	t := op.To(op.Reshape(core.FromSlice(values, len(values)), shape...), d)
	if !m.sliced || len(shape) == 0 {
		return t
	}
	wide := append([]int{}, shape...)
	wide[len(wide)-1] = 2*wide[len(wide)-1] + 1
	view := op.Slice(op.Full(wide, core.Num(77), op.TensorOptions{DType: &d}), -1, 1, wide[len(wide)-1], 2)
	op.CopyInPlace(view, t)
	return view
}

func (m *maker) make(s op.T) (cpu, gpu *core.Tensor) {
	d := m.dtype
	if s.Fixed {
		d = s.DType
	}
	shape := append([]int{}, s.Shape...)
	values := m.values(s, core.Numel(shape))
	cpu = m.place(values, d, shape)
	gpu = m.onGPU(cpu)
	if d.IsFloat() && !s.NoGrad {
		cpu, gpu = cpu.Detach().SetRequiresGrad(true), gpu.Detach().SetRequiresGrad(true)
	}
	m.cpu, m.gpu = append(m.cpu, cpu), append(m.gpu, gpu)
	return cpu, gpu
}

// onGPU returns a copy on the GPU with the same layout.
func (m *maker) onGPU(t *core.Tensor) *core.Tensor {
	if !m.sliced || t.Dim() == 0 {
		return op.ToDevice(t, m.device)
	}
	wide := append([]int{}, t.Shape()...)
	wide[len(wide)-1] = 2*wide[len(wide)-1] + 1
	d := t.DType()
	view := op.Slice(op.Full(wide, core.Num(77), op.TensorOptions{DType: &d, Device: m.device}), -1, 1, wide[len(wide)-1], 2)
	return op.CopyInPlace(view, op.ToDevice(t, m.device))
}

func (m *maker) arguments(s op.Sample) (cpu, gpu []any) {
	if s.Dense {
		m.sliced = false
	}
	for _, a := range s.Args {
		switch x := a.(type) {
		case op.T:
			c, g := m.make(x)
			cpu, gpu = append(cpu, c), append(gpu, g)
		case []op.T:
			var cs, gs []*core.Tensor
			for _, e := range x {
				c, g := m.make(e)
				cs, gs = append(cs, c), append(gs, g)
			}
			cpu, gpu = append(cpu, cs), append(gpu, gs)
		default:
			cpu, gpu = append(cpu, a), append(gpu, a)
		}
	}
	return cpu, gpu
}

// missing collects the ops that the device lacks a kernel for.
var missing struct {
	sync.Mutex
	ops map[string]string
}

// noteMissing reports whether err says that the device lacks a kernel, and records the op.
func noteMissing(r *op.Row, err error) bool {
	var e *core.Error
	if err == nil || !errors.As(err, &e) || e.Kind != core.NotImplemented {
		return false
	}
	missing.Lock()
	defer missing.Unlock()
	if missing.ops == nil {
		missing.ops = map[string]string{}
	}
	missing.ops[r.Name] = err.Error()
	return true
}

func equal(t *testing.T, want, got *core.Tensor, tolerance float64, what string) error {
	t.Helper()
	require.Equal(t, want.Shape(), got.Shape(), what)
	require.Equal(t, want.DType(), got.DType(), what)
	want, got = parts(want), parts(got)
	g, err := core.Values[float64](got)
	if err != nil {
		return err
	}
	w, err := core.Values[float64](want)
	require.NoError(t, err, what)
	scale := 1.0
	for _, x := range w {
		if a := math.Abs(x); a > scale && !math.IsInf(x, 0) {
			scale = a
		}
	}
	for i := range w {
		if w[i] == g[i] || w[i] != w[i] && g[i] != g[i] {
			continue
		}
		if !(math.Abs(w[i]-g[i]) <= tolerance*scale) {
			t.Fatalf("%s: element %d of %v: the CPU has %v, the GPU %v", what, i, want.Shape(), w[i], g[i])
		}
	}
	return nil
}

// resultTolerance returns the tolerance of a result. It is that of float32 where an op on float64 makes a result of float32.
func resultTolerance(y *core.Tensor, tolerance float64) float64 {
	if y.DType() == core.Float32 {
		return max(tolerance, 4e-6)
	}
	return tolerance
}

// compare runs a sample on the CPU and on the GPU and compares results and gradients.
func compare(t *testing.T, r *op.Row, s op.Sample, d core.DType, sliced bool, tolerance float64) {
	compareOn(t, device(t), r, s, d, sliced, tolerance)
}

// compareOn is compare for a given GPU.
func compareOn(t *testing.T, g core.Device, r *op.Row, s op.Sample, d core.DType, sliced bool, tolerance float64) {
	m := &maker{rng: newRand(r.Name+s.Name, 1), dtype: d, sliced: sliced, device: g}
	cpuArgs, gpuArgs := m.arguments(s)
	if s.Loose > 1 {
		tolerance *= s.Loose
	}
	core.ManualSeed(7)
	want := r.Call(cpuArgs...)
	core.ManualSeed(7)
	context := core.CurrentContext()
	context.SetDefaultDevice(m.device)
	got := r.Call(gpuArgs...)
	context.SetDefaultDevice(nil)
	require.Equal(t, len(want), len(got))
	turnVectors(r, want, got)
	for i := range want {
		require.NoError(t, want[i].Err())
		if err := got[i].Err(); err != nil {
			if noteMissing(r, err) {
				return
			}
			t.Fatal(err)
		}
		if err := equal(t, want[i], got[i], resultTolerance(want[i], tolerance), fmt.Sprintf("%v, output %d", d, i)); err != nil {
			if noteMissing(r, err) {
				return
			}
			t.Fatal(err)
		}
	}
	if r.NoGrad != "" || d != core.Float32 && d != core.Float64 {
		return
	}
	gradients(t, r, m, want, got, tolerance)
}

func gradients(t *testing.T, r *op.Row, m *maker, want, got []*core.Tensor, tolerance float64) {
	var roots, seeds, theirs, theirSeeds []*core.Tensor
	for i := range want {
		if !want[i].RequiresGrad() {
			continue
		}
		require.True(t, got[i].RequiresGrad())
		v := make([]float64, want[i].Numel())
		for j := range v {
			v[j] = 0.5 + m.rng.Float64()
		}
		seed := op.To(op.Reshape(core.FromSlice(v, len(v)), append([]int{}, want[i].Shape()...)...), want[i].DType())
		roots, seeds = append(roots, want[i]), append(seeds, seed)
		theirs, theirSeeds = append(theirs, got[i]), append(theirSeeds, op.ToDevice(seed, m.device))
	}
	var inputs, theirInputs []*core.Tensor
	for i, x := range m.cpu {
		if x.RequiresGrad() {
			inputs, theirInputs = append(inputs, x), append(theirInputs, m.gpu[i])
		}
	}
	if len(roots) == 0 || len(inputs) == 0 {
		return
	}
	o := autograd.Options{AllowUnused: true}
	w, err := autograd.Grad(roots, inputs, seeds, o)
	require.NoError(t, err)
	g, err := autograd.Grad(theirs, theirInputs, theirSeeds, o)
	if noteMissing(r, err) {
		return
	}
	require.NoError(t, err)
	for i := range w {
		if w[i] == nil {
			require.Nil(t, g[i])
			continue
		}
		if err := g[i].Err(); noteMissing(r, err) {
			return
		}
		if err := equal(t, w[i], g[i], 4*tolerance, fmt.Sprintf("gradient %d", i)); err != nil {
			if noteMissing(r, err) {
				return
			}
			t.Fatal(err)
		}
	}
}

var all = flag.Bool("all", false, "run every sample of the registry, not three of each row, and more random programs")

// TestRegistryInOtherDTypes compares every op with the CPU in 16-bit dtypes and integers: in one dtype of each op in turn, or in
// all.
func TestRegistryInOtherDTypes(t *testing.T) {
	device(t)
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	precision := map[core.DType]float64{core.Float16: 2e-3, core.BFloat16: 1.6e-2, core.Int64: 0, core.Int32: 0, core.Uint8: 0, core.Bool: 0, core.Int8: 0, core.Int16: 0, core.Uint16: 0, core.Uint32: 0}
	for n, r := range op.Rows() {
		if len(r.Samples) == 0 {
			continue
		}
		s := r.Samples[0]
		dtypes := s.DTypes
		if dtypes == nil {
			dtypes = []core.DType{core.Float16, core.BFloat16}
		}
		dtypes = slices.DeleteFunc(slices.Clone(dtypes), func(d core.DType) bool { _, known := precision[d]; return !known })
		for i, d := range dtypes {
			if !*all && i != n%len(dtypes) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", r.Name, d), func(t *testing.T) {
				ctx := core.NewRankContext(0, nil)
				defer ctx.Free()
				core.WithContext(ctx, func() {
					core.Tidy(func() { compare(t, r, s, d, n%2 == 0, precision[d]) })
				})
			})
		}
	}
}

// TestRegistryInFloat64 compares every op that takes float64 with the CPU, on a GPU that computes in it.
func TestRegistryInFloat64(t *testing.T) {
	if !device(t).Float64() {
		t.Skip("the GPU's language has no float64")
	}
	compareRegistry(t, core.Float64, 1e-12)
	reportMissing(t)
}

// TestRegistry compares every op of the registry with the CPU.
func TestRegistry(t *testing.T) {
	device(t)
	compareRegistry(t, core.Float32, 4e-6)
	reportMissing(t)
}

// reportMissing lists the ops that the device refused, which must be because of float64 or of a kernel that GPUs do without.
func reportMissing(t *testing.T) {
	var list []string
	for name, why := range missing.ops {
		list = append(list, name+": "+why)
		if !slices.ContainsFunc(lacking, func(k core.KernelID) bool { return strings.HasSuffix(why, fmt.Sprintf("no kernel %q", k.String())) }) {
			require.Contains(t, why, "float64 is not supported on", "%s: docs/gpu-kernels.md says how to write a kernel", name)
		}
	}
	sort.Strings(list)
	t.Logf("%d operations without what they need:\n%s", len(list), strings.Join(list, "\n"))
}

// compareRegistry compares every op of the registry with the CPU in a floating-point dtype.
func compareRegistry(t *testing.T, d core.DType, tolerance float64) {
	for _, r := range op.Rows() {
		t.Run(r.Name, func(t *testing.T) {
			for i, s := range r.Samples {
				if d == core.Float64 && s.DTypes != nil && !slices.Contains(s.DTypes, d) {
					continue
				}
				if last := len(r.Samples) - 1; !*all && i != 0 && (testing.Short() || i != last/2 && i != last) {
					continue
				}
				name := s.Name
				if name == "" {
					name = fmt.Sprint(i)
				}
				t.Run(name, func(t *testing.T) {
					ctx := core.NewRankContext(0, nil)
					defer ctx.Free()
					core.WithContext(ctx, func() {
						core.Tidy(func() { compare(t, r, s, d, i%2 == 1, tolerance) })
					})
				})
			}
		})
	}
}

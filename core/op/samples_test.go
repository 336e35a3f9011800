package op_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// A layout is a way in which a tensor's elements can lie in memory.
type layout int

const (
	contiguous layout = iota
	transposed
	sliced
	broadcast
	numLayouts
)

func (l layout) String() string {
	return [...]string{"contiguous", "transposed", "sliced", "broadcast"}[l]
}

// maker makes the tensors of a sample.
type maker struct {
	rng    *rand.Rand
	dtype  core.DType // of floating-point tensors
	layout layout
	grad   bool

	leaves []*core.Tensor
	expand map[*core.Tensor][]int // leaves that are expanded before use
}

func newMaker(seed string, d core.DType, l layout, grad bool) *maker {
	h := fnv.New64a()
	h.Write([]byte(seed))
	return &maker{rng: rand.New(rand.NewPCG(h.Sum64(), 1)), dtype: d, layout: l, grad: grad, expand: map[*core.Tensor][]int{}}
}

// values returns the elements of a described tensor, rounded to what dtype can hold.
func (m *maker) values(s op.T, n int) []float64 {
	if s.Values != nil {
		return s.Values
	}
	low, high := s.Low, s.High
	v := make([]float64, n)
	order := m.rng.Perm(n)
	for i := range v {
		switch {
		case s.Distinct && low == 0 && high == 0:
			v[i] = (float64(order[i]) + 0.25 + 0.5*m.rng.Float64() - float64(n)/2) * 0.25
		case s.Distinct:
			v[i] = low + (high-low)*(float64(order[i])+0.25+0.5*m.rng.Float64())/float64(n)
		case low == 0 && high == 0: // both signs, away from 0 where many functions have a corner
			v[i] = 0.1 + 0.9*m.rng.Float64()
			if m.rng.IntN(2) == 0 {
				v[i] = -v[i]
			}
		default:
			v[i] = low + (high-low)*m.rng.Float64()
		}
	}
	return v
}

func (m *maker) make(s op.T) *core.Tensor {
	d := m.dtype
	if s.Fixed {
		d = s.DType
	}
	shape := append([]int{}, s.Shape...) // not nil: without a shape there is one element, of no dimension
	differentiable := m.grad && d.Differentiable() && !s.NoGrad
	expanded := -1
	if m.layout == broadcast && !s.Fixed && !s.Distinct && s.Values == nil {
		for i, n := range shape {
			if n > 1 {
				shape = slices.Clone(shape)
				shape[i], expanded = 1, i
				break
			}
		}
	}
	n := core.Numel(shape)
	if d.IsComplex() {
		n *= 2
	}
	t := place(m.values(s, n), d, shape, m.layout)
	if differentiable {
		t = t.Detach().SetRequiresGrad(true)
	}
	m.leaves = append(m.leaves, t)
	if expanded >= 0 {
		m.expand[t] = s.Shape
	}
	return t
}

// place returns a tensor with the given elements in the given layout.
func place(values []float64, d core.DType, shape []int, l layout) *core.Tensor {
	var t *core.Tensor
	if d.IsComplex() {
		t = op.To(op.ViewAsComplex(op.Reshape(core.FromSlice(values, len(values)), append(slices.Clone(shape), 2)...)), d)
	} else {
		t = op.To(op.Reshape(core.FromSlice(values, len(values)), shape...), d)
	}
	switch {
	case l == transposed && len(shape) > 1:
		perm := make([]int, len(shape))
		for i := range perm {
			perm[i] = len(shape) - 1 - i
		}
		return op.Permute(op.Contiguous(op.Permute(t, perm...)), perm...)
	case l == sliced && len(shape) > 0:
		wide := slices.Clone(shape)
		wide[len(wide)-1] = 2*wide[len(wide)-1] + 1
		junk := op.Full(wide, core.Num(77), op.TensorOptions{DType: &d})
		view := op.Slice(junk, -1, 1, wide[len(wide)-1], 2)
		op.CopyInPlace(view, t)
		return view
	}
	return t
}

// arguments returns the sample's arguments with its tensors made.
func (m *maker) arguments(s op.Sample) []any {
	if s.Dense {
		m.layout = contiguous
	}
	args := make([]any, len(s.Args))
	for i, a := range s.Args {
		switch x := a.(type) {
		case op.T:
			args[i] = m.make(x)
		case []op.T:
			list := make([]*core.Tensor, len(x))
			for j := range x {
				list[j] = m.make(x[j])
			}
			args[i] = list
		default:
			args[i] = a
		}
	}
	return args
}

// apply calls f with the arguments, of which those that are leaves are replaced by inputs, in order, and expanded.
func (m *maker) apply(f func(args ...any) []*core.Tensor, args []any, inputs []*core.Tensor) []*core.Tensor {
	next := 0
	use := func(t *core.Tensor) *core.Tensor {
		leaf := m.leaves[next]
		u := inputs[next]
		next++
		if shape, ok := m.expand[leaf]; ok {
			return op.Expand(u, shape...)
		}
		return u
	}
	in := make([]any, len(args))
	for i, a := range args {
		switch x := a.(type) {
		case *core.Tensor:
			in[i] = x
			if !x.IsNumber() {
				in[i] = use(x)
			}
		case []*core.Tensor:
			list := make([]*core.Tensor, len(x))
			for j := range x {
				list[j] = use(x[j])
			}
			in[i] = list
		default:
			in[i] = a
		}
	}
	core.ManualSeed(7)
	return f(in...)
}

// realValues returns the elements of a tensor, and of a complex one the parts.
func realValues(x *core.Tensor) ([]float64, error) {
	if x.Err() == nil && x.DType().IsComplex() {
		x = op.ViewAsReal(x.Detach())
	}
	return core.Values[float64](x)
}

// inRank runs a test in a rank of its own, so that parallel tests have their own random numbers, and its memory is
// released.
func inRank(t *testing.T, fn func()) {
	t.Helper()
	ctx := core.NewRankContext(0, nil)
	defer ctx.Free()
	core.WithContext(ctx, func() { core.Tidy(fn) })
}

// eachSample calls fn with each sample of each row, or under the race detector with a row's first.
func eachSample(t *testing.T, fn func(t *testing.T, r *op.Row, s op.Sample)) {
	for _, r := range op.Rows() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			for i, s := range r.Samples[:coretest.Rounds(len(r.Samples))] {
				name := s.Name
				if name == "" {
					name = fmt.Sprint(i)
				}
				t.Run(name, func(t *testing.T) { inRank(t, func() { fn(t, r, s) }) })
			}
		})
	}
}

func loose(s op.Sample) float64 {
	if s.Loose == 0 {
		return 1
	}
	return s.Loose
}

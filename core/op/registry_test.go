package op_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// The tests in this file and in dtypes_test.go, layouts_test.go and threads_test.go loop over the registry: every
// operation is held to the same promises.

func TestEveryRowIsComplete(t *testing.T) {
	for _, r := range op.Rows() {
		assert.NotEmpty(t, r.Doc, r.Name)
		assert.Regexp(t, "^[a-z][a-z0-9_]*$", r.Family, "%s: files and modules are named after the family", r.Name)
		assert.True(t, r.Func != nil || r.InPlace != nil, r.Name)
		assert.True(t, r.Func == nil || len(r.Samples) > 0, "%s has no samples", r.Name)
		for _, a := range r.Args {
			assert.NotEmpty(t, a.Name, r.Name)
		}
	}
}

func TestGradientsAgreeWithDifferences(t *testing.T) {
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		if r.NoGrad != "" {
			return
		}
		for l := contiguous; l < numLayouts; l++ {
			m := newMaker(r.Name+s.Name, core.Float64, l, true)
			args := m.arguments(s)
			fn := func(in []*core.Tensor) []*core.Tensor { return m.apply(r.Call, args, in) }
			if coretest.Race { // elsewhere element by element
				require.NoError(t, m.checkAlong(fn, 1e-6*loose(s), 1e-5*loose(s)), "layout %v", l)
				continue
			}
			require.NoError(t, autograd.Check(fn, m.leaves, 1e-6, 1e-6*loose(s), 1e-5*loose(s)), "layout %v", l)
		}
	})
}

func TestSecondDerivativesAgreeWithDifferences(t *testing.T) {
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		if r.NoGrad != "" || r.NoDouble != "" {
			return
		}
		m := newMaker(r.Name+s.Name, core.Float64, contiguous, true)
		args := m.arguments(s)
		if coretest.Race { // elsewhere element by element
			require.NoError(t, m.checkAlong(m.gradients(r, args), 1e-5*loose(s), 1e-4*loose(s)))
			return
		}
		err := autograd.CheckDouble(func(in []*core.Tensor) []*core.Tensor { return m.apply(r.Call, args, in) },
			m.leaves, 1e-6, 1e-5*loose(s), 1e-4*loose(s))
		require.NoError(t, err)
	})
}

func TestInPlaceVariantsAgree(t *testing.T) {
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		if reflect.TypeOf(r.InPlace) != reflect.TypeOf(r.Func) {
			return
		}
		first, ok := s.Args[0].(op.T)
		if !ok || first.Fixed {
			return
		}
		m := newMaker(r.Name+s.Name, core.Float64, transposed, r.NoGrad == "")
		args := m.arguments(s)
		want := m.apply(r.Call, args, m.leaves)[0]
		require.NoError(t, want.Err())
		if !slices.Equal(want.Shape(), first.Shape) || want.DType() != core.Float64 {
			return
		}
		in := slices.Clone(m.leaves)
		in[0] = op.Clone(in[0]) // not a leaf, so it may be changed
		before := in[0].Storage().Version()
		got := m.apply(r.CallInPlace, args, in)[0]
		require.NoError(t, got.Err())
		require.Greater(t, got.Storage().Version(), before)
		w, err := realValues(want)
		require.NoError(t, err)
		g, err := realValues(in[0])
		require.NoError(t, err)
		require.InDeltaSlice(t, w, g, 1e-12)
		if !want.RequiresGrad() {
			return
		}
		var wanted []*core.Tensor
		for _, x := range m.leaves {
			if x.RequiresGrad() {
				wanted = append(wanted, x)
			}
		}
		seed := []*core.Tensor{op.OnesLike(want, op.TensorOptions{})}
		o := autograd.Options{AllowUnused: true}
		gw, err := autograd.Grad([]*core.Tensor{want}, wanted, seed, o)
		require.NoError(t, err)
		gg, err := autograd.Grad([]*core.Tensor{in[0]}, wanted, seed, o)
		require.NoError(t, err)
		for i := range gw {
			if gw[i] == nil {
				require.Nil(t, gg[i])
				continue
			}
			a, err := realValues(gw[i])
			require.NoError(t, err)
			b, err := realValues(gg[i])
			require.NoError(t, err)
			require.InDeltaSlice(t, a, b, 1e-10)
		}
	})
}

func TestErrorsPassThroughEveryOperation(t *testing.T) {
	cause := core.Errorf(core.ShapeError, "made_up", "an earlier failure")
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		m := newMaker(r.Name, core.Float64, contiguous, false)
		args := m.arguments(s)
		for i := range m.leaves {
			in := slices.Clone(m.leaves)
			in[i] = core.ErrorTensor(cause)
			delete(m.expand, m.leaves[i])
			for _, out := range m.apply(r.Call, args, in) {
				require.ErrorIs(t, out.Err(), cause)
			}
		}
	})
}

func TestNoArgumentMakesAnOperationPanic(t *testing.T) {
	released := core.FromSlice([]float64{1})
	released.Release()
	for name, wrong := range map[string]*core.Tensor{"nil": nil, "released": released, "number": core.Num(1)} {
		t.Run(name, func(t *testing.T) {
			eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
				m := newMaker(r.Name, core.Float64, contiguous, false)
				args := m.arguments(s)
				for i := range m.leaves {
					in := slices.Clone(m.leaves)
					in[i] = wrong
					delete(m.expand, m.leaves[i])
					require.NotPanics(t, func() {
						for _, out := range m.apply(r.Call, args, in) {
							_ = out.Wait()
						}
					}, "argument %d", i)
				}
			})
		})
	}
}

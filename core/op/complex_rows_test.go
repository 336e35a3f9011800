package op_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// TestRowsOverComplexNumbers gives complex numbers to every operation on floating-point tensors. It refuses them as a dtype, or it is one
// of those in testdata/complex.txt: then it computes of numbers without imaginary parts what it does of real ones, and its gradient agrees
// with differences.
func TestRowsOverComplexNumbers(t *testing.T) {
	coretest.SkipUnderRace(t)
	list, err := os.ReadFile("testdata/complex.txt")
	require.NoError(t, err)
	want := strings.Fields(string(list))
	// These take the real parts of what they are given here: the Hermitian part of a symmetric matrix times a number, or float64.
	partly := strings.Fields("to linalg_cholesky linalg_cholesky_ex linalg_eigh linalg_eigvalsh")
	turned := strings.Fields("linalg_eig linalg_eigh linalg_svd") // their vectors are of any phase
	var mu sync.Mutex
	var taken []string
	t.Run("rows", func(t *testing.T) {
		eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
			if s.DTypes != nil && len(s.DTypes) == 0 || r.Name == "stft" { // of complex signals it has other frequencies
				return
			}
			sizes := func(out []*core.Tensor) []*core.Tensor {
				for i, y := range out {
					if slices.Contains(turned, r.Name) && y.Err() == nil {
						out[i] = op.Abs(y)
					}
				}
				return out
			}
			m := newMaker(r.Name+s.Name, core.Float64, contiguous, false)
			args := m.arguments(s)
			if !slices.ContainsFunc(m.leaves, func(x *core.Tensor) bool { return x.DType() == core.Float64 }) {
				return
			}
			real := sizes(m.apply(r.Call, args, m.leaves))
			widened := slices.Clone(m.leaves)
			for i, x := range m.leaves {
				if x.DType() == core.Float64 {
					widened[i] = op.To(x, core.Complex128)
				}
			}
			got := sizes(m.apply(r.Call, args, widened))
			if err := got[0].Err(); err != nil {
				kind, _ := core.KindOf(err)
				require.Equal(t, core.DTypeError, kind, "%v", err)
				if !comparesNumbers(s) {
					require.NotContains(t, want, r.Name, "%v", err)
				}
				return
			}
			mu.Lock()
			taken = append(taken, r.Name)
			mu.Unlock()
			require.Contains(t, want, r.Name, "takes complex numbers")
			for i := range got {
				w, err := realValues(op.To(real[i], core.Complex128))
				require.NoError(t, err)
				g, err := realValues(op.To(got[i], core.Complex128))
				require.NoError(t, err)
				require.Equal(t, real[i].Shape(), got[i].Shape())
				for j := 0; j < len(w); j += 2 {
					if w[j] == w[j] { // a number: others may have a root that is complex
						require.InDelta(t, w[j], g[j], 1e-9*loose(s)*(1+abs(w[j])), "result %d, element %d", i, j/2)
						require.InDelta(t, w[j+1], g[j+1], 1e-9*loose(s)*(1+abs(w[j])), "result %d, imaginary part %d", i, j/2)
					}
				}
			}
			for i, x := range m.leaves {
				if x.DType() == core.Float64 {
					scaled := op.MulInPlace(op.Clone(widened[i]), core.Scalar(complex(0.8, 0.6)))
					widened[i] = scaled.Detach().SetRequiresGrad(r.NoGrad == "")
				}
			}
			if !slices.Contains(partly, r.Name) {
				dependsOnImaginary(t, r, m, args, widened)
			}
			if r.NoGrad != "" {
				return
			}
			fn := func(in []*core.Tensor) []*core.Tensor { return sizes(m.apply(r.Call, args, in)) }
			require.NoError(t, autograd.Check(fn, widened, 1e-6, 1e-6*loose(s), 1e-5*loose(s)))
		})
	})
	slices.Sort(taken)
	taken = slices.Compact(taken)
	if !t.Failed() {
		missing := slices.DeleteFunc(slices.Clone(want), func(n string) bool { return slices.Contains(taken, n) })
		require.Empty(t, missing, "the list has operations that do not take complex numbers")
	}
}

// comparesNumbers reports whether the options of a sample want an order, which complex numbers lack.
func comparesNumbers(s op.Sample) bool {
	return slices.ContainsFunc(s.Args, func(a any) bool {
		o, isPoisson := a.(op.PoissonNLLOptions)
		return a == "amax" || a == "amin" || isPoisson && o.Full
	})
}

// dependsOnImaginary fails if the results depend on the real parts of numbers alone.
func dependsOnImaginary(t *testing.T, r *op.Row, m *maker, args []any, in []*core.Tensor) {
	reals, doubled := slices.Clone(in), slices.Clone(in)
	for i, x := range in {
		if x.DType().IsComplex() {
			reals[i], doubled[i] = op.To(op.Real(x), core.Complex128), op.Mul(x, core.Num(2))
		}
	}
	all := m.apply(r.Call, args, in)
	if all[0].DType() == core.Bool || sameElements(t, all, m.apply(r.Call, args, doubled)) {
		return
	}
	require.False(t, sameElements(t, all, m.apply(r.Call, args, reals)), "the imaginary parts change nothing")
}

func sameElements(t *testing.T, x, y []*core.Tensor) bool {
	for i := range x {
		if !slices.Equal(rawBytes(t, x[i]), rawBytes(t, y[i])) {
			return false
		}
	}
	return true
}

func abs(x float64) float64 { return max(x, -x) }

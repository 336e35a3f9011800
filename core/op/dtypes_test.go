package op_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

func TestDTypesAgreeWithFloat64(t *testing.T) {
	precision := map[core.DType]float64{core.Float32: 2e-6, core.Float16: 2e-3, core.BFloat16: 1.6e-2}
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		dtypes := s.DTypes
		if dtypes == nil {
			dtypes = []core.DType{core.Float32, core.Float16, core.BFloat16}
		}
		for _, d := range dtypes {
			tolerance, known := precision[d]
			if !known {
				continue
			}
			m := newMaker(r.Name+s.Name, d, sliced, false)
			args := m.arguments(s)
			exact := make([]*core.Tensor, len(m.leaves))
			for i, x := range m.leaves {
				exact[i] = x
				if x.DType() == d {
					exact[i] = op.To(x, core.Float64)
				}
			}
			want := m.apply(r.Call, args, exact)
			got := m.apply(r.Call, args, m.leaves)
			require.Equal(t, len(want), len(got))
			for i := range want {
				w, err := realValues(want[i])
				require.NoError(t, err)
				g, err := realValues(got[i])
				require.NoError(t, err, "%v", d)
				require.Equal(t, want[i].Shape(), got[i].Shape())
				scale := 1.0
				for _, x := range w {
					if a := math.Abs(x); a > scale && !math.IsInf(x, 0) {
						scale = a
					}
				}
				for j := range w {
					if w[j] == g[j] || (w[j] != w[j] && g[j] != g[j]) {
						continue
					}
					require.InDelta(t, w[j], g[j], tolerance*loose(s)*math.Max(scale, 1), "%v output %d element %d", d, i, j)
				}
			}
		}
	})
}

// TestIntegersAgreeWithFloat64 gives whole numbers to every operation, in each of the dtypes that have no fractions: it
// computes what it computes in float64, or refuses the dtype by its name.
func TestIntegersAgreeWithFloat64(t *testing.T) {
	// What these make of intermediate results in the dtype of their input is not what the last one would be.
	intermediate := map[string]bool{"trapezoid": true, "cumulative_trapezoid": true}
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		if s.DTypes != nil && len(s.DTypes) == 0 {
			return
		}
		dtypes := []core.DType{core.Int64, core.Int32, core.Uint8, core.Bool, core.Int8, core.Int16, core.Uint16, core.Uint32}
		for _, d := range dtypes[:coretest.Rounds(len(dtypes))] {
			m := newMaker(r.Name+s.Name, core.Float64, contiguous, false)
			args := m.arguments(s)
			exact, whole := wholeInputs(t, m.leaves, d, len(r.Elementwise) > 0)
			if whole == nil {
				return
			}
			want := m.apply(r.Call, args, exact)
			var wanted [][]float64
			var failure error // of these values, such as those of a singular matrix
			for _, x := range want {
				v, err := realValues(x)
				wanted, failure = append(wanted, v), errors.Join(failure, err)
			}
			got := m.apply(r.Call, args, whole)
			if err := got[0].Err(); err != nil {
				kind, _ := core.KindOf(err)
				require.Equal(t, core.DTypeError, kind, "%v: %v", d, err)
				continue
			}
			for i, x := range got {
				if intermediate[r.Name] && (d.IsInt() && (d.Size() < 4 || !d.IsSigned()) || d == core.Bool) {
					continue
				}
				g, err := realValues(x)
				if failure != nil || err != nil && !finite(wanted[i]) {
					require.ErrorContains(t, err, "integer division by zero")
					continue
				}
				require.NoError(t, err, "%v", d)
				require.Equal(t, want[i].Shape(), x.Shape())
				require.Contains(t, []core.DType{d, core.Bool, core.Int64, core.Float32, core.Complex64, want[i].DType()}, x.DType(), "%v", d)
				for j, w := range wanted[i] {
					require.True(t, holds(x.DType(), w, g[j], loose(s)), "%v: output %d of %v, element %d: want %v, got %v", d, i, x.DType(), j, w, g[j])
				}
			}
		}
	})
}

// finite reports whether all of the values are.
func finite(values []float64) bool {
	return !slices.ContainsFunc(values, func(x float64) bool { return math.IsInf(x, 0) || x != x })
}

// wholeInputs returns whole numbers in place of the floating-point tensors, that dtype d can hold: as they were and in d. It
// returns nil where there are none to replace. With integers it replaces those of int64 too.
func wholeInputs(t *testing.T, leaves []*core.Tensor, d core.DType, integers bool) (exact, whole []*core.Tensor) {
	found := false
	for _, x := range leaves {
		e, w := x, x
		if x.DType() == core.Float64 || integers && x.DType() == core.Int64 {
			found = true
			v, err := realValues(x)
			require.NoError(t, err)
			for i := range v {
				v[i] = math.Round(math.Mod(4*v[i], 100)) + 0 // not -0
				if v[i] != v[i] {
					v[i] = 3
				}
				if d.IsInt() && !d.IsSigned() {
					v[i] = math.Abs(v[i])
				}
				if d == core.Bool {
					v[i] = math.Abs(math.Mod(v[i], 2))
				}
			}
			e = place(v, x.DType(), x.Shape(), sliced)
			w = place(v, d, x.Shape(), sliced)
		}
		exact, whole = append(exact, e), append(whole, w)
	}
	if !found {
		return nil, nil
	}
	return exact, whole
}

// holds reports whether an element of dtype d is got where the result is want in exact arithmetic: integers lose a
// fraction and what is beyond their bits, and bool says what is not 0.
func holds(d core.DType, want, got, loose float64) bool {
	switch {
	case want == got || want != want && got != got:
		return true
	case d == core.Bool:
		return got == 1 && want != 0
	case d.IsInt() && want != math.Trunc(want):
		return math.Abs(want-got) < 1
	case d.IsInt() && d != core.Int64:
		low := int64(1)<<(8*d.Size()) - 1
		return int64(want)&low == int64(got)&low
	}
	return math.Abs(want-got) <= 2e-6*loose*math.Max(1, math.Abs(want))
}

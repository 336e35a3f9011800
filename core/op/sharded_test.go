package op_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Of a rank's part of a larger tensor every operation makes a part that lies as it did, or none at all.
func TestPartsOfLargerTensorsStayParts(t *testing.T) {
	division := &core.Division{Whole: "parameter w", Advice: "full_tensor() has the whole"}
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		shapes := strings.HasSuffix(r.Name, "_as") // of the second input the shape alone is used
		for fn, call := range map[any]func(args ...any) []*core.Tensor{&r.Func: r.Call, &r.InPlace: r.CallInPlace} {
			if *fn.(*any) == nil {
				continue
			}
			m := newMaker(r.Name+s.Name, core.Float64, contiguous, false)
			args := m.arguments(s)
			for i := range m.leaves {
				if shapes && i == 1 {
					continue
				}
				in := slices.Clone(m.leaves)
				for k := range in {
					in[k] = op.Clone(in[k])
				}
				part := in[i].Divide(division)
				for _, out := range m.apply(call, args, in) {
					if err := out.Err(); err != nil {
						continue
					}
					require.NotNil(t, out.Division(), "input %d", i)
					require.Equal(t, part.Dim(), out.Dim())
					if part.Dim() > 0 {
						require.Equal(t, part.Size(0), out.Size(0))
					}
				}
			}
		}
	})
	x := core.FromSlice([]float64{1, 2}).Divide(division)
	require.ErrorContains(t, op.Sum(x, nil, false).Err(), "sum: parameter w is sharded over ranks, and this is one rank's part: the result would be the part's alone; full_tensor() has the whole")
	require.NoError(t, op.Sum(x.Detach(), nil, false).Err())
	require.ErrorContains(t, op.Add(x, core.FromSlice([]float64{1, 2}, 2, 1)).Err(), "parameter w is sharded")
	y := core.FromSlice([]float64{3, 4})
	require.Same(t, division, op.LerpInPlace(y, x, core.Num(0.5)).Division())
	require.ErrorContains(t, op.Select(y, 0, 0).Err(), "parameter w is sharded")
}

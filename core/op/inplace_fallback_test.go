package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// TestVariantsThatReplace changes a view of a tensor by operations that compute their result elsewhere.
func TestVariantsThatReplace(t *testing.T) {
	one := func(v ...float64) *core.Tensor { return core.FromSlice(v, len(v)) }
	for _, c := range []struct {
		name string
		args []any // behind the tensor, or with nil where it goes
	}{
		{"cumsum", []any{0}}, {"cumprod", []any{-1}}, {"renorm", []any{2.0, 0, 0.5}}, {"float_power", []any{one(3)}},
		{"heaviside", []any{one(7)}}, {"ldexp", []any{one(1, 2, 3)}}, {"i0", nil}, {"igamma", []any{one(1, 2, 3)}},
		{"igammac", []any{one(2)}}, {"nextafter", []any{one(9)}}, {"polygamma", []any{1, nil}}, {"rrelu", []any{0.25, 0.25, true}},
		{"round", []any{1}}, {"lt", []any{one(0.6)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRank(t, func() {
				row := op.Lookup(c.name)
				with := func(x *core.Tensor) []any {
					args, placed := []any{}, false
					for _, a := range c.args {
						if placed = placed || a == nil; a == nil {
							a = x
						}
						args = append(args, a)
					}
					if !placed {
						args = append([]any{x}, args...)
					}
					return args
				}
				run := func(inPlace bool) (values, grads []float64) {
					leaf := core.FromSlice([]float64{0.5, 1.5, 0.75, 1.25, 0.625, 2.5}, 2, 3).SetRequiresGrad(true)
					base := op.Mul(leaf, core.Num(1))
					if inPlace {
						part := op.Narrow(op.Transpose(base, 0, 1), 1, 1, 1)
						before := base.Storage().Version()
						out := row.CallInPlace(with(op.Transpose(part, 0, 1))...)
						require.NoError(t, out[0].Err())
						require.Greater(t, base.Storage().Version(), before)
					} else {
						part := row.Call(with(op.Narrow(base, 0, 1, 1))...)[0]
						base = op.Cat([]*core.Tensor{op.Narrow(base, 0, 0, 1), op.To(part, core.Float64)}, 0)
					}
					values, err := core.Values[float64](base)
					require.NoError(t, err)
					require.NoError(t, autograd.Backward(op.Sum(op.Mul(base, base), nil, false)))
					grads, err = core.Values[float64](leaf.Grad())
					require.NoError(t, err)
					return values, grads
				}
				want, wantGrads := run(false)
				got, gotGrads := run(true)
				require.Equal(t, want, got)
				require.InDeltaSlice(t, wantGrads, gotGrads, 1e-12)

				leaf := core.FromSlice([]float64{1, 2}, 1, 2).SetRequiresGrad(true)
				err := row.CallInPlace(with(leaf)...)[0].Err()
				require.ErrorContains(t, err, row.Name+"_: a leaf that requires a gradient")
				wide := op.Expand(one(1), 2, 3)
				require.ErrorContains(t, row.CallInPlace(with(wide)...)[0].Err(), "share memory")
			})
		})
	}
}

func TestWhatReplacesATensorMustFit(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3})
	whole := core.FromSlice([]int32{4, -6, 1 << 30})
	rows := op.Ones(2, 3)
	for want, out := range map[string]*core.Tensor{
		"heaviside_: a tensor of shape [3] cannot hold the result of shape [2 3]":        op.HeavisideInPlace(x, rows),
		"ldexp_: a result of float32 can't be cast to int32, the tensor's dtype":         op.LdexpInPlace(whole, core.IntNum(1)),
		"float_power_: a result of float64 can't be cast to float32, the tensor's dtype": op.FloatPowerInPlace(x, core.Num(2)),
		"cumsum: dimension 1 out of range":                                               op.CumSumInPlace(x, 1),
		"lcm_: got a nil tensor":                                                         op.LCMInPlace(nil, whole),
	} {
		require.ErrorContains(t, out.Err(), want)
	}
	require.Zero(t, x.Storage().Version())
	require.NoError(t, op.LCMInPlace(whole, core.FromSlice([]int32{6, 4, 1})).Err())
	require.NoError(t, op.CumSumInPlace(whole, 0).Err())
	v, err := core.Values[int32](whole)
	require.NoError(t, err)
	require.Equal(t, []int32{12, 24, 24 + 1<<30}, v)
	require.Equal(t, core.Int32, whole.DType())
}

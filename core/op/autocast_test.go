package op_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// conditional names the operations that cast in some of their uses only.
var conditional = map[string]bool{"pad": true, "einsum": true}

func TestAutocastPolicies(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, r := range op.Rows() {
		for kind, cast := range map[string]op.Cast{"cpu": r.Autocast.CPU, "gpu": r.Autocast.GPU} {
			if cast == op.KeepDTypes {
				continue
			}
			t.Run(r.Name+"/"+kind, func(t *testing.T) {
				// There may be no other device here: the policy for one is tried on the CPU.
				defer func(c op.Casts) { r.Autocast = c }(r.Autocast)
				r.Autocast.CPU = cast
				casts := 0
				for _, s := range r.Samples {
					inRank(t, func() {
						if sampleCasts(t, r, s, cast) {
							casts++
						}
					})
				}
				require.Positive(t, casts, "no use of %s casts", r.Name)
			})
		}
	}
}

// sampleCasts checks a use of an operation under autocast, whose policy it has, and reports whether it casts.
func sampleCasts(t *testing.T, r *op.Row, s op.Sample, cast op.Cast) bool {
	t.Helper()
	given, computed := core.Float32, core.BFloat16
	switch cast {
	case op.CastFloat32:
		given, computed = core.BFloat16, core.Float32
	case op.CastWidest:
		computed = core.Float32
	}
	if s.DTypes != nil && !slices.Contains(s.DTypes, computed) {
		return false
	}
	m := newMaker(r.Name+s.Name, given, contiguous, true)
	args := m.arguments(s)
	floats := slices.DeleteFunc(slices.Clone(m.leaves), func(l *core.Tensor) bool { return !l.DType().IsFloat() })
	if len(floats) == 0 {
		return false
	}
	inputs := m.leaves
	want := inputs
	if cast == op.CastWidest {
		if len(floats) < 2 {
			return false
		}
		inputs = slices.Clone(m.leaves)
		first := slices.IndexFunc(inputs, func(l *core.Tensor) bool { return l.DType().IsFloat() })
		inputs[first] = op.To(inputs[first], core.BFloat16)
		want = inputs
	}
	want = slices.Clone(want)
	for i, l := range want {
		if l.DType().IsFloat() {
			want[i] = op.To(l, computed)
		}
	}
	plain := m.apply(r.Call, args, want)
	var got []*core.Tensor
	require.NoError(t, core.Autocast("cpu", core.BFloat16, func() { got = m.apply(r.Call, args, inputs) }))
	if conditional[r.Name] && got[0].DType() == given {
		return false
	}
	require.Len(t, got, len(plain))
	for i := range got {
		require.NoError(t, got[i].Err(), s.Name)
		require.Equal(t, plain[i].DType(), got[i].DType(), s.Name)
		require.Equal(t, bytesOf(t, plain[i]), bytesOf(t, got[i]), s.Name)
	}
	if r.NoGrad == "" && got[0].RequiresGrad() && cast != op.CastWidest {
		loss := got[0]
		if loss.DType().IsComplex() {
			loss = op.Abs(loss)
		}
		require.NoError(t, autograd.Backward(op.Sum(op.To(loss, core.Float32), nil, false)))
		for _, l := range floats {
			if g := l.Grad(); g != nil {
				require.Equal(t, given, g.DType(), "%s: the gradient has its tensor's dtype", s.Name)
				require.NoError(t, g.Wait())
			}
		}
	}
	return true
}

func bytesOf(t *testing.T, x *core.Tensor) []byte {
	t.Helper()
	b, err := x.Bytes()
	require.NoError(t, err)
	return b
}

func TestEveryAutocastPolicyIsARow(t *testing.T) {
	for _, n := range op.AutocastNames() {
		require.NotNil(t, op.Lookup(n), n)
	}
}

func TestAutocastKeepsFloat64AndNumbers(t *testing.T) {
	x := core.FromSlice([]float64{1, 2, 3, 4}, 2, 2)
	require.NoError(t, core.Autocast("cpu", core.Float16, func() {
		require.Equal(t, core.Float64, op.MatMul(x, x).DType())
		require.Equal(t, core.Float16, op.MatMul(op.To(x, core.Float32), op.To(x, core.Float32)).DType())
		require.Equal(t, core.Float32, op.Mul(op.To(x, core.Float32), core.Num(2)).DType())
	}))
	require.NoError(t, core.Autocast("gpu", core.Float16, func() {
		require.Equal(t, core.Float32, op.MatMul(op.To(x, core.Float32), op.To(x, core.Float32)).DType(), "on for GPUs only")
	}))
	require.ErrorContains(t, core.Autocast("cpu", core.Float32, func() {}), "want float16 or bfloat16")
}

func TestAutocastRemembersCastsOfParameters(t *testing.T) {
	inRank(t, func() {
		w := op.Ones(3, 3).SetRequiresGrad(true)
		x := op.Ones(2, 3)
		casts := func() int {
			m := core.CurrentMode().WithoutAutocast()
			n := 0
			m.CachedCast(w, core.BFloat16, func() *core.Tensor { n++; return op.To(w, core.BFloat16) })
			return n
		}
		require.NoError(t, core.Autocast("cpu", core.BFloat16, func() {
			op.Linear(x, w, nil)
			require.Zero(t, casts(), "remembered")
			core.NoGrad(func() { op.Linear(x, w, nil) })
			y := op.Linear(x, w, nil)
			require.True(t, y.RequiresGrad(), "a cast made without gradients must not serve where they are wanted")
			require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
			require.NoError(t, autograd.Backward(op.Sum(op.Linear(x, w, nil), nil, false)), "and serves backward twice")
			v, err := core.Values[float64](w.Grad())
			require.NoError(t, err)
			require.Equal(t, 4.0, v[0])
			core.NoGrad(func() { op.MulInPlace(w, core.Num(2)) })
			require.Equal(t, 1, casts(), "a parameter that has changed is cast again")
			y = op.Linear(x, w, nil)
			v, err = core.Values[float64](y)
			require.NoError(t, err)
			require.Equal(t, 6.0, v[0])
			require.NoError(t, core.Autocast("cpu", core.BFloat16, func() {}))
			require.Zero(t, casts(), "until the outermost region ends")
		}))
		require.Equal(t, 1, casts(), "forgotten")
	})
}

func TestAutocastForgetsTheCastOfMemoryThatWasReplaced(t *testing.T) {
	inRank(t, func() {
		w := op.Ones(3, 3).SetRequiresGrad(true)
		x := op.Ones(1, 3)
		require.NoError(t, core.Autocast("cpu", core.BFloat16, func() {
			for _, v := range []float64{1, 2, 5, 7} { // the memory of the one before last is used again
				full := op.Full([]int{3, 3}, core.Num(v), op.TensorOptions{})
				require.NoError(t, w.Adopt(full))
				full.Release()
				got, err := core.Values[float64](op.Linear(x, w, nil))
				require.NoError(t, err)
				require.Equal(t, []float64{3 * v, 3 * v, 3 * v}, got)
			}
		}))
	})
}

func TestAutocastReleasesCasts(t *testing.T) {
	inRank(t, func() {
		x, w := op.Ones(64, 64), op.Ones(64, 64)
		dev := x.Device()
		var before, after int64
		require.NoError(t, core.Autocast("cpu", core.BFloat16, func() {
			for i := range 5 {
				op.Linear(x, w, nil).Release()
				if after = int64(core.MemoryUsage(dev).Current); i == 0 {
					before = after
				}
			}
		}))
		require.Equal(t, before, after)
	})
}

func TestBackwardAndCheckpointsKnowAutocast(t *testing.T) {
	inRank(t, func() {
		x := op.Ones(2, 3).SetRequiresGrad(true)
		w := op.Ones(3, 3).SetRequiresGrad(true)
		var dtypes []core.DType
		run := func(in []*core.Tensor) []*core.Tensor {
			y := op.Linear(in[0], w, nil)
			dtypes = append(dtypes, y.DType())
			return []*core.Tensor{op.Exp(y)}
		}
		var y *core.Tensor
		require.NoError(t, core.Autocast("cpu", core.BFloat16, func() {
			y = autograd.Checkpoint(run, x)[0]
		}))
		require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
		require.Equal(t, []core.DType{core.BFloat16, core.BFloat16}, dtypes, "the second run computes as the first did")
		require.Equal(t, core.Float32, w.Grad().DType())
	})
}

// Without gradients the kernel rounds the factors of a linear layer as it loads them. A parameter is cast when it is used again.
func TestLinearRoundsItsFactors(t *testing.T) {
	inRank(t, func() {
		w, b := op.Randn(40, 70).SetRequiresGrad(true), op.Randn(40)
		for _, x := range []*core.Tensor{
			op.Randn(2, 100, 70), op.Randn(3, 70),
			op.Randn(70), op.To(op.Randn(50, 70), core.BFloat16),
			op.To(op.Randn(50, 70), core.Float16), op.Transpose(op.Randn(70, 90), 0, 1),
		} {
			low := func(t *core.Tensor) *core.Tensor { return op.To(t, core.BFloat16) }
			want := op.Linear(low(x), low(w), low(b))
			core.NoGrad(func() {
				require.NoError(t, core.Autocast("cpu", core.BFloat16, func() {
					for range 3 {
						got := op.Linear(x, w, b)
						require.NoError(t, got.Err())
						require.Equal(t, core.BFloat16, got.DType())
						require.Equal(t, bytesOf(t, want), bytesOf(t, got), "%v", x)
					}
					made := false
					core.CurrentMode().CachedCast(w, core.BFloat16, func() *core.Tensor { made = true; return low(w) })
					require.False(t, made, "the second use has cast it")
				}))
			})
		}
		require.NoError(t, core.Autocast("cpu", core.BFloat16, func() {
			core.NoGrad(func() {
				double := op.To(op.Ones(3, 70), core.Float64)
				require.ErrorContains(t, op.Linear(double, w, nil).Err(), "dtypes differ")
			})
		}))
	})
}

// Without gradients the kernel rounds the weight of a convolution, whichever way it takes.
func TestConvolutionsRoundTheirWeight(t *testing.T) {
	inRank(t, func() {
		low := func(t *core.Tensor) *core.Tensor { return op.To(t, core.BFloat16) }
		for _, shape := range [][4]int{{24, 17, 3, 1}, {70, 40, 3, 2}, {24, 64, 1, 1}, {5, 3, 3, 1}, {16, 1, 3, 1}, {20, 16, 5, 1}} {
			x, w := op.Randn(2, shape[1], 12, 11), op.Randn(shape[0], shape[1], shape[2], shape[2])
			o := op.ConvOptions{Stride: []int{shape[3]}, Padding: []int{shape[2] / 2}}
			if shape[1] == 1 {
				x, o.Groups = op.Randn(2, shape[0], 12, 11), shape[0]
			}
			b := op.Randn(shape[0])
			w.SetRequiresGrad(true)
			core.NoGrad(func() {
				want := op.Conv2d(low(x), low(w), low(b), o)
				require.NoError(t, core.Autocast("cpu", core.BFloat16, func() {
					got := op.Conv2d(x, w, b, o)
					require.NoError(t, got.Err())
					require.Equal(t, core.BFloat16, got.DType())
					require.Equal(t, bytesOf(t, want), bytesOf(t, got), "%v", shape)
					mode, made := core.CurrentMode(), false
					require.False(t, mode.CastsFirst(w, core.BFloat16), "the weight was used")
					mode.CachedCast(w, core.BFloat16, func() *core.Tensor { made = true; return low(w) })
					require.True(t, made, "it was not cast")
				}))
			})
		}
	})
}

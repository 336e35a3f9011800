package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestReductionsOfShortRuns compares reductions of views whose runs are short, which are joined to blocks, with those of their copies.
func TestReductionsOfShortRuns(t *testing.T) {
	core.ManualSeed(7)
	reductions := map[string]func(x *core.Tensor) *core.Tensor{
		"sum":       func(x *core.Tensor) *core.Tensor { return op.Sum(x, nil, false) },
		"of rows":   func(x *core.Tensor) *core.Tensor { return op.Sum(x, []int{-2, -1}, false) },
		"amax":      func(x *core.Tensor) *core.Tensor { return op.Amax(x, []int{0, 1}, false) },
		"logsumexp": func(x *core.Tensor) *core.Tensor { return op.LogSumExp(x, []int{-2, -1}, false) },
		"norm":      func(x *core.Tensor) *core.Tensor { return op.VectorNorm(x, 3, nil, op.ReduceOptions{}) },
		"argmax":    func(x *core.Tensor) *core.Tensor { return op.ArgMax(x, nil, false) },
	}
	for _, d := range []core.DType{core.Float32, core.Float64, core.BFloat16, core.Int64, core.Uint8, core.Complex64} {
		x := op.To(op.Mul(op.Rand(3, 170, 100), core.Num(200)), d)
		for name, v := range map[string]*core.Tensor{
			"columns": op.Slice(x, 2, 7, 97, 1), "every other": op.Slice(x, 2, 1, 100, 2), "every third": op.Slice(x, 2, 0, 100, 3),
			"rows and columns": op.Slice(op.Slice(x, 1, 0, 170, 2), 2, 0, 30, 1), "a piece": op.Slice(op.Slice(x, 0, 0, 1, 1), 2, 3, 70, 1),
		} {
			for what, fn := range reductions {
				if (d == core.Complex64 && what != "sum" && what != "of rows") || !d.IsFloat() && (what == "norm" || what == "logsumexp") {
					continue
				}
				read := func(t *core.Tensor) *core.Tensor { return op.Ravel(op.To(op.Real(t), core.Float64)) }
				want, got := values(t, read(fn(op.Contiguous(v)))), values(t, read(fn(v)))
				for i := range want {
					require.InDelta(t, want[i], got[i], 1e-6*math.Abs(want[i]), "%s of %s of %v", what, name, d)
				}
			}
		}
	}
}

package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestLossesOfIntegers compares with PyTorch's values. Differences of uint8 do not wrap around as PyTorch's do.
func TestLossesOfIntegers(t *testing.T) {
	whole, nothing := "want a whole number", "mean"
	for _, d := range []core.DType{core.Int64, core.Int32, core.Uint8} {
		x, y := op.To(core.FromSlice([]int64{3, 1, 2, 0, 2, 1}, 2, 3), d), op.To(core.FromSlice([]int64{1, 1, 4, 2, 0, 1}, 2, 3), d)
		real, sign := op.To(y, core.Float32), core.FromSlice([]int64{1, -1})
		for _, c := range []struct {
			name  string
			got   *core.Tensor
			dtype core.DType
			want  []float64
			fails string
		}{
			{"l1", op.L1Loss(x, y, "none"), d, []float64{2, 0, 2, 2, 2, 0}, ""},
			{"l1 sum", op.L1Loss(x, y, "sum"), core.Int64, []float64{8}, ""},
			{"l1 mean", op.L1Loss(x, y, "mean"), d, nil, nothing},
			{"l1 with floats", op.L1Loss(x, real, "mean"), core.Float32, []float64{4. / 3}, ""},
			{"mse", op.MSELoss(x, y, "none"), d, nil, "must be floating point"},
			{"mse with floats", op.MSELoss(x, real, "mean"), core.Float32, []float64{8. / 3}, ""},
			{"smooth l1", op.SmoothL1Loss(x, y, "sum", 1), d, nil, "must be floating point"},
			{"smooth l1 with floats", op.SmoothL1Loss(x, real, "mean", 1), core.Float32, []float64{1}, ""},
			{"huber with floats", op.HuberLoss(x, real, "mean", 1), d, nil, "must be floating point"},
			{"hinge embedding", op.HingeEmbeddingLoss(x, y, 2, "none"), d, []float64{3, 1, 2, 2, 2, 1}, ""},
			{"hinge embedding with floats", op.HingeEmbeddingLoss(x, real, 1, "none"), d, []float64{3, 1, 2, 1, 2, 1}, ""},
			{"hinge embedding sum", op.HingeEmbeddingLoss(x, y, 1, "sum"), core.Int64, []float64{10}, ""},
			{"hinge embedding mean", op.HingeEmbeddingLoss(x, y, 1, "mean"), d, nil, nothing},
			{"hinge embedding of a fraction", op.HingeEmbeddingLoss(x, y, 0.5, "none"), d, nil, whole},
			{"margin ranking", op.MarginRankingLoss(x, y, y, 0.5, "none"), core.Float32, []float64{0, 0.5, 8.5, 4.5, 0.5, 0.5}, ""},
			{"poisson", op.PoissonNLLLoss(x, y, op.PoissonNLLOptions{Reduction: "none"}), core.Float32,
				[]float64{17.0855369, 1.7182818, -0.6109439, 1, 7.3890561, 1.7182818}, ""},
			{"cosine embedding", op.CosineEmbeddingLoss(x, y, sign, -1, "none"), core.Float32, []float64{0.2440711, 1.2}, ""},
			{"triplet margin", op.TripletMarginLoss(x, y, x, op.TripletMarginOptions{Reduction: "none"}), core.Float32, []float64{3.8284254, 3.8284254}, ""},
			{"pairwise distance", op.PairwiseDistance(x, y, 1, 0, false), core.Float32, []float64{4, 4}, ""},
		} {
			err := c.got.Wait()
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails, "%s of %v", c.name, d)
				continue
			}
			require.NoError(t, err, "%s of %v", c.name, d)
			require.Equal(t, c.dtype, c.got.DType(), "%s of %v", c.name, d)
			require.InDeltaSlice(t, c.want, values(t, c.got), 1e-5, "%s of %v", c.name, d)
		}
	}
	truth := op.Eq(core.FromSlice([]float32{1, 2}, 1, 2), core.Num(1))
	for name, loss := range map[string]*core.Tensor{
		"l1": op.L1Loss(truth, truth, "sum"), "hinge": op.HingeEmbeddingLoss(truth, truth, 1, "sum"),
		"ranking": op.MarginRankingLoss(truth, truth, truth, 0, "sum"), "poisson": op.PoissonNLLLoss(truth, truth, op.PoissonNLLOptions{}),
		"triplet": op.TripletMarginLoss(truth, truth, truth, op.TripletMarginOptions{}),
	} {
		require.ErrorContains(t, loss.Err(), "must be numbers, got bool", name)
	}
}

// TestGradientOfALossOfIntegersAndFloats has the gradient of the floats only.
func TestGradientOfALossOfIntegersAndFloats(t *testing.T) {
	x, target := core.FromSlice([]int64{3, 1}), leaf(core.FromSlice([]float32{1, 1.5}))
	for name, c := range map[string]struct {
		loss *core.Tensor
		want []float64
	}{
		"mse":       {op.MSELoss(x, target, "sum"), []float64{-4, 1}},
		"l1":        {op.L1Loss(x, target, "sum"), []float64{-1, 1}},
		"smooth l1": {op.SmoothL1Loss(x, target, "sum", 1), []float64{-1, 0.5}},
	} {
		require.Equal(t, c.want, values(t, gradients(t, c.loss, op.Ones(), target)[0]), name)
	}
}

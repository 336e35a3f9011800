package op_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// crossEntropyCase is one use of cross entropy on [batch, classes, inner] scores.
type crossEntropyCase struct {
	batch, classes, inner int
	ignore                *int
	weighted, transposed  bool
	smoothing             float64
	reduction             string
}

// reference computes loss and gradient by the definition, for weights 1, 2, 3, ... of the samples' losses.
func (c crossEntropyCase) reference(x, weight []float64, target []int64) (loss, dx []float64) {
	loss, dx = make([]float64, c.batch*c.inner), make([]float64, len(x))
	total, totalWeight := 0.0, 0.0
	ignore := int64(-100)
	if c.ignore != nil {
		ignore = int64(*c.ignore)
	}
	at := func(b, k, s int) int { return (b*c.classes+k)*c.inner + s }
	for b := range c.batch {
		for s := range c.inner {
			i := b*c.inner + s
			if target[i] == ignore {
				continue
			}
			lse := 0.0
			for k := range c.classes {
				lse += math.Exp(x[at(b, k, s)])
			}
			lse = math.Log(lse)
			w := weight[target[i]]
			totalWeight += w
			mass := 0.0
			for k := range c.classes {
				t := c.smoothing / float64(c.classes) * weight[k]
				if int64(k) == target[i] {
					t += (1 - c.smoothing) * w
				}
				mass += t
				loss[i] += t * (lse - x[at(b, k, s)])
				dx[at(b, k, s)] -= t * float64(i+1)
			}
			for k := range c.classes {
				dx[at(b, k, s)] += mass * math.Exp(x[at(b, k, s)]-lse) * float64(i+1)
			}
			total += loss[i]
		}
	}
	if c.reduction == "none" {
		return loss, dx
	}
	scale := 1.0
	if c.reduction != "sum" {
		scale = 1 / totalWeight
	}
	for i := range dx {
		dx[i] *= scale / float64(i/(c.classes*c.inner)*c.inner+i%c.inner+1)
	}
	return []float64{total * scale}, dx
}

func TestCrossEntropyAgainstDefinition(t *testing.T) {
	two := 2
	for _, shape := range [][3]int{{1, 3, 1}, {7, 5, 1}, {3, 4, 6}, {2, 3, 300}, {4, 3000, 1}, {300, 7, 1}} {
		for _, reduction := range []string{"mean", "sum", "none"} {
			for variant := range 16 {
				c := crossEntropyCase{batch: shape[0], classes: shape[1], inner: shape[2], reduction: reduction,
					weighted: variant&1 != 0, transposed: variant&4 != 0}
				if variant&2 != 0 {
					c.ignore = &two
				}
				if variant&8 != 0 {
					c.smoothing = 0.3
				}
				inRank(t, func() { c.run(t) })
			}
		}
	}
}

func (c crossEntropyCase) run(t *testing.T) {
	name := fmt.Sprintf("%+v", c)
	n := c.batch * c.inner
	x := op.Mul(uniform(1, c.batch, c.classes, c.inner), core.Num(3))
	weight := make([]float64, c.classes)
	var w *core.Tensor
	for i := range weight {
		weight[i] = 1
		if c.weighted {
			weight[i] = 0.5 + float64(i%4)
		}
	}
	if c.weighted {
		w = core.FromSlice(weight)
	}
	target := make([]int64, n)
	for i := range target {
		target[i] = int64(i * 7 % c.classes)
	}
	loss, dx := c.reference(values(t, x), weight, target)
	if c.transposed { // the classes are contiguous in memory
		x = op.Permute(op.Contiguous(op.Permute(x, 0, 2, 1)), 0, 2, 1)
	}
	x = leaf(x)
	o := op.CrossEntropyOptions{Weight: w, IgnoreIndex: c.ignore, Reduction: c.reduction, LabelSmoothing: c.smoothing}
	y := op.CrossEntropy(x, core.FromSlice(target, c.batch, c.inner), o)
	require.NoError(t, y.Err())
	requireValues(t, loss, values(t, y), 1e-10)
	seed := core.FromSlice([]float64{1}, []int{}...)
	if c.reduction == "none" {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64(i + 1)
		}
		seed = core.FromSlice(v, c.batch, c.inner)
	}
	g := gradients(t, y, seed, x)[0]
	require.Equal(t, x.Shape(), g.Shape(), name)
	requireValues(t, dx, values(t, g), 1e-9)

	// The same from log-probabilities, where nothing is smoothed.
	if c.smoothing == 0 {
		o.LabelSmoothing = 0
		z := op.NLLLoss(op.LogSoftmax(x, 1), core.FromSlice(target, c.batch, c.inner), o)
		requireValues(t, loss, values(t, z), 1e-10)
		requireValues(t, dx, values(t, gradients(t, z, seed, x)[0]), 1e-9)
	}

	// The gradient that can be differentiated again is the same.
	second, err := autograd.Grad([]*core.Tensor{op.CrossEntropy(x, core.FromSlice(target, c.batch, c.inner), o)}, []*core.Tensor{x},
		[]*core.Tensor{seed}, autograd.Options{CreateGraph: true})
	require.NoError(t, err)
	requireValues(t, dx, values(t, second[0]), 1e-9)
}

func TestBadTargetsAreErrors(t *testing.T) { inRank(t, func() { badTargets(t) }) }

func badTargets(t *testing.T) {
	x := leaf(uniform(1, 3, 4))
	for _, c := range []struct {
		target []int64
		want   string
	}{
		{[]int64{0, -1, 3}, "target -1 at position 1 is no class, got 4 classes and ignore_index -100"},
		{[]int64{0, 4, 7}, "target 4 at position 1 is no class, got 4 classes and ignore_index -100"},
		{[]int64{1 << 40, 0, 1}, "target 1099511627776 at position 0 is no class, got 4 classes and ignore_index -100"},
	} {
		target := core.FromSlice(c.target)
		_, err := op.CrossEntropy(x, target, op.CrossEntropyOptions{}).Item()
		require.ErrorContains(t, err, "cross_entropy: "+c.want)
		kind, _ := core.KindOf(err)
		require.Equal(t, core.IndexError, kind)
		_, err = core.Values[float64](op.NLLLoss(x, target, op.CrossEntropyOptions{Reduction: "none"}))
		require.ErrorContains(t, err, "nll_loss: "+c.want)
		if c.target[1] != -1 {
			_, err = op.MultiLabelMarginLoss(op.Select(x, 1, 0), target, "").Item()
			require.ErrorContains(t, err, "got 3 classes")
		}
		_, err = op.MultiMarginLoss(x, target, op.MultiMarginOptions{}).Item()
		require.Error(t, err)
		// Nor does a gradient come out of it.
		err = autograd.Backward(op.CrossEntropy(x, target, op.CrossEntropyOptions{}))
		if err == nil {
			_, err = core.Values[float64](x.Grad())
		}
		require.ErrorContains(t, err, c.want)
		x.SetGrad(nil)
	}
	// The ignored index is none of them, whatever it is.
	ignore := -1
	y := op.CrossEntropy(x, core.FromSlice([]int64{0, -1, 3}), op.CrossEntropyOptions{IgnoreIndex: &ignore})
	require.NoError(t, y.Wait())
	require.Zero(t, sumOf(values(t, op.Select(gradients(t, y, core.Scalar(1.0), x)[0], 0, 1))))
}

func sumOf(v []float64) (s float64) {
	for _, x := range v {
		s += math.Abs(x)
	}
	return s
}

// Every loss whose target may require a gradient gives it one.
func TestTargetsGetGradients(t *testing.T) {
	x := uniform(1, 3, 4)
	probabilities := op.Sigmoid(uniform(2, 3, 4))
	for name, f := range map[string]func(target *core.Tensor) *core.Tensor{
		"mse":        func(y *core.Tensor) *core.Tensor { return op.MSELoss(x, y, "") },
		"l1":         func(y *core.Tensor) *core.Tensor { return op.L1Loss(x, y, "sum") },
		"huber":      func(y *core.Tensor) *core.Tensor { return op.HuberLoss(x, y, "mean", 0.3) },
		"smooth_l1":  func(y *core.Tensor) *core.Tensor { return op.SmoothL1Loss(x, y, "mean", 0.3) },
		"bce":        func(y *core.Tensor) *core.Tensor { return op.BinaryCrossEntropy(op.Sigmoid(x), y, op.BCEOptions{}) },
		"bce_logits": func(y *core.Tensor) *core.Tensor { return op.BinaryCrossEntropyWithLogits(x, y, op.BCEOptions{}) },
		"kl":         func(y *core.Tensor) *core.Tensor { return op.KLDiv(x, y, "batchmean", false) },
		"ce":         func(y *core.Tensor) *core.Tensor { return op.CrossEntropy(x, y, op.CrossEntropyOptions{}) },
	} {
		y := leaf(probabilities)
		g := gradients(t, f(y), core.Scalar(1.0), y)[0]
		require.Equal(t, y.Shape(), g.Shape(), name)
		require.Greater(t, sumOf(values(t, g)), 1e-3, name)
	}
	y := leaf(probabilities)
	g := values(t, gradients(t, op.MSELoss(x, y, "mean"), core.Scalar(1.0), y)[0])
	xv, yv := values(t, x), values(t, y)
	for i := range g {
		require.InDelta(t, 2*(yv[i]-xv[i])/12, g[i], 1e-12)
	}
}

func TestLossValues(t *testing.T) {
	f := func(v ...float64) *core.Tensor { return core.FromSlice(v) }
	inf := math.Inf(1)
	options := op.BCEOptions{Reduction: "none"}
	weighted := op.BCEOptions{Reduction: "none", Weight: f(2, 3), PosWeight: f(4, 5)}
	softplus := func(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }
	for name, c := range map[string]struct {
		got  *core.Tensor
		want []float64
	}{
		"mse":                  {op.MSELoss(f(1, 2), f(3, 5), ""), []float64{6.5}},
		"l1":                   {op.L1Loss(f(1, 2), f(3, 5), "none"), []float64{2, 3}},
		"smooth_l1":            {op.SmoothL1Loss(f(0, 0), f(0.5, -3), "none", 1), []float64{0.125, 2.5}},
		"smooth_l1 without":    {op.SmoothL1Loss(f(0, 0), f(0, -3), "none", 0), []float64{0, 3}},
		"huber":                {op.HuberLoss(f(0, 0), f(0.5, -3), "none", 2), []float64{0.125, 4}},
		"bce":                  {op.BinaryCrossEntropy(f(0.25, 1), f(1, 0), options), []float64{math.Log(4), 100}},
		"bce_logits":           {op.BinaryCrossEntropyWithLogits(f(1000, -1000), f(0, 0), options), []float64{1000, 0}},
		"bce_logits weights":   {op.BinaryCrossEntropyWithLogits(f(0.5, -1), f(1, 0.25), weighted), []float64{2 * 4 * softplus(-0.5), 3 * (0.75*-1 + (1+4*0.25)*softplus(1))}},
		"kl":                   {op.KLDiv(f(-1, -2), f(0.5, 0), "none", false), []float64{0.5 * (math.Log(0.5) + 1), 0}},
		"kl log":               {op.KLDiv(f(-1), f(-2), "sum", true), []float64{math.Exp(-2) * (-2 + 1)}},
		"soft_margin":          {op.SoftMarginLoss(f(800, -800), f(-1, -1), "none"), []float64{800, 0}},
		"hinge":                {op.HingeEmbeddingLoss(f(0.3, 0.3, 2), f(1, -1, -1), 1, "none"), []float64{0.3, 0.7, 0}},
		"ranking":              {op.MarginRankingLoss(f(1, 1), f(3, 3), f(1, -1), 0.5, "none"), []float64{2.5, 0}},
		"multilabel soft":      {op.MultiLabelSoftMarginLoss(core.FromSlice([]float64{0, 0}, 1, 2), core.FromSlice([]float64{1, 0}, 1, 2), nil, ""), []float64{math.Ln2}},
		"poisson":              {op.PoissonNLLLoss(f(0.5), f(2), op.PoissonNLLOptions{}), []float64{math.Exp(0.5) - 1}},
		"poisson rate":         {op.PoissonNLLLoss(f(1e-9), f(2), op.PoissonNLLOptions{Rate: true}), []float64{1e-9 - 2*math.Log(1.1e-8)}},
		"poisson no eps":       {op.PoissonNLLLoss(f(1e-9), f(2), op.PoissonNLLOptions{Rate: true, Eps: new(float64)}), []float64{1e-9 - 2*math.Log(1e-9)}},
		"poisson full":         {op.PoissonNLLLoss(f(0.5), f(2), op.PoissonNLLOptions{Full: true}), []float64{math.Exp(0.5) - 1 + 2*math.Ln2 - 2 + 0.5*math.Log(4*math.Pi)}},
		"gaussian":             {op.GaussianNLLLoss(f(1), f(3), f(2), false, 1e-6, ""), []float64{0.5 * (math.Ln2 + 2)}},
		"gaussian floor":       {op.GaussianNLLLoss(f(1), f(1), f(0), true, 1, ""), []float64{0.5 * math.Log(2*math.Pi)}},
		"cosine":               {op.CosineSimilarity(f(3, 4), f(4, 3), 0, 1e-8), []float64{24. / 25}},
		"cosine of nothing":    {op.CosineSimilarity(f(0, 0), f(4, 3), 0, 1e-8), []float64{0}},
		"normalize":            {op.Normalize(f(3, 4), 2, 0, 1e-12), []float64{0.6, 0.8}},
		"normalize nothing":    {op.Normalize(f(0, 0), 2, 0, 1e-12), []float64{0, 0}},
		"normalize by largest": {op.Normalize(f(3, -4), inf, 0, 1e-12), []float64{0.75, -1}},
		"distance":             {op.PairwiseDistance(f(1, 2), f(4, 6), 2, 0, false), []float64{5}},
		"triplet":              {op.TripletMarginLoss(f(0, 0), f(3, 4), f(0, 3), op.TripletMarginOptions{}), []float64{3}},
		"multi margin":         {op.MultiMarginLoss(f(0.1, 0.2, 0.4, 0.8), core.FromSlice([]int64{3}, []int{}...), op.MultiMarginOptions{}), []float64{0.25 * (0.3 + 0.4 + 0.6)}},
		"multilabel margin":    {op.MultiLabelMarginLoss(f(0.1, 0.2, 0.4, 0.8), core.FromSlice([]int64{3, 0, -1, 1}), ""), []float64{0.25 * (0.4 + 0.6 + 1.1 + 1.3)}},
	} {
		requireValues(t, c.want, values(t, c.got), 1e-5)
		require.NoError(t, c.got.Err(), name)
	}
}

// The gradients of what the samples cannot describe: weights, and values at the edges of the functions.
func TestLossGradientsAtTheEdges(t *testing.T) {
	weight, positive := op.Sigmoid(uniform(5, 4)), op.Sigmoid(uniform(6, 4))
	target := op.Sigmoid(uniform(2, 3, 4))
	x, y, w := leaf(uniform(1, 3, 4)), leaf(target), leaf(positive)
	require.NoError(t, autograd.Check(func(in []*core.Tensor) []*core.Tensor {
		return []*core.Tensor{op.BinaryCrossEntropyWithLogits(in[0], in[1], op.BCEOptions{Weight: weight, PosWeight: in[2]})}
	}, []*core.Tensor{x, y, w}, 1e-6, 1e-6, 1e-5))
	require.NoError(t, autograd.CheckDouble(func(in []*core.Tensor) []*core.Tensor {
		return []*core.Tensor{op.BinaryCrossEntropyWithLogits(in[0], in[1], op.BCEOptions{Weight: weight, PosWeight: in[2]})}
	}, []*core.Tensor{x, y, w}, 1e-6, 1e-5, 1e-4))

	zero := leaf(core.FromSlice([]float64{0, 0, 0}))
	for name, f := range map[string]func() *core.Tensor{
		"normalize":  func() *core.Tensor { return op.Normalize(zero, 2, 0, 1e-12) },
		"similarity": func() *core.Tensor { return op.CosineSimilarity(zero, zero, 0, 1e-8) },
		"distance":   func() *core.Tensor { return op.PairwiseDistance(zero, zero, 2, 0, false) },
	} {
		f := f()
		for _, g := range values(t, gradients(t, f, op.OnesLike(f, op.TensorOptions{}), zero)[0]) {
			require.False(t, math.IsNaN(g), name)
		}
	}
}

func TestBinaryCrossEntropyWantsProbabilities(t *testing.T) { inRank(t, func() { improbable(t) }) }

func improbable(t *testing.T) {
	n := 5000
	for _, d := range []core.DType{core.Float16, core.BFloat16, core.Float32, core.Float64} {
		for name, bad := range map[string]float64{"above": 1.25, "below": -0.125, "nan": math.NaN()} {
			good, values := make([]float32, n), make([]float32, n)
			values[n-7] = float32(bad)
			x, wrong := op.To(core.FromSlice(good, 2, n/2), d), op.To(core.FromSlice(values, 2, n/2), d)
			_, err := op.BinaryCrossEntropy(x, x, op.BCEOptions{}).Item()
			require.NoError(t, err)
			_, err = op.BinaryCrossEntropy(wrong, x, op.BCEOptions{}).Item()
			require.ErrorContains(t, err, "binary_cross_entropy: all elements of input should be between 0 and 1, the one at position 4993 of [2 2500]", "%v %s", d, name)
			kind, _ := core.KindOf(err)
			require.Equal(t, core.ValueError, kind)
			_, err = op.BinaryCrossEntropy(x, wrong, op.BCEOptions{Reduction: "none"}).Bytes()
			require.ErrorContains(t, err, "all elements of target should be", "%v %s", d, name)
			_, err = op.BinaryCrossEntropy(x, op.Transpose(op.Reshape(wrong, n/2, 2), 0, 1), op.BCEOptions{Weight: x}).Item()
			require.ErrorContains(t, err, "all elements of target should be", "in any layout")
		}
	}
	leaf := leaf(core.FromSlice([]float64{1.5, 0, 1}))
	require.ErrorContains(t, autograd.Backward(op.BinaryCrossEntropy(leaf, op.ZerosLike(leaf, op.TensorOptions{}), op.BCEOptions{})), "between 0 and 1")
	_, err := op.BinaryCrossEntropy(op.Zeros(0), op.Zeros(0), op.BCEOptions{Reduction: "sum"}).Item()
	require.NoError(t, err)
}

func TestLossErrors(t *testing.T) {
	x := core.FromSlice(make([]float32, 6), 2, 3)
	for want, got := range map[string]*core.Tensor{
		`mse_loss: unknown reduction "max", want mean, sum or none`:                                                     op.MSELoss(x, x, "max"),
		"cross_entropy: targets of shape [3] for scores of shape [2 3], want [2]":                                       op.CrossEntropy(x, core.FromSlice(make([]int64, 3)), op.CrossEntropyOptions{}),
		"cross_entropy: class indices must be int64, got int32":                                                         op.CrossEntropy(x, core.FromSlice(make([]int32, 2)), op.CrossEntropyOptions{}),
		"cross_entropy: probabilities of shape [2] for scores of shape [2 3]; class indices must be int64, got float32": op.CrossEntropy(x, core.FromSlice(make([]float32, 2)), op.CrossEntropyOptions{}),
		"cross_entropy: probabilities of shape [3] for scores of shape [2 3]":                                           op.CrossEntropy(x, core.FromSlice(make([]float32, 3)), op.CrossEntropyOptions{}),
		"cross_entropy: label smoothing must lie between 0 and 1, got 2":                                                op.CrossEntropy(x, core.FromSlice(make([]int64, 2)), op.CrossEntropyOptions{LabelSmoothing: 2}),
		"cross_entropy: weight of shape [2], want [3]":                                                                  op.CrossEntropy(x, core.FromSlice(make([]int64, 2)), op.CrossEntropyOptions{Weight: core.FromSlice(make([]float32, 2))}),
		"binary_cross_entropy: target and input must have one shape, got [3] x [2 3]":                                   op.BinaryCrossEntropy(x, core.FromSlice(make([]float32, 3)), op.BCEOptions{}),
		"huber_loss: delta must be positive, got 0":                                                                     op.HuberLoss(x, x, "", 0),
		"dropout: the probability must lie between 0 and 1, got 1.5":                                                    op.Dropout(x, 1.5, true),
		"scaled_dot_product_attention: got a mask and causal, want at most one of them":                                 op.ScaledDotProductAttention(x, x, x, op.AttentionOptions{Mask: x, Causal: true}),
		"multi_margin_loss: the power must be 1 or 2, got 3":                                                            op.MultiMarginLoss(x, core.FromSlice(make([]int64, 2)), op.MultiMarginOptions{P: 3}),
	} {
		require.EqualError(t, got.Err(), want)
	}
}

func BenchmarkCrossEntropy(b *testing.B) {
	for _, shape := range [][]int{{64, 10}, {1024, 50257}, {16, 21, 128 * 128}} {
		x := op.To(uniform(1, shape...), core.Float32).SetRequiresGrad(true)
		target := make([]int64, x.Numel()/shape[1])
		y := core.FromSlice(target, append([]int{shape[0]}, shape[2:]...)...)
		seed := core.Scalar(float32(1))
		b.Run(fmt.Sprint(shape), func(b *testing.B) {
			b.SetBytes(int64(4 * x.Numel() * 3)) // scores read twice, gradient written
			for range b.N {
				core.Tidy(func() {
					loss := op.CrossEntropy(x, y, op.CrossEntropyOptions{})
					g, err := autograd.Grad([]*core.Tensor{loss}, []*core.Tensor{x}, []*core.Tensor{seed}, autograd.Options{})
					if err == nil {
						err = g[0].Wait()
					}
					if err != nil {
						b.Fatal(err)
					}
				})
			}
		})
	}
}

// Where an element of the other kind is as far as the margin, its term begins, and has no slope yet.
func TestHingeEmbeddingLossHasNoSlopeAtTheMargin(t *testing.T) {
	x := leaf(core.FromSlice([]float64{1, 0.5, 1.5, 1}))
	y := op.HingeEmbeddingLoss(x, core.FromSlice([]float64{-1, -1, -1, 1}), 1, "none")
	requireValues(t, []float64{0, -1, 0, 1}, values(t, gradients(t, y, op.To(op.Ones(4), core.Float64), x)[0]), 0)
}

package gpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// TestMultiLabelMargin compares target lists of many lengths, with repeated classes, with the CPU.
func TestMultiLabelMargin(t *testing.T) {
	device(t)
	rng := rand.New(rand.NewPCG(41, 42))
	const classes = 700
	lengths := []int{0, 1, 3, 64, 65, 300, classes}
	x, targets := make([]float32, len(lengths)*classes), make([]int64, len(lengths)*classes)
	for i := range x {
		x[i], targets[i] = float32(rng.NormFloat64()), -1
		if i%classes < lengths[i/classes] {
			targets[i] = int64(rng.IntN(classes))
		} else if i%classes > lengths[i/classes] {
			targets[i] = int64(rng.IntN(classes)) - 1 // targets after -1 are ignored
		}
	}
	core.Tidy(func() {
		compareWithCPU(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
			y := op.MultiLabelMarginLoss(x[0], x[1], "none")
			g, err := autograd.Grad([]*core.Tensor{op.Sum(y, nil, false)}, x[:1], nil, autograd.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return []*core.Tensor{y, g[0]}
		}, op.Reshape(core.FromSlice(x, len(x)), len(lengths), classes).SetRequiresGrad(true),
			op.Reshape(core.FromSlice(targets, len(targets)), len(lengths), classes))
	})
}

// TestMeanOfInfinity checks that an infinity among finite elements makes the mean infinite and the variance NaN.
func TestMeanOfInfinity(t *testing.T) {
	device(t)
	for _, n := range []int{3, 100, 5000} {
		for _, at := range []int{0, 1, n - 1} {
			v := make([]float32, 4*n)
			for i := range v {
				v[i] = float32(i % 7)
			}
			v[at], v[n+at], v[2*n+at], v[2*n+(at+1)%n] = float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.Inf(1)), float32(math.Inf(-1))
			x := op.Reshape(core.FromSlice(v, len(v)), 4, n)
			core.Tidy(func() {
				compareWithCPU(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
					variance, mean := op.VarMean(x[0], []int{1}, 1, false)
					deviation, means := op.StdMean(op.Transpose(x[0], 0, 1), []int{0}, 1, false)
					return []*core.Tensor{variance, mean, deviation, means}
				}, x)
			})
		}
	}
}

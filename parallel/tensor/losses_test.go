package tensor_test

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// TestClassLossesNeverGather compares losses of scores divided by classes with those of one device. If there are more than a few, no rank
// sends scores. Of 4 classes the third rank has none.
func TestClassLossesNeverGather(t *testing.T) {
	double := op.TensorOptions{DType: ptr(core.Float64)}
	wave := func(shape ...int) *core.Tensor {
		return op.Sin(op.Reshape(op.Arange(core.Num(1), core.Num(float64(core.Numel(shape)+1)), nil, double), shape...))
	}
	indices := func(shape []int, values ...int64) *core.Tensor { return op.Reshape(core.FromSlice(values), shape...) }
	for _, c := range []struct {
		scores []int
		target *core.Tensor
	}{
		{[]int{4, 4}, indices([]int{4}, 1, 0, -100, 3)},
		{[]int{2, 4, 3}, indices([]int{2, 3}, 1, 0, -100, 3, 2, 2)},
		{[]int{4}, indices([]int{}, 2)},
		{[]int{3, 4}, op.Softmax(wave(3, 4), 1)},
		{[]int{4, 601}, indices([]int{4}, 1, 500, -100, 3)},
		{[]int{2, 601, 3}, indices([]int{2, 3}, 1, 0, -100, 600, 20, 2)},
		{[]int{601}, indices([]int{}, 300)},
		{[]int{3, 601}, op.Softmax(wave(3, 601), 1)},
	} {
		for _, reduction := range []string{"mean", "sum", "none"} {
			for _, weighted := range []bool{false, true} {
				for _, smoothing := range []float64{0, 0.1, -1} { // -1: the likelihood of logarithms
					if smoothing < 0 && c.target.DType().IsFloat() {
						continue
					}
					name := fmt.Sprintf("%v/%v/%s/%v/%v", c.scores, c.target.DType(), reduction, weighted, smoothing)
					loss := func(x, target, weight *core.Tensor) *core.Tensor {
						o := op.CrossEntropyOptions{Reduction: reduction}
						if weighted {
							o.Weight = weight
						}
						if smoothing < 0 {
							return op.NLLLoss(op.LogSoftmax(x, min(1, x.Dim()-1)), target, o)
						}
						o.LabelSmoothing = smoothing
						return op.CrossEntropy(x, target, o)
					}
					t.Run(name, func(t *testing.T) {
						onMesh(t, []int{3}, func(m *mesh.Mesh) error {
							classes := c.scores[min(1, len(c.scores)-1)]
							x, weight := wave(c.scores...).Detach().SetRequiresGrad(true), op.Add(wave(classes), core.Num(2))
							want := loss(x, c.target, weight)
							if err := autograd.Backward(op.Sum(op.Square(want), nil, false)); err != nil {
								return err
							}
							replicated := func(t *core.Tensor) *core.Tensor { return tensor.FromLocal(t, m, nil, nil) }
							y := tensor.Redistribute(replicated(wave(c.scores...)), []core.Placement{core.Shard(min(1, x.Dim()-1))})
							y = y.Detach().SetRequiresGrad(true)
							before := m.Group(0).Stats().Total()
							got := loss(y, replicated(c.target), replicated(weight))
							if err := autograd.Backward(op.Sum(op.Square(got), nil, false)); err != nil {
								return err
							}
							if sent, all := m.Group(0).Stats().Total()-before, 8*core.Numel(c.scores); classes > 4 && sent > all/10 {
								return fmt.Errorf("%d bytes were sent, the scores have %d", sent, all)
							}
							if err := near("loss", got, want); err != nil {
								return err
							}
							return near("gradient", y.Grad(), x.Grad())
						})
					})
				}
			}
		}
	}
}

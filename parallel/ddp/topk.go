package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A TopK sends only the largest elements of each bucket, and adds the others to the next step's gradients (Aji and Heafield
// 2017; Stich, Cordonnier and Jaggi 2018). Make one for each [Reducer].
type TopK struct {
	// Ratio is the share of the elements that are sent; 0 means 0.01. At least one is.
	Ratio float64
	// NoErrorFeedback drops the others.
	NoErrorFeedback bool

	residuals map[int]*core.Tensor
}

// Release frees the residuals.
func (k *TopK) Release() {
	for _, t := range k.residuals {
		t.Release()
	}
	k.residuals = nil
}

// Hook is the [Hook].
func (k *TopK) Hook(b *Bucket) (*core.Tensor, error) {
	ratio := k.Ratio
	if ratio == 0 {
		ratio = 0.01
	}
	if ratio < 0 || ratio > 1 {
		return nil, core.Errorf(core.ValueError, "top_k", "the share of elements must be above 0 and at most 1, got %v", ratio)
	}
	n := b.numel
	if n == 0 {
		return AllReduceHook(b)
	}
	count := min(max(int(ratio*float64(n)), 1), n)
	whole := b.Buffer()
	if lost := k.residuals[b.Index()]; lost != nil && lost.Numel() == n {
		op.AddInPlace(whole, lost)
	}
	_, index := op.TopK(op.Abs(whole), count, 0, true, false)
	values := op.Gather(whole, 0, index)
	if err := values.Err(); err != nil {
		return nil, err
	}
	if err := k.saveResidual(b, whole, index); err != nil {
		return nil, err
	}
	g, size := b.Group(), b.Group().Size()
	allIndex := op.EmptyWith([]int{size * count}, optionsLike(index))
	allValues := op.EmptyWith([]int{size * count}, optionsLike(values))
	if err := b.reducer.track(g.For(g.Purpose()+", places").AllGatherInto(allIndex, index)); err != nil {
		return nil, err
	}
	if err := b.reducer.track(g.For(g.Purpose()+", values").AllGatherInto(allValues, values)); err != nil {
		return nil, err
	}
	if err := op.ZeroInPlace(whole).Err(); err != nil {
		return nil, err
	}
	for r := range size { // in the order of the ranks
		at := op.Narrow(allIndex, 0, r*count, count)
		if err := op.ScatterAddInPlace(whole, 0, at, op.Narrow(allValues, 0, r*count, count)).Err(); err != nil {
			return nil, err
		}
	}
	return whole, op.DivInPlace(whole, core.Num(float64(b.Divisor()))).Err()
}

// saveResidual stores the elements that are not sent.
func (k *TopK) saveResidual(b *Bucket, whole, index *core.Tensor) error {
	if k.NoErrorFeedback {
		return nil
	}
	if k.residuals == nil {
		k.residuals = map[int]*core.Tensor{}
	}
	lost := k.residuals[b.Index()]
	if lost != nil && lost.Numel() != b.numel {
		lost.Release()
		lost = nil
	}
	if lost == nil {
		lost = op.ZerosLike(whole, op.TensorOptions{}).Keep()
		k.residuals[b.Index()] = lost
	}
	if err := op.CopyInPlace(lost, whole).Err(); err != nil {
		return err
	}
	return op.ScatterInPlace(lost, 0, index, op.ZerosWith(index.Shape(), optionsLike(whole))).Err()
}

func optionsLike(t *core.Tensor) op.TensorOptions {
	d := t.DType()
	return op.TensorOptions{DType: &d, Device: t.Device()}
}

package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A TopK is a communication hook that sends only the elements of a bucket with the largest absolute values, and adds the others to the next
// step's gradients (Aji and Heafield 2017, "Sparse Communication for Distributed Gradient Descent"; Stich, Cordonnier and Jaggi 2018,
// "Sparsified SGD with Memory"). Use one for each [Reducer].
type TopK struct {
	// Ratio is the fraction of the elements to send, at least one element; 0 means 0.01.
	Ratio float64
	// NoErrorFeedback drops the other elements instead of adding them to the next step's gradients.
	NoErrorFeedback bool

	residuals map[int]*core.Tensor // elements that were not sent, by bucket index
}

// Release frees the residuals.
func (k *TopK) Release() {
	for _, t := range k.residuals {
		t.Release()
	}
	k.residuals = nil
}

// Hook is the communication hook, see [Reducer.RegisterHook].
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
	buffer := b.Buffer()
	if residual := k.residuals[b.Index()]; residual != nil && residual.Numel() == n {
		op.AddInPlace(buffer, residual)
	}
	_, index := op.TopK(op.Abs(buffer), count, 0, true, false)
	values := op.Gather(buffer, 0, index)
	if err := values.Err(); err != nil {
		return nil, err
	}
	if err := k.saveResidual(b, buffer, index); err != nil {
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
	if err := op.ZeroInPlace(buffer).Err(); err != nil {
		return nil, err
	}
	for r := range size { // in rank order
		at := op.Narrow(allIndex, 0, r*count, count)
		if err := op.ScatterAddInPlace(buffer, 0, at, op.Narrow(allValues, 0, r*count, count)).Err(); err != nil {
			return nil, err
		}
	}
	return buffer, op.DivInPlace(buffer, core.Num(float64(b.Divisor()))).Err()
}

// saveResidual stores the elements that are not sent, with zeros in place of the others.
func (k *TopK) saveResidual(b *Bucket, buffer, index *core.Tensor) error {
	if k.NoErrorFeedback {
		return nil
	}
	if k.residuals == nil {
		k.residuals = map[int]*core.Tensor{}
	}
	residual := k.residuals[b.Index()]
	if residual != nil && residual.Numel() != b.numel {
		residual.Release()
		residual = nil
	}
	if residual == nil {
		residual = op.ZerosLike(buffer, op.TensorOptions{}).Keep()
		k.residuals[b.Index()] = residual
	}
	if err := op.CopyInPlace(residual, buffer).Err(); err != nil {
		return err
	}
	return op.ScatterInPlace(residual, 0, index, op.ZerosWith(index.Shape(), optionsLike(buffer))).Err()
}

package data

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TensorDataset is a dataset whose sample i holds row i of each of its tensors. As a [BatchDataset] it copies the rows of
// a batch at once.
type TensorDataset struct{ tensors []*core.Tensor }

// NewTensorDataset returns a dataset of the rows of these tensors, which it keeps.
//
// Errors: no tensors; ones that are not usable; first dimensions that differ.
func NewTensorDataset(tensors ...*core.Tensor) (*TensorDataset, error) {
	if len(tensors) == 0 {
		return nil, core.Errorf(core.ValueError, "tensor dataset", "no tensors")
	}
	for _, t := range tensors {
		if err := t.Usable("tensor dataset"); err != nil {
			return nil, err
		}
		if t.Dim() == 0 || t.Size(0) != tensors[0].Size(0) {
			return nil, core.Errorf(core.ShapeError, "tensor dataset", "first dimensions differ, got %v and %v", tensors[0].Shape(), t.Shape())
		}
	}
	return &TensorDataset{tensors}, nil
}

// Len returns the number of rows.
func (d *TensorDataset) Len() int { return d.tensors[0].Size(0) }

// At returns views of row i.
func (d *TensorDataset) At(i int) ([]*core.Tensor, error) {
	return d.each(func(t *core.Tensor) *core.Tensor { return op.Select(t, 0, i) })
}

// Batch returns copies of the rows of these indices, on the tensors' devices.
func (d *TensorDataset) Batch(indices []int) (rows []*core.Tensor, err error) {
	rows = core.RunScope(func() []*core.Tensor {
		rows, err = d.each(func(t *core.Tensor) *core.Tensor {
			return op.IndexSelect(t, 0, op.ToDevice(core.FromSlice(indices), t.Device()))
		})
		return rows
	})
	return rows, err
}

func (d *TensorDataset) each(of func(*core.Tensor) *core.Tensor) ([]*core.Tensor, error) {
	rows := make([]*core.Tensor, len(d.tensors))
	for k, t := range d.tensors {
		rows[k] = of(t)
		if err := rows[k].Err(); err != nil {
			Release(rows[:k])
			return nil, err
		}
	}
	return rows, nil
}

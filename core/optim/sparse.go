package optim

import (
	"maps"
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A step by a sparse gradient changes the rows that the gradient has, by the kernel that changes whole parameters: it works on copies of
// these rows of the parameter and of its states, which are written back.

// NewSparseAdam returns the variant of Adam for sparse gradients: of a parameter and its running means only the rows that the gradient has
// are changed, as if the others had got none. Hyperparameters: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, maximize 0, master_weights 0.
func NewSparseAdam(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("sparse_adam", h, Params{Tensors: params})
}

func init() {
	define(&algorithm{
		name:     "sparse_adam",
		defaults: Hyper{"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
		limits:   adamLimits(),
		states:   states("exp_avg", "exp_avg_sq"),
		sparse:   sparseRows,
		update: func(h Hyper, s step) update {
			u := maps.Clone(h)
			u["eps"] /= math.Sqrt(1 - math.Pow(h["beta2"], s.count)) // it is added before the correction
			return adamUpdate(u, s, false)
		},
	})
}

// A sparseStep is how an algorithm takes a sparse gradient.
type sparseStep int

const (
	sparseRefused sparseStep = iota // not at all
	sparseRows                      // the rows that it has are changed
	sparseWhole                     // as the dense gradient that it stands for: states change everywhere
)

// sparseGrad returns how to take a sparse gradient, and the gradient with its entries merged, or as an ordinary tensor.
func (p *plan) sparseGrad(a *algorithm, s *slot, h Hyper, grad *core.Tensor) (rows, values *core.Tensor, err error) {
	core.RefuseRecording("a step by a sparse gradient changes other rows each time: it cannot be replayed")
	how := a.sparse
	f, _ := op.SparseFormOf(grad)
	switch {
	case a.name == "adam" || a.name == "adamw":
		return nil, nil, core.Errorf(core.StateError, a.name, "parameter %s: Adam does not support sparse gradients, please consider SparseAdam instead", s.name)
	case how == sparseRefused:
		return nil, nil, core.Errorf(core.StateError, a.name, "parameter %s: it does not support sparse gradients", s.name)
	case s.parts != nil:
		return nil, nil, core.Errorf(core.NotImplemented, a.name, "parameter %s: a distributed parameter does not take a sparse gradient", s.name)
	case a.name == "adagrad" && h["weight_decay"] != 0:
		return nil, nil, core.Errorf(core.StateError, a.name, "parameter %s: weight_decay option is not compatible with sparse gradients", s.name)
	case a.name == "sgd" && (h["momentum"] != 0 || h["weight_decay"] != 0):
		how = sparseWhole
	}
	if how == sparseWhole || f.SparseDim != 1 {
		if a.name == "sparse_adam" && f.SparseDim != 1 {
			return nil, nil, core.Errorf(core.NotImplemented, a.name, "parameter %s: want a gradient with one sparse dimension, its rows, got %d", s.name, f.SparseDim)
		}
		return nil, p.temp(op.ToDense(grad)), nil
	}
	merged := p.temp(op.Coalesce(grad))
	if err := merged.Err(); err != nil {
		return nil, nil, err
	}
	return p.temp(op.Select(p.temp(op.SparseIndices(merged)), 0, 0)), p.temp(op.Contiguous(p.temp(op.SparseValues(merged)))), nil
}

// temp has t live as long as the plan.
func (p *plan) temp(t *core.Tensor) *core.Tensor {
	p.temps = append(p.temps, t)
	return t
}

// takeRows replaces the parameter and the states of an item by copies of some of their rows.
func (p *plan) takeRows(it *item, rows *core.Tensor) error {
	it.rows, it.wholes = rows, []*core.Tensor{it.slot.param}
	take := func(t *core.Tensor) *core.Tensor { return p.temp(op.IndexSelect(t, 0, rows)) }
	it.param = take(it.slot.param)
	it.parts = []*core.Tensor{it.param}
	for i, t := range it.states {
		it.states[i] = take(t)
		it.wholes, it.parts = append(it.wholes, t), append(it.parts, it.states[i])
	}
	if it.master != nil {
		it.wholes = append(it.wholes, it.master)
		it.master = take(it.master)
		it.parts = append(it.parts, it.master)
	}
	for _, t := range it.parts {
		if t.Err() != nil {
			return t.Err()
		}
	}
	return nil
}

// putRows writes the rows back.
func (it *item) putRows() error {
	for i, t := range it.wholes {
		if err := op.IndexCopyInPlace(t, 0, it.rows, it.parts[i]).Err(); err != nil {
			return err
		}
	}
	return nil
}

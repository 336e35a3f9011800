package graph

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// traced implements [core.Parts]: the tensor that stands for a value.
type traced struct {
	graph *Graph
	here  *core.Tensor // with the elements
	view  *view        // nil for what records operations without tensors
}

func (p *traced) Local() *core.Tensor { return p.here }

// With is for what changes neither elements nor shape: another reference, or a copy on another device.
func (p *traced) With(local *core.Tensor) *core.Tensor {
	switch {
	case local.Err() != nil:
		return local
	case local.DType() != p.here.DType() || !slices.Equal(local.Shape(), p.here.Shape()):
		return core.ErrorTensor(core.Errorf(core.NotImplemented, "graph", "%v made of %v without an operation cannot be recorded", local, p.here))
	case local.Storage() == p.here.Storage():
		return p.graph.stands(local, p.view)
	}
	v, err := p.view.read(p.graph)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return p.graph.fresh(local, v)
}

func (p *traced) Gradient(local *core.Tensor) *core.Tensor {
	return core.ErrorTensor(core.Errorf(core.NotImplemented, "graph", "gradients cannot be recorded"))
}

func (p *traced) Seed(name string, _ *core.Tensor) (*core.Tensor, error) {
	return nil, core.Errorf(core.NotImplemented, name, "gradients cannot be recorded")
}

func (p *traced) Take(name string, _ *core.Tensor) (*core.Tensor, error) {
	return nil, core.Errorf(core.NotImplemented, name, "gradients cannot be recorded")
}

func (p *traced) Whole() *core.Tensor {
	return core.ErrorTensor(core.Errorf(core.NotImplemented, "graph", "the elements of %v are not known", p))
}

func (p *traced) Like(shape []int, fill func(local []int) *core.Tensor) *core.Tensor {
	return fill(shape)
}

func (p *traced) First() bool                                                       { return true }
func (p *traced) Pending() bool                                                     { return false }
func (p *traced) Sparse() bool                                                      { return false }
func (p *traced) Recorded() bool                                                    { return true }
func (p *traced) Depth() int                                                        { return 0 }
func (p *traced) Release()                                                          { p.here.Release() }
func (p *traced) Combine(_ string, t *core.Tensor, _ core.Combination) *core.Tensor { return t }

func (p *traced) Beside(q core.Parts) bool {
	other, ok := q.(*traced)
	return ok && other.graph == p.graph
}

func (p *traced) String() string { return "recorded as a graph" }

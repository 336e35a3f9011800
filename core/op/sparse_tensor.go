package op

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// A sparse tensor has values where it has entries, and zeros elsewhere. It is made of ordinary tensors, the indices and the values: its
// place in the graph is that of its values. It implements [core.Parts], so that every op hands it to Apply, which looks in sparseRules.

// A SparseLayout is how a sparse tensor says where its entries are.
type SparseLayout int

// The layouts.
const (
	COO SparseLayout = iota // an index for each sparse dimension of each entry
	CSR                     // a matrix in compressed rows
)

func (l SparseLayout) String() string {
	if l == CSR {
		return "sparse_csr"
	}
	return "sparse_coo"
}

// A pattern is where the entries of sparse tensors are. Tensors share it with those that are made of their values.
type pattern struct {
	refs      atomic.Int32
	layout    SparseLayout
	shape     []int
	sparse    int          // how many of the dimensions, the first ones, are sparse
	indices   *core.Tensor // int64 [sparse, entries]; of CSR made when asked for
	crow, col *core.Tensor // of CSR
	coalesced bool         // the entries are in order, and all different

	mu         sync.Mutex
	compressed *csr // of a matrix
}

// sparseParts implements [core.Parts].
type sparseParts struct {
	*pattern
	values *core.Tensor // [entries, dense dimensions...]
}

// with returns the sparse tensor of the pattern with the given values, which it takes over.
func (p *pattern) with(values *core.Tensor) *core.Tensor {
	if values.Err() != nil {
		return values
	}
	if p.refs.Add(1) == 1 {
		for _, t := range p.tensors() {
			t.Keep()
		}
	}
	return core.NewDistributed(core.CurrentMode(), &sparseParts{p, values}, values.DType(), p.shape)
}

// newPattern takes over the indices of a COO tensor.
func newPattern(indices *core.Tensor, shape []int, coalesced bool) *pattern {
	if indices.Err() == nil {
		indices = Contiguous(indices.Detach())
	}
	return &pattern{shape: slices.Clone(shape), sparse: indices.Size(0), indices: indices, coalesced: coalesced}
}

// newRows takes over the indices of a CSR tensor.
func newRows(crow, col *core.Tensor, shape []int) *pattern {
	return &pattern{layout: CSR, shape: slices.Clone(shape), sparse: 2, crow: Contiguous(crow.Detach()), col: Contiguous(col.Detach()), coalesced: true}
}

// drop releases the pattern after its last tensor.
func (p *pattern) drop() {
	if p.refs.Add(-1) > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tensors() {
		t.Release()
	}
}

// tensors returns what the pattern is made of.
func (p *pattern) tensors() []*core.Tensor {
	list := []*core.Tensor{p.indices, p.crow, p.col}
	if p.compressed != nil {
		list = append(list, p.compressed.tensors()...)
	}
	return present(list)
}

func (s csr) tensors() []*core.Tensor {
	return present([]*core.Tensor{s.crow, s.col, s.order, s.tcrow, s.trow, s.torder})
}

func present(list []*core.Tensor) []*core.Tensor {
	return slices.DeleteFunc(list, func(t *core.Tensor) bool { return t == nil })
}

func (p *pattern) entries() int {
	if p.layout == CSR {
		return p.col.Numel()
	}
	return p.indices.Size(1)
}

func (p *pattern) device() core.Device {
	if p.layout == CSR {
		return p.col.Device()
	}
	return p.indices.Device()
}

// coordinates returns the indices [sparse, entries], also of a CSR tensor. They belong to the pattern.
func (p *pattern) coordinates() *core.Tensor {
	p.mu.Lock()
	found := p.indices
	p.mu.Unlock()
	if found != nil {
		return found
	}
	made := Stack([]*core.Tensor{rowOfEach(p.crow, p.col), p.col}, 0)
	if made.Err() != nil {
		return made
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.indices == nil {
		p.indices = p.hold(made)
	}
	return p.indices
}

// hold lets a tensor outlive its scope if the pattern does.
func (p *pattern) hold(t *core.Tensor) *core.Tensor {
	if p.refs.Load() > 0 {
		t.Keep()
	}
	return t
}

// index returns the index along dimension d of each entry.
func (p *pattern) index(d int) *core.Tensor { return Select(p.coordinates(), 0, d) }

// linear returns the row-major position of each entry in the given sparse dimensions.
func (p *pattern) linear(dims []int) *core.Tensor {
	at := p.index(dims[0])
	for _, d := range dims[1:] {
		at = Add(Mul(at, core.IntNum(int64(p.shape[d]))), p.index(d))
	}
	return at
}

// rows returns a matrix in compressed rows. With both, it has its transpose too.
func (p *pattern) rows(both bool) csr {
	p.mu.Lock()
	found := p.compressed
	p.mu.Unlock()
	if found != nil && (!both || found.tcrow != nil) {
		return *found
	}
	var c csr
	switch {
	case found != nil:
		c = *found
	case p.layout == CSR:
		c = csr{crow: p.crow.Alias(false), col: p.col.Alias(false)}
	case p.coalesced:
		c = csr{crow: firstOf(Contiguous(p.index(0)), p.shape[0]), col: Contiguous(p.index(1))}
	default:
		sorted, order := Sort(p.index(0), 0, SortOptions{Stable: true})
		c = csr{crow: firstOf(sorted, p.shape[0]), col: IndexSelect(p.index(1), 0, order), order: order}
	}
	if both {
		t := c.transposed(p.shape[1])
		c.tcrow, c.trow, c.torder = t.crow, t.col, t.order
	}
	for _, t := range c.tensors() {
		if t.Err() != nil {
			return csr{crow: t, col: t}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.compressed == found {
		for _, t := range c.tensors() {
			p.hold(t)
		}
		p.compressed = &c
	}
	return *p.compressed
}

// on returns the pattern with its indices on another device.
func (p *pattern) on(dev core.Device) *pattern {
	if p.layout == CSR {
		q := newRows(ToDevice(p.crow, dev), ToDevice(p.col, dev), p.shape)
		return q
	}
	return newPattern(ToDevice(p.indices, dev), p.shape, p.coalesced)
}

// equal reports whether two patterns have the same entries in the same order. It may wait for them.
func (p *pattern) equal(q *pattern) (bool, error) {
	switch {
	case p == q:
		return true, nil
	case !slices.Equal(p.shape, q.shape) || p.sparse != q.sparse || p.entries() != q.entries() || p.device() != q.device():
		return false, nil
	}
	v, err := Equal(p.coordinates(), q.coordinates()).Int()
	return v != 0, err
}

func (s *sparseParts) Local() *core.Tensor { return s.values }

// With gives the values' tensor the entries of s, on the values' device.
func (s *sparseParts) With(values *core.Tensor) *core.Tensor {
	p := s.pattern
	if values.Err() == nil && values.Device() != p.device() {
		p = p.on(values.Device())
	}
	return p.with(values)
}

func (s *sparseParts) Gradient(values *core.Tensor) *core.Tensor { return s.With(values) }

func (s *sparseParts) Seed(name string, grad *core.Tensor) (*core.Tensor, error) {
	if grad == nil {
		if core.Numel(s.shape) != 1 {
			return nil, core.Errorf(core.ValueError, name, "a gradient can be implied only for an output with one element, got shape %v", s.shape)
		}
		return OnesLike(s.values, TensorOptions{}), nil
	}
	return s.Take(name, grad)
}

// Take returns the elements of t at the entries of s.
func (s *sparseParts) Take(name string, t *core.Tensor) (*core.Tensor, error) {
	if err := t.Present(name); err != nil {
		return nil, err
	}
	if !slices.Equal(t.Shape(), s.shape) {
		return nil, core.Errorf(core.ShapeError, name, "got %v, want the shape %v", t, s.shape)
	}
	if q, ok := t.Parts().(*sparseParts); ok {
		same, err := s.equal(q.pattern)
		if err != nil || same {
			return q.values, err
		}
		t = ToDense(t)
	}
	out := s.at(t)
	return out, out.Err()
}

// at returns the elements of an ordinary tensor of the whole shape at the entries.
func (s *sparseParts) at(t *core.Tensor) *core.Tensor {
	return IndexTensors(t, s.list())
}

// list returns the index along each sparse dimension.
func (p *pattern) list() []*core.Tensor {
	list := make([]*core.Tensor, p.sparse)
	for d := range list {
		list[d] = p.index(d)
	}
	return list
}

func (s *sparseParts) Whole() *core.Tensor { return s.dense() }

func (s *sparseParts) Like(shape []int, fill func(values []int) *core.Tensor) *core.Tensor {
	if !slices.Equal(shape, s.shape) {
		return core.ErrorTensor(core.Errorf(core.NotImplemented, "sparse tensor", "there is none of shape %v that lies as one of shape %v", shape, s.shape))
	}
	return s.with(fill(s.values.Shape()))
}

func (s *sparseParts) First() bool                                                       { return true }
func (s *sparseParts) Beside(core.Parts) bool                                            { return false }
func (s *sparseParts) Pending() bool                                                     { return false }
func (s *sparseParts) Sparse() bool                                                      { return true }
func (s *sparseParts) Recorded() bool                                                    { return false }
func (s *sparseParts) Depth() int                                                        { return 0 }
func (s *sparseParts) Release()                                                          { s.values.Release(); s.drop() }
func (s *sparseParts) Combine(_ string, t *core.Tensor, _ core.Combination) *core.Tensor { return t }

func (s *sparseParts) String() string {
	return fmt.Sprintf("%v with %d entries", s.layout, s.entries())
}

// Apply applies the rule of an op, if it has one.
func (s *sparseParts) Apply(a core.Application) []*core.Tensor {
	rule := sparseRules[a.Op]
	if rule == nil {
		return []*core.Tensor{core.ErrorTensor(core.Errorf(core.NotImplemented, a.Op, "not defined for sparse tensors; to_dense() makes an ordinary one"))}
	}
	for _, x := range a.Args {
		for _, t := range fields(x) {
			if t != nil && t.Err() != nil {
				return []*core.Tensor{t}
			}
		}
	}
	return core.RunScope(func() []*core.Tensor { return []*core.Tensor{rule(a)} })
}

// sparseOf returns the parts of a sparse tensor, and nil of any other.
func sparseOf(x any) *sparseParts {
	t, _ := x.(*core.Tensor)
	s, _ := t.Parts().(*sparseParts)
	return s
}

// wantSparse returns the parts of a sparse tensor, or an error.
func wantSparse(name string, t *core.Tensor) (*sparseParts, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	if s := sparseOf(t); s != nil {
		return s, nil
	}
	return nil, core.Errorf(core.TypeError, name, "want a sparse tensor, got %v", t)
}

package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Index returns the part of t that the indices say, as indexing in square brackets does in Python: first integers, slices
// and new dimensions, as views, then index tensors and masks, of bools or uint8, which copy. An index tensor of no
// dimensions says what an integer does; for its value the call waits. The shapes of index tensors broadcast;
// the dimensions of the common shape take the place of the indexed ones, or come first if those are not neighbours. An
// index out of range is an error.
func Index(t *core.Tensor, indices ...core.Index) *core.Tensor {
	if v := indexView(t, indices); v != nil {
		return v
	}
	if s := positionsAlong(t, indices); s != nil {
		return s.read(t)
	}
	if m := maskOfAll(t, indices); m != nil {
		return maskedSelect("index", t, m)
	}
	return compose("index", func() *core.Tensor {
		v, tensors, err := indexViews(t, indices)
		if err != nil {
			return core.ErrorTensor(err)
		}
		switch {
		case tensors != nil:
			return IndexTensors(v, tensors)
		case !slices.ContainsFunc(indices, func(i core.Index) bool { return i.Kind != core.IndexEllipsis }):
			return Reshape(v, v.Shape()...) // a view of all, not t: requires_grad_ of one is not that of the other
		}
		return v
	})
}

// maskOfAll returns the mask of t's shape that is the only index; nil if it is something else.
func maskOfAll(t *core.Tensor, indices []core.Index) *core.Tensor {
	if len(indices) != 1 || indices[0].Kind != core.IndexTensor || t.Err() != nil || t.Parts() != nil || t.IsNumber() {
		return nil
	}
	m := indices[0].Tensor
	if m.Err() != nil || m.Parts() != nil || m.IsNumber() || m.DType() != core.Bool || m.Dim() == 0 || m.Device() != t.Device() || !slices.Equal(m.Shape(), t.Shape()) {
		return nil
	}
	return m
}

// positionsAlong returns the selection of t by indices that are positions along one dimension and all of those before it,
// the usual case; nil for others.
func positionsAlong(t *core.Tensor, indices []core.Index) *selection {
	dim := len(indices) - 1
	if dim < 0 || t.Err() != nil || t.Parts() != nil || t.IsNumber() || dim >= t.Dim() {
		return nil
	}
	x := indices[dim].Tensor
	if indices[dim].Kind != core.IndexTensor || x.Err() != nil || x.Parts() != nil || x.IsNumber() || x.Dim() == 0 || isMask(x) || x.Device() != t.Device() {
		return nil
	}
	for d, i := range indices[:dim] {
		if i.Kind != core.IndexSlice || i.Start != 0 || i.Stop < t.Shape()[d] || i.Step != 1 {
			return nil
		}
	}
	return &selection{name: "index", dims: []int{dim}, index: []*core.Tensor{x}, at: dim, wrap: true}
}

// IndexSet writes value, a number or a tensor that broadcasts to the indexed part, to the part of t that the indices say
// (see [Index]) and returns t. The value is converted to t's dtype. Where index tensors name an element several times,
// the last value stays.
func IndexSet(t, value *core.Tensor, indices ...core.Index) *core.Tensor {
	if err := value.Usable("index_put_"); err != nil && value.Parts() == nil {
		return core.ErrorTensor(err)
	}
	r := compose("index_put_", func() *core.Tensor {
		v, tensors, err := indexViews(t, indices)
		if err != nil {
			return core.ErrorTensor(err)
		}
		if tensors == nil {
			return CopyInPlace(v, withoutLeadingOnes(value, v.Dim()))
		}
		if parts := distributedIn(tensors, v, value); parts != nil {
			if !value.IsNumber() {
				value = To(value, t.DType())
			}
			return handOn(parts, "index_put_", v, tensors, value, false).Alias(true)
		}
		s, err := newSelection("index_put", v, tensors)
		if err != nil {
			return core.ErrorTensor(err)
		}
		value := value
		if !value.IsNumber() {
			value = To(ToDevice(value, t.Device()), t.DType())
		}
		if s == nil {
			return CopyInPlace(v, value)
		}
		return s.writeInPlace(v, withoutLeadingOnes(value, v.Dim()-len(s.dims)+s.common()), contract.ScatterAssign)
	})
	if r.Err() != nil {
		return r
	}
	r.Release()
	return t
}

// withoutLeadingOnes drops dimensions of size 1 from the front of a value that has more than the part it is written to.
func withoutLeadingOnes(value *core.Tensor, dims int) *core.Tensor {
	drop := 0
	for value.Dim()-drop > dims && value.Shape()[drop] == 1 {
		drop++
	}
	if drop == 0 {
		return value
	}
	return Reshape(value, value.Shape()[drop:]...)
}

// common returns the number of dimensions of the index tensors' common shape.
func (s *selection) common() int {
	n := 0
	for _, t := range s.index {
		n = max(n, t.Dim())
	}
	return n
}

// indexViews applies the integers, slices and new dimensions, and returns the index tensors by the dimensions of the
// view they belong to, if there are any.
func indexViews(t *core.Tensor, indices []core.Index) (*core.Tensor, []*core.Tensor, error) {
	if v := indexView(t, indices); v != nil {
		return v, nil, nil
	}
	op := begin("index")
	if t.Parts() == nil {
		op = begin("index", &t)
	}
	if op.err != nil {
		return nil, nil, op.err
	}
	spoken, ellipses := 0, 0
	for _, i := range indices {
		switch i.Kind {
		case core.IndexEllipsis:
			ellipses++
		case core.IndexNewAxis:
		case core.IndexTensor:
			if err := i.Tensor.Present("index"); err != nil {
				return nil, nil, err
			}
			spoken += consumed(i.Tensor)
		default:
			spoken++
		}
	}
	switch {
	case ellipses > 1:
		op.failf(core.IndexError, "got %d ellipses, want at most one", ellipses)
	case spoken > t.Dim():
		op.failf(core.IndexError, "too many indices, got %v for shape %v", indices, t.Shape())
	}
	if op.err != nil {
		return nil, nil, op.err
	}
	v := t.Alias(true)
	var tensors []*core.Tensor
	spokenFor := 0 // dimensions of v that tensors stand for
	dim := 0       // of v, the next one to be indexed
	for _, i := range indices {
		switch i.Kind {
		case core.IndexEllipsis:
			dim += t.Dim() - spoken
		case core.IndexNewAxis:
			v = Unsqueeze(v, dim)
			dim++
		case core.IndexInteger:
			v = Select(v, dim, i.Start)
		case core.IndexSlice:
			v = Slice(v, dim, i.Start, i.Stop, i.Step)
			dim++
		case core.IndexTensor:
			x := i.Tensor
			if x.Parts() != nil && x.Dim() == 0 && !isMask(x) { // its values are not known here
				tensors = append(append(tensors, make([]*core.Tensor, dim-spokenFor)...), x)
				dim++
				spokenFor = dim
				break
			}
			if x.Dim() == 0 && !isMask(x) { // says what an integer does
				at, err := place(x)
				if err != nil {
					return nil, nil, err
				}
				v = Select(v, dim, at)
				break
			}
			if consumed(x) == 0 { // a 0-d mask picks all or nothing of a new dimension
				v, x = Unsqueeze(v, dim), Reshape(x, 1)
			}
			tensors = append(append(tensors, make([]*core.Tensor, dim-spokenFor)...), x)
			dim += consumed(x)
			spokenFor = dim
		}
		if v.Err() != nil {
			return nil, nil, v.Err()
		}
	}
	return v, tensors, nil
}

// consumed returns how many dimensions an index tensor speaks of.
func consumed(t *core.Tensor) int {
	if isMask(t) {
		return t.Dim()
	}
	return 1
}

// isMask reports whether an index tensor says for each element whether it is wanted.
func isMask(t *core.Tensor) bool { return t.DType() == core.Bool || t.DType() == core.Uint8 }

// place waits for an index tensor of no dimensions and returns its value.
func place(t *core.Tensor) (int, error) {
	if !t.DType().IsInt() {
		return 0, core.Errorf(core.DTypeError, "index", "indices must be integers or masks of bool, got %v", t.DType())
	}
	i, err := t.Int()
	return int(i), err
}

// IndexTensors returns t with its first dimensions indexed by the tensors, of which nil takes a whole dimension: see
// [Index]. A tensor of bools or uint8 is a mask of as many dimensions as it has.
func IndexTensors(t *core.Tensor, indices []*core.Tensor) *core.Tensor {
	if parts := distributedIn(indices, t); parts != nil {
		return handOn(parts, "index", t, indices)
	}
	return compose("index", func() *core.Tensor {
		s, err := newSelection("index", t, indices)
		switch {
		case err != nil:
			return core.ErrorTensor(err)
		case s == nil:
			return t.Alias(true)
		}
		return s.read(t)
	})
}

// IndexPut returns t with values, a number or a tensor of t's dtype that broadcasts to the indexed part, written to the
// elements that [IndexTensors] would return, or added to them if accumulate. Where an element is named several times the
// last value stays, or all are added, in the order of the indices.
func IndexPut(t *core.Tensor, indices []*core.Tensor, values *core.Tensor, accumulate bool) *core.Tensor {
	if parts := distributedIn(indices, t, values); parts != nil {
		return handOn(parts, "index_put", t, indices, values, accumulate)
	}
	op := begin("index_put", &t, &values)
	return op.compose(func() *core.Tensor {
		s, err := newSelection("index_put", t, indices)
		switch {
		case err != nil:
			return core.ErrorTensor(err)
		case s == nil:
			return IndexPutInPlace(Clone(t), indices, values, accumulate)
		}
		return s.write(t, values, putMode(accumulate))
	})
}

// IndexPutInPlace changes t as [IndexPut] does and returns it.
func IndexPutInPlace(t *core.Tensor, indices []*core.Tensor, values *core.Tensor, accumulate bool) *core.Tensor {
	if parts := distributedIn(indices, t, values); parts != nil {
		return handOn(parts, "index_put_", t, indices, values, accumulate)
	}
	if err := values.Usable("index_put_"); err != nil {
		return core.ErrorTensor(err)
	}
	r := compose("index_put_", func() *core.Tensor {
		s, err := newSelection("index_put", t, indices)
		switch {
		case err != nil:
			return core.ErrorTensor(err)
		case s == nil && accumulate:
			return AddInPlace(t, values).Alias(true)
		case s == nil:
			return CopyInPlace(t, values).Alias(true)
		}
		return s.writeInPlace(t, values, putMode(accumulate)).Alias(true)
	})
	if r.Err() != nil {
		return r
	}
	r.Release()
	return t
}

func putMode(accumulate bool) contract.ScatterMode {
	if accumulate {
		return contract.ScatterAdd
	}
	return contract.ScatterAssign
}

// newSelection returns the selection of t by index tensors and masks, of which nil takes a whole dimension; nil if all
// are nil.
func newSelection(name string, t *core.Tensor, indices []*core.Tensor) (*selection, error) {
	op := begin(name).with(t)
	op.tensors(t)
	s := &selection{name: name, wrap: true}
	dim := 0
	for _, x := range indices {
		switch {
		case op.err != nil:
			return nil, op.err
		case x == nil:
			dim++
			continue
		}
		if op.check(x.Usable(name)); op.err != nil {
			return nil, op.err
		}
		if x.Device() != nil && x.Device() != t.Device() {
			x = ToDevice(x, t.Device())
		}
		if !isMask(x) {
			s.dims, s.index = append(s.dims, dim), append(s.index, x)
			dim++
			continue
		}
		if n := min(dim+x.Dim(), t.Dim()); x.Dim() == 0 || n < dim || !slices.Equal(t.Shape()[dim:n], x.Shape()) {
			op.failf(core.IndexError, "a mask of shape %v does not fit dimension %d of shape %v", x.Shape(), dim, t.Shape())
			return nil, op.err
		}
		for _, p := range Unbind(maskPositions(castTo(x, core.Bool)), 0) {
			s.dims, s.index = append(s.dims, dim), append(s.index, p)
			dim++
		}
	}
	if dim > t.Dim() {
		op.failf(core.IndexError, "too many indices, got %d for shape %v", dim, t.Shape())
	}
	if op.err != nil {
		return nil, op.err
	}
	if len(s.dims) == 0 {
		return nil, nil
	}
	if last := s.dims[len(s.dims)-1]; last-s.dims[0] == len(s.dims)-1 {
		s.at = s.dims[0]
	}
	return s, nil
}

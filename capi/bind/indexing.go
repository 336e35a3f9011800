package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// An index is a list of parts, four integers each: the kind and its values.
const (
	indexSlice    = iota // start, stop, step
	indexInteger         // position
	indexTensor          // handle of int64 or int32 positions, or of a mask
	indexNewAxis         //
	indexEllipsis        //
)

// IndexGet returns the part of a tensor that an index of n parts says, four integers each: 0 with start, stop and step
// of a slice; 1 with a position; 2 with the handle of a tensor of positions or of a mask; 3 a new dimension; 4 all the
// dimensions that are not spoken of.
func IndexGet(t Tensor, parts Ints, n int64) (status Tensor) {
	defer protect("index", &status)
	if queueNearlyFull() {
		return Busy
	}
	list, err := indices(parts, n)
	if err != nil {
		return failure(err)
	}
	v := tensor(t)
	return result(op.Index(v, list...), v)
}

// IndexGetMasked is [IndexGet] for an index with masks, which waits for them to know the shape.
//
//plait:waits
func IndexGetMasked(t Tensor, parts Ints, n int64) Tensor {
	defer usingIndex(parts, n, tensor(t))()
	return IndexGet(t, parts, n)
}

// IndexGetKnown is [IndexGet] where that neither waits nor may wait: of masks, and of tensors of no dimensions, the values must be known. It
// returns 0 for others.
func IndexGetKnown(t Tensor, parts Ints, n int64) Tensor {
	if !knownIndex(parts, n) {
		return 0
	}
	return IndexGet(t, parts, n)
}

// IndexSetKnown is to [IndexSet] what [IndexGetKnown] is to [IndexGet]; it returns 1 for others.
func IndexSetKnown(t Tensor, value Tensor, number float64, parts Ints, n int64) Status {
	if !knownIndex(parts, n) {
		return 1
	}
	return IndexSet(t, value, number, parts, n)
}

// fewElements are those that are counted at once, without another thread.
const fewElements = 4096

// knownIndex reports whether no tensor of an index has values that decide the result's shape and are not known.
func knownIndex(parts Ints, n int64) bool {
	raw := handle.Slice[int64](parts, 4*n)
	for ; len(raw) > 0; raw = raw[4:] {
		if raw[0] != indexTensor {
			continue
		}
		x := tensor(raw[1])
		if x.Err() != nil || x.Parts() != nil {
			return false
		}
		if positions := x.Dim() > 0 && x.DType().IsInt() && x.DType() != core.Uint8; !positions && (!known(x) || x.Numel() > fewElements) {
			return false
		}
	}
	return true
}

// IndexSet writes a value, a tensor that broadcasts or a number, to the part of a tensor that an index says; see
// [IndexGet].
func IndexSet(t Tensor, value Tensor, number float64, parts Ints, n int64) (status Status) {
	defer protect("index_put_", &status)
	if queueNearlyFull() {
		return Busy
	}
	list, err := indices(parts, n)
	if err != nil {
		return failure(err)
	}
	return changed(op.IndexSet(tensor(t), operand(value, number), list...))
}

// IndexSetMasked is [IndexSet] for an index with masks, which waits for them.
//
//plait:waits
func IndexSetMasked(t Tensor, value Tensor, number float64, parts Ints, n int64) Status {
	defer usingIndex(parts, n, tensor(t), operand(value, number))()
	return IndexSet(t, value, number, parts, n)
}

// usingIndex is using of tensors and of those in an index.
func usingIndex(parts Ints, n int64, list ...*core.Tensor) (done func()) {
	raw := handle.Slice[int64](parts, 4*n)
	for ; len(raw) > 0; raw = raw[4:] {
		if raw[0] == indexTensor {
			list = append(list, tensor(raw[1]))
		}
	}
	return using(list...)
}

func indices(parts Ints, n int64) ([]core.Index, error) {
	raw := handle.Slice[int64](parts, 4*n)
	out := make([]core.Index, 0, n)
	for ; len(raw) > 0; raw = raw[4:] {
		switch raw[0] {
		case indexSlice:
			out = append(out, core.Span(int(raw[1]), int(raw[2])).By(int(raw[3])))
		case indexInteger:
			out = append(out, core.At(int(raw[1])))
		case indexTensor:
			out = append(out, core.Pick(tensor(raw[1])))
		case indexNewAxis:
			out = append(out, core.NewAxis())
		case indexEllipsis:
			out = append(out, core.Ellipsis())
		default:
			return nil, core.Errorf(core.ValueError, "index", "part of kind %d, want 0 to 4", raw[0])
		}
	}
	return out, nil
}

package op

import "github.com/plait-ml/plait/core"

// indexView returns the part of t that integers, slices and new dimensions say, as one view. It returns nil where that takes more:
// index tensors, a derivative of each part of the index, an error to report.
func indexView(t *core.Tensor, indices []core.Index) *core.Tensor {
	if t == nil || t.Parts() != nil {
		return nil
	}
	op := begin("index").with(t)
	if op.err != nil || op.recorded() || t.IsNumber() {
		return nil
	}
	spoken := 0
	for _, i := range indices {
		if i.Kind == core.IndexSlice || i.Kind == core.IndexInteger {
			spoken++
		}
	}
	var sizes, steps [core.MaxDims]int
	shape, strides, offset, dim := sizes[:0], steps[:0], t.Offset(), 0
	sizesOf, stridesOf := t.Shape(), t.Strides()
	unspoken := t.Dim() - spoken
	if unspoken < 0 || len(indices)-spoken+t.Dim() > core.MaxDims {
		return nil
	}
	ellipsis := false
	for _, i := range indices {
		switch i.Kind {
		case core.IndexNewAxis:
			stride := 1
			if dim < len(sizesOf) {
				stride = sizesOf[dim] * stridesOf[dim]
			}
			shape, strides = append(shape, 1), append(strides, stride)
		case core.IndexEllipsis:
			if ellipsis {
				return nil
			}
			ellipsis = true
			shape, strides = append(shape, sizesOf[dim:dim+unspoken]...), append(strides, stridesOf[dim:dim+unspoken]...)
			dim += unspoken
		case core.IndexInteger:
			n, at := sizesOf[dim], i.Start
			if at < 0 {
				at += n
			}
			if at < 0 || at >= n {
				return nil
			}
			offset += at * stridesOf[dim]
			dim++
		case core.IndexSlice:
			if i.Step <= 0 {
				return nil
			}
			start, length := sliceBounds(i.Start, i.Stop, i.Step, sizesOf[dim])
			stride := stridesOf[dim]
			if length > 0 {
				offset += start * stride
			}
			if length > 1 {
				stride *= i.Step
			}
			shape, strides = append(shape, length), append(strides, stride)
			dim++
		default:
			return nil
		}
	}
	return op.view(t, append(shape, sizesOf[dim:]...), append(strides, stridesOf[dim:]...), offset, nil, nil)
}

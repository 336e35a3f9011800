package kernel

// A Dim is a dimension of an input and an output: its size, and its stride in each, in elements.
type Dim struct{ Size, In, Out int }

// Reach is a sort key for dimensions: the absolute stride in the input. Stride 0, a broadcast dimension, sorts as the
// largest.
func (d Dim) Reach() uint {
	return uint(max(d.In, -d.In)) - 1 // 0 wraps to the largest
}

// SortDims sorts dimensions by descending stride. The last one is then the best for inner loops.
func SortDims(dims []Dim) {
	for i := range dims {
		for j := i; j > 0 && dims[j].Reach() > dims[j-1].Reach(); j-- {
			dims[j], dims[j-1] = dims[j-1], dims[j]
		}
	}
}

// CollapseDims merges adjacent dimensions that are contiguous with each other in both tensors. It returns the new
// number of dimensions.
func CollapseDims(dims []Dim) int {
	n := 0
	for _, d := range dims {
		if n > 0 {
			if p := &dims[n-1]; p.In == d.In*d.Size && p.Out == d.Out*d.Size {
				*p = Dim{p.Size * d.Size, d.In, d.Out}
				continue
			}
		}
		dims[n] = d
		n++
	}
	return n
}

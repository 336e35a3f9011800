package kernel

// A Dim is one dimension of a problem with an input and an output: its size and its strides in each, in elements.
type Dim struct{ Size, In, Out int }

// Reach orders dimensions by how far a step along them goes in the input. A dimension that repeats goes furthest.
func (d Dim) Reach() uint {
	return uint(max(d.In, -d.In)) - 1 // 0 becomes the largest
}

// SortDims orders dimensions from the furthest reaching to the nearest, so that the last one is the best to walk along.
func SortDims(dims []Dim) {
	for i := range dims {
		for j := i; j > 0 && dims[j].Reach() > dims[j-1].Reach(); j-- {
			dims[j], dims[j-1] = dims[j-1], dims[j]
		}
	}
}

// CollapseDims merges neighbours that are dense with respect to one another in both tensors, and returns how many
// dimensions are left.
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

package mesh

// An axis is one dimension of a mesh.
type axis struct {
	name string
	runs []run // one, or several after Flatten; the last varies fastest
}

// A run is size positions with a distance of stride.
type run struct{ size, stride int }

func (a axis) size() int {
	n := 1
	for _, r := range a.runs {
		n *= r.size
	}
	return n
}

// overlaps reports whether the position along one axis says something of that along the other.
func (a axis) overlaps(b axis) bool {
	for _, r := range a.runs {
		for _, q := range b.runs {
			if r == q || r.stride < q.stride*q.size && q.stride < r.stride*r.size {
				return true
			}
		}
	}
	return false
}

// coordinate returns the coordinate along the axis of position at.
func (a axis) coordinate(at int) int {
	c := 0
	for _, r := range a.runs {
		c = c*r.size + at/r.stride%r.size
	}
	return c
}

// offset returns the distance from coordinate 0 to coordinate c.
func (a axis) offset(c int) int {
	at := 0
	for i := len(a.runs) - 1; i >= 0; i-- {
		r := a.runs[i]
		at += c % r.size * r.stride
		c /= r.size
	}
	return at
}

// steps returns the offsets of all coordinates.
func (a axis) steps() []int {
	list := make([]int, a.size())
	for c := range list {
		list[c] = a.offset(c)
	}
	return list
}

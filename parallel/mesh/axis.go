package mesh

// An axis is a direction through the places of a mesh.
type axis struct {
	name string
	runs []run // one, or after a flatten several, the last of which is the fastest
}

// A run is so many places that lie stride apart.
type run struct{ size, stride int }

func (a axis) size() int {
	n := 1
	for _, r := range a.runs {
		n *= r.size
	}
	return n
}

// coordinate returns where place at is along the axis.
func (a axis) coordinate(at int) int {
	c := 0
	for _, r := range a.runs {
		c = c*r.size + at/r.stride%r.size
	}
	return c
}

// offset returns how far coordinate c is from coordinate 0.
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

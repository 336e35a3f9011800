package tensor

import (
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/mesh"
)

// A layout is how a tensor of some shape lies on a mesh: a placement for each dimension of the mesh.
type layout struct {
	mesh       *mesh.Mesh
	shape      []int // of the whole
	placements []core.Placement
}

// newLayout checks placements. Missing ones are replicated.
func newLayout(name string, m *mesh.Mesh, shape []int, placements []core.Placement) (layout, error) {
	axes := m.Shape()
	if m.Coordinate() == nil {
		return layout{}, core.Errorf(core.StateError, name, "this rank is not in the mesh %v", m)
	}
	if len(placements) > len(axes) {
		return layout{}, core.Errorf(core.ValueError, name, "got %d placements for the %d dimensions of the mesh %v", len(placements), len(axes), m)
	}
	all := make([]core.Placement, len(axes))
	for i, p := range placements {
		if p.Kind == core.Sharded {
			d := p.Dim
			if d < 0 {
				d += len(shape)
			}
			if d < 0 || d >= len(shape) {
				return layout{}, core.Errorf(core.IndexError, name, "cannot shard dimension %d of a tensor of shape %v", p.Dim, shape)
			}
			p.Dim = d
		}
		all[i] = p
	}
	return layout{m, slices.Clone(shape), all}, nil
}

// chunk returns which of n elements rank r of k has.
func chunk(n, k, r int) (start, length int) {
	size := (n + k - 1) / k
	start = min(size*r, n)
	return start, min(size, n-start)
}

// span returns which elements of dimension d of the whole the calling rank has, as placed by the first axes dimensions of the mesh.
func (l layout) span(d, axes int) (start, length int) {
	length = l.shape[d]
	for i, p := range l.placements[:axes] {
		if p == core.Shard(d) {
			var more int
			more, length = chunk(length, l.mesh.Shape()[i], l.mesh.Coordinate()[i])
			start += more
		}
	}
	return start, length
}

// local returns the shape of the calling rank's part.
func (l layout) local() []int {
	out := make([]int, len(l.shape))
	for d := range out {
		_, out[d] = l.span(d, len(l.placements))
	}
	return out
}

// starts returns where the calling rank's part begins in the whole.
func (l layout) starts() []int {
	out := make([]int, len(l.shape))
	for d := range out {
		out[d], _ = l.span(d, len(l.placements))
	}
	return out
}

// with returns the layout with other placements.
func (l layout) with(placements []core.Placement) layout {
	l.placements = placements
	return l
}

// sharded reports whether dimension d is sharded.
func (l layout) sharded(d int) bool { return slices.Contains(l.placements, core.Shard(d)) }

// like returns the layout of a tensor of another shape that lies as one of this layout does; see [core.Parts].
func (l layout) like(shape []int) layout {
	out := layout{l.mesh, slices.Clone(shape), make([]core.Placement, len(l.placements))}
	for i, q := range l.placements {
		if q.Kind == core.Sharded && len(shape) == len(l.shape) && shape[q.Dim] == l.shape[q.Dim] {
			out.placements[i] = q
		}
	}
	return out
}

// gradient returns the placements of a gradient: replicated where the tensor is pending.
func (l layout) gradient() layout {
	out := slices.Clone(l.placements)
	for i, p := range out {
		if p.Kind == core.Pending {
			out[i] = core.Replicate()
		}
	}
	return l.with(out)
}

func (l layout) String() string {
	out := "["
	for i, p := range l.placements {
		if i > 0 {
			out += ", "
		}
		out += fmt.Sprint(p)
	}
	return out + "]"
}

// same reports whether two meshes have the same ranks and groups, as two slices along one axis have.
func same(a, b *mesh.Mesh) bool {
	if a == b {
		return true
	}
	if !slices.Equal(a.Shape(), b.Shape()) {
		return false
	}
	for i := range a.Shape() {
		if a.Group(i) != b.Group(i) {
			return false
		}
	}
	return true
}

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
			if p.Factor < 0 {
				return layout{}, core.Errorf(core.ValueError, name, "cannot cut a dimension into %d pieces", p.Factor)
			}
			if p.Factor == 1 {
				p.Factor = 0
			}
		}
		all[i] = p
	}
	return layout{m, slices.Clone(shape), all}, nil
}

// with returns the layout with other placements.
func (l layout) with(placements []core.Placement) layout {
	l.placements = placements
	return l
}

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

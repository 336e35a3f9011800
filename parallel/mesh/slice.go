package mesh

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// Sub returns the slice of the mesh along the named axes that contains the calling rank. The axes must be in the mesh's order. On a whole
// mesh the names of flattened axes ([Mesh.Flatten]) are allowed too.
func (m *Mesh) Sub(names ...string) (*Mesh, error) {
	part := &Mesh{grid: m.grid}
	if m.Names() == nil {
		return nil, core.Errorf(core.StateError, what, "the axes of %v have no names to slice by", m)
	}
	if slices.Equal(names, m.Names()) {
		return m, nil
	}
	if len(names) == 0 {
		return nil, core.Errorf(core.ValueError, what, "got no axis of %v to slice by", m)
	}
	for _, name := range names {
		from, i := m, slices.Index(m.Names(), name)
		if i < 0 && m == m.whole {
			if f := m.flattened(name); f != nil {
				from, i = f, 0
			}
		}
		if i < 0 {
			return nil, core.Errorf(core.IndexError, what, "there is no axis %q in %v", name, m)
		}
		a := from.axes[i]
		if err := m.after(part.axes, a); err != nil {
			return nil, err
		}
		part.axes = append(part.axes, a)
		if m.at >= 0 {
			part.groups = append(part.groups, from.groups[i])
		}
	}
	return part, nil
}

// Join returns the mesh of the axes of several slices of one mesh, in this order, which need not be that of the mesh.
func Join(parts ...*Mesh) (*Mesh, error) {
	first := parts[0]
	joined := &Mesh{grid: first.grid}
	for _, m := range parts {
		if m.grid != first.grid {
			return nil, core.Errorf(core.ValueError, what, "%v and %v are no slices of one mesh", first, m)
		}
		for i, a := range m.axes {
			for _, b := range joined.axes {
				if a.overlaps(b) {
					return nil, core.Errorf(core.ValueError, what, "%v and %v have ranks along the same axis of %v", first, m, m.whole)
				}
			}
			joined.axes = append(joined.axes, a)
			if m.at >= 0 {
				joined.groups = append(joined.groups, m.groups[i])
			}
		}
	}
	return joined, nil
}

// after returns an error unless a comes after the last of axes, without overlap.
func (m *Mesh) after(axes []axis, a axis) error {
	if len(axes) == 0 {
		return nil
	}
	last := axes[len(axes)-1]
	if end := last.runs[len(last.runs)-1]; end.stride < a.runs[0].stride*a.runs[0].size {
		return core.Errorf(core.IndexError, what, "the axes %q and %q of %v overlap, or are not in the order of the mesh", last.name, a.name, m)
	}
	return nil
}

func (g *grid) flattened(name string) *Mesh {
	i := slices.IndexFunc(g.flat, func(m *Mesh) bool { return m.axes[0].name == name })
	if i < 0 {
		return nil
	}
	return g.flat[i]
}

// Flatten returns the mesh with its axes joined into one. Its name is name, or the joined names of the axes if that is empty. Every rank of
// the mesh's group must call it. Later calls with the same name return the same mesh, and [Mesh.Sub] of the whole mesh accepts the name.
func (m *Mesh) Flatten(name string) (*Mesh, error) {
	names := m.Names()
	if names == nil {
		return nil, core.Errorf(core.StateError, what, "the axes of %v have no names; only named ones can be flattened", m)
	}
	if name == "" {
		name = strings.Join(names, "_")
	}
	if len(names) == 1 && names[0] == name {
		return m, nil
	}
	if slices.Contains(m.whole.Names(), name) {
		return nil, core.Errorf(core.ValueError, what, "%q is an axis of %v already", name, m.whole)
	}
	joined := axis{name: name}
	for _, a := range m.axes {
		joined.runs = append(joined.runs, a.runs...)
	}
	if made := m.flattened(name); made != nil {
		if !slices.Equal(made.axes[0].runs, joined.runs) {
			return nil, core.Errorf(core.ValueError, what, "%q stands for other axes of %v already", name, m.whole)
		}
		return made, nil
	}
	f := &Mesh{grid: m.grid, axes: []axis{joined}}
	if err := f.connect(); err != nil {
		return nil, err
	}
	m.flat = append(m.flat, f)
	return f, nil
}

// Groups returns the calling rank's groups, one per axis; nil if the rank is outside the mesh.
func (m *Mesh) Groups() []*collective.Group { return slices.Clone(m.groups) }

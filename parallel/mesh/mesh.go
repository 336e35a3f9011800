package mesh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// what is the operation's name in errors.
const what = "device_mesh"

// Options configure a mesh.
type Options struct {
	// Names are the names of the axes, all different; nil for none.
	Names []string
	// Ranks are the ranks of the group in row-major order, all different. Nil means 0, 1, ...
	Ranks []int
	// Sorted orders the ranks of each axis' group by their rank in the whole group instead of their coordinates.
	Sorted bool
	// Groups are existing groups of the calling rank, one per axis. New then communicates with no other rank, so ranks that know only their
	// own groups can build a mesh.
	Groups []*collective.Group
}

// A Mesh is one rank's view of ranks arranged along axes. Like a group it belongs to its rank.
type Mesh struct {
	*grid
	axes   []axis
	groups []*collective.Group // one per axis; nil on a rank outside the mesh
	passes passes
}

// A grid is the state shared by a mesh and the meshes sliced from it.
type grid struct {
	group  *collective.Group
	ranks  []int
	at     int // position of the calling rank in ranks; -1 outside the mesh
	sorted bool
	whole  *Mesh
	flat   []*Mesh // made by Flatten
}

// New arranges prod(shape) ranks of a group in a mesh. Every rank of the group must call it with the same arguments, including ranks
// outside the mesh.
func New(group *collective.Group, shape []int, o Options) (*Mesh, error) {
	m, err := arrange(group, shape, o)
	if err != nil {
		return nil, err
	}
	if o.Groups != nil {
		m.groups = slices.Clone(o.Groups)
		return m, nil
	}
	if err := m.agree(); err != nil {
		return nil, err
	}
	return m, m.connect()
}

// arrange returns the mesh without groups.
func arrange(group *collective.Group, shape []int, o Options) (*Mesh, error) {
	n := 1
	for _, s := range shape {
		if s < 1 {
			return nil, core.Errorf(core.ValueError, what, "got the shape %v, want axes of at least one rank", shape)
		}
		n *= s
	}
	if len(shape) == 0 {
		return nil, core.Errorf(core.ValueError, what, "got a shape without axes")
	}
	if n > group.Size() {
		return nil, core.Errorf(core.DistributedError, what, "the shape %v takes %d ranks, there are %d", shape, n, group.Size())
	}
	if o.Names != nil && len(o.Names) != len(shape) {
		return nil, core.Errorf(core.ValueError, what, "got %d names %q for the %d axes of %v", len(o.Names), o.Names, len(shape), shape)
	}
	for i, name := range o.Names {
		if name == "" || slices.Contains(o.Names[:i], name) {
			return nil, core.Errorf(core.ValueError, what, "got the names %q, want different ones that are not empty", o.Names)
		}
	}
	ranks := slices.Clone(o.Ranks)
	if ranks == nil {
		for r := range n {
			ranks = append(ranks, r)
		}
	}
	if len(ranks) != n {
		return nil, core.Errorf(core.ValueError, what, "got %d ranks for the shape %v of %d", len(ranks), shape, n)
	}
	for i, r := range ranks {
		if r < 0 || r >= group.Size() || slices.Contains(ranks[:i], r) {
			return nil, core.Errorf(core.ValueError, what, "got the ranks %v, want different ones from 0 to %d", ranks, group.Size()-1)
		}
	}
	if o.Groups != nil && len(o.Groups) != len(shape) {
		return nil, core.Errorf(core.ValueError, what, "got %d groups for the %d axes of %v", len(o.Groups), len(shape), shape)
	}
	m := &Mesh{grid: &grid{group: group, ranks: ranks, at: slices.Index(ranks, group.Rank()), sorted: o.Sorted}}
	m.whole = m
	stride := n
	for i, s := range shape {
		stride /= s
		a := axis{runs: []run{{s, stride}}}
		if o.Names != nil {
			a.name = o.Names[i]
		}
		m.axes = append(m.axes, a)
	}
	return m, nil
}

// agree returns an error if other ranks passed other arguments.
func (m *Mesh) agree() error {
	w := m.group.For("the construction of a mesh").StartExchange(what, fmt.Appendf(nil, "%v of the ranks %v", m, m.ranks))
	if err := w.Wait(); err != nil {
		return err
	}
	all := w.Payloads()
	mine := all[m.group.Rank()]
	for r, other := range all {
		if !slices.Equal(mine, other) {
			return core.Errorf(core.DistributedError, what, "the ranks disagree: rank %d wants %s, rank %d wants %s", m.group.Rank(), mine, r, other)
		}
	}
	return nil
}

// connect creates the groups along all axes. Every rank of the group calls it.
func (m *Mesh) connect() error {
	for i := range m.axes {
		g, err := m.groupAlong(i)
		if err != nil {
			return err
		}
		if g != nil {
			m.groups = append(m.groups, g)
		}
	}
	return nil
}

// groupAlong creates the groups along axis i and returns the calling rank's, if it has one.
func (m *Mesh) groupAlong(i int) (mine *collective.Group, err error) {
	a := m.axes[i]
	for at := range m.ranks {
		if a.coordinate(at) != 0 {
			continue
		}
		var ranks []int
		for _, step := range a.steps() {
			ranks = append(ranks, m.ranks[at+step])
		}
		if m.sorted {
			slices.Sort(ranks)
		}
		if len(ranks) == m.group.Size() && slices.IsSorted(ranks) {
			return m.group, nil
		}
		g, err := m.group.New(ranks, collective.Options{Name: fmt.Sprint(m.label(i), ranks)})
		if err != nil {
			return nil, err
		}
		if g != nil {
			mine = g
		}
	}
	return mine, nil
}

// label returns the name of axis i for messages.
func (m *Mesh) label(i int) string {
	if m.axes[i].name == "" {
		return fmt.Sprint("axis ", i)
	}
	return m.axes[i].name
}

// Shape returns the number of ranks along each axis.
func (m *Mesh) Shape() []int {
	shape := make([]int, len(m.axes))
	for i, a := range m.axes {
		shape[i] = a.size()
	}
	return shape
}

// Strides returns, for each axis, the distance of neighbours in the whole mesh. A flattened axis has the stride of its last component.
func (m *Mesh) Strides() []int {
	strides := make([]int, len(m.axes))
	for i, a := range m.axes {
		strides[i] = a.runs[len(a.runs)-1].stride
	}
	return strides
}

// Size returns the number of ranks.
func (m *Mesh) Size() int { return core.Numel(m.Shape()) }

// Names returns the names of the axes, or nil if they have none.
func (m *Mesh) Names() []string {
	if m.axes[0].name == "" {
		return nil
	}
	names := make([]string, len(m.axes))
	for i, a := range m.axes {
		names[i] = a.name
	}
	return names
}

// Axis returns the index of the axis with the given name.
func (m *Mesh) Axis(name string) (int, error) {
	if i := slices.Index(m.Names(), name); i >= 0 {
		return i, nil
	}
	return 0, core.Errorf(core.IndexError, what, "there is no axis %q in %v", name, m)
}

// Coordinate returns the calling rank's coordinate along each axis, or nil if the rank is outside the mesh.
func (m *Mesh) Coordinate() []int {
	if m.at < 0 {
		return nil
	}
	at := make([]int, len(m.axes))
	for i, a := range m.axes {
		at[i] = a.coordinate(m.at)
	}
	return at
}

// Group returns the calling rank's group along axis i, or nil if the rank is outside the mesh.
func (m *Mesh) Group(i int) *collective.Group {
	if m.at < 0 {
		return nil
	}
	return m.groups[i]
}

// Ranks returns the ranks of the mesh in row-major order. For a slice these are the ranks of the slice that contains the calling rank; nil
// if there is none.
func (m *Mesh) Ranks() []int {
	at := 0
	if !m.covers() {
		if m.at < 0 {
			return nil
		}
		at = m.at
		for _, a := range m.axes {
			at -= a.offset(a.coordinate(m.at))
		}
	}
	places := []int{at}
	for _, a := range m.axes {
		var next []int
		for _, p := range places {
			for _, step := range a.steps() {
				next = append(next, p+step)
			}
		}
		places = next
	}
	ranks := make([]int, len(places))
	for i, p := range places {
		ranks[i] = m.ranks[p]
	}
	return ranks
}

// covers reports whether the mesh is its whole grid, not a slice.
func (m *Mesh) covers() bool { return m.Size() == len(m.ranks) }

// String describes the mesh, such as "(dp=2, tp=4)" or "(2, 4)".
func (m *Mesh) String() string {
	parts := make([]string, len(m.axes))
	for i, a := range m.axes {
		parts[i] = fmt.Sprint(a.size())
		if a.name != "" {
			parts[i] = fmt.Sprintf("%s=%d", a.name, a.size())
		}
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

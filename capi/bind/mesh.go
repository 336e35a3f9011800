package bind

import (
	"strings"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/mesh"
)

// MeshNew arranges n ranks of a group, in rows of the given shape; every rank of the group calls it. names are those of the axes,
// separated by line breaks, or empty. If sorted, the numbers in the axes' groups follow those in the group. groups are the
// handles of the axes' groups if they have been made before, or 0.
//
//plait:waits
func MeshNew(of Object, ranks Ints, n int64, shape Ints, dims int64, names string, sorted bool, groups Ints) (status Object) {
	defer protect("device_mesh", &status)
	o := mesh.Options{Ranks: handle.Ints(ranks, n), Sorted: sorted}
	if names != "" {
		o.Names = strings.Split(names, "\n")
	}
	if groups != 0 {
		for _, h := range handle.Slice[int64](groups, dims) {
			o.Groups = append(o.Groups, group(h))
		}
	}
	m, err := mesh.New(group(of), handle.Ints(shape, dims), o)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(m)
}

func meshOf(h Object) *mesh.Mesh {
	m, ok := handle.Object[*mesh.Mesh](h)
	if !ok {
		panic(core.Errorf(core.StateError, "device_mesh", "got no handle of a mesh"))
	}
	return m
}

// MeshSub returns the part of a mesh along the axes with the given names, separated by line breaks.
func MeshSub(h Object, names string) (status Object) {
	defer protect("device_mesh", &status)
	m, err := meshOf(h).Sub(strings.Split(names, "\n")...)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(m)
}

// MeshFlatten returns the mesh with its axes joined into one, of the given name or if that is empty of theirs joined by
// underscores; every rank of the group that the mesh was made of calls it.
//
//plait:waits
func MeshFlatten(h Object, name string) (status Object) {
	defer protect("device_mesh", &status)
	m, err := meshOf(h).Flatten(name)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(m)
}

// MeshDims returns the number of axes.
func MeshDims(h Object) (status int64) {
	defer protect("device_mesh", &status)
	return int64(len(meshOf(h).Shape()))
}

// MeshLayout writes the number of ranks along each axis, how far neighbours are apart, and the calling rank's coordinates, and
// returns 1 if the calling rank is in the mesh; if not, its coordinates are -1.
func MeshLayout(h Object, shape, strides, coordinate IntsOut) (status Status) {
	defer protect("device_mesh", &status)
	m := meshOf(h)
	at := m.Coordinate()
	dims := int64(len(m.Shape()))
	for i, s := range m.Shape() {
		handle.Slice[int64](shape, dims)[i] = int64(s)
		handle.Slice[int64](strides, dims)[i] = int64(m.Strides()[i])
		handle.Slice[int64](coordinate, dims)[i] = -1
		if at != nil {
			handle.Slice[int64](coordinate, dims)[i] = int64(at[i])
		}
	}
	return truth(at != nil)
}

// MeshNames returns the names of the axes, separated by line breaks.
func MeshNames(h Object) string {
	if m, ok := handle.Object[*mesh.Mesh](h); ok {
		return strings.Join(m.Names(), "\n")
	}
	return ""
}

// MeshRanks writes the ranks of a mesh, in rows, and returns their number: 0 of a part that the calling rank has no place in.
func MeshRanks(h Object, out IntsOut, n int64) (status int64) {
	defer protect("device_mesh", &status)
	ranks := meshOf(h).Ranks()
	for i, r := range ranks {
		handle.Slice[int64](out, n)[i] = int64(r)
	}
	return int64(len(ranks))
}

// MeshGroup returns the group along an axis that the calling rank is in, or 0 outside the mesh.
func MeshGroup(h Object, axis int64) (status Object) {
	defer protect("device_mesh", &status)
	g := meshOf(h).Group(int(axis))
	if g == nil {
		return 0
	}
	return handle.AddObject(g)
}

// MeshBeginPass begins a pass of a model whose parts exchange along a mesh. All ranks of the mesh call it.
//
//plait:waits
func MeshBeginPass(h Object) (status Status) {
	defer protect("pass", &status)
	return failure(meshOf(h).BeginPass())
}

// MeshEndPass waits until all ranks of a mesh have ended the pass; the error is that of a rank that has failed in it.
//
//plait:waits
func MeshEndPass(h Object) (status Status) {
	defer protect("pass", &status)
	p := meshOf(h).Pass()
	if p == nil {
		return failure(core.Errorf(core.StateError, "pass", "none has begun"))
	}
	_, err := p.End(-1)
	return failure(err)
}

// MeshFailPass says why the pass is over on the calling rank: the exchanges of the other ranks fail with it.
//
//plait:waits
func MeshFailPass(h Object, why string, memory bool) (status Status) {
	defer protect("pass", &status)
	kind := core.DistributedError
	if memory {
		kind = core.MemoryError
	}
	if p := meshOf(h).Pass(); p != nil {
		p.Fail(core.Errorf(kind, "pass", "%s", why))
	}
	return 0
}

// GroupRanks writes the numbers in the world of a group's ranks.
func GroupRanks(h Object, out IntsOut) (status Status) {
	defer protect("group", &status)
	ranks := group(h).Ranks()
	for i, r := range ranks {
		handle.Slice[int64](out, int64(len(ranks)))[i] = int64(r)
	}
	return 0
}

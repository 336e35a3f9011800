package parallel

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/mesh"
)

const what = "parallelize"

// Axes are the names of a mesh's axes by what happens along them: "" where the mesh has none, or one of a single rank.
type Axes struct {
	PP   string // layers are stages of a pipeline, and a batch becomes micro-batches
	DP   string // each rank has a copy of the parameters and a part of the batch
	FSDP string // each rank has a part of each parameter and a part of the batch
	TP   string // each rank has a part of each layer that a plan names
}

// ways are the names of what may happen along an axis.
var ways = [...]string{"pp", "dp", "fsdp", "tp"}

// list returns the names in the order of ways.
func (a *Axes) list() [len(ways)]*string { return [...]*string{&a.PP, &a.DP, &a.FSDP, &a.TP} }

// Data returns the axes along which ranks get different parts of a batch.
func (a Axes) Data() (list []string) {
	for _, axis := range []string{a.DP, a.FSDP} {
		if axis != "" {
			list = append(list, axis)
		}
	}
	return list
}

// AxesOf returns what happens along each axis of a mesh. given are the names that a program gives; one that is not given is the way's own.
//
// Errors: an axis is given that the mesh lacks, or an axis is for nothing, or for several ways, or "fsdp" comes before "dp".
func AxesOf(m *mesh.Mesh, given Axes) (Axes, error) {
	fail := func(format string, args ...any) (Axes, error) {
		return Axes{}, core.Errorf(core.ValueError, what, format, args...)
	}
	names, sizes := m.Names(), m.Shape()
	if names == nil {
		return fail("the axes of %v have no names: give mesh_dim_names, such as 'dp' and 'tp'", m)
	}
	found := given
	users := map[string][]string{}
	for i, axis := range found.list() {
		if *axis == "" && slices.Contains(names, ways[i]) {
			*axis = ways[i]
		}
		if *axis != "" && !slices.Contains(names, *axis) {
			return fail("%s is given for the axis '%s', which %v lacks; it has '%s'", ways[i], *axis, m, strings.Join(names, "', '"))
		}
		users[*axis] = append(users[*axis], ways[i])
	}
	for _, name := range names {
		if n := len(users[name]); n != 1 {
			of := "nothing"
			if n > 1 {
				of = strings.Join(users[name], " and ")
			}
			return fail("the axis '%s' of %v is for %s; each axis is for one of %s, such as dp='%s'", name, m, of, strings.Join(ways[:], ", "), name)
		}
	}
	if found.DP != "" && found.FSDP != "" && slices.Index(names, found.DP) > slices.Index(names, found.FSDP) {
		return fail("in %v the axis '%s' must come before '%s'", m, found.DP, found.FSDP)
	}
	for _, axis := range found.list() {
		if *axis != "" && sizes[slices.Index(names, *axis)] == 1 {
			*axis = ""
		}
	}
	return found, nil
}

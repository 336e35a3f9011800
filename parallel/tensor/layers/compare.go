package layers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/mesh"
)

// compare returns an error on all ranks of a mesh unless they have the same plan, and layers with the same tensors for it.
func compare(on *mesh.Mesh, m nn.Module, plan map[string]Style) error {
	g := on.Group(0)
	lines := append([]string{Describe(plan)}, tensors(m, plan)...)
	w := g.For("plans of layers").StartExchange(what, []byte(strings.Join(lines, "\x00")))
	if err := w.Wait(); err != nil {
		return err
	}
	all := w.Payloads()
	first := strings.Split(string(all[0]), "\x00")
	for r, payload := range all {
		other := strings.Split(string(payload), "\x00")
		if first[0] != other[0] {
			return core.Errorf(core.DistributedError, what, "the ranks' plans differ: rank %d has %q, rank %d has %q", g.Ranks()[0], first[0], g.Ranks()[r], other[0])
		}
		for i := range max(len(first), len(other)) {
			at := func(list []string) string {
				if i < len(list) {
					return list[i]
				}
				return "nothing there"
			}
			if at(first) != at(other) {
				return core.Errorf(core.DistributedError, what, "the ranks' modules differ: rank %d has %s, rank %d has %s", g.Ranks()[0], at(first), g.Ranks()[r], at(other))
			}
		}
	}
	return nil
}

// tensors describes the layers that a plan names, and their tensors.
func tensors(m nn.Module, plan map[string]Style) (lines []string) {
	for _, p := range nn.Modules(m) {
		if _, ok := namedBy(plan, p.Name); !ok {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s, a %T", p.Name, p.Module))
		for _, n := range nn.NamedTensors(p.Module) {
			lines = append(lines, fmt.Sprintf("%s.%s, %v of shape %v", p.Name, n.Name, n.Tensor.DType(), n.Tensor.Shape()))
		}
	}
	return lines
}

// Describe returns a text that is the same for equal plans.
func Describe(plan map[string]Style) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(plan)) {
		fmt.Fprintf(&text, "%s: %T", name, plan[name])
		if s := plan[name]; !missing(s) {
			if _, f, err := s.lay(&nn.Linear{}); err == nil { // the styles have pointers, whose text differs between ranks
				fmt.Fprintf(&text, "%v", f)
			}
		}
		text.WriteString("; ")
	}
	return text.String()
}

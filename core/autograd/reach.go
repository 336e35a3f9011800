package autograd

import "github.com/plait-ml/plait/core"

// ReachesOthers reports whether gradients of the outputs flow to leaves by other ways than through the inputs.
func ReachesOthers(outputs, inputs []*core.Tensor) bool {
	seen := map[*core.Node]bool{}
	var nodes []*core.Node // to release, from first on to visit
	defer func() {
		for _, n := range nodes {
			n.Release()
		}
	}()
	ends := map[core.Edge]bool{}
	inputs, _ = localInputs(inputs)
	for _, t := range inputs {
		if t == nil || t.Err() != nil {
			continue
		}
		if e := t.AutogradMeta().Edge(); e.Node != nil {
			ends[e] = true
			nodes = append(nodes, e.Node)
		}
	}
	visit := func(e core.Edge) (leaf bool) {
		if e.Node == nil || ends[e] || seen[e.Node] {
			return false
		}
		seen[e.Node] = true
		e.Node.Retain()
		nodes = append(nodes, e.Node)
		return e.Node.Leaf() != nil
	}
	first := len(nodes)
	for _, t := range outputs {
		if t == nil || t.Err() != nil {
			continue
		}
		for p := t.Parts(); p != nil; p = t.Parts() {
			t = p.Local()
		}
		e := t.AutogradMeta().Edge()
		leaf := visit(e)
		if e.Node != nil {
			e.Node.Release()
		}
		if leaf {
			return true
		}
	}
	for ; first < len(nodes); first++ {
		for _, e := range nodes[first].Edges() {
			if visit(e) {
				return true
			}
		}
	}
	return false
}

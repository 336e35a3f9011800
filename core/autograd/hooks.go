package autograd

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// hookStage runs a hook on gradient i.
func hookStage(i int, h core.Hook, want Want) stage {
	return func(p *nodeRun) (*Request, error) {
		g := p.grads[i]
		if g == nil {
			return nil, nil
		}
		var replacement *core.Tensor
		switch {
		case h.Fn != nil:
			replacement = h.Fn(g)
		case !p.asked:
			return &Request{Node: p.node, ID: h.External, What: want, Grads: []*core.Tensor{g}}, nil
		default:
			p.asked = false
			if len(p.answer) > 0 {
				replacement = p.answer[0]
			}
		}
		return nil, replace(p, i, replacement)
	}
}

// nodeHookStage runs a hook before or after the node's derivative.
func nodeHookStage(h core.NodeHook, want Want) stage {
	return func(p *nodeRun) (*Request, error) {
		var replacements []*core.Tensor
		switch {
		case h.Fn != nil:
			replacements = h.Fn(p.grads, p.outputGrads)
		case !p.asked:
			return &Request{Node: p.node, ID: h.External, What: want, Grads: p.grads, After: p.outputGrads}, nil
		default:
			p.asked = false
			replacements, p.answer = p.answer, nil
		}
		if replacements == nil {
			return nil, nil
		}
		if len(replacements) != len(p.grads) {
			return nil, core.Errorf(core.ValueError, p.node.Name, "a hook returned %d gradients, want %d", len(replacements), len(p.grads))
		}
		for i, g := range replacements {
			if p.grads[i] == nil && g != nil {
				return nil, core.Errorf(core.ValueError, p.node.Name, "a hook returned a gradient at index %d, where it got none", i)
			}
			if g == nil && p.grads[i] != nil {
				p.grads[i].Release()
				p.grads[i] = nil
			} else if err := replace(p, i, g); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// replace replaces gradient i by g, unless g is nil.
func replace(p *nodeRun, i int, g *core.Tensor) error {
	old := p.grads[i]
	if g == nil || g == old {
		return nil
	}
	if err := g.Present(p.node.Name); err != nil {
		return err
	}
	if old != nil {
		if err := sameShape("hook on "+p.node.Name, old.Shape(), old.DType(), g); err != nil {
			return err
		}
		old.Release()
	}
	p.grads[i] = g.Keep()
	return nil
}

// postStage runs a hook after the accumulation of a leaf's gradient.
func postStage(leaf *core.AutogradMeta, h core.Hook) stage {
	return func(p *nodeRun) (*Request, error) {
		switch {
		case h.Fn != nil:
			g := leaf.BorrowGrad()
			defer leaf.ReturnGrad()
			if r := h.Fn(g); r != nil {
				return nil, r.Err()
			}
		case !p.asked:
			p.borrowed = leaf
			return &Request{Node: p.node, ID: h.External, What: WantPostHook, Grads: []*core.Tensor{leaf.BorrowGrad()}}, nil
		default:
			p.asked = false
			p.returnBorrowed()
		}
		return nil, nil
	}
}

// savedStage asks the caller for saved values that another language packed.
func savedStage(values []*core.ExternalValue) stage {
	return func(p *nodeRun) (*Request, error) {
		if !p.asked {
			q := &Request{Node: p.node, What: WantSaved}
			for _, v := range values {
				q.IDs = append(q.IDs, v.Key())
			}
			return q, nil
		}
		p.asked = false
		if len(p.answer) != len(values) || slices.Contains(p.answer, nil) {
			return nil, core.Errorf(core.TypeError, p.node.Name, "unpacking %d saved tensors returned %d tensors", len(values), len(p.answer))
		}
		p.saved = map[*core.ExternalValue]*core.Tensor{}
		for i, v := range values {
			p.saved[v] = p.answer[i]
		}
		p.answer = nil
		return nil, nil
	}
}

// returnBorrowed ends a hook's use of a leaf's gradient.
func (p *nodeRun) returnBorrowed() {
	if p.borrowed != nil {
		p.borrowed.ReturnGrad()
		p.borrowed = nil
	}
}

func (p *nodeRun) releaseSaved() {
	for _, t := range p.saved {
		t.Release()
	}
	p.saved = nil
}

package autograd

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// hookStage runs a hook on gradient i.
func hookStage(i int, h core.Hook, want Want) stage {
	return func(p *pending) (*Request, error) {
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

// nodeHookStage runs a hook before a node, or after it.
func nodeHookStage(h core.NodeHook, want Want) stage {
	return func(p *pending) (*Request, error) {
		var replacements []*core.Tensor
		switch {
		case h.Fn != nil:
			replacements = h.Fn(p.grads, p.given)
		case !p.asked:
			return &Request{Node: p.node, ID: h.External, What: want, Grads: p.grads, After: p.given}, nil
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
				return nil, core.Errorf(core.ValueError, p.node.Name, "a hook returned a gradient in the place of number %d, of which there is none", i)
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

// replace puts g, if it is not nil, in the place of gradient i.
func replace(p *pending, i int, g *core.Tensor) error {
	old := p.grads[i]
	if g == nil || g == old {
		return nil
	}
	if err := g.Usable(p.node.Name); err != nil {
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

// postStage runs a hook after a gradient was added to a leaf's.
func postStage(leaf *core.AutogradMeta, h core.Hook) stage {
	return func(p *pending) (*Request, error) {
		switch {
		case h.Fn != nil:
			g := leaf.BorrowGrad()
			defer leaf.ReturnGrad()
			if r := h.Fn(g); r != nil {
				return nil, r.Err()
			}
		case !p.asked:
			p.lent = leaf
			return &Request{Node: p.node, ID: h.External, What: WantPostHook, Grads: []*core.Tensor{leaf.BorrowGrad()}}, nil
		default:
			p.asked = false
			p.returnLent()
		}
		return nil, nil
	}
}

// savedStage gets saved values of another language from the caller.
func savedStage(values []*core.ExternalValue) stage {
	return func(p *pending) (*Request, error) {
		if !p.asked {
			q := &Request{Node: p.node, What: WantSaved}
			for _, v := range values {
				q.IDs = append(q.IDs, v.Key())
			}
			return q, nil
		}
		p.asked = false
		if len(p.answer) != len(values) || slices.Contains(p.answer, nil) {
			return nil, core.Errorf(core.TypeError, p.node.Name, "want %d tensors for as many saved values, got %d", len(values), len(p.answer))
		}
		p.saved = map[*core.ExternalValue]*core.Tensor{}
		for i, v := range values {
			p.saved[v] = p.answer[i]
		}
		p.answer = nil
		return nil, nil
	}
}

// returnLent ends the use of a leaf's gradient by a hook.
func (p *pending) returnLent() {
	if p.lent != nil {
		p.lent.ReturnGrad()
		p.lent = nil
	}
}

func (p *pending) releaseSaved() {
	for _, t := range p.saved {
		t.Release()
	}
	p.saved = nil
}

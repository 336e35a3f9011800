package autograd

import "github.com/plait-ml/plait/core"

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
			return &Request{Node: p.node, ID: h.Foreign, What: want, Grads: []*core.Tensor{g}}, nil
		default:
			p.asked = false
			if len(p.answer) > 0 {
				replacement = p.answer[0]
			}
		}
		return nil, replace(p, i, replacement)
	}
}

func nodeHookStage(h core.NodeHook) stage {
	return func(p *pending) (*Request, error) {
		var replacements []*core.Tensor
		switch {
		case h.Fn != nil:
			replacements = h.Fn(p.grads)
		case !p.asked:
			return &Request{Node: p.node, ID: h.Foreign, What: WantNodeHook, Grads: p.grads}, nil
		default:
			p.asked = false
			replacements = p.answer
		}
		if replacements == nil {
			return nil, nil
		}
		if len(replacements) != len(p.grads) {
			return nil, core.Errorf(core.ValueError, p.node.Name, "a hook returned %d gradients, want %d", len(replacements), len(p.grads))
		}
		for i, g := range replacements {
			if err := replace(p, i, g); err != nil {
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
func postStage(leaf *core.History, h core.Hook) stage {
	return func(p *pending) (*Request, error) {
		switch {
		case h.Fn != nil:
			if r := h.Fn(leaf.Grad()); r != nil {
				return nil, r.Err()
			}
		case !p.asked:
			return &Request{Node: p.node, ID: h.Foreign, What: WantPostHook, Grads: []*core.Tensor{leaf.Grad()}}, nil
		default:
			p.asked = false
		}
		return nil, nil
	}
}

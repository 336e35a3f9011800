package core

// Grad returns the accumulated gradient, or nil. The tensor belongs to t: [Tensor.SetGrad] releases it. Use [Tensor.BorrowGrad] if other
// goroutines may replace it at the same time.
func (t *Tensor) Grad() *Tensor {
	if p := t.Parts(); p != nil {
		g := p.Local().Grad()
		if g == nil {
			return nil
		}
		return p.Gradient(g.Alias(true))
	}
	meta := t.autograd.Load()
	if meta == nil {
		return nil
	}
	return meta.Grad()
}

// Grad returns the accumulated gradient, or nil.
func (meta *AutogradMeta) Grad() *Tensor {
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if r := CurrentRecording(); r != nil {
		r.noteGrad(meta, meta.grad, nil, false)
	}
	return meta.grad
}

// BorrowGrad returns the accumulated gradient, or nil, and the metadata that holds it. The gradient stays valid until
// [AutogradMeta.ReturnGrad], even if another goroutine replaces it.
func (t *Tensor) BorrowGrad() (*Tensor, *AutogradMeta) {
	if p := t.Parts(); p != nil {
		g, meta := p.Local().BorrowGrad()
		if g != nil {
			g = p.Gradient(g.Alias(true))
		}
		return g, meta
	}
	meta := t.autograd.Load()
	if meta == nil {
		return nil, nil
	}
	return meta.BorrowGrad(), meta
}

// BorrowGrad returns the accumulated gradient, or nil. It stays valid until [AutogradMeta.ReturnGrad].
func (meta *AutogradMeta) BorrowGrad() *Tensor {
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if r := CurrentRecording(); r != nil {
		r.noteGrad(meta, meta.grad, nil, false)
	}
	meta.extended().borrowed++
	return meta.grad
}

// ReturnGrad ends the use of a gradient from [AutogradMeta.BorrowGrad]. It does nothing for nil metadata.
func (meta *AutogradMeta) ReturnGrad() {
	if meta == nil {
		return
	}
	meta.mu.Lock()
	var old []*Tensor
	r := meta.extended()
	if r.borrowed--; r.borrowed == 0 {
		old, r.replaced = r.replaced, nil
	}
	meta.mu.Unlock()
	for _, g := range old {
		g.Release()
	}
}

// SetGrad replaces the gradient; nil removes it. It takes over the caller's reference to g, and g leaves its scope. A g that
// [Tensor.LocalGrad] refuses is replaced by the error.
func (t *Tensor) SetGrad(g *Tensor) {
	meta := t.EnsureAutogradMeta()
	if g != nil {
		local, err := t.LocalGrad(g)
		switch {
		case err != nil:
			local = ErrorTensor(err)
		case local != g:
			local = local.Alias(true)
		}
		if local != g {
			g.Release()
			g = local
		}
	}
	meta.SetGrad(g)
}

// DropGrad removes the gradient. If t stands for another leaf, as a gathered parameter for its shard, it removes that leaf's gradient too: see
// [AutogradMeta.StandFor].
func (t *Tensor) DropGrad() {
	meta := t.AutogradMeta()
	if meta == nil {
		return
	}
	meta.SetGrad(nil)
	if r := meta.rare.Load(); r != nil && r.standIn != nil {
		r.standIn.SetGrad(nil)
	}
}

// LocalGrad returns what [Tensor.SetGrad] keeps of a gradient for t: g itself, or for a distributed tensor this rank's part of g, which it
// moves to t's placements, and for a sparse one its values. A sparse gradient of an ordinary tensor is kept as it is. Only one of t and g
// being distributed is an error.
func (t *Tensor) LocalGrad(g *Tensor) (*Tensor, error) {
	if p := t.Parts(); p != nil {
		return p.Seed("grad", g)
	}
	if g.Parts() != nil && !g.IsSparse() {
		return nil, Errorf(TypeError, "grad", "got a distributed gradient for an ordinary tensor, want an ordinary one")
	}
	return g, nil
}

// SetGrad replaces the gradient; nil removes it. It takes over the caller's reference to g, and g leaves its scope.
func (meta *AutogradMeta) SetGrad(g *Tensor) {
	if r := CurrentRecording(); r != nil {
		meta.mu.Lock()
		old := meta.grad
		meta.mu.Unlock()
		if old != nil || g != nil {
			r.noteGrad(meta, old, g, true)
		}
	}
	meta.putGrad(g)
}

// TakeGrad removes the accumulated gradient and returns it, or nil. It is the caller's then.
func (meta *AutogradMeta) TakeGrad() *Tensor {
	meta.mu.Lock()
	g := meta.grad
	if r := meta.rare.Load(); g == nil || CurrentRecording() != nil || r != nil && r.borrowed > 0 {
		meta.mu.Unlock()
		if g != nil {
			g = g.Alias(true).Keep()
			meta.SetGrad(nil)
		}
		return g
	}
	meta.grad = nil
	meta.mu.Unlock()
	return g
}

// putGrad is [AutogradMeta.SetGrad] that no recording sees.
func (meta *AutogradMeta) putGrad(g *Tensor) {
	if g != nil {
		g.kept = true
		if g.storage != nil && g.storage.alloc.category == Activation {
			g.storage.SetCategory(Gradient)
		}
	}
	meta.mu.Lock()
	old := meta.grad
	meta.grad = g
	if old == g {
		old = nil
	}
	if r := meta.rare.Load(); old != nil && r != nil && r.borrowed > 0 {
		r.replaced = append(r.replaced, old)
		old = nil
	}
	meta.mu.Unlock()
	if old != nil {
		old.Release()
	}
}

package core

// Grad returns the collected gradient, or nil. The tensor belongs to t: [Tensor.SetGrad] releases it. Where other goroutines may
// replace it meanwhile, use [Tensor.BorrowGrad].
func (t *Tensor) Grad() *Tensor {
	meta := t.autograd.Load()
	if meta == nil {
		return nil
	}
	return meta.Grad()
}

// Grad returns the collected gradient, or nil.
func (meta *AutogradMeta) Grad() *Tensor {
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.grad
}

// BorrowGrad returns the collected gradient, or nil, which stays what it is until [AutogradMeta.ReturnGrad] of the autograd metadata that it
// returns too, also if another goroutine replaces it.
func (t *Tensor) BorrowGrad() (*Tensor, *AutogradMeta) {
	meta := t.autograd.Load()
	if meta == nil {
		return nil, nil
	}
	return meta.BorrowGrad(), meta
}

// BorrowGrad returns the collected gradient, or nil, which stays what it is until [AutogradMeta.ReturnGrad].
func (meta *AutogradMeta) BorrowGrad() *Tensor {
	meta.mu.Lock()
	defer meta.mu.Unlock()
	meta.extended().borrowed++
	return meta.grad
}

// ReturnGrad ends the use of what [AutogradMeta.BorrowGrad] returned. Nil metadata has lent nothing.
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

// SetGrad replaces the gradient; nil drops it. The autograd metadata takes the reference that g is, and g leaves its scope.
func (t *Tensor) SetGrad(g *Tensor) { t.EnsureAutogradMeta().SetGrad(g) }

// SetGrad replaces the gradient; nil drops it. The autograd metadata takes the reference that g is, and g leaves its scope.
func (meta *AutogradMeta) SetGrad(g *Tensor) {
	if g != nil {
		g.kept = true
		if g.storage != nil && g.storage.held.category == Activation {
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

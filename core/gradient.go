package core

// Grad returns the collected gradient, or nil. The tensor belongs to t: [Tensor.SetGrad] releases it. Where other goroutines may
// replace it meanwhile, use [Tensor.BorrowGrad].
func (t *Tensor) Grad() *Tensor {
	h := t.history.Load()
	if h == nil {
		return nil
	}
	return h.Grad()
}

// Grad returns the collected gradient, or nil.
func (h *History) Grad() *Tensor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grad
}

// BorrowGrad returns the collected gradient, or nil, which stays what it is until [History.ReturnGrad] of the history that it
// returns too, also if another goroutine replaces it.
func (t *Tensor) BorrowGrad() (*Tensor, *History) {
	h := t.history.Load()
	if h == nil {
		return nil, nil
	}
	return h.BorrowGrad(), h
}

// BorrowGrad returns the collected gradient, or nil, which stays what it is until [History.ReturnGrad].
func (h *History) BorrowGrad() *Tensor {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.extended().borrowed++
	return h.grad
}

// ReturnGrad ends the use of what [History.BorrowGrad] returned. A nil history has lent nothing.
func (h *History) ReturnGrad() {
	if h == nil {
		return
	}
	h.mu.Lock()
	var old []*Tensor
	r := h.extended()
	if r.borrowed--; r.borrowed == 0 {
		old, r.replaced = r.replaced, nil
	}
	h.mu.Unlock()
	for _, g := range old {
		g.Release()
	}
}

// SetGrad replaces the gradient; nil drops it. The history takes the reference that g is, and g leaves its scope.
func (t *Tensor) SetGrad(g *Tensor) { t.EnsureHistory().SetGrad(g) }

// SetGrad replaces the gradient; nil drops it. The history takes the reference that g is, and g leaves its scope.
func (h *History) SetGrad(g *Tensor) {
	if g != nil {
		g.kept = true
		if g.storage != nil && g.storage.held.category == Activation {
			g.storage.SetCategory(Gradient)
		}
	}
	h.mu.Lock()
	old := h.grad
	h.grad = g
	if old == g {
		old = nil
	}
	if r := h.rare.Load(); old != nil && r != nil && r.borrowed > 0 {
		r.replaced = append(r.replaced, old)
		old = nil
	}
	h.mu.Unlock()
	if old != nil {
		old.Release()
	}
}

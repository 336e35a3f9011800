package core

// A Division is why a tensor is one rank's part of a larger one: what the larger one is called, in which words.
type Division struct {
	// Whole names the larger tensor, such as "parameter head.weight".
	Whole string
	// Advice says what to use in the place of the part.
	Advice string
}

// Refuse returns the error of an operation whose result would be that of the part alone.
func (d *Division) Refuse(op string) error {
	return Errorf(StateError, op, "%s is divided over ranks, and this is one rank's part: the result would be the part's alone; %s", d.Whole, d.Advice)
}

// Divide says that t is a part of a larger tensor, and returns it. Operations that work element by element make parts of parts;
// others fail. [Tensor.Detach] returns a tensor that is not one.
func (t *Tensor) Divide(d *Division) *Tensor {
	if t.Err() == nil {
		t.EnsureAutogradMeta().extended().division.Store(d)
	}
	return t
}

// Division returns why t is a part of a larger tensor; nil if it is none.
func (t *Tensor) Division() *Division {
	if meta := t.AutogradMeta(); meta != nil {
		return meta.Division()
	}
	return nil
}

// Division returns why the autograd metadata's tensor is a part of a larger one; nil if it is none.
func (meta *AutogradMeta) Division() *Division {
	if r := meta.rare.Load(); r != nil {
		return r.division.Load()
	}
	return nil
}

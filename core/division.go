package core

// A Division marks a tensor as one rank's shard of a larger tensor, and holds the words for its errors.
type Division struct {
	// Whole names the larger tensor, such as "parameter head.weight".
	Whole string
	// Advice says what to use instead of the shard.
	Advice string
}

// Refuse returns the error of an operation whose result would cover the shard alone.
func (d *Division) Refuse(op string) error {
	return Errorf(StateError, op, "%s is sharded over ranks, and this is one rank's part: the result would be the part's alone; %s", d.Whole, d.Advice)
}

// Divide marks t as a shard of a larger tensor, and returns it. Elementwise operations on shards give shards; other operations fail. The
// result of [Tensor.Detach] has no mark.
func (t *Tensor) Divide(d *Division) *Tensor {
	if t.Err() == nil {
		t.EnsureAutogradMeta().extended().division.Store(d)
	}
	return t
}

// Division returns t's mark as a shard of a larger tensor, or nil.
func (t *Tensor) Division() *Division {
	if meta := t.AutogradMeta(); meta != nil {
		return meta.Division()
	}
	return nil
}

// Division returns the tensor's mark as a shard of a larger tensor, or nil.
func (meta *AutogradMeta) Division() *Division {
	if r := meta.rare.Load(); r != nil {
		return r.division.Load()
	}
	return nil
}

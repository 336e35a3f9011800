package ddp

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// reduceBucket reduces a bucket whose gradients are all final, by a communication hook if there is one. It launches the collectives on a
// communication stream and does not wait for them.
func (r *Reducer) reduceBucket(b *Bucket) error {
	if r.options.FindUnused && r.options.SkipUnused && r.join == nil && !slices.ContainsFunc(b.params, func(i int) bool { return r.params[i].Tensor.Grad() != nil }) {
		return nil // no rank has a gradient
	}
	r.stats.Buckets++
	r.stats.Bytes += b.Bytes()
	r.stats.LastBytes += b.Bytes()
	return r.onCommStream(b.device, b.index, func() error {
		grads, err := b.collectGradients()
		if err != nil {
			return err
		}
		if weight := r.pass.gradientWeight[b.device]; weight != nil {
			for _, g := range grads {
				if err := op.MulInPlace(g, weight).Err(); err != nil {
					return err
				}
			}
		}
		switch {
		case r.foreignHook != 0:
			return r.askForeignHook(b, grads)
		case r.hook != nil:
			result, err := r.hook(b)
			if err != nil {
				return err
			}
			return b.setGradients(result, grads)
		case b.flat != nil:
			err = b.Average(b.flat)
		default:
			held := make([]*core.Tensor, len(grads)) // references, in case another thread drops the gradients
			for i, g := range grads {
				if held[i] = g.Detach(); held[i].Err() != nil {
					return core.Errorf(core.StateError, "ddp", "two threads use one module at the same time: the gradient of parameter %s went while it was averaged", r.params[b.params[i]].Name)
				}
			}
			err = b.Average(held...)
		}
		if err == nil && r.options.Weighted {
			b.propagateErrors(nil, grads)
		}
		return err
	})
}

// propagateErrors makes the gradients fail if result or a collective of this pass has failed. In-place operations keep the old
// values of their target after an error, and an optimiser must not take these for the average.
func (b *Bucket) propagateErrors(result *core.Tensor, grads []*core.Tensor) {
	works := slices.Clone(b.reducer.recentWorks[0])
	s := core.CurrentContext().Stream(b.device)
	c := s.Begin(-1, "ddp")
	for _, w := range works {
		c.AddWaits(w.Event())
	}
	for _, g := range grads {
		c.Out(g)
	}
	if result != nil {
		c.In(result)
	}
	c.HostOnly = true
	c.Fn = func() error {
		for _, w := range works {
			if err := w.Err(); err != nil {
				return err
			}
		}
		return nil
	}
	s.Launch(c)
}

// collectGradients returns the gradients of the bucket's parameters as contiguous tensors, with zeros for missing ones. If the bucket has a
// buffer, it copies them there and returns views of it.
func (b *Bucket) collectGradients() ([]*core.Tensor, error) {
	r := b.reducer
	grads := make([]*core.Tensor, len(b.params))
	for slot, i := range b.params {
		t := r.params[i].Tensor
		g := t.Grad()
		if g != nil && g.RequiresGrad() && r.group.Size() > 1 {
			return nil, core.Errorf(core.NotImplemented, "backward", "parameter %s of a parallel module: its gradient cannot be differentiated again, once it is averaged over ranks; without create_graph it is, and gradients of inputs (autograd.grad) can be recorded", r.params[i].Name)
		}
		if g != nil && (g.RequiresGrad() || !g.Contiguous()) {
			c := op.Clone(g) // in-place changes must not reach a graph
			if err := c.Err(); err != nil {
				return nil, err
			}
			t.SetGrad(c)
			g = c
		}
		if r.pass.shadow {
			g = nil
		}
		switch {
		case g == nil && b.flat != nil:
			v := b.views[slot]
			if err := op.ZeroInPlace(v).Err(); err != nil {
				return nil, err
			}
			g = v.Alias(false).Keep()
			b.addPlaceholder(slot, g)
		case g == nil:
			g = op.ZerosLike(t, op.TensorOptions{}).Keep()
			if err := g.Err(); err != nil {
				return nil, err
			}
			b.addPlaceholder(slot, g)
		case r.options.BucketView:
			if err := b.viewGradient(slot); err != nil {
				return nil, err
			}
			g = b.views[slot]
		case b.flat != nil:
			if err := op.CopyInPlace(b.views[slot], g).Err(); err != nil {
				return nil, err
			}
			g = b.views[slot]
		}
		grads[slot] = g
	}
	return grads, nil
}

// divisor returns the number of ranks by which sums are divided.
func (r *Reducer) divisor() int {
	if r.join != nil && r.join.options.DivideByActive {
		return r.join.active
	}
	return r.group.Size()
}

// askForeignHook passes the bucket to a hook of another language, through the caller of backward.
func (r *Reducer) askForeignHook(b *Bucket, grads []*core.Tensor) error {
	if key := (streamKey{b.device, b.index % streamsPerDevice}); r.contexts[key] == nil {
		here := core.CurrentContext()
		r.contexts[key] = here.OnStreamsOf(here)
	}
	q := &autograd.Request{ID: r.foreignHook, What: autograd.WantAsked, Grads: []*core.Tensor{b.flat}, Payload: b}
	then := func(answer []*core.Tensor) error {
		if len(answer) != 1 || answer[0] == nil {
			return core.Errorf(core.TypeError, "ddp", "a communication hook must return one tensor, got %d", len(answer))
		}
		defer answer[0].Release()
		return r.onCommStream(b.device, b.index, func() error { return b.setGradients(answer[0], grads) })
	}
	if r.join != nil && r.pass.shadow {
		r.join.hookRequests = append(r.join.hookRequests, hookRequest{q, then})
		return nil
	}
	return autograd.Ask(q, then)
}

// setGradients copies the result of a communication hook to the parameters' gradients.
func (b *Bucket) setGradients(result *core.Tensor, grads []*core.Tensor) error {
	if err := result.Usable("ddp"); err != nil {
		return err
	}
	if result.Numel() != b.numel || result.DType() != b.dtype {
		return core.Errorf(core.ShapeError, "ddp", "a communication hook must return a tensor like the bucket's buffer, got %v, want %v", result, b.flat)
	}
	if result.Storage() != b.flat.Storage() {
		if err := op.CopyInPlace(b.flat, op.Reshape(result, b.numel)).Err(); err != nil {
			return err
		}
	}
	if b.reducer.pass.shadow {
		return nil
	}
	if b.reducer.options.BucketView {
		b.propagateErrors(result, []*core.Tensor{b.flat})
		return nil
	}
	var written []*core.Tensor
	for slot, i := range b.params {
		g := b.reducer.params[i].Tensor.Grad()
		if b.placeholders != nil && b.placeholders[slot] != nil {
			// The next step reuses the buffer, so the gradient needs its own memory.
			c := op.Clone(b.views[slot]).Keep()
			b.placeholders[slot].Release()
			b.placeholders[slot] = c
			written = append(written, c)
			continue
		}
		if err := op.CopyInPlace(g, b.views[slot]).Err(); err != nil {
			return err
		}
		written = append(written, g)
	}
	b.propagateErrors(result, written)
	return nil
}

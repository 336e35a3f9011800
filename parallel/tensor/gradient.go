package tensor

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/mesh"
)

// Gradient undoes for derivatives what [share] does, which Seed does.
func (p *parts) Gradient(local *core.Tensor) *core.Tensor {
	if q := batchOf(local); q != nil {
		return q.With(p.times(q.Local().Size(0)).Gradient(q.Local()))
	}
	for i, q := range p.placements {
		if q.Kind == core.Pending && local.RequiresGrad() {
			shared := local
			core.EnableGrad(func() { local = once(p.mesh.Exchange(i), shared) })
			shared.Release()
		}
	}
	return wrap(p.gradient(), local)
}

func (p *parts) Seed(name string, grad *core.Tensor) (*core.Tensor, error) {
	if grad == nil {
		if n := core.Numel(p.shape); n != 1 {
			return nil, core.Errorf(core.ValueError, name, "a gradient can be implied only for an output with one element, got shape %v", p.shape)
		}
		if p.here.Numel() != 1 {
			return op.OnesLike(p.here, op.TensorOptions{}), nil // another rank has the element
		}
		return nil, nil
	}
	if q := batchOf(grad); q != nil {
		local, err := p.times(q.Local().Size(0)).Seed(name, q.Local())
		if err != nil {
			return nil, err
		}
		local = q.With(local)
		return local, local.Err()
	}
	if _, ok := grad.Parts().(*parts); grad.Err() == nil && !ok {
		return nil, core.Errorf(core.TypeError, name, "the gradient of a distributed tensor is a distributed tensor, got %v", grad)
	}
	local, err := p.taken(name, grad, p.gradient().placements)
	if err != nil {
		return nil, err
	}
	local = p.shared(local)
	return local, local.Err()
}

// shared returns the gradient of this rank's part for the gradient of the whole, which lies as gradient says.
func (p *parts) shared(local *core.Tensor) *core.Tensor {
	for i, q := range p.placements {
		if q.Kind == core.Pending {
			local = share(p.mesh.Exchange(i), local)
		}
	}
	return local
}

// batchOf returns where a tensor that vmap has batched is, or nil for others.
func batchOf(t *core.Tensor) core.Parts {
	if q := t.Parts(); q != nil && q.Depth() > 0 {
		return q
	}
	return nil
}

// times returns where n tensors of the same form are, one after another along a new dimension 0, but for their elements.
func (p *parts) times(n int) *parts {
	l := layout{p.mesh, append([]int{n}, p.shape...), slices.Clone(p.placements)}
	for i := range l.placements {
		if l.placements[i].Kind == core.Sharded {
			l.placements[i].Dim++
		}
	}
	return &parts{layout: l}
}

// OfGradient returns a gradient of a distributed tensor on m that is placed as given and has the given shape: local is the calling rank's part
// of it, as a function or a hook in a backward pass gets it. See [PartOfGradient].
func OfGradient(local *core.Tensor, m *mesh.Mesh, placements []core.Placement, shape []int) *core.Tensor {
	l, err := newLayout("gradient", m, shape, placements)
	if err == nil {
		err = local.Usable("gradient")
	}
	if err != nil {
		return core.ErrorTensor(err)
	}
	return (&parts{layout: l}).Gradient(local.Alias(true))
}

// PartOfGradient returns the calling rank's part of grad, a gradient of a distributed tensor that is placed as given: what a function or a hook
// in a backward pass gives back, for the operation of the given name. It moves a gradient that lies otherwise.
func PartOfGradient(name string, grad *core.Tensor, placements []core.Placement) *core.Tensor {
	q, err := of(name, grad)
	if err != nil {
		return core.ErrorTensor(err)
	}
	l, err := newLayout(name, q.mesh, q.shape, placements)
	if err != nil {
		return core.ErrorTensor(err)
	}
	local, err := (&parts{layout: l}).Seed(name, grad)
	if err != nil {
		return core.ErrorTensor(err)
	}
	if local == q.here {
		local = local.Alias(true)
	}
	return local
}

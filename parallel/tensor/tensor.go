package tensor

import (
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/mesh"
)

// parts implements [core.Parts].
type parts struct {
	layout
	here *core.Tensor // this rank's part
	// apart says that on one device it would be a view of another tensor, and that it has a copy of the elements because they had to move.
	apart bool

	mu   sync.Mutex
	uses map[uint64]usedPart // see use
}

// wrap returns the distributed tensor of which local is this rank's part. It takes over local.
func wrap(l layout, local *core.Tensor) *core.Tensor {
	if local.Err() != nil {
		return local
	}
	return core.NewDistributed(core.CurrentMode(), &parts{layout: l, here: local}, local.DType(), l.shape)
}

func (p *parts) Sparse() bool { return false }

func (p *parts) Depth() int { return 0 }

func (p *parts) Recorded() bool { return false }

func (p *parts) Local() *core.Tensor { return p.here }

func (p *parts) With(local *core.Tensor) *core.Tensor {
	t := wrap(p.layout, local)
	if q, ok := t.Parts().(*parts); ok {
		q.apart = p.apart
	}
	return t
}

func (p *parts) Take(name string, t *core.Tensor) (*core.Tensor, error) {
	return p.taken(name, t, p.placements)
}

// taken is Take for a tensor that is to lie as given.
func (p *parts) taken(name string, t *core.Tensor, placements []core.Placement) (*core.Tensor, error) {
	if err := t.Present(name); err != nil {
		return nil, err
	}
	q, ok := t.Parts().(*parts)
	if !ok {
		q = &parts{layout: layout{p.mesh, t.Shape(), make([]core.Placement, len(p.placements))}, here: t}
	}
	switch {
	case !same(q.mesh, p.mesh):
		return nil, core.Errorf(core.ValueError, name, "got %v on the mesh %v, want the mesh %v: redistribution between meshes is not possible", t, q.mesh, p.mesh)
	case !slices.Equal(q.shape, p.shape):
		return nil, core.Errorf(core.ShapeError, name, "got %v, want the shape %v", t, p.shape)
	}
	local := relay(q.here, q.layout, placements)
	return local, local.Err()
}

func (p *parts) First() bool {
	for i, c := range p.mesh.Coordinate() {
		if c > 0 && p.placements[i].Kind != core.Sharded {
			return false
		}
	}
	return true
}

func (p *parts) Beside(q core.Parts) bool {
	other, ok := q.(*parts)
	return ok && same(p.mesh, other.mesh)
}

func (p *parts) Combine(purpose string, t *core.Tensor, c core.Combination) *core.Tensor {
	for i := range p.placements {
		if t.Err() != nil {
			break
		}
		t = combined(p.mesh.Exchange(i).For(purpose), t, c)
	}
	return t
}

func (p *parts) Like(shape []int, fill func(local []int) *core.Tensor) *core.Tensor {
	l := p.like(shape)
	return wrap(l, fill(l.local()))
}

func (p *parts) Pending() bool {
	return slices.ContainsFunc(p.placements, func(q core.Placement) bool { return q.Kind == core.Pending })
}

func (p *parts) Whole() *core.Tensor {
	whole := relay(p.here, p.layout, make([]core.Placement, len(p.placements)))
	if whole == p.here {
		whole = whole.Alias(true)
	}
	return whole
}

func (p *parts) Release() {
	p.here.Release()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.uses {
		u.release()
	}
	p.uses = nil
}

// divided returns the part with a gradient that is summed over the ranks along the given dimensions of the mesh.
func (p *parts) divided(axes uint64) *core.Tensor {
	t := p.here
	if axes == 0 || !core.CurrentMode().GradEnabled() || !t.RequiresGrad() {
		return t
	}
	for i := range p.placements {
		if axes&(1<<i) != 0 {
			t = divided(p.mesh.Exchange(i), t)
		}
	}
	return t
}

// use returns the part for an op that ranks along the given dimensions of the mesh divide among themselves, although the part is replicated
// along them: the gradients that it gets on those ranks are summed. Ops that use it after each other get the same tensor, so their
// gradients are added up before they are summed over the ranks.
func (p *parts) use(axes uint64) *core.Tensor {
	if axes == 0 || !core.CurrentMode().GradEnabled() || !p.here.RequiresGrad() {
		return p.here
	}
	if core.ForwardActive() {
		return p.divided(axes) // which tangents are seen depends on the op's place in the program
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.here.AutogradMeta().Edge()
	if u, ok := p.uses[axes]; ok {
		if u.pass == p.mesh.Pass() && u.place == place && u.hooks == place.Node.HasHooks() && u.tensor.Storage() == p.here.Storage() && u.tensor.Storage() != nil {
			place.Node.Release()
			return u.tensor
		}
		u.release()
		delete(p.uses, axes)
	}
	t := p.divided(axes)
	if t.Err() != nil {
		place.Node.Release()
		return t
	}
	if p.uses == nil {
		p.uses = map[uint64]usedPart{}
	}
	p.uses[axes] = usedPart{t.Keep(), p.mesh.Pass(), place, place.Node.HasHooks()}
	return t
}

// A usedPart is what use returned for a part, which then had the given place in the graph.
type usedPart struct {
	tensor *core.Tensor
	pass   *mesh.Pass
	place  core.Edge
	hooks  bool // whether there were any at this place
}

func (u usedPart) release() {
	u.tensor.Release()
	u.place.Node.Release()
}

// of returns where a tensor is, or an error if it is not distributed.
func of(name string, t *core.Tensor) (*parts, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	p, ok := t.Parts().(*parts)
	if !ok {
		return nil, core.Errorf(core.TypeError, name, "got %v, want a distributed tensor", t)
	}
	return p, nil
}

// FromLocal returns the distributed tensor of which local is the calling rank's part. shape is that of the whole; nil means that all ranks'
// parts have the shape of this one. Gradients flow to local: those of a part of a mean are divided by the number of parts. It does not
// communicate.
func FromLocal(local *core.Tensor, m *mesh.Mesh, placements []core.Placement, shape []int) *core.Tensor {
	const name = "from_local"
	if err := local.Usable(name); err != nil {
		return core.ErrorTensor(err)
	}
	return Own(local.Alias(true), m, placements, shape)
}

// Own is [FromLocal] that takes over local.
func Own(local *core.Tensor, m *mesh.Mesh, placements []core.Placement, shape []int) *core.Tensor {
	const name = "from_local"
	if err := local.Err(); err != nil {
		return core.ErrorTensor(err)
	}
	if local.IsNumber() {
		return core.ErrorTensor(core.Errorf(core.TypeError, name, "got a number, want a tensor"))
	}
	whole := shape
	if whole == nil {
		whole = slices.Clone(local.Shape())
		for i, p := range placements {
			if d := p.Dim; p.Kind == core.Sharded && i < len(m.Shape()) {
				if d < 0 {
					d += len(whole)
				}
				if d >= 0 && d < len(whole) {
					whole[d] *= m.Shape()[i]
				}
			}
		}
	}
	l, err := newLayout(name, m, whole, placements)
	if err != nil {
		return core.ErrorTensor(err)
	}
	if want := l.local(); !slices.Equal(want, local.Shape()) {
		return core.ErrorTensor(core.Errorf(core.ShapeError, name, "rank %v of the mesh %v has a part of shape %v of a tensor of shape %v placed %v, got %v",
			m.Coordinate(), m, want, whole, l, local.Shape()))
	}
	if n := l.averaged(); n > 1 {
		local = times(name, local, 1/float64(n))
	}
	return wrap(l, local)
}

// averaged returns the number of parts of which the elements are means.
func (l layout) averaged() int {
	n := 1
	for i, p := range l.placements {
		if p.Kind == core.Pending && p.Combine == core.Means {
			n *= l.mesh.Shape()[i]
		}
	}
	return n
}

// Distribute returns a distributed tensor with the elements that t has on the first rank of the mesh. It is a leaf, which requires a
// gradient if t does. On the other ranks t gives the shape and the dtype.
//
// It gives all ranks the state of the first rank's random generator, and waits for them.
func Distribute(t *core.Tensor, m *mesh.Mesh, placements []core.Placement) *core.Tensor {
	const name = "distribute_tensor"
	if err := t.Usable(name); err != nil {
		return core.ErrorTensor(err)
	}
	l, err := newLayout(name, m, t.Shape(), placements)
	if err != nil {
		return core.ErrorTensor(err)
	}
	if err := alignGenerators(m, t.Device()); err != nil {
		return core.ErrorTensor(err)
	}
	var local *core.Tensor
	core.NoGrad(func() {
		local = tidy(func() *core.Tensor {
			whole := fresh(t)
			for i := range l.placements {
				if whole.Err() != nil {
					return whole
				}
				whole = done(m.Group(i).Broadcast(whole, 0), whole, whole)
			}
			return relay(whole, l.with(make([]core.Placement, len(l.placements))), l.placements).Detach()
		})
	})
	if local.Err() != nil {
		return local
	}
	return wrap(l, local.SetRequiresGrad(t.RequiresGrad()))
}

// Locate returns the shape of the calling rank's part of a tensor of the given shape, and where it begins in the whole: at the end of a
// dimension of which the rank has nothing.
func Locate(m *mesh.Mesh, placements []core.Placement, shape []int) (local, offset []int, err error) {
	l, err := newLayout("distributed tensor", m, shape, placements)
	if err != nil {
		return nil, nil, err
	}
	return l.local(), l.starts(), nil
}

// Offset returns where the calling rank's part of a distributed tensor begins in the whole; nil for an ordinary tensor. See [Boxes].
func Offset(t *core.Tensor) []int {
	p, ok := t.Parts().(*parts)
	if !ok {
		return nil
	}
	return p.starts()
}

// A Box is a part of a tensor without gaps.
type Box struct {
	Offset []int // in the whole
	At     []int // in the calling rank's part
	Shape  []int
}

// Boxes returns the boxes that make up the calling rank's part of a distributed tensor: one, or several if a shard is interleaved. There are
// none if the part is empty.
func Boxes(t *core.Tensor) []Box {
	p, ok := t.Parts().(*parts)
	if !ok {
		return nil
	}
	list := []Box{{}}
	for d := range p.shape {
		before, at := list, 0
		list = nil
		for _, r := range p.rows(d, p.splits(d), p.mesh.Coordinate()) {
			for _, b := range before {
				list = append(list, Box{append(slices.Clone(b.Offset), r.start), append(slices.Clone(b.At), at), append(slices.Clone(b.Shape), r.length)})
			}
			at += r.length
		}
	}
	return list
}

// Make returns a distributed tensor whose part on each rank fill makes, for the part's shape.
func Make(m *mesh.Mesh, placements []core.Placement, shape []int, fill func(local []int) *core.Tensor) *core.Tensor {
	l, err := newLayout("distributed tensor", m, shape, placements)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return wrap(l, fill(l.local()))
}

// Redistribute returns t with other placements, differentiably. It moves as few bytes as each pair of placements allows: it keeps a part,
// gathers parts, exchanges parts, reduces, or reduces and scatters.
func Redistribute(t *core.Tensor, placements []core.Placement) *core.Tensor {
	p, err := of("redistribute", t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	l, err := newLayout("redistribute", p.mesh, p.shape, placements)
	if err != nil {
		return core.ErrorTensor(err)
	}
	local := relay(p.here, p.layout, l.placements)
	if local == p.here {
		local = local.Alias(true)
	}
	return wrap(l, local)
}

// Local returns the calling rank's part as an ordinary tensor, through which gradients flow. Where the tensor is replicated, the gradient
// must be too: every rank of the mesh uses the part alike, or grads, the placements of its gradient, say that it does not. Without them the
// gradient is that of the part: the whole, a mean of parts, has n times the gradient of one.
func Local(t *core.Tensor, grads []core.Placement) *core.Tensor {
	p, err := of("to_local", t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	want := p.gradient()
	if grads == nil {
		if n := p.averaged(); n > 1 {
			return times("to_local", p.here, float64(n))
		}
		return p.here.Alias(true)
	}
	got, err := newLayout("to_local", p.mesh, p.shape, grads)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return move("to_local", p.here, func(x *core.Tensor) *core.Tensor { return x.Alias(false) },
		func(x *core.Tensor) *core.Tensor { return p.shared(relay(x, got, want.placements)) })
}

// Full returns the whole tensor as an ordinary tensor, differentiably. All ranks of the mesh must call it.
func Full(t *core.Tensor) *core.Tensor {
	p, err := of("full_tensor", t)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return p.Whole()
}

// Placements returns how t lies on its mesh; nil for an ordinary tensor.
func Placements(t *core.Tensor) []core.Placement {
	if p, ok := t.Parts().(*parts); ok {
		return slices.Clone(p.placements)
	}
	return nil
}

// PlacementsLike returns how a tensor of the given shape lies that lies as t does: it is sharded along dimensions that have the same size in
// both, elsewhere replicated. For an ordinary t it returns nil.
func PlacementsLike(t *core.Tensor, shape []int) []core.Placement {
	if p, ok := t.Parts().(*parts); ok {
		return p.like(shape).placements
	}
	return nil
}

// Mesh returns the mesh of t; nil for an ordinary tensor.
func Mesh(t *core.Tensor) *mesh.Mesh {
	if p, ok := t.Parts().(*parts); ok {
		return p.mesh
	}
	return nil
}

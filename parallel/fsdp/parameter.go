package fsdp

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/meta"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// A parameter is one parameter of a unit. A sharded one has two tensors, the shard and the full parameter. The tensor that the
// module has is one of them, and the two exchange contents when the unit is unsharded and resharded.
type parameter struct {
	unit   *Unit
	name   string
	tensor *core.Tensor // the module's tensor: the full parameter if unit.usesFull, otherwise the shard
	other  *core.Tensor // the other of the two; nil if replicated
	shape  []int        // shape of the full parameter; of this rank's part of it, if that is a distributed tensor
	dim    int          // the dimension along which it is sharded; its indices are called rows
	rows   []int        // rank r has rows rows[r] to rows[r+1]; of a parameter without dimensions every rank has all
	sizes  []int        // number of elements that each rank gives to an all-gather: those of its shard

	recorded         storageVersion // contents of the shard at [Unit.recordShards]
	gatheredFrom     storageVersion // contents of the shard at the last all-gather
	gatheredTo       storageVersion // contents of the full parameter after it
	written          storageVersion // contents of the full parameter that the shards have
	warned           bool           // that a change of the full parameter was lost
	postForwardShard *core.Tensor   // with [Options.Partial], this rank's part between forward and backward
	removeHooks      func()

	// The shard is a distributed tensor. A parameter may be one already, as with tensor parallelism. The ranks of the unit then shard the
	// part that they all have, and the shard is a distributed tensor of more dimensions.
	mesh *mesh.Mesh // of the shard; nil if replicated

	gradientPending bool         // this backward pass has yet to compute the gradient
	gradientMissing bool         // the last backward pass on this rank has computed no gradient
	postponed       bool         // the last reduction has had no gradient of this rank
	held            *core.Tensor // a reduced gradient, until this backward pass knows the shard's own: see leafhooks.go
	joined          bool         // the reduced gradient of this backward pass was held
	hadGradient     bool         // the shard had a gradient before the last reduction
	partialGradient *core.Tensor // with [Unit.SetAllReduce] off, the gradient summed over the shard group and not over replicas
	unreduced       bool         // replicated parameter: its gradient was not all-reduced yet
	reducedGradient *core.Tensor // replicated parameter: the earlier gradient, already all-reduced, while unreduced

	hiddenFull       *core.Tensor   // the full parameter, while [Unit.Summon] shows a copy
	shownVersion     storageVersion // contents of the full parameter when Summon showed it
	shownGradVersion uint32         // version of its gradient
}

// chunkRows returns how n ranks divide rows: rank r has list[r] to list[r+1]. All chunks are of one size, except that the last
// ones may be smaller or empty.
func chunkRows(rows, n int) []int {
	each := (rows + n - 1) / n
	list := make([]int, n+1)
	for r := range list {
		list[r] = min(r*each, rows)
	}
	return list
}

// setLayout sets which rows each rank has of a parameter of the given shape. A parameter without dimensions is one row, of which every rank
// has a copy: the optimisers of all ranks change theirs alike.
func (p *parameter) setLayout(shape []int, ranks int) {
	p.shape = slices.Clone(shape)
	rows, width := 1, 1
	if len(shape) > 0 {
		rows, width = shape[p.dim], core.Numel(shape[:p.dim])*core.Numel(shape[p.dim+1:])
	}
	p.rows = chunkRows(rows, ranks)
	p.sizes = chunkSizes(p.rows, width)
}

// chunkSizes returns the number of elements in each chunk of rows.
func chunkSizes(rows []int, width int) []int {
	list := make([]int, len(rows)-1)
	for r := range list {
		list[r] = (rows[r+1] - rows[r]) * width
	}
	return list
}

// shapeOf returns the shape of rank r's shard.
func (p *parameter) shapeOf(r int) []int {
	s := slices.Clone(p.shape)
	if len(s) > 0 {
		s[p.dim] = p.rows[r+1] - p.rows[r]
	}
	return s
}

// strided reports whether the ranks' rows do not lie one after the other in the full parameter.
func (p *parameter) strided() bool { return len(p.shape) > 0 && core.Numel(p.shape[:p.dim]) > 1 }

// eachPart calls f with the rows of each rank in a full tensor, and with their place in a flat one that has the ranks' rows one after the
// other, as views of the same shape, until f fails.
func (p *parameter) eachPart(full, flat *core.Tensor, f func(rows, packed *core.Tensor) error) error {
	offset := 0
	for r, n := range p.sizes {
		if n == 0 {
			continue
		}
		rows := op.Narrow(full, p.dim, p.rows[r], p.rows[r+1]-p.rows[r])
		if err := f(rows, op.Reshape(op.Narrow(flat, 0, offset, n), p.shapeOf(r)...)); err != nil {
			return err
		}
		offset += n
	}
	return nil
}

// emptyFlat returns a new flat tensor like a full one.
func (p *parameter) emptyFlat(full *core.Tensor) *core.Tensor {
	d := full.DType()
	return op.EmptyWith([]int{core.Numel(p.shape)}, op.TensorOptions{DType: &d, Device: full.Device()})
}

// pack returns a full tensor as a flat one that has the ranks' rows one after the other.
func (p *parameter) pack(full *core.Tensor) *core.Tensor {
	flat := p.emptyFlat(full)
	err := flat.Err()
	if err == nil {
		err = p.eachPart(full, flat, func(rows, packed *core.Tensor) error { return op.CopyInPlace(packed, rows).Err() })
	}
	if err != nil {
		return core.ErrorTensor(err)
	}
	return flat
}

// unpack writes what [parameter.pack] would return for a full tensor to it.
func (p *parameter) unpack(full, flat *core.Tensor) error {
	return p.eachPart(full, flat, func(rows, packed *core.Tensor) error { return op.CopyInPlace(rows, packed).Err() })
}

// narrowRows returns the first dimension's rows from to to of a full tensor, as a view.
func (p *parameter) narrowRows(full *core.Tensor, from, to int) *core.Tensor {
	if len(p.shape) == 0 {
		return op.Narrow(op.Reshape(full, 1), 0, 0, to-from)
	}
	return op.Narrow(full, 0, from, to-from)
}

// localView returns this rank's rows of a full tensor, as a view in the shape of the shard.
func (p *parameter) localView(full *core.Tensor) *core.Tensor {
	r := p.unit.rank()
	if len(p.shape) == 0 {
		return full
	}
	return op.Narrow(full, p.dim, p.rows[r], p.rows[r+1]-p.rows[r])
}

// offered returns what this rank gives to an all-gather: t, a tensor like the shard. Of a parameter without dimensions the first rank's
// copy is taken.
func (p *parameter) offered(t *core.Tensor) *core.Tensor {
	if len(p.shape) == 0 && p.unit.rank() > 0 {
		return op.Narrow(op.Reshape(t, 1), 0, 0, 0)
	}
	return t
}

// spread returns a full gradient and the number of its elements that each rank gets of a reduce-scatter. Of one without dimensions each
// rank gets the sum.
func (p *parameter) spread(g *core.Tensor) (*core.Tensor, []int) {
	if p.strided() {
		return p.pack(g), p.sizes
	}
	if len(p.shape) > 0 {
		return g, p.sizes
	}
	n := len(p.sizes)
	return op.Contiguous(op.Expand(op.Reshape(g, 1), n)), slices.Repeat([]int{1}, n)
}

// numel returns the number of elements of rank r's shard.
func (p *parameter) numel(r int) int {
	if len(p.shape) == 0 {
		return 1
	}
	return p.sizes[r]
}

// part returns this rank's part of a distributed tensor, and an ordinary one as it is.
func part(t *core.Tensor) *core.Tensor {
	if q := t.Parts(); q != nil {
		return q.Local()
	}
	return t
}

// sharded returns the tensor that the module has while the unit is not unsharded.
func (p *parameter) sharded() *core.Tensor {
	if p.unit.usesFull {
		return p.other
	}
	return p.tensor
}

// shard returns the shard, whether the unit is unsharded or not: of a distributed tensor this rank's part.
func (p *parameter) shard() *core.Tensor { return part(p.sharded()) }

// full returns the full parameter, whose storage may be empty: of a distributed tensor this rank's part.
func (p *parameter) full() *core.Tensor {
	if p.unit.usesFull || p.unit.replicated() {
		return part(p.tensor)
	}
	if p.other == nil {
		return nil
	}
	return part(p.other)
}

// shardTensor makes the module's tensor, which is the full parameter so far, the shard. It creates a full parameter with an empty
// storage. On the only rank of a group the two share memory.
func (p *parameter) shardTensor() error {
	u, t := p.unit, p.tensor
	if u.alone {
		full := part(t).Detach().Keep()
		full.SetRequiresGrad(t.RequiresGrad())
		return p.install(part(t).Alias(true), full)
	}
	var shard *core.Tensor
	core.NoGrad(func() {
		core.WithCategory(core.Parameter, func() {
			core.Tidy(func() {
				shard = p.localCopy(part(t)).Keep()
			})
		})
	})
	if err := shard.Err(); err != nil {
		return err
	}
	shard.Storage().SetCategory(core.Parameter)
	shard.SetRequiresGrad(t.RequiresGrad())
	shard.EnsureAutogradMeta().TakeHooks(t.EnsureAutogradMeta())
	return p.install(shard, core.NewEmptied(core.CurrentMode(), u.stream, u.computeDType(t.DType()), p.shape, core.Communication).Keep())
}

// install makes shard, this rank's part, the contents of the module's tensor, and full the full parameter. It takes over both.
func (p *parameter) install(shard, full *core.Tensor) error {
	t := p.tensor
	p.other = full
	if q := t.Parts(); q != nil {
		p.other = q.With(full).Keep()
	}
	shard = tensor.Own(shard, p.mesh, p.placements(), t.Shape()).Keep()
	err := shard.Err()
	if err == nil {
		err = t.Exchange(shard)
	}
	shard.Release()
	if err != nil {
		p.other.Release()
		p.other = nil
		return err
	}
	p.explain()
	p.removeHooks = p.hookGradient(full)
	full.EnsureAutogradMeta().StandFor(t.AutogradMeta())
	p.shard().EnsureAutogradMeta().RunLast(p.addHeld)
	return nil
}

// placements returns how the shard lies on its mesh: along the mesh of the unit, and as the parameter did before it was sharded. The shard is
// interleaved if the ranks have divided its dimension before.
func (p *parameter) placements() []core.Placement {
	list := make([]core.Placement, len(p.unit.mesh.Shape())) // along replicas it is replicated
	before := tensor.Placements(p.tensor)
	if len(p.shape) > 0 {
		ranks := 1
		for i, q := range before {
			if q.Shards(p.dim) {
				ranks *= tensor.Mesh(p.tensor).Shape()[i]
			}
		}
		list[len(list)-1] = core.InterleavedShard(p.dim, ranks)
	}
	return append(list, before...)
}

// explain makes operations on the shard and ordinary tensors fail with an error that names the parameter and its unit.
func (p *parameter) explain() {
	p.shard().EnsureAutogradMeta().Explain(core.Errorf(core.StateError, "fsdp",
		"parameter %s is sharded over ranks and is not gathered now: call the module %q itself, or register the method that uses it (register_fsdp_forward_method), or gather it (unshard); full_tensor() has its whole value, to_local() this rank's part", p.name, p.unit.options.Name))
}

// localCopy returns a copy of this rank's rows of a full tensor, on the device of the shards. For a tensor of the meta device it
// creates the values of these rows only, if they lie one after the other.
func (p *parameter) localCopy(full *core.Tensor) *core.Tensor {
	u := p.unit
	if full.Device().Kind() != core.MetaKind {
		shard := op.Contiguous(op.Clone(p.localView(full.Detach())))
		if o := u.options.Offload; o != nil && shard.Err() == nil {
			return op.ToDevice(shard, o)
		}
		return shard
	}
	dev := u.device
	if u.options.Offload != nil {
		dev = u.options.Offload
	}
	r, from := u.rank(), 0
	for _, n := range p.sizes[:r] {
		from += n
	}
	to := from + p.numel(r)
	switch {
	case len(p.shape) == 0:
		from, to = 0, 1
	case p.strided():
		from, to = 0, core.Numel(p.shape) // the whole, for a moment
	}
	made := meta.Part(full.Detach(), from, to, dev)
	if made.Err() != nil {
		return core.ErrorTensor(core.Errorf(core.StateError, "fsdp", "parameter %s: %w", p.name, made.Err()))
	}
	if p.strided() {
		return op.Contiguous(op.Clone(p.localView(op.Reshape(made, p.shape...))))
	}
	return op.Reshape(made, p.shapeOf(r)...)
}

// Materialize gives a tensor of the meta device, such as a module's buffer, its values on device dev. Memory is counted in
// category cat. It does nothing for other tensors.
func Materialize(t *core.Tensor, dev core.Device, cat core.Category) error {
	if t.Device().Kind() != core.MetaKind {
		return nil
	}
	made := meta.Materialize(t.Detach(), dev).Keep()
	if err := made.Err(); err != nil {
		return err
	}
	defer made.Release()
	made.Storage().SetCategory(cat)
	made.SetRequiresGrad(t.RequiresGrad())
	return t.Exchange(made)
}

// hookGradient adds the hook that calls [Unit.gradientReady] after backward has accumulated the gradient of t, the full parameter. It
// returns a function that removes the hook.
func (p *parameter) hookGradient(t *core.Tensor) (remove func()) {
	return t.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
		if err := p.unit.gradientReady(p); err != nil {
			return core.ErrorTensor(err)
		}
		return nil
	}, Failed: p.backwardFailed})
}

// hookReplicated adds the hooks of a replicated parameter.
func (p *parameter) hookReplicated() {
	t := p.full()
	after := p.hookGradient(t)
	before := func() {}
	if requires := t.RequiresGrad(); t.DType().IsFloat() {
		t.SetRequiresGrad(true) // hooks need it, and a frozen parameter may be unfrozen later
		before = t.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
			p.saveReducedGradient()
			return nil
		}})
		t.SetRequiresGrad(requires)
	}
	p.removeHooks = func() {
		before()
		after()
	}
}

// saveReducedGradient runs before a gradient of a replicated parameter is accumulated. With a divide factor it moves the earlier,
// already reduced gradient to p.reducedGradient, so that it is not divided again. With an average this is not needed: the average
// of equal gradients is the same gradient.
func (p *parameter) saveReducedGradient() {
	g := p.full().Grad()
	if !p.unreduced && g != nil && p.unit.divideFactor != 0 {
		p.reducedGradient = g.Detach().Keep()
		p.full().SetGrad(nil)
	} else if p.unreduced && g == nil { // the caller has dropped the gradient
		p.reducedGradient.Release()
		p.reducedGradient = nil
	}
	p.unreduced = true
}

// addReducedGradient adds the gradient saved by saveReducedGradient to the new one, which is reduced now.
func (p *parameter) addReducedGradient() error {
	p.unreduced = false
	if p.reducedGradient == nil {
		return nil
	}
	if err := op.AddInPlace(p.reducedGradient, p.full().Grad()).Err(); err != nil {
		return err
	}
	p.full().SetGrad(p.reducedGradient)
	p.reducedGradient = nil
	return nil
}

// release frees what the unit has added to the module's tensor, which stays the shard.
func (p *parameter) release() {
	if p.removeHooks != nil {
		p.removeHooks()
		p.removeHooks = nil
	}
	if p.other != nil && p.unit.group != nil {
		autograd.RefillAlways(p.full().Storage(), nil)
	}
	for _, t := range []**core.Tensor{&p.other, &p.postForwardShard, &p.partialGradient, &p.reducedGradient, &p.held} {
		if *t != nil {
			(*t).Release()
			*t = nil
		}
	}
	if meta := p.tensor.AutogradMeta(); meta != nil {
		meta.Explain(nil)
		if !p.unit.replicated() {
			meta.RunLast(nil)
		}
	}
}

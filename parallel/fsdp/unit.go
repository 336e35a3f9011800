package fsdp

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// A Unit is a list of parameters that are all-gathered together and whose gradients are reduced together, such as those of one
// wrapped layer. It is what PyTorch calls FSDPParamGroup, or FlatParamHandle. Its methods belong to the thread of its rank.
type Unit struct {
	group            *collective.Group // shard group; nil if the parameters are replicated
	alone            bool              // the only rank of a shard group, which is nil: shards and full parameters share memory
	options          Options
	mesh             *mesh.Mesh // of ordinary parameters' shards: [Options.Mesh], or the ranks of group in a row
	params           []*parameter
	device           core.Device
	stream           core.Stream       // compute stream, which owns the full parameters' memory
	postForwardGroup *collective.Group // with [Options.Partial], the ranks of the all-gather in backward
	purpose          string            // the unit's description, in errors of its collectives
	tree             *Tree
	guard            atomic.Pointer[core.Guard] // guard of the unit's present or last tree

	gathered        bool       // the full parameters have values: the all-gather was started and the memory was not freed since
	usesFull        bool       // the module's tensors are the full parameters
	shardsReady     core.Event // the shards were not written after this event: see [Unit.recordShards]
	reshardSkipped  bool       // left unsharded after a pass, for backward or the next forward
	manualUnshard   bool       // unsharded by [Unit.Unshard], until [Unit.Reshard] or the next forward pass
	summoned        bool       // unsharded by [Unit.Summon]
	activeForwards  int        // number of forward passes in the unit
	skippedForwards int        // number of forward calls that only pass an error on
	activeSummons   int        // number of [Unit.SummonBegin] without [Unit.SummonEnd]

	lastForward      *unitForward
	inBackward       bool
	backwardRun      *autograd.Run  // the backward pass, if inBackward
	forwards         []*unitForward // forward passes that this backward pass has reached
	pendingGradients int            // number of parameters whose gradients this backward pass has yet to compute
	inPart           bool           // this backward pass does not reach all trained parameters
	reduceStarted    bool           // this backward pass has started the reduction of the gradients
	unreduced        bool           // gradients were accumulated since the last reduction

	reduceGradients      bool    // see [Unit.SetSync]
	allReduceGradients   bool    // see [Unit.SetAllReduce]
	reshardAfterBackward bool    // see [Unit.SetReshardAfterBackward]
	divideFactor         float64 // see [Unit.SetDivideFactor]; 0 means the number of ranks
	forwardPrefetch      []*Unit // see [Unit.SetPrefetch]; nil means the order of the last pass
	backwardPrefetch     []*Unit
	commHook             Hook
	foreignHook          uint64 // ID of a communication hook of another language, or 0
	dropForeignHook      func()
	stats                Stats
	closed               bool
}

// Stats count the collectives of a [Unit].
type Stats struct {
	Gathers    int // all-gathers of parameters
	Prefetches int // all-gathers that were prefetched
	Reductions int // reductions of gradients
}

// NewUnit shards parameters over the ranks of group. With a nil group the parameters are replicated, and only their gradients are
// averaged over [Options.Replicas]. params may be empty; they are leaves with all rows, and become shards. Names differ within a
// unit.
//
// Every rank calls it with parameters of the same names, shapes and dtypes in the same order. If they differ, every rank gets an
// error that names the first difference.
func NewUnit(group *collective.Group, params []Named, o Options) (*Unit, error) {
	u := &Unit{group: group, options: o, mesh: o.Mesh, reduceGradients: true, allReduceGradients: true, reshardAfterBackward: true}
	if u.mesh == nil && group != nil {
		m, err := mesh.New(group, []int{group.Size()}, mesh.Options{Groups: []*collective.Group{group}})
		if err != nil {
			return nil, err
		}
		u.mesh = m
	}
	if group != nil && group.Size() == 1 && o.Offload == nil && o.Precision.Param == nil {
		u.group, u.alone = nil, o.Mesh != nil || !slices.ContainsFunc(params, func(n Named) bool { return n.Tensor.Parts() != nil })
	}
	problem := o.check(u.group)
	seen := map[*core.Tensor]bool{}
	for _, n := range params {
		if seen[n.Tensor] {
			continue // a second name of the same parameter
		}
		seen[n.Tensor] = true
		p := &parameter{unit: u, name: n.Name, tensor: n.Tensor}
		if problem == nil && u.param(n.Name) != nil {
			problem = core.Errorf(core.ValueError, "fsdp", "unit %q has two parameters %s", o.Name, n.Name)
		}
		if problem == nil {
			problem = u.checkParam(p)
		}
		u.params = append(u.params, p)
	}
	if err := u.verify(problem); err != nil {
		return nil, err
	}
	if _, err := NewTree([]*Unit{u}); err != nil {
		return nil, err
	}
	if err := u.shardParams(); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// Tree returns the tree of the unit.
func (u *Unit) Tree() *Tree { return u.tree }

// param returns the parameter of that name, or nil.
func (u *Unit) param(name string) *parameter {
	for _, p := range u.params {
		if p.name == name {
			return p
		}
	}
	return nil
}

// checkParam returns an error if p cannot be sharded. It also sets the unit's device and p's layout.
func (u *Unit) checkParam(p *parameter) error {
	t := p.tensor
	if err := part(t).Usable("fsdp"); err != nil {
		return core.Errorf(core.StateError, "fsdp", "parameter %s: %w", p.name, err)
	}
	if meta := t.AutogradMeta(); meta != nil && meta.Explained() != nil {
		return core.Errorf(core.StateError, "fsdp", "parameter %s is sharded over ranks already", p.name)
	}
	if !t.IsLeaf() {
		return core.Errorf(core.ValueError, "fsdp", "parameter %s is the result of an operation, want a leaf", p.name)
	}
	dev := t.Device()
	if dev.Kind() == core.MetaKind {
		var err error
		if dev, err = core.CurrentContext().Home(); err != nil {
			return err
		}
	}
	if u.device == nil {
		u.device = dev
	}
	if dev != u.device {
		return core.Errorf(core.DeviceError, "fsdp", "want all parameters of a unit on one device, got %v and %v of %s", u.device, dev, p.name)
	}
	if err := u.checkDistributed(p); err != nil {
		return err
	}
	if choose := u.options.ShardDim; choose != nil && t.Dim() > 0 {
		d := choose(Named{p.name, t})
		if p.dim = d; d < 0 {
			p.dim += t.Dim()
		}
		if p.dim < 0 || p.dim >= t.Dim() {
			return core.Errorf(core.IndexError, "fsdp", "parameter %s of shape %v cannot be sharded along dimension %d", p.name, t.Shape(), d)
		}
	}
	p.setLayout(part(t).Shape(), groupSize(u.group))
	return nil
}

// checkDistributed returns an error if p is a distributed tensor that the unit cannot shard. It also sets the mesh of the shard.
func (u *Unit) checkDistributed(p *parameter) error {
	t := p.tensor
	q := t.Parts()
	if q == nil && !u.replicated() {
		p.mesh = u.mesh
	}
	if q == nil || u.worldSize() == 1 && u.options.Mesh == nil {
		return nil
	}
	m := tensor.Mesh(t)
	switch {
	case m == nil:
		return core.Errorf(core.TypeError, "fsdp", "parameter %s is %v, want an ordinary tensor or a distributed one", p.name, t)
	case q.Pending():
		return core.Errorf(core.ValueError, "fsdp", "parameter %s is placed %v, want Shard and Replicate: redistribute it", p.name, q)
	case u.options.Mesh == nil:
		return core.Errorf(core.ValueError, "fsdp", "parameter %s is distributed over the mesh %v, so its data-parallel ranks are not those of the whole group: give the mesh of these, a slice of the same mesh such as mesh[\"dp\"]", p.name, m)
	case t.Device().Kind() == core.MetaKind:
		return core.Errorf(core.NotImplemented, "fsdp", "parameter %s is distributed and on the meta device: make the model on a device", p.name)
	}
	joined, err := mesh.Join(u.options.Mesh, m)
	if err != nil {
		return core.Errorf(core.ValueError, "fsdp", "parameter %s is distributed over the mesh %v and cannot be sharded over the mesh %v, want two slices of one mesh along different dimensions, such as mesh[\"tp\"] and mesh[\"dp\"]: %w", p.name, m, u.options.Mesh, err)
	}
	if !u.replicated() {
		p.mesh = joined
	}
	return nil
}

// shardParams shards the parameters, and creates the post-forward group.
func (u *Unit) shardParams() error {
	if u.device == nil {
		dev, err := core.CurrentContext().DefaultDevice()
		if err != nil {
			return err
		}
		u.device = dev
	}
	u.stream = core.CurrentContext().Stream(u.device)
	if k := u.options.Partial; k > 1 && u.group != nil && k < u.group.Size() {
		for from := 0; from < u.group.Size(); from += k {
			ranks := make([]int, k)
			for i := range ranks {
				ranks[i] = from + i
			}
			g, err := u.group.New(ranks, collective.Options{})
			if err != nil {
				return err
			}
			if g != nil {
				u.postForwardGroup = g
			}
		}
	}
	for _, p := range u.params {
		if err := u.initValues(p); err != nil {
			return err
		}
		if u.replicated() {
			p.hookReplicated()
			continue
		}
		if err := p.shardTensor(); err != nil {
			return err
		}
	}
	return nil
}

// initValues creates values that are needed in full for a parameter on the meta device, and broadcasts rank 0's values with
// [Options.Broadcast].
func (u *Unit) initValues(p *parameter) error {
	if p.tensor.Device().Kind() == core.MetaKind && (u.group == nil || u.options.Broadcast) {
		if err := Materialize(p.tensor, u.device, core.Parameter); err != nil {
			return core.Errorf(core.StateError, "fsdp", "parameter %s: %w", p.name, err)
		}
	}
	if !u.options.Broadcast {
		return nil
	}
	for _, g := range []*collective.Group{u.group, u.options.Replicas} {
		if g != nil {
			if err := g.For("the first values of "+p.name).Broadcast(part(p.tensor).Detach(), 0).Wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// replicated reports whether the unit's parameters are replicated, not sharded.
func (u *Unit) replicated() bool { return u.group == nil && !u.alone }

// rank returns this rank's index in the shard group.
func (u *Unit) rank() int {
	if u.group == nil {
		return 0
	}
	return u.group.Rank()
}

// Name returns the unit's name.
func (u *Unit) Name() string { return u.options.Name }

// Group returns the shard group; nil if the parameters are replicated.
func (u *Unit) Group() *collective.Group { return u.group }

// Precision returns the unit's mixed-precision policy.
func (u *Unit) Precision() Precision { return u.options.Precision }

// Stats returns how many collectives the unit has started.
func (u *Unit) Stats() Stats { return u.stats }

// Gathered reports whether the module's tensors are the full parameters.
func (u *Unit) Gathered() bool { return u.usesFull || u.replicated() }

// Tensors returns the module's tensors of the unit's parameters.
func (u *Unit) Tensors() []*core.Tensor {
	list := make([]*core.Tensor, len(u.params))
	for i, p := range u.params {
		list[i] = p.tensor
	}
	return list
}

// Take moves the parameter whose tensor is t from another unit to u, under a new name. The units must have the same group,
// precision and device. It serves parameters that a module outside of the other unit shares.
func (u *Unit) Take(from *Unit, t *core.Tensor, name string) error {
	for _, x := range []*Unit{u, from} {
		g, err := x.enterGuard()
		if err != nil {
			return err
		}
		defer g.Leave()
	}
	for i, p := range from.params {
		if p.tensor != t {
			continue
		}
		if from.group != u.group || !from.options.Precision.equal(u.options.Precision) || from.device != u.device {
			return core.Errorf(core.ValueError, "fsdp", "parameter %s is shared by the units %q and %q, which are sharded or computed in different ways", p.name, from.Name(), u.Name())
		}
		if u.param(name) != nil {
			return core.Errorf(core.ValueError, "fsdp", "unit %q has a parameter %s already", u.Name(), name)
		}
		from.params = append(from.params[:i:i], from.params[i+1:]...)
		p.unit, p.name = u, name
		if !u.replicated() {
			p.explain()
		}
		u.params = append(u.params, p)
		return nil
	}
	return core.Errorf(core.ValueError, "fsdp", "unit %q has no such parameter", from.Name())
}

// SetSync turns the reduction of gradients on or off for the following backward passes: PyTorch's set_requires_gradient_sync.
// Without it, full gradients accumulate until a backward pass reduces them. It returns the previous setting.
func (u *Unit) SetSync(on bool) (before bool) {
	before, u.reduceGradients = u.reduceGradients, on
	return before
}

// SetAllReduce turns the all-reduce over the replicas of hybrid sharding on or off: PyTorch's set_requires_all_reduce. Without
// it, gradients are reduced within the shard group and accumulate until a backward pass all-reduces them.
func (u *Unit) SetAllReduce(on bool) { u.allReduceGradients = on }

// SetKeepAfterForward changes [Options.KeepAfterForward].
func (u *Unit) SetKeepAfterForward(on bool) { u.options.KeepAfterForward = on }

// SetReshardAfterBackward says whether backward reshards the unit. If not, the next forward pass uses the same full parameters.
func (u *Unit) SetReshardAfterBackward(on bool) { u.reshardAfterBackward = on }

// SetDivideFactor sets the number that sums of gradients are divided by; 0 means the number of ranks.
func (u *Unit) SetDivideFactor(v float64) { u.divideFactor = v }

// SetPrefetch sets the units that this unit prefetches when its forward, or backward, begins. Nil restores the default, the units
// that followed in the last pass.
func (u *Unit) SetPrefetch(backward bool, units []*Unit) {
	if backward {
		u.backwardPrefetch = units
	} else {
		u.forwardPrefetch = units
	}
}

// Close waits for the unit's last collectives, returns their error, and frees memory. The module's tensors stay shards.
func (u *Unit) Close() error {
	g, err := u.enterGuard()
	if err != nil {
		return err
	}
	defer g.Leave()
	err = u.writeBack()
	if !u.beginClose() {
		return nil
	}
	if u.tree != nil {
		err = errors.Join(err, u.tree.removeUnit(u))
	}
	for _, p := range u.params {
		p.release()
	}
	if u.postForwardGroup != nil {
		err = errors.Join(err, u.postForwardGroup.Close())
	}
	return err
}

// beginClose reshards the unit and drops its communication hook. It returns false if the unit was closed before.
func (u *Unit) beginClose() bool {
	if u.closed {
		return false
	}
	u.closed = true
	u.useShards()
	u.freeFull()
	u.dropCommHook()
	return true
}

// Release is [Unit.Close] without waiting for collectives.
func (u *Unit) Release() { u.guard.Load().Later(u.releaseNow) }

func (u *Unit) releaseNow() {
	if !u.beginClose() {
		return
	}
	for _, p := range u.params {
		p.release()
	}
	t := u.tree
	if t == nil {
		return
	}
	t.unlink(u)
	if len(t.units) == 0 {
		t.releaseHeld()
		t.dropBuffers()
		for _, s := range t.streams {
			go s.Close()
		}
		t.streams = nil
	}
}

// cast returns t in dtype d on the unit's device.
func (u *Unit) cast(t *core.Tensor, d core.DType) *core.Tensor {
	if t.DType() != d {
		t = op.To(t, d)
	}
	if t.Err() == nil && t.Device() != u.device {
		t = op.ToDevice(t, u.device)
	}
	return t
}

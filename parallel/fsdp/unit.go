package fsdp

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Unit is parameters that are gathered together and whose gradients are reduced together. Its methods belong to the thread
// of its rank.
type Unit struct {
	group   *collective.Group // over which the parameters are divided; nil if they are not
	options Options
	params  []*parameter
	device  core.Device
	stream  core.Stream       // on which the full parameters' memory is taken
	nearby  *collective.Group // with [Options.Partial], the ranks that share what was gathered
	purpose string            // of its collectives: which unit of the group it is
	tree    *Tree
	guard   atomic.Pointer[core.Guard] // of the tree that it is in, or was in last

	made core.Event // since which nothing has written to the shards, as far as is noted

	filled  bool // the full parameters have their values, or will when the gather is done
	holds   bool // filled until backward, or the next forward pass, comes for it
	open    bool // the module's tensors are the full ones
	using   int  // forward passes that are in the unit
	skipped int  // layers that are passing an error on
	manual  bool // gathered by hand, until Reshard
	summons int  // that SummonEnd has not ended

	back      bool // in backward
	run       *autograd.Run
	latest    *use // the last forward pass
	uses      []*use
	expecting int  // gradients still to come in this backward pass
	reduced   bool // in this backward pass
	touched   bool // gradients have come that were not reduced

	sync, all, keep bool    // see SetSync, SetAllReduce and SetReshardAfterBackward
	factor          float64 // by which sums of gradients are divided; 0 means the number of ranks
	next            []*Unit // to prefetch in forward and in backward, where not found by itself
	before          []*Unit
	stats           Stats
	hook            Hook
	foreign         uint64 // a hook of another language
	dropForeign     func()
	closed          bool
}

// Stats count what a [Unit] has done.
type Stats struct {
	Gathers    int // of its parameters
	Prefetches int // gathers that began before they were needed
	Reductions int // of its gradients
}

// NewUnit divides parameters over the ranks of group; a nil group leaves them whole, and only averages their gradients over
// [Options.Replicas]. Every rank calls it with parameters of the same names, shapes and dtypes in the same order: otherwise
// every rank gets an error that names the first difference. Names differ within the unit. The tensors, leaves with all rows, become shards; they may be
// none.
func NewUnit(group *collective.Group, params []Named, o Options) (*Unit, error) {
	if group != nil && group.Size() == 1 && o.Offload == nil && o.Precision.Param == nil {
		group = nil
	}
	u := &Unit{group: group, options: o, sync: true, all: true}
	problem := o.check(group)
	seen := map[*core.Tensor]bool{}
	for _, n := range params {
		if seen[n.Tensor] {
			continue // under another name
		}
		seen[n.Tensor] = true
		p := &parameter{unit: u, name: n.Name, tensor: n.Tensor}
		if problem == nil && u.named(n.Name) {
			problem = core.Errorf(core.ValueError, "fsdp", "unit %q has two parameters %s", o.Name, n.Name)
		}
		if problem == nil {
			problem = u.accept(p)
		}
		u.params = append(u.params, p)
	}
	if err := u.verify(problem); err != nil {
		return nil, err
	}
	if _, err := NewTree([]*Unit{u}); err != nil {
		return nil, err
	}
	if err := u.start(); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// named reports whether a parameter of the unit has a name.
func (u *Unit) named(name string) bool {
	return slices.ContainsFunc(u.params, func(p *parameter) bool { return p.name == name })
}

// accept returns what is wrong with a parameter by itself.
func (u *Unit) accept(p *parameter) error {
	t := p.tensor
	if err := t.Usable("fsdp"); err != nil {
		return core.Errorf(core.StateError, "fsdp", "parameter %s: %w", p.name, err)
	}
	if meta := t.AutogradMeta(); meta != nil && meta.Refused() != nil {
		return core.Errorf(core.StateError, "fsdp", "parameter %s is divided over ranks already", p.name)
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
	p.divide(t.Shape(), sizeOf(u.group))
	return nil
}

// start divides the parameters.
func (u *Unit) start() error {
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
				u.nearby = g
			}
		}
	}
	for _, p := range u.params {
		if err := u.begin(p); err != nil {
			return err
		}
		if u.group == nil {
			p.watch()
			continue
		}
		if err := p.split(); err != nil {
			return err
		}
	}
	return nil
}

// begin gives a parameter its values, where it has none or others are wanted.
func (u *Unit) begin(p *parameter) error {
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
			if err := g.For("the first values of "+p.name).Broadcast(p.tensor.Detach(), 0).Wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole reports whether the unit's parameters are not divided.
func (u *Unit) replicated() bool { return u.group == nil }

// rank returns this rank's place among those that share the parameters.
func (u *Unit) rank() int {
	if u.group == nil {
		return 0
	}
	return u.group.Rank()
}

// Name returns the unit's name.
func (u *Unit) Name() string { return u.options.Name }

// Group returns the group over which the parameters are divided; nil if they are not.
func (u *Unit) Group() *collective.Group { return u.group }

// Precision returns the unit's policy of mixed precision.
func (u *Unit) Precision() Precision { return u.options.Precision }

// Stats returns what the unit has done so far.
func (u *Unit) Stats() Stats { return u.stats }

// Gathered reports whether the module's tensors are the full parameters now.
func (u *Unit) Gathered() bool { return u.open || u.replicated() }

// Tensors returns the module's tensors that the unit has.
func (u *Unit) Tensors() []*core.Tensor {
	list := make([]*core.Tensor, len(u.params))
	for i, p := range u.params {
		list[i] = p.tensor
	}
	return list
}

// Take moves the parameter whose tensor is t from another unit over the same ranks, such as one that a module outside of
// that unit uses too, and names it.
func (u *Unit) Take(from *Unit, t *core.Tensor, name string) error {
	for _, x := range []*Unit{u, from} {
		g, err := x.use()
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
			return core.Errorf(core.ValueError, "fsdp", "parameter %s is shared by the units %q and %q, which are divided or computed in different ways", p.name, from.Name(), u.Name())
		}
		if u.named(name) {
			return core.Errorf(core.ValueError, "fsdp", "unit %q has a parameter %s already", u.Name(), name)
		}
		from.params = append(from.params[:i:i], from.params[i+1:]...)
		p.unit, p.name = u, name
		if !u.replicated() {
			p.mark()
		}
		u.params = append(u.params, p)
		return nil
	}
	return core.Errorf(core.ValueError, "fsdp", "unit %q has no such parameter", from.Name())
}

// SetSync says whether backward passes from now on reduce gradients. Without, they add up, in full, until one that does.
func (u *Unit) SetSync(on bool) (before bool) {
	before, u.sync = u.sync, on
	return before
}

// SetAllReduce says whether reductions from now on include the replicas of hybrid sharding. Without, sums stay within the
// shard group until one that does.
func (u *Unit) SetAllReduce(on bool) { u.all = on }

// SetKeepAfterForward changes [Options.KeepAfterForward].
func (u *Unit) SetKeepAfterForward(on bool) { u.options.KeepAfterForward = on }

// SetReshardAfterBackward says whether the parameters are freed after backward; if not, the next forward pass uses them.
func (u *Unit) SetReshardAfterBackward(on bool) { u.keep = !on }

// SetDivideFactor sets by what sums of gradients are divided; 0 means the number of ranks.
func (u *Unit) SetDivideFactor(v float64) { u.factor = v }

// SetPrefetch sets which units to gather when the forward, or backward, pass of this one begins, in the place of the one
// that came next in the last pass. Nil restores that.
func (u *Unit) SetPrefetch(backward bool, units []*Unit) {
	if backward {
		u.before = units
	} else {
		u.next = units
	}
}

// Close waits for the unit's last collectives, whose error it returns, and frees what it holds. The module's tensors stay
// shards.
func (u *Unit) Close() error {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	if u.closed {
		return nil
	}
	u.closed = true
	u.useShards()
	u.freeFull()
	u.dropHook()
	if u.tree != nil {
		err = u.tree.leave(u)
	}
	for _, p := range u.params {
		p.release()
	}
	if u.nearby != nil {
		err = errors.Join(err, u.nearby.Close())
	}
	return err
}

// Release is Close of a unit whose last collectives nobody need wait for.
func (u *Unit) Release() { u.guard.Load().Later(u.drop) }

func (u *Unit) drop() {
	if u.closed {
		return
	}
	u.closed = true
	u.useShards()
	u.freeFull()
	u.dropHook()
	for _, p := range u.params {
		p.release()
	}
	t := u.tree
	if t == nil {
		return
	}
	t.forget(u)
	if len(t.units) == 0 {
		t.releaseHeld()
		t.dropBuffers()
		for _, s := range t.streams {
			go s.Close()
		}
		t.streams = nil
	}
}

// cast returns t as a tensor of dtype d on the unit's device.
func (u *Unit) cast(t *core.Tensor, d core.DType) *core.Tensor {
	if t.DType() != d {
		t = op.To(t, d)
	}
	if t.Err() == nil && t.Device() != u.device {
		t = op.ToDevice(t, u.device)
	}
	return t
}

package fsdp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Prefetch says when backward starts to gather the unit that comes next.
type Prefetch uint8

// The moments of prefetching.
const (
	PrefetchBefore Prefetch = iota // before a unit's own backward: beside its computation
	PrefetchAfter                  // when its gradients have been computed: beside their reduction
	PrefetchNever
)

// DefaultSlots is how many units are gathered at once where nothing else is said.
const DefaultSlots = 2

// Options say how a [Unit] works. The zero value divides over the group and frees what was gathered after each use.
type Options struct {
	// Name is the unit's module, for messages.
	Name string
	// Replicas are the ranks with the same shards as this one, over which gradients are averaged too: hybrid sharding. Nil
	// means that there are no others.
	Replicas *collective.Group
	// KeepAfterForward leaves the parameters gathered until backward is done with them.
	KeepAfterForward bool
	// Partial, if more than 1, is over how many neighbouring ranks full parameters are spread after forward, in the place of
	// the whole group. It must divide the group's size. Backward gathers from those ranks alone.
	Partial int
	// Precision says in which dtypes to compute and to reduce.
	Precision Precision
	// Offload is the device on which shards, and so gradients and the optimiser's state, are kept; nil means that of the
	// parameters.
	Offload core.Device
	// Broadcast makes the parameters those of rank 0 at the beginning.
	Broadcast bool
	// NoForwardPrefetch and BackwardPrefetch are, as Slots, those of the root unit.
	NoForwardPrefetch bool
	BackwardPrefetch  Prefetch
	// Slots is how many units besides the root are gathered at once, except where they are in use at once; 0 means
	// [DefaultSlots].
	Slots int
}

// Precision is a policy of mixed precision. A nil dtype means that of the parameters, or what comes.
type Precision struct {
	Param  *core.DType // of gathered parameters, and so of computation and of the gradients that come
	Reduce *core.DType // in which gradients are reduced; nil means Param
	Output *core.DType // to which a unit's outputs are cast
	// KeepInputs leaves floating-point inputs of a unit as they are; otherwise they are cast to Param.
	KeepInputs bool
}

func (p Precision) equal(q Precision) bool {
	same := func(a, b *core.DType) bool { return a == b || a != nil && b != nil && *a == *b }
	return same(p.Param, q.Param) && same(p.Reduce, q.Reduce) && same(p.Output, q.Output) && p.KeepInputs == q.KeepInputs
}

// Named is a tensor with its name, for messages.
type Named struct {
	Name   string
	Tensor *core.Tensor
}

func (o *Options) check(group *collective.Group) error {
	switch {
	case o.Slots < 0:
		return core.Errorf(core.ValueError, "fsdp", "the number of slots must be positive, got %d", o.Slots)
	case o.Partial < 0 || o.Partial > 1 && (group == nil || group.Size()%o.Partial != 0):
		return core.Errorf(core.ValueError, "fsdp", "to reshard over %d ranks after forward, it must divide the %d ranks of the group", o.Partial, sizeOf(group))
	}
	for _, d := range []*core.DType{o.Precision.Param, o.Precision.Reduce, o.Precision.Output} {
		if d != nil && !d.IsFloat() {
			return core.Errorf(core.DTypeError, "fsdp", "mixed precision wants floating-point dtypes, got %v", *d)
		}
	}
	return nil
}

func sizeOf(g *collective.Group) int {
	if g == nil {
		return 1
	}
	return g.Size()
}

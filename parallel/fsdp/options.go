package fsdp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mesh"
)

// A Prefetch says when backward prefetches the next unit, like PyTorch's BackwardPrefetch.
type Prefetch uint8

// The kinds of backward prefetch.
const (
	PrefetchBefore Prefetch = iota // before the unit's backward: overlaps with its computation (BACKWARD_PRE)
	PrefetchAfter                  // after the unit's gradients are computed: overlaps with their reduce-scatter (BACKWARD_POST)
	PrefetchNever
)

// DefaultSlots is the default of [Options.Slots].
const DefaultSlots = 2

// Options configure a [Unit]. With the zero value, parameters are sharded over the group and resharded after forward and after
// backward.
type Options struct {
	// Name is the name of the unit's module, for messages.
	Name string
	// Mesh is the mesh along whose last dimension parameters are sharded, and along whose first they are replicated if Replicas is given.
	// Nil means the ranks of the group in a row. Parameters that are distributed tensors need one.
	Mesh *mesh.Mesh
	// Replicas is the group of ranks that have the same shards as this one, for hybrid sharding: gradients are also averaged over it. Nil
	// means no replicas.
	Replicas *collective.Group
	// KeepAfterForward keeps the unit unsharded between forward and backward: PyTorch's reshard_after_forward=False.
	KeepAfterForward bool
	// Partial, if more than 1, is the number of neighbouring ranks over which the unit is sharded between forward and backward: PyTorch's
	// reshard_after_forward with a number. The all-gather in backward runs within these ranks. It must divide the group's size.
	Partial int
	// ShardDim, if not nil, returns the dimension along which a parameter is sharded: PyTorch's shard_placement_fn. It is the first by default.
	// Gradients and gathered parameters of other dimensions are copied once more, because the ranks' parts do not lie one after the other.
	ShardDim func(p Named) int
	// Precision is the mixed-precision policy.
	Precision Precision
	// Offload is the device of the shards, their gradients and the optimiser's state, such as the CPU. Nil means the parameters' device.
	Offload core.Device
	// Broadcast starts with rank 0's values on all ranks.
	Broadcast bool
	// NoForwardPrefetch, BackwardPrefetch and Slots are options of the root unit. Those of other units are ignored.
	NoForwardPrefetch bool
	BackwardPrefetch  Prefetch
	// Slots is how many units besides the root are unsharded at a time. Nested units in use may exceed it. 0 means [DefaultSlots].
	Slots int
}

// A Precision is a mixed-precision policy. A nil dtype means no cast.
type Precision struct {
	Param  *core.DType // dtype of full parameters and their gradients, so of computation
	Reduce *core.DType // dtype in which gradients are reduced; nil means Param
	Output *core.DType // dtype that outputs of the unit are cast to
	// KeepInputs turns off the cast of a unit's floating-point inputs to Param.
	KeepInputs bool
}

func (p Precision) equal(q Precision) bool {
	same := func(a, b *core.DType) bool { return a == b || a != nil && b != nil && *a == *b }
	return same(p.Param, q.Param) && same(p.Reduce, q.Reduce) && same(p.Output, q.Output) && p.KeepInputs == q.KeepInputs
}

// A Named is a tensor with its name, for messages.
type Named struct {
	Name   string
	Tensor *core.Tensor
}

func (o *Options) check(group *collective.Group) error {
	switch {
	case o.Slots < 0:
		return core.Errorf(core.ValueError, "fsdp", "the number of slots must be positive, got %d", o.Slots)
	case o.Partial < 0 || o.Partial > 1 && (group == nil || group.Size()%o.Partial != 0):
		return core.Errorf(core.ValueError, "fsdp", "to reshard over %d ranks after forward, it must divide the %d ranks of the group", o.Partial, groupSize(group))
	}
	for _, d := range []*core.DType{o.Precision.Param, o.Precision.Reduce, o.Precision.Output} {
		if d != nil && !d.IsFloat() {
			return core.Errorf(core.DTypeError, "fsdp", "mixed precision wants floating-point dtypes, got %v", *d)
		}
	}
	return nil
}

func groupSize(g *collective.Group) int {
	if g == nil {
		return 1
	}
	return g.Size()
}

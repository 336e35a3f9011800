package fsdp

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/tensor"
)

// A Layout says which rows of a parameter each rank has. The parameter's gradient and the optimiser's state have the same layout.
// Sharded checkpoints are written and read by it.
//
// Rank Ranks[i] of the world has rows Offsets[i] to Offsets[i]+Lengths[i] of dimension 0. With hybrid sharding each of its
// replicas has them too. A tensor without dimensions counts as one row. A replicated parameter has one entry, for this rank.
type Layout struct {
	Name    string // as given to [NewUnit]
	Shape   []int  // of the full parameter
	DType   core.DType
	Ranks   []int // ranks in the world
	Offsets []int
	Lengths []int
	Index   int // index of this rank in the three lists

	// Primary says that this rank is the first of the replicas with its rows: the one that writes them to a checkpoint.
	Primary bool
}

// Layout returns the layouts of the unit's parameters, in their order.
func (u *Unit) Layout() []Layout {
	list := make([]Layout, len(u.params))
	for i, p := range u.params {
		l := Layout{Name: p.name, Shape: slices.Clone(p.shape), DType: p.shard().DType(), Index: u.rank()}
		l.Ranks = []int{core.CurrentContext().Rank()}
		if u.group != nil {
			l.Ranks = u.group.Ranks()
		}
		l.Primary = u.options.Replicas == nil || u.options.Replicas.Rank() == 0
		for r := range p.sizes {
			l.Offsets = append(l.Offsets, p.rows[r])
			l.Lengths = append(l.Lengths, p.rows[r+1]-p.rows[r])
		}
		list[i] = l
	}
	return list
}

// Shard returns this rank's shard of the named parameter, whether the unit is unsharded or not; nil if there is none.
func (u *Unit) Shard(name string) *core.Tensor {
	if p := u.param(name); p != nil {
		return p.shard()
	}
	return nil
}

// Part returns this rank's rows of full, a tensor of the named parameter's full shape, as a view. For a tensor of the meta device
// it returns new values. If the shape differs, it returns an error tensor.
func (u *Unit) Part(name string, full *core.Tensor) *core.Tensor {
	p := u.param(name)
	if p == nil {
		return core.ErrorTensor(core.Errorf(core.ValueError, "fsdp", "unit %q has no parameter %q", u.Name(), name))
	}
	if err := full.Usable("fsdp"); err != nil {
		return core.ErrorTensor(err)
	}
	if !slices.Equal(full.Shape(), p.shape) {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "fsdp", "parameter %s has shape %v in full, got %v", name, p.shape, full.Shape()))
	}
	if full.Device().Kind() == core.MetaKind {
		return p.localCopy(full)
	}
	return p.localView(full)
}

// Layout returns the layouts of the parameters of all units.
func (t *Tree) Layout() []Layout {
	var list []Layout
	for _, u := range t.units {
		list = append(list, u.Layout()...)
	}
	return list
}

// Settle reshards all units, such as those that [Options.KeepAfterForward] keeps unsharded. It is an error in the middle of a
// pass.
func (f *FullyShardedDataParallel) Settle() error {
	for _, u := range f.units {
		if u.activeForwards > 0 || u.inBackward {
			return core.Errorf(core.StateError, "fsdp", "the unit %q is in the middle of a pass", u.Name())
		}
		u.Reshard()
	}
	return nil
}

// Place returns the full shape of the parameter that t, a tensor of the module, is a shard of, and the offset of its rows; nil if
// t is not sharded.
func (f *FullyShardedDataParallel) Place(t *core.Tensor) (shape, offset []int) {
	for _, u := range f.units {
		for _, p := range u.params {
			if p.tensor == t && !u.replicated() {
				if p.mesh != nil {
					return slices.Clone(t.Shape()), tensor.Offset(t)
				}
				offset = make([]int, len(p.shape))
				if len(offset) > 0 {
					offset[0] = p.rows[u.rank()]
				}
				return slices.Clone(p.shape), offset
			}
		}
	}
	return nil, nil
}

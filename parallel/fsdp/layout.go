package fsdp

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// A Layout says how a parameter, and so its gradient and the optimiser's state of its shape, lie on the ranks: what a
// checkpoint needs to put them together. Rank Ranks[i] of the world, and in hybrid sharding each of its replicas, has rows
// Offsets[i] to Offsets[i]+Lengths[i] of dimension 0. A tensor without dimensions counts as one row. A parameter that is not
// divided has one entry, the rank's own.
type Layout struct {
	Name    string // in the module that the names were given for
	Shape   []int  // of the full parameter
	DType   core.DType
	Ranks   []int // in the world
	Offsets []int
	Lengths []int
	Index   int // of this rank in the lists
	// Primary says that this rank is the first of those with the same rows, whose part a checkpoint writes.
	Primary bool
}

// Layout describes the unit's parameters, in their order.
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

// Shard returns this rank's part of a parameter, by its name, whether it is gathered or not; nil if there is none.
func (u *Unit) Shard(name string) *core.Tensor {
	for _, p := range u.params {
		if p.name == name {
			return p.shard()
		}
	}
	return nil
}

// Part returns this rank's rows of a full tensor of a parameter's shape: a view, or, of a tensor of the meta device, their
// values. It returns an error tensor if the shape is another.
func (u *Unit) Part(name string, full *core.Tensor) *core.Tensor {
	for _, p := range u.params {
		if p.name != name {
			continue
		}
		if err := full.Usable("fsdp"); err != nil {
			return core.ErrorTensor(err)
		}
		if !slices.Equal(full.Shape(), p.shape) {
			return core.ErrorTensor(core.Errorf(core.ShapeError, "fsdp", "parameter %s has shape %v in full, got %v", name, p.shape, full.Shape()))
		}
		if full.Device().Kind() == core.MetaKind {
			return p.own(full)
		}
		return p.mine(full)
	}
	return core.ErrorTensor(core.Errorf(core.ValueError, "fsdp", "unit %q has no parameter %q", u.Name(), name))
}

// Layout describes the parameters of all units.
func (t *Tree) Layout() []Layout {
	var list []Layout
	for _, u := range t.units {
		list = append(list, u.Layout()...)
	}
	return list
}

// Settle makes the module's tensors the shards, where the whole ones are in their places for a while, such as after a forward
// pass. It is an error in the middle of a pass.
func (f *FullyShardedDataParallel) Settle() error {
	for _, u := range f.units {
		if u.using > 0 || u.back {
			return core.Errorf(core.StateError, "fsdp", "the unit %q is in the middle of a pass", u.Name())
		}
		u.Reshard()
	}
	return nil
}

// Place returns the shape of the whole parameter of which t, one of the module's tensors, is this rank's rows, and where they
// begin; nil if t is not divided.
func (f *FullyShardedDataParallel) Place(t *core.Tensor) (shape, offset []int) {
	for _, u := range f.units {
		for _, p := range u.params {
			if p.tensor == t && !u.replicated() {
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

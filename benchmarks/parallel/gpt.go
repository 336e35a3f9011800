package main

import (
	"github.com/plait-ml/plait/benchmarks/internal/gpt"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/fsdp"
)

// A replica is a model with a batch of its own.
type replica struct {
	*gpt.GPT
	tokens, targets *core.Tensor
	units           []*fsdp.Unit // where parameters are divided: one for each part of the model
}

// newReplica makes a model with the batch of a rank.
func newReplica(s gpt.Shape, rank int, d core.Device) (*replica, error) {
	g, err := gpt.New(s, d)
	if err != nil {
		return nil, err
	}
	r := &replica{GPT: g}
	r.tokens, r.targets = s.Text(rank, d)
	return r, r.targets.Err()
}

// named returns the parameters for a reducer.
func (r *replica) named() []ddp.Named {
	var list []ddp.Named
	for _, p := range r.Params {
		list = append(list, ddp.Named(p))
	}
	return list
}

// divide shares the parameters out to the ranks of a group: each layer is a unit, and what is not in one, the root, whose are kept
// after forward if keepRoot is set.
func (r *replica) divide(group *collective.Group, o fsdp.Options, keepRoot bool) error {
	keep := o.KeepAfterForward
	for i, part := range r.Parts() {
		o.KeepAfterForward = keep || keepRoot && i == 0
		var params []fsdp.Named
		for _, p := range part {
			params = append(params, fsdp.Named(p))
		}
		u, err := fsdp.NewUnit(group, params, o)
		if err != nil {
			return err
		}
		r.units = append(r.units, u)
	}
	r.Around = r.whole
	_, err := fsdp.NewTree(r.units)
	return err
}

// whole runs a part of the model while its unit's parameters are there.
func (r *replica) whole(part int, x *core.Tensor, run func(x *core.Tensor) *core.Tensor) *core.Tensor {
	u := r.units[part]
	if err := u.PreForward([]*core.Tensor{x}); err != nil {
		return core.ErrorTensor(err)
	}
	y := run(x)
	if err := u.PostForward([]*core.Tensor{y}); err != nil {
		return core.ErrorTensor(err)
	}
	return y
}

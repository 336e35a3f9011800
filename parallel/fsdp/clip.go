package fsdp

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// ClipGradNorm is [optim.ClipGradNorm] over the full gradients of the tree's parameters, of which each rank has a part: it
// scales them so that their norm, as one vector, is at most maxNorm, and returns the norm before, the same on every rank.
// Every rank calls it after backward.
func (t *Tree) ClipGradNorm(maxNorm float64, o optim.ClipOptions) *core.Tensor {
	if !(maxNorm >= 0) {
		return core.ErrorTensor(core.Errorf(core.ValueError, "clip_grad_norm_", "the largest norm must be at least 0, got %v", maxNorm))
	}
	total := t.GradNorm(o)
	if err := total.Err(); err != nil {
		return total
	}
	var params []*core.Tensor
	for _, u := range t.units {
		for _, p := range u.params {
			params = append(params, p.shard())
		}
	}
	if err := optim.ClipGradsWithNorm(params, maxNorm, total); err != nil {
		total.Release()
		return core.ErrorTensor(err)
	}
	return total
}

// GradNorm returns the norm of the full gradients as one vector: see [Tree.ClipGradNorm].
func (t *Tree) GradNorm(o optim.ClipOptions) *core.Tensor {
	power := o.Norm
	if power == 0 {
		power = 2
	}
	var total *core.Tensor
	core.NoGrad(func() {
		kept := core.RunScope(func() []*core.Tensor { return []*core.Tensor{t.norm(power)} })
		total = kept[0]
	})
	if !o.ErrorIfNonfinite || total.Err() != nil {
		return total
	}
	v, err := total.Item()
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = core.Errorf(core.ValueError, "clip_grad_norm_", "the norm of the gradients is %v", v)
	}
	if err != nil {
		total.Release()
		return core.ErrorTensor(err)
	}
	return total
}

// norm adds up what the ranks have of the power of the norm, for each group of units that are divided over the same ranks.
func (t *Tree) norm(power float64) *core.Tensor {
	d := core.Float32
	var groups []*collective.Group
	of := map[*collective.Group][]*core.Tensor{}
	for _, u := range t.units {
		for _, p := range u.params {
			if p.shard().DType() == core.Float64 {
				d = core.Float64
			}
			if of[u.group] == nil {
				groups = append(groups, u.group)
			}
			of[u.group] = append(of[u.group], p.shard())
		}
	}
	dev, joins := t.root().device, collective.Sum
	if math.IsInf(power, 0) {
		joins = collective.Max
	}
	total := op.Full([]int{}, core.Num(0), op.TensorOptions{DType: &d, Device: dev})
	for _, g := range groups {
		part := t.powerSum(of[g], power, d, dev)
		if g != nil && part.Err() == nil {
			if err := t.keep(g.AllReduce(part, joins)); err != nil {
				return core.ErrorTensor(err)
			}
		}
		if joins == collective.Max {
			total = op.Maximum(total, part)
		} else {
			total = op.Add(total, part)
		}
	}
	if joins == collective.Max {
		return total
	}
	return op.Pow(total, core.Num(1/power))
}

// powerSum returns this rank's sum of the powers of the gradients, on dev.
func (t *Tree) powerSum(params []*core.Tensor, power float64, d core.DType, dev core.Device) *core.Tensor {
	sum := op.Full([]int{}, core.Num(0), op.TensorOptions{DType: &d, Device: dev})
	for _, p := range params {
		if g := p.Grad(); g != nil && g.Numel() > 0 {
			part := optim.GradPowerSum(params, optim.ClipOptions{Norm: power})
			return op.Add(sum, op.ToDevice(op.To(part, d), dev))
		}
	}
	return sum
}

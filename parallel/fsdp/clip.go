package fsdp

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// ClipGradNorm is [optim.ClipGradNorm] for sharded gradients. It scales the gradients so that the norm of all full gradients, as one vector,
// is at most maxNorm. It returns the norm before scaling, which is the same on every rank. Every rank calls it after backward.
func (t *Tree) ClipGradNorm(maxNorm float64, o optim.ClipOptions) *core.Tensor {
	if !(maxNorm >= 0) {
		return core.ErrorTensor(core.Errorf(core.ValueError, "clip_grad_norm_", "the largest norm must be at least 0, got %v", maxNorm))
	}
	if err := t.guard.Enter("clip_grad_norm_"); err != nil {
		return core.ErrorTensor(err)
	}
	defer t.guard.Leave()
	var params []*core.Tensor
	for _, u := range t.units {
		for _, p := range u.params {
			params = append(params, p.sharded())
		}
	}
	total := GradNorm(t.units, params, o)
	if err := total.Err(); err != nil {
		return total
	}
	if err := optim.ClipGradsWithNorm(params, maxNorm, total); err != nil {
		total.Release()
		return core.ErrorTensor(err)
	}
	return total
}

// GradNorm returns the norm of the full gradients of the parameters as one vector, the same on every rank. For parameters of the units it
// all-reduces the powers of the shards' gradients. Every rank calls it with the same parameters.
func GradNorm(units []*Unit, params []*core.Tensor, o optim.ClipOptions) *core.Tensor {
	for _, u := range units {
		g, err := u.enterGuard()
		if err != nil {
			return core.ErrorTensor(err)
		}
		defer g.Leave()
	}
	power := o.Norm
	if power == 0 {
		power = 2
	}
	total := core.ErrorTensor(core.Errorf(core.ValueError, "clip_grad_norm_", "got no parameters"))
	if len(params) > 0 {
		core.NoGrad(func() {
			total = core.RunScope(func() []*core.Tensor { return []*core.Tensor{norm(units, params, power)} })[0]
		})
	}
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

// norm all-reduces the sums of the gradients' powers, once in each shard group and along each dimension of a mesh, and takes the root of their
// total.
func norm(units []*Unit, params []*core.Tensor, power float64) *core.Tensor {
	owner := map[*core.Tensor]*Unit{}
	for _, u := range units {
		for _, p := range u.params {
			owner[p.sharded()] = u
			if i := slices.Index(params, p.tensor); u.showsShardGradients() && i >= 0 {
				params = slices.Clone(params)
				params[i] = p.sharded()
			}
		}
	}
	d, dev := core.Float32, params[0].Device()
	var groups []*collective.Group
	of := map[*collective.Group][]*core.Tensor{}
	var meshes []core.Parts // one on each that has distributed parameters
	var on [][]*core.Tensor // the parts of these on this rank, unless another rank has them too
	for _, p := range params {
		if p.DType() == core.Float64 {
			d = core.Float64
		}
		if q := p.Parts(); q != nil && !q.Sparse() {
			i := slices.IndexFunc(meshes, q.Beside)
			if i < 0 {
				i, meshes, on = len(meshes), append(meshes, q), append(on, nil)
			}
			if q.First() {
				on[i] = append(on[i], q.Local())
			}
			continue
		}
		var g *collective.Group
		if u := owner[p]; u != nil {
			g, dev = u.group, u.device
		}
		if of[g] == nil {
			groups = append(groups, g)
		}
		of[g] = append(of[g], p)
	}
	reduceOp := collective.Sum
	if math.IsInf(power, 0) {
		reduceOp = collective.Max
	}
	total := op.Full([]int{}, core.Num(0), op.TensorOptions{DType: &d, Device: dev})
	add := func(part *core.Tensor) {
		if reduceOp == collective.Max {
			total = op.Maximum(total, part)
		} else {
			total = op.Add(total, part)
		}
	}
	for _, g := range groups {
		part := powerSum(of[g], power, d, dev)
		if g != nil && part.Err() == nil {
			if err := g.For("the norm of gradients").AllReduce(part, reduceOp).Arrived(); err != nil {
				return core.ErrorTensor(err)
			}
		}
		add(part)
	}
	how := core.Sums
	if reduceOp == collective.Max {
		how = core.Maxima
	}
	for i, m := range meshes {
		add(m.Combine("the norm of gradients", powerSum(on[i], power, d, dev), how))
	}
	if reduceOp == collective.Max {
		return total
	}
	return op.Pow(total, core.Num(1/power))
}

// powerSum returns the sum of the powers of this rank's gradients, on dev.
func powerSum(params []*core.Tensor, power float64, d core.DType, dev core.Device) *core.Tensor {
	sum := op.Full([]int{}, core.Num(0), op.TensorOptions{DType: &d, Device: dev})
	for _, p := range params {
		if g := p.Grad(); g != nil && g.Numel() > 0 {
			part := optim.GradPowerSum(params, optim.ClipOptions{Norm: power})
			return op.Add(sum, op.ToDevice(op.To(part, d), dev))
		}
	}
	return sum
}

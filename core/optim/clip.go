package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
)

// ClipOptions say how gradients are measured.
type ClipOptions struct {
	// Norm is the p of the norm; 0 means 2. It may be infinite.
	Norm float64
	// ErrorIfNonfinite waits for the norm, and makes it an error if it is infinite or NaN.
	ErrorIfNonfinite bool
}

func (o ClipOptions) power() float64 {
	if o.Norm == 0 {
		return 2
	}
	return o.Norm
}

// ClipGradNorm scales all gradients of the parameters by one factor so that their norm, as one vector, is at most
// maxNorm (Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent neural networks"). It returns the
// norm before, a 0-d tensor that the caller releases; a norm of 0 without gradients. The host does not wait.
func ClipGradNorm(params []*core.Tensor, maxNorm float64, o ClipOptions) *core.Tensor {
	if !(maxNorm >= 0) {
		return core.ErrorTensor(core.Errorf(core.ValueError, "clip_grad_norm", "the largest norm must be at least 0, got %v", maxNorm))
	}
	total := GradNorm(params, o)
	if err := total.Err(); err != nil {
		return total
	}
	if err := ClipGradsWithNorm(params, maxNorm, total); err != nil {
		total.Release()
		return core.ErrorTensor(err)
	}
	return total
}

// GradNorm returns the norm of all gradients of the parameters as one vector, a 0-d tensor of dtype float64 if one of them
// is and otherwise float32, on the device of the first.
func GradNorm(params []*core.Tensor, o ClipOptions) *core.Tensor {
	var total *core.Tensor
	core.NoGrad(func() { total = gradNorm(params, o) })
	if !o.ErrorIfNonfinite || total.Err() != nil {
		return total
	}
	v, err := total.Item()
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = core.Errorf(core.ValueError, "clip_grad_norm", "the norm of the gradients is %v", v)
	}
	if err != nil {
		total.Release()
		return core.ErrorTensor(err)
	}
	return total
}

func gradNorm(params []*core.Tensor, o ClipOptions) *core.Tensor {
	grads, giveBack, err := gradients("clip_grad_norm", params)
	defer giveBack()
	if err != nil {
		return core.ErrorTensor(err)
	}
	if len(grads) == 0 {
		return op.Zeros()
	}
	for i, g := range grads {
		if g.Parts() != nil { // its norm has its norm
			n := op.VectorNorm(g, o.power(), nil, op.ReduceOptions{})
			if n.Err() != nil {
				return n
			}
			if grads[i] = n; n.Parts() != nil { // it lies on several ranks
				grads[i] = n.Parts().Whole()
			}
			if grads[i].Err() != nil {
				return grads[i]
			}
		}
	}
	// The norm of the norms of each device's gradients is that of all.
	var parts []*core.Tensor
	err = byDevice(grads, func(_ core.Device, here []*core.Tensor) error {
		n := reduceList(here, o.power(), true)
		if len(parts) > 0 && n.Err() == nil {
			moved := op.ToDevice(n, parts[0].Device())
			n.Release()
			n = moved
		}
		if n.Err() == nil {
			parts = append(parts, n)
		}
		return n.Err()
	})
	if err == nil && len(parts) == 1 {
		return parts[0]
	}
	for _, n := range parts {
		defer n.Release()
	}
	if err != nil {
		return core.ErrorTensor(err)
	}
	return reduceList(parts, o.power(), true)
}

// byDevice calls f with the gradients of one device after the other, until it fails.
func byDevice(grads []*core.Tensor, f func(dev core.Device, here []*core.Tensor) error) error {
	for len(grads) > 0 {
		dev := grads[0].Device()
		var here, rest []*core.Tensor
		for _, g := range grads {
			if g.Device() == dev {
				here = append(here, g)
			} else {
				rest = append(rest, g)
			}
		}
		if err := f(dev, here); err != nil {
			return err
		}
		grads = rest
	}
	return nil
}

// gradients returns the gradients that the parameters have, which stay what they are until giveBack is called.
func gradients(name string, params []*core.Tensor) (out []*core.Tensor, giveBack func(), err error) {
	var lenders []*core.AutogradMeta
	var made []*core.Tensor // for the caller, of distributed parameters
	giveBack = func() {
		for _, g := range made {
			g.Release()
		}
		for _, meta := range lenders {
			meta.ReturnGrad()
		}
	}
	for i, p := range params {
		if p == nil {
			return nil, giveBack, core.Errorf(core.TypeError, name, "parameter %d is nil", i)
		}
		g, lender := p.BorrowGrad()
		lenders = append(lenders, lender)
		if g == nil {
			continue
		}
		if err := g.Usable(name); err != nil && g.Parts() == nil {
			return nil, giveBack, core.Errorf(core.StateError, name, "the gradient of parameter %d: %w", i, err)
		}
		if p.Parts() != nil {
			made = append(made, g)
		}
		out = append(out, g)
	}
	return out, giveBack, nil
}

// GradPowerSum returns the sum of |g|^p over all elements of all gradients of the parameters, which must be on one device;
// for an infinite p the largest |g|. What each rank of a sharded model has of it adds up to the p-th power of the norm.
func GradPowerSum(params []*core.Tensor, o ClipOptions) *core.Tensor {
	grads, giveBack, err := gradients("clip_grad_norm", params)
	defer giveBack()
	if err != nil {
		return core.ErrorTensor(err)
	}
	if len(grads) == 0 {
		return op.Zeros()
	}
	for _, g := range grads {
		if p := g.Parts(); p != nil {
			return core.ErrorTensor(core.Errorf(core.NotImplemented, "clip_grad_norm", "got a gradient placed %v beside those of a sharded model", p))
		}
		if g.Device() != grads[0].Device() {
			return core.ErrorTensor(core.Errorf(core.DeviceError, "clip_grad_norm", "gradients on different devices, got %v and %v", grads[0].Device(), g.Device()))
		}
	}
	var sum *core.Tensor
	core.NoGrad(func() { sum = reduceList(grads, o.power(), false) })
	return sum
}

// reduceList returns the sum of |x|^power over all elements of tensors on one device or, with root, the norm, which is its root.
func reduceList(list []*core.Tensor, power float64, root bool) *core.Tensor {
	d := core.Float32
	work := 0
	for _, t := range list {
		if t.DType() == core.Float64 {
			d = core.Float64
		}
		work += t.Numel()
	}
	out := op.EmptyWith([]int{}, op.TensorOptions{DType: &d, Device: list[0].Device()})
	if out.Err() != nil {
		return out
	}
	dense := make([]*core.Tensor, len(list))
	for i, t := range list {
		dense[i] = op.Contiguous(t)
		defer dense[i].Release()
		if err := dense[i].Err(); err != nil {
			out.Release()
			return core.ErrorTensor(err)
		}
	}
	stream := core.CurrentContext().Stream(out.Device())
	c := stream.Begin(contract.OptimNorm, "clip_grad_norm")
	contract.OptimNormAttrs{P: power, Root: root}.AddTo(c.Out(out))
	for _, t := range dense {
		c.In(t)
	}
	c.Work = work
	if err := core.Launch(stream, c); err != nil {
		out.Release()
		return core.ErrorTensor(err)
	}
	return out
}

// ClipGradsWithNorm multiplies all gradients of the parameters by maxNorm / (total + 1e-6) where that is below 1; total is
// a 0-d tensor.
func ClipGradsWithNorm(params []*core.Tensor, maxNorm float64, total *core.Tensor) error {
	if err := total.Usable("clip_grad_norm"); err != nil {
		return err
	}
	if total.Dim() != 0 || total.DType() != core.Float32 && total.DType() != core.Float64 {
		return core.Errorf(core.ShapeError, "clip_grad_norm", "the norm must be a 0-d tensor of dtype float32 or float64, got %v", total)
	}
	return changeGrads("clip_grad_norm", params, func(c *core.Call, local *core.Tensor) { c.In(local).Float(maxNorm) }, contract.OptimClip, total)
}

// ClipGradValue clamps every element of the parameters' gradients to [-limit, limit].
func ClipGradValue(params []*core.Tensor, limit float64) error {
	if !(limit >= 0) {
		return core.Errorf(core.ValueError, "clip_grad_value", "the limit must be at least 0, got %v", limit)
	}
	return changeGrads("clip_grad_value", params, func(c *core.Call, _ *core.Tensor) { c.Float(limit) }, contract.OptimClamp, nil)
}

// changeGrads launches a kernel that changes gradients in place, once for each device; fill adds what else it takes, for
// which input is moved to the device.
func changeGrads(name string, params []*core.Tensor, fill func(c *core.Call, local *core.Tensor), k core.KernelID, input *core.Tensor) error {
	grads, giveBack, err := gradients(name, params)
	defer giveBack()
	if err != nil {
		return err
	}
	for i, g := range grads {
		if p := g.Parts(); p != nil {
			if p.Sparse() && k == contract.OptimClamp {
				return core.Errorf(core.NotImplemented, name, "the gradient of parameter %d is sparse, of which entries may be parts of an element: clip the norm", i)
			}
			grads[i] = p.Local()
		}
	}
	core.NoGrad(func() {
		err = byDevice(grads, func(dev core.Device, here []*core.Tensor) error { return changeOn(name, dev, here, fill, k, input) })
	})
	return err
}

func changeOn(name string, dev core.Device, grads []*core.Tensor, fill func(c *core.Call, local *core.Tensor), k core.KernelID, input *core.Tensor) error {
	local := input
	if input != nil {
		local = op.ToDevice(input, dev)
		defer local.Release()
		if err := local.Err(); err != nil {
			return err
		}
	}
	dense := make([]*core.Tensor, len(grads))
	for i, g := range grads {
		dense[i] = op.Contiguous(g)
		defer dense[i].Release()
		if err := dense[i].Err(); err != nil {
			return err
		}
	}
	stream := core.CurrentContext().Stream(dev)
	c := stream.Begin(k, name)
	work := 0
	for _, g := range dense {
		c.Out(g)
		work += g.Numel()
	}
	fill(c, local)
	c.InPlace, c.Work = true, work
	if err := core.Launch(stream, c); err != nil {
		return err
	}
	for i, g := range grads {
		if dense[i].Storage() != g.Storage() {
			if err := op.CopyInPlace(g, dense[i]).Err(); err != nil {
				return err
			}
		} else {
			g.Change()
		}
	}
	return nil
}

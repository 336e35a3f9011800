package dataparallel

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// Sizes returns how many of n samples each device gets. Without weights the sizes are those of [op.Chunk]: equal, but the last may be
// smaller or 0. With weights they are proportional, rounded to whole samples.
func Sizes(n, devices int, weights []float64) []int {
	sizes := make([]int, devices)
	if weights == nil {
		each := (n + devices - 1) / devices
		for i := range sizes {
			sizes[i] = min(each, max(n-i*each, 0))
		}
		return sizes
	}
	total := 0.0
	for _, w := range weights {
		total += w
	}
	given := 0
	rest := make([]float64, devices)
	for i, w := range weights {
		share := float64(n) * w / total
		sizes[i] = int(share)
		rest[i] = share - math.Trunc(share)
		given += sizes[i]
	}
	for ; given < n; given++ { // to the largest remainders
		best := 0
		for i := range rest {
			if rest[i] > rest[best] {
				best = i
			}
		}
		sizes[best]++
		rest[best] = -1
	}
	return sizes
}

// checkWeights returns an error unless weights can split a batch over the devices.
func checkWeights(weights []float64, devices int) error {
	if weights == nil {
		return nil
	}
	if len(weights) != devices {
		return core.Errorf(core.ValueError, "data_parallel", "got %d weights for %d devices", len(weights), devices)
	}
	total := 0.0
	for _, w := range weights {
		if !(w >= 0) || math.IsInf(w, 0) {
			return core.Errorf(core.ValueError, "data_parallel", "weights must be finite and not negative, got %v", weights)
		}
		total += w
	}
	if total == 0 {
		return core.Errorf(core.ValueError, "data_parallel", "weights must not all be 0, got %v", weights)
	}
	return nil
}

// Scatter splits a batch. It returns, by device, the slices of the inputs along dimension dim, and the number of samples of the first input
// per device. The result ends at the last device with samples; a device before it without samples has nil. An empty batch goes to the first
// device. A 0-d input goes to every device. Gradients flow back.
func Scatter(inputs []*core.Tensor, devices []core.Device, weights []float64, dim int) (parts [][]*core.Tensor, sizes []int, err error) {
	const name = "scatter"
	if len(devices) == 0 {
		return nil, nil, core.Errorf(core.ValueError, name, "got no devices")
	}
	if err := checkWeights(weights, len(devices)); err != nil {
		return nil, nil, err
	}
	cuts := make([][]int, len(inputs)) // nil for an input that is not split
	first := 0
	for i, x := range inputs {
		if err := x.Usable(name); err != nil {
			return nil, nil, err
		}
		if x.Dim() == 0 {
			continue
		}
		d, err := core.WrapDim(name, dim, x.Dim())
		if err != nil {
			return nil, nil, err
		}
		cuts[i] = Sizes(x.Size(d), len(devices), weights)
		if sizes == nil {
			sizes, first = cuts[i], x.Size(d)
		}
		for k, n := range cuts[i] {
			if (n != 0) != (sizes[k] != 0) {
				return nil, nil, core.Errorf(core.ShapeError, name, "inputs of %d and %d samples, in dimension %d, would be split over different devices", first, x.Size(d), dim)
			}
		}
	}
	if sizes == nil {
		return nil, nil, core.Errorf(core.ValueError, name, "got only 0-d inputs, want one that can be split")
	}
	used := 1
	for k, n := range sizes {
		if n > 0 {
			used = k + 1
		}
	}
	parts = make([][]*core.Tensor, used)
	for k := range parts {
		if sizes[k] == 0 && first > 0 {
			continue
		}
		for i, x := range inputs {
			p := x
			if cuts[i] != nil {
				at := 0
				for _, n := range cuts[i][:k] {
					at += n
				}
				d, _ := core.WrapDim(name, dim, x.Dim())
				p = op.Narrow(x, d, at, cuts[i][k])
			}
			if p = collective.ToDevice(p, devices[k]); p.Err() != nil {
				return nil, nil, p.Err()
			}
			parts[k] = append(parts[k], p)
		}
	}
	return parts, sizes, nil
}

// Gather concatenates the parts along dimension dim on dev. 0-d parts become a vector. Gradients flow back.
func Gather(parts []*core.Tensor, dev core.Device, dim int) *core.Tensor {
	if len(parts) == 0 || dev == nil {
		return core.ErrorTensor(core.Errorf(core.ValueError, "gather", "got no parts, or no device"))
	}
	moved := make([]*core.Tensor, len(parts))
	for i, p := range parts {
		if err := p.Usable("gather"); err != nil {
			return core.ErrorTensor(err)
		}
		if p.Dim() == 0 {
			p, dim = op.Reshape(p, 1), 0
		}
		moved[i] = collective.ToDevice(p, dev)
	}
	if len(moved) == 1 {
		return moved[0]
	}
	return op.Cat(moved, dim)
}

// Mean returns the mean loss of a batch from the losses of its parts, each a mean over sizes[i] samples.
func Mean(losses *core.Tensor, sizes []int) *core.Tensor {
	if err := losses.Usable("mean"); err != nil {
		return core.ErrorTensor(err)
	}
	var share []float64
	total := 0
	for _, n := range sizes {
		if n > 0 {
			share = append(share, float64(n))
			total += n
		}
	}
	if losses.Dim() != 1 || losses.Size(0) != len(share) {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "data_parallel", "got losses of shape %v for %d parts", losses.Shape(), len(share)))
	}
	for i := range share {
		share[i] /= float64(total)
	}
	w := op.ToDevice(op.To(core.FromSlice(share), losses.DType()), losses.Device())
	return op.Sum(op.Mul(losses, w), nil, false)
}

package autograd

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// localSeeds replaces distributed outputs, and the gradients given for them, by this rank's parts.
func localSeeds(outputs, grads []*core.Tensor) (localOutputs, localGrads []*core.Tensor, err error) {
	cloned := false
	for i, t := range outputs {
		for p := t.Parts(); p != nil; p = t.Parts() {
			if !cloned {
				outputs, cloned = slices.Clone(outputs), true
				grads = slices.Clone(grads)
				if len(grads) == 0 {
					grads = make([]*core.Tensor, len(outputs))
				}
			}
			t = p.Local()
			outputs[i] = t
			if grads[i], err = p.Seed("backward", grads[i]); err != nil {
				return nil, nil, err
			}
		}
	}
	return outputs, grads, nil
}

// localInputs replaces distributed inputs by this rank's parts. parts says where the others are, by input, the parts of parts behind; nil if
// none is distributed.
func localInputs(inputs []*core.Tensor) (local []*core.Tensor, parts [][]core.Parts) {
	for i, t := range inputs {
		for p := t.Parts(); p != nil; p = t.Parts() {
			if parts == nil {
				inputs, parts = slices.Clone(inputs), make([][]core.Parts, len(inputs))
			}
			t = p.Local()
			inputs[i], parts[i] = t, append(parts[i], p)
		}
	}
	return inputs, parts
}

// eachBatched fails where an output is batched by a vmap that an input knows nothing of: the input's gradient would be summed over the batch.
func eachBatched(outputs, inputs []*core.Tensor) error {
	depths := map[int]bool{}
	for _, t := range outputs {
		for p := t.Parts(); p != nil; p = p.Local().Parts() {
			if d := p.Depth(); d > 0 {
				depths[d] = true
			}
		}
	}
	for i, t := range inputs {
		left := len(depths)
		for p := t.Parts(); p != nil; p = p.Local().Parts() {
			if depths[p.Depth()] {
				left--
			}
		}
		if left > 0 {
			return core.Errorf(core.StateError, "grad", "input %d is one tensor for all parts of vmap's batch, whose gradient would be summed over them: "+
				"give it to the function as an argument, and use func.grad", i)
		}
	}
	return nil
}

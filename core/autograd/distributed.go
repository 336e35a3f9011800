package autograd

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// localSeeds replaces distributed outputs, and the gradients given for them, by this rank's parts.
func localSeeds(outputs, grads []*core.Tensor) (localOutputs, localGrads []*core.Tensor, err error) {
	cloned := false
	for i, t := range outputs {
		p := t.Parts()
		if p == nil {
			continue
		}
		if !cloned {
			outputs, cloned = slices.Clone(outputs), true
			grads = slices.Clone(grads)
			if len(grads) == 0 {
				grads = make([]*core.Tensor, len(outputs))
			}
		}
		outputs[i] = p.Local()
		if grads[i], err = p.Seed("backward", grads[i]); err != nil {
			return nil, nil, err
		}
	}
	return outputs, grads, nil
}

// localInputs replaces distributed inputs by this rank's parts. parts says where the others are, by input; nil if none is distributed.
func localInputs(inputs []*core.Tensor) (local []*core.Tensor, parts []core.Parts) {
	for i, t := range inputs {
		if p := t.Parts(); p != nil {
			if parts == nil {
				inputs, parts = slices.Clone(inputs), make([]core.Parts, len(inputs))
			}
			inputs[i], parts[i] = p.Local(), p
		}
	}
	return inputs, parts
}

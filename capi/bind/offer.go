package bind

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// OutOffer offers a tensor's memory to the operation of a name that the calling thread is about to call, for its result, given the n
// tensors among its inputs. It returns a number for [OutTaken], which ends the offer, or 0 where none is made.
func OutOffer(name string, out Tensor, inputs Tensors, n int64) (status Status) {
	defer protect("out", &status)
	var room [4]*core.Tensor
	return op.OfferOut(name, tensor(out), appendTensors(room[:0], inputs, n)...)
}

// OutTaken ends an offer of the calling thread. It returns 1 if the tensor, 0 for none, is a result in the memory offered.
func OutTaken(offer int64, result Tensor) (status Status) {
	defer protect("out", &status)
	return truth(op.OutTaken(offer, tensorOrNil(result)))
}

// OutFits returns 1 if a result can be copied to a tensor as it is: they are of one dtype and shape, and neither is of the graph, has parts or
// is a number.
func OutFits(out, result Tensor) (status Status) {
	defer protect("out", &status)
	t, r := tensor(out), tensor(result)
	for _, x := range [2]*core.Tensor{t, r} {
		if x.Parts() != nil || x.Usable("out") != nil || x.IsNumber() || x.RequiresGrad() {
			return 0
		}
	}
	return truth(t.DType() == r.DType() && slices.Equal(t.Shape(), r.Shape()))
}

package bind

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// inOut is what a function returns in the place of a tensor's handle if its result is in the memory that [OutOffer] offered.
const inOut = 1

// OutOffer offers a tensor's memory to the operation of a name that the calling thread is about to call, for its result, given the n
// tensors among its inputs. An operation that takes it returns 1, and no handle; the offer has ended then. Otherwise [OutEnd] ends it, given
// the number that OutOffer returns, which is 0 where no offer is made.
func OutOffer(name string, out Tensor, inputs Tensors, n int64) (status Status) {
	defer protect("out", &status)
	var room [4]*core.Tensor
	return op.OfferOut(name, tensor(out), appendTensors(room[:0], inputs, n)...)
}

// OutEnd ends an offer that no operation has taken.
func OutEnd(offer int64) Status {
	op.EndOffer(offer)
	return 0
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

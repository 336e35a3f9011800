package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	dtensor "github.com/plait-ml/plait/parallel/tensor"
)

// A placement is three numbers: its kind and two more.
const (
	placeReplicate = iota // 0, 0
	placeShard            // the dimension, and the factor of an interleaved shard or 0
	placePending          // 0 to 4 for sum, avg, product, max, min; 0
	placeNumbers   = 3
)

// placements reads the numbers of n placements.
func placements(a Ints, n int64) []core.Placement {
	out := make([]core.Placement, n)
	for i, v := 0, handle.Slice[int64](a, placeNumbers*n); i < len(out); i, v = i+1, v[placeNumbers:] {
		switch v[0] {
		case placeShard:
			out[i] = core.Placement{Kind: core.Sharded, Dim: int(v[1]), Factor: int(v[2])}
		case placePending:
			out[i] = core.Partial(core.Combination(v[1]))
		}
	}
	return out
}

// part returns this rank's part of a distributed tensor, the tensor behind all levels of a batched one, and an ordinary one as it is.
func part(t *core.Tensor) *core.Tensor {
	for p := t.Parts(); p != nil; p = t.Parts() {
		t = p.Local()
	}
	return t
}

// onRank returns this rank's part of a distributed tensor, whose place in the graph is the tensor's own, and any other tensor as it is.
func onRank(t *core.Tensor) *core.Tensor {
	if p := t.Parts(); p != nil && !p.Sparse() && p.Depth() == 0 && !p.Recorded() {
		return p.Local()
	}
	return t
}

// DTensorDistribute returns a distributed tensor with the elements that t has on the first rank of a mesh, placed as the three numbers
// of each of n placements say: 0 for a replicated tensor; 1, the dimension and the factor of an interleaved shard or 0; 2 and how the ranks'
// elements are combined for a pending one. It is a leaf. Every rank of the mesh calls it.
//
//plait:waits
func DTensorDistribute(t Tensor, mesh Object, placed Ints, n int64) (status Tensor) {
	defer protect("distribute_tensor", &status)
	v := tensor(t)
	defer using(v)()
	return result(dtensor.Distribute(v, meshOf(mesh), placements(placed, n)))
}

// DTensorFromLocal returns the distributed tensor of which t is the calling rank's part. shape, of dims dimensions, is the whole's; dims -1
// means that all ranks' parts have t's shape.
func DTensorFromLocal(t Tensor, mesh Object, placed Ints, n int64, shape Ints, dims int64) (status Tensor) {
	defer protect("from_local", &status)
	var whole []int
	if dims >= 0 {
		whole = append([]int{}, handle.Ints(shape, dims)...)
	}
	return result(dtensor.FromLocal(tensor(t), meshOf(mesh), placements(placed, n), whole))
}

// DTensorRedistribute returns a distributed tensor with other placements.
func DTensorRedistribute(t Tensor, placed Ints, n int64) (status Tensor) {
	defer protect("redistribute", &status)
	return result(dtensor.Redistribute(tensor(t), placements(placed, n)))
}

// DTensorLocal returns the calling rank's part. The numbers say how its gradient will be placed; n -1 means as the tensor is.
func DTensorLocal(t Tensor, grads Ints, n int64) (status Tensor) {
	defer protect("to_local", &status)
	if n < 0 {
		return result(dtensor.Local(tensor(t), nil))
	}
	return result(dtensor.Local(tensor(t), placements(grads, n)))
}

// DTensorOfGradient returns a gradient, of which t is the calling rank's part, of a distributed tensor with the given placements and shape.
func DTensorOfGradient(t Tensor, mesh Object, placed Ints, n int64, shape Ints, dims int64) (status Tensor) {
	defer protect("gradient", &status)
	return result(dtensor.OfGradient(tensor(t), meshOf(mesh), placements(placed, n), handle.Ints(shape, dims)))
}

// DTensorPartOfGradient returns the calling rank's part of grad, a gradient of a distributed tensor with the given placements that name, of a
// function or a hook, has made. It moves a gradient that lies otherwise.
func DTensorPartOfGradient(grad Tensor, placed Ints, n int64, name string) (status Tensor) {
	defer protect(name, &status)
	return result(dtensor.PartOfGradient(name, tensor(grad), placements(placed, n)))
}

// DTensorPassOutput returns an output of a mesh's current pass; if a backward pass through it fails, the pass does.
func DTensorPassOutput(t Tensor, mesh Object) (status Tensor) {
	defer protect("pass", &status)
	return result(dtensor.PassOutput(meshOf(mesh), tensor(t)))
}

// DTensorWatchPasses says which n leaves and buffers become valid again, and lose their gradients, when a pass over a mesh has failed.
func DTensorWatchPasses(mesh Object, list Tensors, n int64) (status Status) {
	defer protect("pass", &status)
	var watched []*core.Tensor
	for _, t := range tensors(list, n) {
		if t != nil {
			watched = append(watched, t)
		}
	}
	dtensor.WatchPasses(meshOf(mesh), watched)
	return 0
}

// DTensorFull returns the whole of a distributed tensor. Every rank of its mesh calls it.
func DTensorFull(t Tensor) (status Tensor) {
	defer protect("full_tensor", &status)
	return result(dtensor.Full(tensor(t)))
}

// DTensorPlacements writes the numbers of a distributed tensor's placements and returns how many these are; 0 for an ordinary tensor.
func DTensorPlacements(t Tensor, out IntsOut, n int64) (status int64) {
	defer protect("placements", &status)
	return writePlacements(dtensor.Placements(tensor(t)), out, n)
}

// DTensorPlacementsLike writes the numbers of the placements with which a tensor of the given shape lies as a distributed tensor does, and
// returns how many these are; 0 for an ordinary tensor.
func DTensorPlacementsLike(t Tensor, shape Ints, dims int64, out IntsOut, n int64) (status int64) {
	defer protect("placements", &status)
	return writePlacements(dtensor.PlacementsLike(tensor(t), handle.Ints(shape, dims)), out, n)
}

// writePlacements writes up to n placements and returns how many there are.
func writePlacements(list []core.Placement, out IntsOut, n int64) int64 {
	for i, p := range list[:min(int64(len(list)), n)] {
		v := handle.Slice[int64](out, placeNumbers*n)[placeNumbers*i:]
		v[0], v[1], v[2] = placeReplicate, 0, 0
		switch p.Kind {
		case core.Sharded:
			v[0], v[1], v[2] = placeShard, int64(p.Dim), int64(p.Factor)
		case core.Pending:
			v[0], v[1] = placePending, int64(p.Combine)
		}
	}
	return int64(len(list))
}

// DTensorMesh returns the mesh of a distributed tensor.
func DTensorMesh(t Tensor) (status Object) {
	defer protect("device_mesh", &status)
	m := dtensor.Mesh(tensor(t))
	if m == nil {
		return failf(core.TypeError, "device_mesh", "got an ordinary tensor")
	}
	return handle.AddObject(m)
}

// DTensorLocate writes the shape of the calling rank's part of a tensor of the given shape, of dims dimensions, and after it where the part
// begins.
func DTensorLocate(mesh Object, placed Ints, n int64, shape Ints, dims int64, out IntsOut) (status Status) {
	defer protect("distributed tensor", &status)
	local, offset, err := dtensor.Locate(meshOf(mesh), placements(placed, n), handle.Ints(shape, dims))
	if err != nil {
		return failure(err)
	}
	for i, v := range append(local, offset...) {
		handle.Slice[int64](out, 2*dims)[i] = int64(v)
	}
	return 0
}

// DTensorStrict makes ops without a rule for distributed tensors fail instead of gathering their inputs, or not, in the calling thread, and returns
// the mode before.
func DTensorStrict(on bool) int64 {
	m := core.CurrentMode()
	return int64(core.SwapMode(m.WithStrict(on)))
}

// DTensorGathered returns how many bytes of parts this process has gathered for ops without a rule.
func DTensorGathered() (status int64) {
	defer protect("gathered_bytes", &status)
	return dtensor.GatheredBytes()
}

package bind

import (
	"strings"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/vmap"
)

// VmapEnter returns a level of vmap, for a batch of size parts, inside another or 0. Operations of the calling thread draw random numbers for
// each part if draws is 1, also where none of their tensors is batched, and the same for all parts if it is 2; it is 0 for functions that draw
// none. Close it with [VmapExit], and release it.
func VmapEnter(outer Object, size, draws int64) (status Object) {
	defer protect("vmap", &status)
	var around *vmap.Level
	if outer != 0 {
		var err error
		if around, err = vmapLevel(outer); err != nil {
			return failure(err)
		}
	}
	if draws < int64(vmap.Unsettled) || draws > int64(vmap.Same) {
		return failure(core.Errorf(core.ValueError, "vmap", "draws are 0, 1 or 2, got %d", draws))
	}
	return handle.AddObject(vmap.Enter(around, int(size), vmap.Draws(draws)))
}

// VmapExit ends a level. Tensors that are batched at it can no longer be used.
func VmapExit(level Object) (status Status) {
	defer protect("vmap", &status)
	l, err := vmapLevel(level)
	if err != nil {
		return failure(err)
	}
	l.Exit()
	return 0
}

func vmapLevel(level Object) (*vmap.Level, error) {
	l, ok := handle.Object[*vmap.Level](level)
	if !ok {
		return nil, core.Errorf(core.TypeError, "vmap", "%d is not the handle of a level", level)
	}
	return l, nil
}

// VmapWrap returns the tensor that stands for each part of t along dimension 0 at a level.
func VmapWrap(t Tensor, level Object) (status Tensor) {
	defer protect("vmap", &status)
	l, err := vmapLevel(level)
	if err != nil {
		return failure(err)
	}
	return result(l.Wrap(tensor(t)))
}

// VmapUnwrap returns the tensor whose dimension 0 is the batch of t at a level, or 0 if t is not batched at it.
func VmapUnwrap(t Tensor, level Object) (status Tensor) {
	defer protect("vmap", &status)
	l, err := vmapLevel(level)
	if err != nil {
		return failure(err)
	}
	v := tensor(t)
	if err := v.Present("vmap"); err != nil {
		return failure(err)
	}
	if w := l.Unwrap(v); w != nil {
		return result(w)
	}
	return 0
}

// VmapBatched returns t batched at a level: a tensor that is not stands for the same in every part.
func VmapBatched(t Tensor, level Object) (status Tensor) {
	defer protect("vmap", &status)
	l, err := vmapLevel(level)
	if err != nil {
		return failure(err)
	}
	return result(l.Batched(tensor(t)))
}

// VmapDrawBelow has operations of the calling thread draw numbers only for the levels around the one at a depth, counted from 1 for the outermost,
// or for all if that is 0, and returns the depth before.
func VmapDrawBelow(depth int64) int64 { return int64(vmap.DrawBelow(int(depth))) }

// VmapWhole returns the tensor whose dimension 0 is the batch of t at the innermost level at which it is batched, or 0.
func VmapWhole(t Tensor) (status Tensor) {
	defer protect("vmap", &status)
	if w := vmap.Whole(tensor(t)); w != nil {
		return result(w)
	}
	return 0
}

// VmapDepth returns the depth of the innermost level at which t is batched, counted from 1 for the outermost; 0 for an ordinary tensor.
func VmapDepth(t Tensor) int64 { return int64(vmap.Depth(tensor(t))) }

// VmapLooped returns the names, with spaces between, of operations that were applied to parts one by one since the last call, for want of a
// rule. It names each once.
func VmapLooped() string { return strings.Join(vmap.Looped(), " ") }

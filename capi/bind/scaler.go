package bind

import (
	"math"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
)

func scaler(h Object) (*optim.GradScaler, error) {
	s, ok := handle.Object[*optim.GradScaler](h)
	if !ok {
		return nil, core.Errorf(core.TypeError, "GradScaler", "%d is not the handle of a scaler", h)
	}
	return s, nil
}

// ScalerNew returns a scaler of losses; good counts the good steps since its factor changed. Release it with
// [ObjectRelease].
func ScalerNew(scale float64, growth float64, backoff float64, interval int64, good int64) (status Object) {
	defer protect("GradScaler", &status)
	s := &optim.GradScaler{Growth: growth, Backoff: backoff, Interval: int(interval), Good: int(good)}
	s.SetScale(scale)
	return handle.AddObject(s)
}

// ScalerUnscale divides the gradients of n parameters by the factor; key tells their optimiser from others.
func ScalerUnscale(h Object, key int64, params Tensors, n int64) (status Status) {
	defer protect("unscale_", &status)
	if queueNearlyFull() {
		return Busy
	}
	s, err := scaler(h)
	if err != nil {
		return failure(err)
	}
	return failure(s.Unscale(key, tensors(params, n)))
}

// ScalerFound writes up to room tensors, one for each device, that are not 0 if a gradient of the optimiser there was not finite,
// and returns how many there are.
func ScalerFound(h Object, key int64, out TensorsOut, room int64) (status int64) {
	defer protect("unscale_", &status)
	s, err := scaler(h)
	if err != nil {
		return failure(err)
	}
	found := s.Found(key)
	to := handle.Slice[int64](out, min(room, int64(len(found))))
	for i := range to {
		to[i] = handle.Tensors.Add(found[i].Alias(false))
	}
	return int64(len(found))
}

// ScalerFoundElsewhere adds what was found in gradients that the scaler does not see: found is a number that is not 0 if one of them
// is not finite.
func ScalerFoundElsewhere(h Object, key int64, found Tensor) (status Status) {
	defer protect("unscale_", &status)
	s, err := scaler(h)
	if err != nil {
		return failure(err)
	}
	s.FoundElsewhere(key, tensor(found))
	return 0
}

// ScalerCheck unscales the gradients if need be, waits for them, and returns 1 if the optimiser's step shall be made, 0 if
// a gradient is not finite.
//
//plait:waits
func ScalerCheck(h Object, key int64, params Tensors, n int64) (status int64) {
	defer protect("step", &status)
	defer using(tensors(params, n)...)()
	s, err := scaler(h)
	if err != nil {
		return failure(err)
	}
	finite, err := s.Check(key, tensors(params, n))
	if err != nil {
		return failure(err)
	}
	return truth(finite)
}

// ScalerUpdate changes the factor by what was found in the gradients since the last update.
//
//plait:waits
func ScalerUpdate(h Object) (status Status) {
	defer protect("update", &status)
	s, err := scaler(h)
	if err != nil {
		return failure(err)
	}
	return failure(s.Update())
}

// ScalerSetScale sets the factor in place of an update.
func ScalerSetScale(h Object, scale float64) (status Status) {
	defer protect("update", &status)
	s, err := scaler(h)
	if err != nil {
		return failure(err)
	}
	s.SetScale(scale)
	return 0
}

// ScalerScale returns the factor, NaN for a handle that is not a scaler's.
func ScalerScale(h Object) float64 {
	s, err := scaler(h)
	if err != nil {
		return math.NaN()
	}
	return s.Scale
}

// ScalerGood returns how many good steps there were since the factor changed.
func ScalerGood(h Object) int64 {
	s, err := scaler(h)
	if err != nil {
		return failure(err)
	}
	return int64(s.Good)
}

// ScalerSet changes the numbers of a scaler's rule.
func ScalerSet(h Object, growth float64, backoff float64, interval int64, good int64) (status Status) {
	defer protect("GradScaler", &status)
	s, err := scaler(h)
	if err != nil {
		return failure(err)
	}
	s.Growth, s.Backoff, s.Interval, s.Good = growth, backoff, int(interval), int(good)
	return 0
}

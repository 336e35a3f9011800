package bind

import (
	"strings"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/dataparallel"
)

// ReplicasNew returns what copies n tensors, parameters and buffers with the given names, separated by line breaks, from the
// first of some devices to the others, and sums the gradients of the copies. End it with [ReplicasRelease].
//
//plait:waits
func ReplicasNew(ts Tensors, n int64, names string, devices Ints, devicesLen int64) (status Object) {
	defer protect("DataParallel", &status)
	var on []core.Device
	for _, d := range handle.Ints(devices, devicesLen) {
		on = append(on, device(int64(d)))
	}
	r, err := dataparallel.NewReplicas(tensors(ts, n), strings.Split(names, "\n"), on)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(&replicas{r, int(n)})
}

type replicas struct {
	*dataparallel.Replicas
	tensors int
}

func replicasOf(h Object) *replicas {
	r, ok := handle.Object[*replicas](h)
	if !ok {
		panic(core.Errorf(core.StateError, "DataParallel", "got no replicas, or those that were released"))
	}
	return r
}

// ReplicasMake writes the tensors as they are now on the first n devices, those of the first device first. Gradients of
// the copies flow back.
//
//plait:waits
func ReplicasMake(h Object, n int64, out TensorsOut) (status Status) {
	defer protect("DataParallel", &status)
	r := replicasOf(h)
	lists, err := r.Replicate(int(n))
	if err != nil {
		return failure(err)
	}
	slots := handle.Slice[int64](out, n*int64(r.tensors))
	i := 0
	for _, list := range lists {
		for _, t := range list {
			slots[i] = result(t)
			i++
		}
	}
	return 0
}

// ReplicasSetMode sets when gradients reach the originals: in the step they belong to, or if stale is set up to bound steps
// later, any number if it is negative.
//
//plait:waits
func ReplicasSetMode(h Object, stale bool, bound int64) (status Status) {
	defer protect("set_sync_mode", &status)
	return failure(replicasOf(h).SetSyncMode(dataparallel.SyncMode{Stale: stale, Max: int(bound)}))
}

// ReplicasFlush adds the gradients that have not reached the originals.
//
//plait:waits
func ReplicasFlush(h Object) (status Status) {
	defer protect("flush", &status)
	return failure(replicasOf(h).Flush())
}

// ReplicasClocks writes by device the steps whose gradients have all reached the originals, and returns the largest number of
// steps that one has come late.
func ReplicasClocks(h Object, out IntsOut, n int64) (status Status) {
	defer protect("clocks", &status)
	r := replicasOf(h)
	slots := handle.Slice[int64](out, n)
	for i, c := range r.Clocks() {
		if i < len(slots) {
			slots[i] = int64(c)
		}
	}
	return int64(r.Staleness())
}

// ReplicasRelease gives the copies' memory back and ends the life of h.
//
//plait:waits
func ReplicasRelease(h Object) (status Status) {
	defer protect("DataParallel", &status)
	if r, ok := handle.Object[*replicas](h); ok && handle.Objects.Take(h) != nil {
		r.Replicas.Release()
	}
	return 0
}

// BatchSizes writes how many of n samples each of the devices gets; weightsLen is 0 for equal shares.
func BatchSizes(n, devices int64, weights Floats, weightsLen int64, out IntsOut) (status Status) {
	defer protect("scatter", &status)
	slots := handle.Slice[int64](out, devices)
	for i, size := range dataparallel.Sizes(int(n), int(devices), handle.Slice[float64](weights, weightsLen)) {
		slots[i] = int64(size)
	}
	return 0
}

package bind

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/dataparallel"
)

// ReplicasNew returns what copies n tensors, parameters and buffers with the given names, separated by line breaks, from the
// first of some devices to the others, and sums the gradients of the copies.
//
//plait:waits
func ReplicasNew(ts Tensors, n int64, names string, devices Ints, devicesLen int64) (status Object) {
	defer protect("DataParallel", &status)
	defer using(tensors(ts, n)...)()
	r, err := dataparallel.NewReplicas(tensors(ts, n), strings.Split(names, "\n"), openDevices(devices, devicesLen))
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(&replicas{r, int(n)})
}

// openDevices returns the devices of some numbers.
func openDevices(numbers Ints, n int64) (list []core.Device) {
	for _, d := range handle.Ints(numbers, n) {
		list = append(list, device(int64(d)))
	}
	return list
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
	return clocks(replicasOf(h), out, n)
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

// BatchScatter divides n inputs along dimension dim over devices by the given weights, of which weightsLen is 0 for equal
// parts. It writes how many samples each device gets to sizes, and to parts, device after device, the parts of the inputs;
// 0 for those of a device that gets none. It returns how many devices there are up to the last that gets any.
//
//plait:waits
func BatchScatter(ts Tensors, n int64, devices Ints, devicesLen int64, weights Floats, weightsLen, dim int64, sizes IntsOut, parts TensorsOut) (status int64) {
	defer protect("scatter", &status)
	defer using(tensors(ts, n)...)()
	lists, counts, err := dataparallel.Scatter(tensors(ts, n), openDevices(devices, devicesLen), shares(weights, weightsLen), int(dim))
	if err != nil {
		return failure(err)
	}
	for i, c := range counts {
		handle.Slice[int64](sizes, devicesLen)[i] = int64(c)
	}
	slots := handle.Slice[int64](parts, n*devicesLen)
	for k, list := range lists {
		for i, t := range list {
			slots[k*int(n)+i] = result(t)
		}
	}
	return int64(len(lists))
}

// shares returns weights of devices; nil if there are none.
func shares(weights Floats, n int64) []float64 {
	if n == 0 {
		return nil
	}
	return handle.Slice[float64](weights, n)
}

// BatchGather joins the n parts of a batch along dimension dim on a device; parts without dimensions become a vector.
//
//plait:waits
func BatchGather(parts Tensors, n int64, on Device, dim int64) (status Tensor) {
	defer protect("gather", &status)
	defer using(tensors(parts, n)...)()
	return result(dataparallel.Gather(tensors(parts, n), device(on), int(dim)))
}

// measurement is a [dataparallel.Measurement] of so many devices.
type measurement struct {
	*dataparallel.Measurement
	devices int
}

// MeasureNew begins to measure how fast the devices of replicas are, with n inputs that are cut along dimension dim.
//
//plait:waits
func MeasureNew(of Object, ts Tensors, n, dim int64) (status Object) {
	defer protect("measure", &status)
	defer using(tensors(ts, n)...)()
	r := replicasOf(of)
	m, err := r.Measure(slices.Clone(tensors(ts, n)), int(dim))
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(&measurement{m, len(r.Devices())})
}

func measurementOf(h Object) *measurement {
	m, ok := handle.Object[*measurement](h)
	if !ok {
		panic(core.Errorf(core.StateError, "measure", "got no measurement, or one that was released"))
	}
	return m
}

// MeasureNext ends a pass and begins the next one: it returns the number of the device among those of the replicas, and writes its
// tensors and its parts of the inputs, or returns the number of devices when all have run.
//
//plait:waits
func MeasureNext(h Object, out, parts TensorsOut) (status int64) {
	defer protect("measure", &status)
	m := measurementOf(h)
	device, copies, inputs, err := m.Next()
	if err != nil {
		return failure(err)
	}
	if device < 0 {
		return int64(m.devices)
	}
	for i, t := range copies {
		handle.Slice[int64](out, int64(len(copies)))[i] = result(t.Alias(false))
	}
	for i, t := range inputs {
		handle.Slice[int64](parts, int64(len(inputs)))[i] = result(t.Alias(false))
	}
	return int64(device)
}

// MeasureWeights writes the speeds of the devices as parts of 1, when all have run.
func MeasureWeights(h Object, out FloatsOut) (status Status) {
	defer protect("measure", &status)
	w := measurementOf(h).Weights()
	copy(handle.Slice[float64](out, int64(len(w))), w)
	return 0
}

package bind

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/ddp"
)

// named returns n tensors with their names, which line breaks separate.
func named(a Tensors, n int64, names string) []ddp.Named {
	list := make([]ddp.Named, n)
	parts := strings.Split(names, "\n")
	for i, t := range tensors(a, n) {
		list[i].Tensor = t
		if i < len(parts) {
			list[i].Name = parts[i]
		}
	}
	return list
}

// ReducerNew returns what averages the gradients of n parameters over the ranks of a group; every rank calls it. names are
// those of the parameters, and bufferNames those of the buffers, separated by line breaks. firstBytes and bucketBytes are the
// sizes of buckets, 0 meaning the defaults. options is the sum of 1 not to send buffers before each pass, 2 to leave the
// tensors as each rank has them, 4 to find parameters without a gradient, 8 for a graph that stays as it is, 16 for gradients
// that are views of buckets, 32 to reduce when backward has ended, 64 to weight ranks by their numbers of samples, 128 not to send
// buckets without a gradient, 256 to leave inputs in their dtype, and 512 never to send buffers. delayed are parameters that are reduced when until, 0 if there
// are none, has its gradient. The dtypes are those of mixed precision, -1 where it changes nothing.
// Close it with [ReducerClose].
//
//plait:waits
func ReducerNew(of Object, params Tensors, n int64, names string, buffers Tensors, buffersLen int64, bufferNames string, firstBytes, bucketBytes, options int64, delayed Tensors, delayedLen int64, until Tensor, paramDType, reduceDType, bufferDType DType) (status Object) {
	defer protect("DistributedDataParallel", &status)
	defer using(tensorOrNil(until))()
	defer using(tensors(params, n)...)()
	if dtype(bufferDType) == nil { // else they are given other memory here
		defer using(tensors(buffers, buffersLen)...)()
	}
	defer using(tensors(delayed, delayedLen)...)()
	has := func(bit int64) bool { return options&bit != 0 }
	r, err := ddp.NewReducer(group(of), named(params, n, names), ddp.Options{
		FirstBucketBytes: int(firstBytes), BucketBytes: int(bucketBytes), Buffers: named(buffers, buffersLen, bufferNames),
		KeepBuffers: has(1), SkipInit: has(2), FindUnused: has(4), StaticGraph: has(8), BucketView: has(16),
		DelayAllReduce: has(32), Weighted: has(64), SkipUnused: has(128),
		Delayed: slices.Clone(tensors(delayed, delayedLen)), Until: tensorOrNil(until),
		Precision:    ddp.Precision{Param: dtype(paramDType), Reduce: dtype(reduceDType), Buffer: dtype(bufferDType), KeepInputs: has(256)},
		LocalBuffers: has(512),
	})
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(r)
}

func reducer(h Object) *ddp.Reducer {
	r, ok := handle.Object[*ddp.Reducer](h)
	if !ok {
		panic(core.Errorf(core.StateError, "DistributedDataParallel", "got no reducer, or one that was closed"))
	}
	return r
}

// ReducerForward tells a reducer that a forward pass on a batch of so many samples begins.
//
//plait:waits
func ReducerForward(h Object, samples int64) (status Status) {
	defer protect("DistributedDataParallel", &status)
	return failure(reducer(h).Forward(int(samples)))
}

// ReducerForwardFailed says why the forward pass is over that [ReducerForward] has begun, where that concerns the other ranks: memory was
// lacking, or else the ranks did not meet.
//
//plait:waits
func ReducerForwardFailed(h Object, why string, memory bool) (status Status) {
	defer protect("DistributedDataParallel", &status)
	kind := core.DistributedError
	if memory {
		kind = core.MemoryError
	}
	reducer(h).ForwardFailed(core.Errorf(kind, "forward", "%s", why))
	return 0
}

// ReducerLowered writes the parameters, shared ones once, in the dtype of mixed precision, for a forward pass.
//
//plait:waits
func ReducerLowered(h Object, out TensorsOut) (status Status) {
	defer protect("DistributedDataParallel", &status)
	list, err := reducer(h).Lowered()
	if err != nil {
		return failure(err)
	}
	for i, t := range list {
		handle.Slice[int64](out, int64(len(list)))[i] = result(t.Alias(true))
	}
	return 0
}

// ReducerSetSync says whether passes from now on are to be synchronised, and returns 1 if they were, else 0.
func ReducerSetSync(h Object, on bool) (status Status) {
	defer protect("no_sync", &status)
	r, before := reducer(h), false
	if err := r.Use(func() { before = r.SetSync(on) }); err != nil {
		return failure(err)
	}
	return truth(before)
}

// ReducerWait waits until the gradients of the last pass are known.
//
//plait:waits
func ReducerWait(h Object) (status Status) {
	defer protect("DistributedDataParallel", &status)
	return failure(reducer(h).Wait())
}

// ReducerClose takes a reducer's hooks off the parameters and ends its life.
//
//plait:waits
func ReducerClose(h Object) (status Status) {
	defer protect("DistributedDataParallel", &status)
	r, ok := handle.Object[*ddp.Reducer](h)
	if !ok || handle.Objects.Take(h) == nil {
		return 0
	}
	return failure(r.Close())
}

// ReducerStats writes what a reducer has done: its passes, the buckets that went to the group, the bytes of gradients in them,
// the bytes of buffers, how often buckets were rebuilt, the gradients that were missing, and the bytes of the last pass.
func ReducerStats(h Object, out IntsOut) (status Status) {
	defer protect("DistributedDataParallel", &status)
	s := reducer(h).Stats()
	for i, v := range []int{s.Passes, s.Buckets, s.Bytes, s.Buffers, s.Rebuilds, s.Unused, s.LastBytes} {
		handle.Slice[int64](out, 7)[i] = int64(v)
	}
	return 0
}

// ReducerHook makes one of the engine's hooks reduce the buckets: "allreduce", "fp16", "bf16", "noop", "powersgd",
// "batched_powersgd" or "topk", the last three after a cast if compress, "fp16" or "bf16", says so. numbers are, of PowerSGD,
// the rank of the approximation, the steps before it begins, how many times fewer elements it must take, 1 to feed errors
// back, 1 to begin at the last step's result, the part of its norm that a column must keep, and the seed; of topk the share of the
// elements, and 1 to feed errors back.
func ReducerHook(h Object, name, compress string, numbers Floats, n int64) (status Status) {
	defer protect("register_comm_hook", &status)
	v := handle.Slice[float64](numbers, n)
	at := func(i int) float64 {
		if i < len(v) {
			return v[i]
		}
		return 0
	}
	var hook ddp.Hook
	switch name {
	case "allreduce":
		hook = ddp.AllReduceHook
	case "noop":
		hook = ddp.NoopHook
	case "powersgd", "batched_powersgd":
		hook = ddp.NewPowerSGD(ddp.PowerSGD{Rank: int(at(0)), StartStep: int(at(1)), MinCompression: at(2),
			NoErrorFeedback: at(3) == 0, ColdStart: at(4) == 0, Epsilon: at(5), Seed: uint64(at(6)), Batched: name == "batched_powersgd"}).Hook
	case "topk":
		hook = (&ddp.TopK{Ratio: at(0), NoErrorFeedback: at(1) == 0}).Hook
	default:
		return failf(core.ValueError, "register_comm_hook", "got the hook %q, want allreduce, noop, powersgd, batched_powersgd or topk", name)
	}
	switch compress {
	case "":
	case "fp16":
		hook = ddp.CompressHook(core.Float16, hook)
	case "bf16":
		hook = ddp.CompressHook(core.BFloat16, hook)
	default:
		return failf(core.ValueError, "register_comm_hook", "got %q to compress to, want fp16 or bf16", compress)
	}
	return failure(reducer(h).RegisterHook(hook))
}

// ReducerHookCaller makes the function with the given key reduce the buckets: [BackwardStep] asks for it. The key is among
// those of [Dropped] when it is no longer used.
func ReducerHookCaller(h Object, key int64) (status Status) {
	defer protect("register_comm_hook", &status)
	return failure(reducer(h).RegisterForeignHook(uint64(key), func() { drop(key) }))
}

func bucket(h Object) *ddp.Bucket {
	b, ok := handle.Object[*ddp.Bucket](h)
	if !ok {
		panic(core.Errorf(core.StateError, "bucket", "got no handle of a bucket"))
	}
	return b
}

// BucketBuffer returns the gradients of a bucket one after the other, in memory that the next step uses again.
func BucketBuffer(h Object) (status Tensor) {
	defer protect("bucket", &status)
	return result(bucket(h).Buffer().Alias(true))
}

// BucketParameters writes, of up to room parameters of a bucket, their numbers in the list that the reducer was made of, and
// the views of the buffer that are their gradients, and returns how many there are.
func BucketParameters(h Object, numbers IntsOut, views TensorsOut, room int64) (status int64) {
	defer protect("bucket", &status)
	b := bucket(h)
	list := b.Indices()
	for i, n := range list[:min(len(list), int(room))] {
		v := b.Gradients()[i].Alias(true)
		if err := v.Err(); err != nil {
			return failure(err)
		}
		handle.Slice[int64](numbers, room)[i] = int64(n)
		handle.Slice[int64](views, room)[i] = handle.Tensors.Add(v)
	}
	return int64(len(list))
}

// BucketPlace returns the place of a bucket in the order in which buckets are reduced, as twice the number, and 1 more for
// the last.
func BucketPlace(h Object) (status int64) {
	defer protect("bucket", &status)
	b := bucket(h)
	return 2*int64(b.Index()) + truth(b.IsLast())
}

// BucketGroup returns the handle on the group with which a hook reduces a bucket: its collectives fail on all ranks if the pass fails on one.
func BucketGroup(h Object) (status Object) {
	defer protect("bucket", &status)
	return handle.AddObject(bucket(h).Group())
}

// BucketMode returns the calling thread's mode on the streams of a bucket, and without gradients, for [ModeSet].
func BucketMode(h Object) (status int64) {
	defer protect("bucket", &status)
	return int64(core.CurrentMode().WithContext(bucket(h).Context()).WithGrad(false))
}

// ReducerJoinBegin begins training in which ranks may have unequal numbers of batches: see [ReducerJoinEnd].
//
//plait:waits
func ReducerJoinBegin(h Object, divideByActive, raises bool) (status Status) {
	defer protect("join", &status)
	return failure(reducer(h).JoinBegin(ddp.JoinOptions{DivideByActive: divideByActive, Throw: raises}))
}

// ReducerJoinEnd takes part in the steps of ranks that have more batches, and returns 0 when none has. With a hook of the
// caller's it returns a bucket for that hook, and is called again with the one tensor that the hook answers; n is 0 at first.
//
//plait:waits
func ReducerJoinEnd(h Object, answer Tensors, n int64) (status Object) {
	defer protect("join", &status)
	defer using(tensors(answer, n)...)()
	q, err := reducer(h).JoinEnd(answers(answer, n))
	if err != nil {
		return failure(err)
	}
	if q == nil {
		return 0
	}
	return handle.AddObject(q.Payload.(*ddp.Bucket))
}

// ReducerJoinAbandon ends what [ReducerJoinBegin] began without the steps of others, after an error.
func ReducerJoinAbandon(h Object) (status Status) {
	defer protect("join", &status)
	reducer(h).JoinAbandon()
	return 0
}

// ReducerSetMode sets how ranks wait for each other from now on: kind 0 synchronous, 1 with a bound on staleness, 2
// asynchronous; bound is that of 1. optimizer is the rank's.
//
//plait:waits
func ReducerSetMode(h Object, kind, bound int64, optimizer Object) (status Status) {
	defer protect("set_sync_mode", &status)
	var o *optim.Optimizer
	if optimizer != 0 {
		var ok bool
		if o, ok = handle.Object[*optim.Optimizer](optimizer); !ok {
			return failf(core.TypeError, "set_sync_mode", "%d is not the handle of an optimiser", optimizer)
		}
	}
	return failure(reducer(h).SetSyncMode(ddp.SyncMode{Kind: ddp.SyncKind(kind), Max: int(bound)}, o))
}

// ReducerStep makes a step of the optimiser that was given to [ReducerSetMode].
//
//plait:waits
func ReducerStep(h Object) (status Status) {
	defer protect("step", &status)
	return failure(reducer(h).Step())
}

// ReducerClocks writes how many steps each of n ranks has made since the mode was set, and returns by how many steps, at most,
// this rank was ahead of the slowest.
func ReducerClocks(h Object, out IntsOut, n int64) (status Status) {
	defer protect("clocks", &status)
	return clocks(reducer(h), out, n)
}

// clocks writes the clocks of replicas or ranks that need not keep in step, and returns how far apart they have been.
func clocks(r interface {
	Use(f func()) error
	Clocks() []int
	Staleness() int
}, out IntsOut, n int64) (status Status) {
	slots := handle.Slice[int64](out, n)
	err := r.Use(func() {
		for i, c := range r.Clocks() {
			if i < len(slots) {
				slots[i] = int64(c)
			}
		}
		status = int64(r.Staleness())
	})
	if err != nil {
		return failure(err)
	}
	return status
}

// SyncBatchNorm is batch normalisation in training with the mean and variance over the batches of all ranks of a group. The
// running statistics and the weights may be 0. samples are those of this rank, where its gradients will count by them; otherwise 0.
// purpose is what the layer's collectives are for.
//
//plait:waits
func SyncBatchNorm(of Object, x, runningMean, runningVar, weight, bias Tensor, momentum, eps, samples float64, purpose string) (status Tensor) {
	defer protect("sync_batch_norm", &status)
	defer using(tensorOrNil(x), tensorOrNil(runningMean), tensorOrNil(runningVar), tensorOrNil(weight), tensorOrNil(bias))()
	return result(ddp.SyncBatchNormTrain(group(of).For(purpose), tensor(x), tensorOrNil(runningMean), tensorOrNil(runningVar),
		tensorOrNil(weight), tensorOrNil(bias), momentum, eps, samples))
}

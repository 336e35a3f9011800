package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/mesh"
)

// FsdpUnitNew divides n parameters over the ranks of the group of, whose names are separated by line breaks; 0 leaves them
// whole. replicas, a group or 0, are the ranks with the same shards. over is the mesh of both groups, or 0. numbers are: over how many ranks to reshard after
// forward, the slots, when to prefetch in backward (0 before, 1 after, 2 never), the dtypes of parameters, reduction and
// outputs, the device to offload to, the last four being -1 for none, and a sum of 1 to keep parameters after forward, 2 to
// begin with those of rank 0, 4 to leave inputs as they are and 8 not to prefetch in forward. dims are the dimensions along which the
// parameters are sharded, or the address 0 for the first. Close it with [FsdpUnitClose].
//
//plait:waits
func FsdpUnitNew(of Object, replicas Object, over Object, params Tensors, n int64, names string, dims Ints, name string, numbers Ints, count int64) (status Object) {
	defer protect("fsdp", &status)
	v := handle.Ints(numbers, count)
	if len(v) != 8 {
		return failf(core.ValueError, "fsdp", "want 8 numbers, got %d", len(v))
	}
	groupOrNil := func(h Object) *collective.Group {
		if h == 0 {
			return nil
		}
		return group(h)
	}
	var list []fsdp.Named
	for _, p := range named(params, n, names) {
		list = append(list, fsdp.Named(p))
	}
	var shardDim func(fsdp.Named) int
	if dims != 0 {
		along := map[*core.Tensor]int{}
		for i, d := range handle.Ints(dims, n) {
			along[list[i].Tensor] = d
		}
		shardDim = func(p fsdp.Named) int { return along[p.Tensor] }
	}
	has := func(bit int) bool { return v[7]&bit != 0 }
	var m *mesh.Mesh
	if over != 0 {
		m = meshOf(over)
	}
	u, err := fsdp.NewUnit(groupOrNil(of), list, fsdp.Options{
		Name: name, Mesh: m, ShardDim: shardDim, Replicas: groupOrNil(replicas), Partial: v[0], Slots: v[1], BackwardPrefetch: fsdp.Prefetch(v[2]),
		Precision: fsdp.Precision{Param: dtype(DType(v[3])), Reduce: dtype(DType(v[4])), Output: dtype(DType(v[5])), KeepInputs: has(4)},
		Offload:   device(Device(v[6])), KeepAfterForward: has(1), Broadcast: has(2), NoForwardPrefetch: has(8),
	})
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(u)
}

func fsdpUnit(h Object) *fsdp.Unit {
	u, ok := handle.Object[*fsdp.Unit](h)
	if !ok {
		panic(core.Errorf(core.StateError, "fsdp", "got no unit, or one that was closed"))
	}
	return u
}

func fsdpUnits(a Ints, n int64) []*fsdp.Unit {
	if n < 0 {
		return nil
	}
	list := make([]*fsdp.Unit, 0, n)
	for _, h := range handle.Slice[int64](a, n) {
		list = append(list, fsdpUnit(h))
	}
	return list
}

// FsdpTreeNew makes n units those of one model, of which the first is the root, and returns their tree.
//
//plait:waits
func FsdpTreeNew(units Ints, n int64) (status Object) {
	defer protect("fsdp", &status)
	t, err := fsdp.NewTree(fsdpUnits(units, n))
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(t)
}

func fsdpTree(h Object) *fsdp.Tree {
	t, ok := handle.Object[*fsdp.Tree](h)
	if !ok {
		panic(core.Errorf(core.StateError, "fsdp", "got no tree of units"))
	}
	return t
}

// FsdpTreeBuffers says which n tensors, such as running averages, forward passes change. If a step fails that was to change one and
// could not, the tensor keeps what it had.
func FsdpTreeBuffers(h Object, list Tensors, n int64) (status Status) {
	defer protect("fsdp", &status)
	return failure(fsdpTree(h).SetBuffers(tensors(list, n)))
}

// FsdpTreeWait waits until the gradients of the last pass are known.
//
//plait:waits
func FsdpTreeWait(h Object) (status Status) {
	defer protect("fsdp", &status)
	return failure(fsdpTree(h).Wait())
}

// FsdpNorm returns the norm of the given power of the full gradients of n parameters, over all ranks; units are those, of m,
// that may have them.
//
//plait:waits
func FsdpNorm(units Ints, m int64, params Tensors, n int64, power float64, errorIfNonfinite bool) (status Tensor) {
	defer protect("clip_grad_norm_", &status)
	defer using(tensors(params, n)...)()
	return result(fsdp.GradNorm(fsdpUnits(units, m), tensors(params, n), optim.ClipOptions{Norm: power, ErrorIfNonfinite: errorIfNonfinite}))
}

// FsdpUnitForward begins a forward pass of a unit on n tensors, or with end set ends one that returned them.
//
//plait:waits
func FsdpUnitForward(h Object, values Tensors, n int64, end bool) (status Status) {
	defer protect("fsdp", &status)
	if end {
		return failure(fsdpUnit(h).PostForward(tensors(values, n)))
	}
	return failure(fsdpUnit(h).PreForward(tensors(values, n)))
}

// FsdpUnitFail says why the forward pass that a unit is in does not come to its end, before its end is told: memory says that memory was
// lacking. Other ranks are told.
func FsdpUnitFail(h Object, why string, memory bool) (status Status) {
	defer protect("fsdp", &status)
	kind := core.StateError
	if memory {
		kind = core.MemoryError
	}
	return failure(fsdpUnit(h).FailForward(core.Errorf(kind, "forward", "%s", why)))
}

// FsdpUnitFailStep says why a step is over, if it has not failed yet: memory says that memory was lacking. Other ranks are told.
func FsdpUnitFailStep(h Object, why string, memory bool) (status Status) {
	defer protect("fsdp", &status)
	kind := core.DistributedError
	if memory {
		kind = core.MemoryError
	}
	return failure(fsdpUnit(h).FailStep(core.Errorf(kind, "step", "%s", why)))
}

// FsdpUnitStep says that a step of several passes through a unit's model begins, or with on not set that it has ended.
func FsdpUnitStep(h Object, on bool) (status Status) {
	defer protect("step", &status)
	u := fsdpUnit(h)
	return failure(u.Use(func() {
		if on {
			u.Tree().BeginStep()
		} else {
			u.Tree().EndStep(nil)
		}
	}))
}

// FsdpUnitUnshard begins to gather a unit's parameters, and with show set makes the module's tensors the full ones.
//
//plait:waits
func FsdpUnitUnshard(h Object, show bool) (status Status) {
	defer protect("unshard", &status)
	if show {
		return failure(fsdpUnit(h).Unshard())
	}
	return failure(fsdpUnit(h).StartUnshard())
}

// FsdpUnitReshard frees a unit's full parameters.
func FsdpUnitReshard(h Object) (status Status) {
	defer protect("reshard", &status)
	u := fsdpUnit(h)
	var err error
	if used := u.Use(func() { err = u.Reshard() }); used != nil {
		err = used
	}
	return failure(err)
}

// FsdpUnitGradient returns the averaged gradient of a parameter that [FsdpUnitUnshard] shows in full, or 0.
func FsdpUnitGradient(h Object, t Tensor) (status Tensor) {
	defer protect("grad", &status)
	u, v := fsdpUnit(h), tensor(t)
	var g *core.Tensor
	if err := u.Use(func() { g = u.ShardGradient(v) }); err != nil || g == nil {
		return 0 // after an error another thread is in a pass of the unit
	}
	return result(g)
}

// FsdpUnitGathered returns 1 if the module's tensors are the full parameters, else 0.
func FsdpUnitGathered(h Object) (status int64) {
	defer protect("fsdp", &status)
	return truth(fsdpUnit(h).Gathered())
}

// FsdpUnitSet turns something of a unit on or off and returns 1 if what it says was on before: what 0 is the reduction of
// gradients, 1 their sum over replicas, 2 freeing parameters after forward, 3 freeing them after backward.
func FsdpUnitSet(h Object, what int64, on bool) (status Status) {
	defer protect("fsdp", &status)
	u := fsdpUnit(h)
	err := u.Use(func() {
		switch what {
		case 0:
			status = truth(u.SetSync(on))
		case 1:
			u.SetAllReduce(on)
		case 2:
			u.SetKeepAfterForward(!on)
		default:
			u.SetReshardAfterBackward(on)
		}
	})
	if err != nil {
		return failure(err)
	}
	return status
}

// FsdpUnitDivide sets by what sums of gradients are divided; 0 means the number of ranks.
func FsdpUnitDivide(h Object, factor float64) (status Status) {
	defer protect("set_gradient_divide_factor", &status)
	u := fsdpUnit(h)
	return failure(u.Use(func() { u.SetDivideFactor(factor) }))
}

// FsdpUnitPrefetch sets which n units to gather when the forward, or backward, pass of a unit begins; a negative n stands
// for the one that came next in the last pass.
func FsdpUnitPrefetch(h Object, backward bool, units Ints, n int64) (status Status) {
	defer protect("set_modules_to_prefetch", &status)
	u, list := fsdpUnit(h), fsdpUnits(units, n)
	return failure(u.Use(func() { u.SetPrefetch(backward, list) }))
}

// FsdpUnitTake moves a parameter that modules of both units use from one unit to another, where it gets a name.
func FsdpUnitTake(h, from Object, t Tensor, name string) (status Status) {
	defer protect("fsdp", &status)
	return failure(fsdpUnit(h).Take(fsdpUnit(from), tensor(t), name))
}

// FsdpSummon gathers the parameters of a unit and shows them on a device, -1 meaning where they are gathered, and with end set
// frees them. how is a sum of 1 to copy no changes to the shards, 2 to show gradients too, and 4 to show them on the first rank
// alone.
//
//plait:waits
func FsdpSummon(h Object, how int64, on Device, end bool) (status Status) {
	defer protect("summon_full_params", &status)
	o := fsdp.SummonOptions{Alone: true, ReadOnly: how&1 != 0, Gradients: how&2 != 0, First: how&4 != 0, Device: device(on)}
	if end {
		return failure(fsdpUnit(h).SummonEnd(o))
	}
	return failure(fsdpUnit(h).SummonBegin(o))
}

// FsdpUnitHook makes the function with the given key reduce a unit's gradients: [BackwardStep] asks for it, and its argument is
// what [FsdpReduction] takes.
func FsdpUnitHook(h Object, key int64) (status Status) {
	defer protect("register_comm_hook", &status)
	err := fsdpUnit(h).RegisterForeignHook(uint64(key), func() { drop(key) })
	if err != nil {
		drop(key)
	}
	return failure(err)
}

func reduction(h Object) *fsdp.Reduction {
	r, ok := handle.Object[*fsdp.Reduction](h)
	if !ok {
		panic(core.Errorf(core.StateError, "register_comm_hook", "got no reduction"))
	}
	return r
}

// FsdpReductionMode returns the calling thread's mode on the streams of a reduction, and without gradients, for [ModeSet].
func FsdpReductionMode(h Object) (status int64) {
	defer protect("register_comm_hook", &status)
	return int64(core.CurrentMode().WithContext(reduction(h).Context()).WithGrad(false))
}

// FsdpReductionGroup returns the handle on the group with which a hook reduces gradients: its collectives fail on all ranks if the step
// fails on one.
func FsdpReductionGroup(h Object) (status Object) {
	defer protect("register_comm_hook", &status)
	return handle.AddObject(reduction(h).Group)
}

// FsdpReduction writes the tensors that a hook of [FsdpUnitHook] is about: the gradients of all ranks' rows, and this rank's part
// of their average, which it is to write; the latter is 0 where parameters are not divided, and the former to be averaged.
func FsdpReduction(h Object, out TensorsOut) (status Status) {
	defer protect("register_comm_hook", &status)
	r := reduction(h)
	to := handle.Slice[int64](out, 2)
	to[0], to[1] = handle.Tensors.Add(r.Full.Alias(true)), 0
	if r.Part != r.Full {
		to[1] = handle.Tensors.Add(r.Part.Alias(true))
	}
	return 0
}

// FsdpUnitStats writes how often a unit was gathered, how often before it was needed, and how often its gradients were
// reduced.
func FsdpUnitStats(h Object, out IntsOut) (status Status) {
	defer protect("fsdp", &status)
	s := fsdpUnit(h).Stats()
	for i, v := range []int{s.Gathers, s.Prefetches, s.Reductions} {
		handle.Slice[int64](out, 3)[i] = int64(v)
	}
	return 0
}

// FsdpUnitClose frees what a unit holds, beside the shards, and ends its life.
//
//plait:waits
func FsdpUnitClose(h Object) (status Status) {
	defer protect("fsdp", &status)
	u, ok := handle.Object[*fsdp.Unit](h)
	if !ok || handle.Objects.Take(h) == nil {
		return 0
	}
	return failure(u.Close())
}

package bind

import (
	"errors"
	"fmt"
	"time"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mpi"
	"github.com/plait-ml/plait/parallel/process"
)

// WorldNew makes size ranks that are threads of this process, and writes the handles of their groups, one for each rank.
// timeout, in nanoseconds, is how long a rank waits for the others; 0 means the default.
func WorldNew(size, timeout int64, groups IntsOut) (status Status) {
	defer protect("init_process_group", &status)
	made, err := collective.NewWorld(int(size), collective.Options{Timeout: time.Duration(timeout), Warn: warn})
	if err != nil {
		return failure(err)
	}
	out := handle.Slice[int64](groups, size)
	for i, g := range made {
		out[i] = handle.AddObject(g)
	}
	return 0
}

// A joining is a world of processes that this process is about to join.
type joining struct {
	done  chan struct{}
	world *process.World
	err   error
}

// WorldJoin begins to make ranks of this process, which are its threads, part of the world of all processes that a launcher started,
// and returns a handle for [WorldJoined]. prefix is the root of Python's environment, in whose libraries MPI is looked for.
// communicator is Fortran's number of a communicator of MPI, whose processes join; a number beyond 32 bits means all processes.
// timeout, in nanoseconds, is how long a rank waits for the others, join how long this process waits for the others to join, and
// heartbeat how long a process may be silent; 0 means the defaults: 30 minutes, 5 minutes and 30 seconds.
func WorldJoin(ranks, timeout, join, heartbeat, communicator int64, prefix string) (status Object) {
	defer protect("init_process_group", &status)
	o := process.Options{
		Ranks: int(ranks), MPI: mpi.Options{Prefix: prefix}, HeartbeatTimeout: time.Duration(heartbeat), JoinTimeout: time.Duration(join),
		Options: collective.Options{Timeout: time.Duration(timeout), Warn: warn},
	}
	if number := int32(communicator); int64(number) == communicator {
		o.MPI.Communicator = &number
	}
	j := &joining{done: make(chan struct{})}
	go func() {
		defer close(j.done)
		defer func() {
			if r := recover(); r != nil {
				j.err = panicError("init_process_group", r)
			}
		}()
		j.world, j.err = process.Join(o)
	}()
	return handle.AddObject(j)
}

// WorldJoined waits at most d nanoseconds until this process has joined the world, and returns a handle of that, or 0 if it has not
// joined yet. It writes the handles of the groups of this process's ranks. End the world with [WorldClose].
//
//plait:waits
func WorldJoined(h Object, d int64, groups IntsOut) (status Object) {
	defer protect("init_process_group", &status)
	j, ok := handle.Object[*joining](h)
	if !ok {
		return failf(core.StateError, "init_process_group", "got no world that is being joined")
	}
	timer := time.NewTimer(time.Duration(d))
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
		return 0
	}
	if j.err != nil {
		return failure(j.err)
	}
	list := j.world.Groups()
	out := handle.Slice[int64](groups, int64(len(list)))
	for i, g := range list {
		out[i] = handle.AddObject(g)
	}
	return handle.AddObject(j.world)
}

// MPIAvailable returns 1 if there is a library of MPI that a process can use, otherwise 0.
func MPIAvailable(prefix string) int64 {
	if _, err := mpi.Find(prefix); err != nil {
		return 0
	}
	return 1
}

// WorldClose ends this process's part in a world of processes.
//
//plait:waits
func WorldClose(h Object) (status Status) {
	defer protect("world", &status)
	w, ok := handle.Object[*process.World](h)
	if !ok || handle.Objects.Take(h) == nil {
		return failf(core.StateError, "world", "got a world of processes that was closed, or none")
	}
	return failure(w.Close())
}

// WorldAbort ends the parts of this process's ranks in their world because of what message says.
//
//plait:waits
func WorldAbort(h Object, message string) (status Status) {
	defer protect("world", &status)
	if w, ok := handle.Object[*process.World](h); ok {
		w.Abort(errors.New(message))
	}
	return 0
}

// WorldProcessOf returns the number of the process in which a rank lives.
func WorldProcessOf(h Object, rank int64) (status int64) {
	defer protect("world", &status)
	w, ok := handle.Object[*process.World](h)
	if !ok {
		return failf(core.StateError, "world", "got a world of processes that was closed, or none")
	}
	return int64(w.ProcessOf(int(rank)))
}

// GroupRenew makes a group of the same ranks that begins anew: the n-th call of every rank makes the same one. It waits for
// nobody. timeout is in nanoseconds, 0 meaning the other group's.
func GroupRenew(of Object, timeout int64) (status Object) {
	defer protect("init_process_group", &status)
	return handle.AddObject(group(of).Renew(collective.Options{Timeout: time.Duration(timeout)}))
}

// GroupFor returns a handle on a group whose operations are for a purpose, which is compared with that of the other ranks.
func GroupFor(of Object, purpose string) (status Object) {
	defer protect("group", &status)
	return handle.AddObject(group(of).For(purpose))
}

// GroupForBackward returns a handle on a second group of the same ranks, for collectives that backward starts.
func GroupForBackward(of Object) (status Object) {
	defer protect("group", &status)
	return handle.AddObject(group(of).ForBackward())
}

// GroupDetectDeadlocks enables the detection of deadlocks for a rank, whose threads run in a context of [RankNew]. The calling thread becomes
// the rank's main thread. If all ranks wait for each other, they then get an error at once.
func GroupDetectDeadlocks(h, context Object) (status Status) {
	defer protect("rank", &status)
	r, ok := handle.Object[*rankContext](context)
	if !ok {
		return failf(core.StateError, "rank", "got no context of a rank")
	}
	group(h).DetectDeadlocks(r.context)
	return 0
}

// GroupAddThreads adds n, which may be negative, to the number of threads that make calls for a rank.
func GroupAddThreads(h Object, n int64) (status Status) {
	defer protect("rank", &status)
	group(h).AddThreads(int(n))
	return 0
}

// A rankContext is what the operations of one rank share.
type rankContext struct{ context *core.Context }

// RankNew makes the context of a rank, with streams and random generators of its own and d as its default device. End it
// with [RankEnd].
func RankNew(rank int64, d Device) (status Object) {
	defer protect("spawn", &status)
	return handle.AddObject(&rankContext{core.NewRankContext(int(rank), device(d))})
}

// RankMode returns the calling thread's mode with a rank's context, for [ModeSet].
func RankMode(h Object) int64 {
	r, ok := handle.Object[*rankContext](h)
	if !ok {
		return ModeGet()
	}
	return int64(core.CurrentMode().WithContext(r.context))
}

// RankEnd ends the context of a rank: it waits for its streams and closes them. No thread may be in it any more.
//
//plait:waits
func RankEnd(h Object) (status Status) {
	defer protect("rank", &status)
	if r, ok := handle.Object[*rankContext](h); ok && handle.Objects.Take(h) != nil {
		r.context.Free()
	}
	return 0
}

func group(h Object) *collective.Group {
	g, ok := handle.Object[*collective.Group](h)
	if !ok {
		panic(core.Errorf(core.StateError, "group", "got a process group that was destroyed, or none"))
	}
	return g
}

// GroupNew makes a group of n ranks of another group; every rank of that calls it, and those that are not among them get 0.
// timeout is in nanoseconds, 0 meaning the other group's.
//
//plait:waits
func GroupNew(of Object, ranks Ints, n, timeout int64, name string) (status Object) {
	defer protect("new_group", &status)
	g, err := group(of).New(handle.Ints(ranks, n), collective.Options{Name: name, Timeout: time.Duration(timeout)})
	if err != nil {
		return failure(err)
	}
	if g == nil {
		return 0
	}
	return handle.AddObject(g)
}

// GroupRank returns the calling rank's number in a group.
func GroupRank(h Object) (status int64) {
	defer protect("get_rank", &status)
	return int64(group(h).Rank())
}

// GroupSize returns the number of ranks in a group.
func GroupSize(h Object) (status int64) {
	defer protect("get_world_size", &status)
	return int64(group(h).Size())
}

// GroupName returns a group's name.
func GroupName(h Object) string {
	if g, ok := handle.Object[*collective.Group](h); ok {
		return g.Name()
	}
	return ""
}

// GroupBackend returns the name of what carries out a group's operations, such as "local".
func GroupBackend(h Object) string {
	if g, ok := handle.Object[*collective.Group](h); ok {
		return g.Backend()
	}
	return ""
}

// GroupSetTimeout sets how long the calling rank waits for the others, in nanoseconds.
func GroupSetTimeout(h Object, timeout int64) (status Status) {
	defer protect("group", &status)
	group(h).SetTimeout(time.Duration(timeout))
	return 0
}

// GroupBytes returns how many bytes a collective, such as "all_reduce", has moved for the calling rank; an empty name
// stands for all of them.
func GroupBytes(h Object, collective string) (status int64) {
	defer protect("group", &status)
	s := group(h).Stats()
	if collective == "" {
		return int64(s.Total())
	}
	return int64(s.Bytes[collective])
}

// GroupAbort ends the calling rank's part in its world because of what message says, or in order for "it has returned": operations that
// need it fail.
func GroupAbort(h Object, message string) (status Status) {
	defer protect("abort", &status)
	err := errors.New(message)
	if message == collective.ErrReturned.Error() {
		err = collective.ErrReturned
	}
	group(h).Abort(err)
	return 0
}

// GroupClose ends the calling rank's part in a group and in those made from it, after its own operations are done.
//
//plait:waits
func GroupClose(h Object) (status Status) {
	defer protect("destroy_process_group", &status)
	return failure(group(h).Close())
}

// CollectiveStart begins a collective of a group and returns its work. kind is 0 all_reduce, 1 broadcast, 2 reduce,
// 3 all_gather, 4 reduce_scatter, 5 all_to_all, 6 gather, 7 scatter, 8 send, 9 recv; reduction is 0 sum, 1 avg, 2 product,
// 3 min, 4 max, 5 band, 6 bor, 7 bxor. peer is the root, or the other side of send and recv, -1 meaning any. tag is that of send
// and recv; of all_reduce it is 1 for the order of [collective.Group.AllReduceByNode]. One tensor in the place of one for each rank
// is taken in equal parts. timeout is in nanoseconds, 0 meaning the group's.
//
//plait:waits
func CollectiveStart(of Object, kind, reduction, peer, tag int64, ins Tensors, nIns int64, outs Tensors, nOuts, timeout int64) (status Object) {
	defer protect("collective", &status)
	defer using(tensors(ins, nIns)...)()
	defer using(tensors(outs, nOuts)...)()
	g := group(of)
	if timeout > 0 {
		g = g.WithTimeout(time.Duration(timeout))
	}
	in, out := tensors(ins, nIns), tensors(outs, nOuts)
	first := func(list []*core.Tensor) *core.Tensor {
		if len(list) == 0 {
			return nil
		}
		return list[0]
	}
	o, root := collective.ReduceOp(reduction), int(peer)
	var w *collective.Work
	switch collective.Kind(kind) {
	case collective.KindAllReduce:
		if tag == 1 {
			w = g.AllReduceByNode(in, o)
		} else {
			w = g.AllReduceMany(in, o)
		}
	case collective.KindBroadcast:
		w = g.BroadcastMany(in, root)
	case collective.KindReduce:
		w = g.Reduce(first(in), root, o)
	case collective.KindAllGather:
		if nOuts == 1 && g.Size() > 1 {
			w = g.AllGatherInto(first(out), first(in))
		} else {
			w = g.AllGather(out, first(in))
		}
	case collective.KindReduceScatter:
		if nIns == 1 && g.Size() > 1 {
			w = g.ReduceScatterInto(first(out), first(in), o)
		} else {
			w = g.ReduceScatter(first(out), in, o)
		}
	case collective.KindAllToAll:
		w = g.AllToAll(out, in)
	case collective.KindGather:
		w = g.Gather(out, first(in), root)
	case collective.KindScatter:
		w = g.Scatter(first(out), in, root)
	case collective.KindSend:
		w = g.Send(first(in), root, int(tag))
	case collective.KindRecv:
		w = g.Recv(first(out), root, int(tag))
	default:
		return failf(core.ValueError, "collective", "%d is not the number of a collective", kind)
	}
	return handle.AddObject(w)
}

// CollectiveAllToAllStart begins an exchange of parts: inSizes[r] elements of input go to rank r, and outSizes[r] of output come
// from it. A negative number of sizes means equal parts.
//
//plait:waits
func CollectiveAllToAllStart(of Object, output, input Tensor, outSizes Ints, nOut int64, inSizes Ints, nIn int64) (status Object) {
	defer protect("all_to_all_single", &status)
	defer using(tensorOrNil(output), tensorOrNil(input))()
	w := group(of).AllToAllInto(tensor(output), tensor(input), ints(outSizes, nOut), ints(inSizes, nIn))
	return handle.AddObject(w)
}

// ExchangeStart begins an exchange of n bytes, or of none as a barrier, that messages call note. See [WorkPayloadSize].
// timeout is in nanoseconds, 0 meaning the group's.
//
//plait:waits
func ExchangeStart(of Object, note string, payload Bytes, n, timeout int64) (status Object) {
	defer protect(note, &status)
	g := group(of)
	if timeout > 0 {
		g = g.WithTimeout(time.Duration(timeout))
	}
	return handle.AddObject(g.StartExchange(note, append([]byte(nil), handle.Slice[byte](payload, n)...)))
}

func work(h Object) *collective.Work {
	w, ok := handle.Object[*collective.Work](h)
	if !ok {
		panic(core.Errorf(core.StateError, "work", "got no handle of a collective"))
	}
	return w
}

// WorkName returns what a collective is called in messages, such as "all_reduce #5 of the group \"world\"".
func WorkName(h Object) string {
	w, ok := handle.Object[*collective.Work](h)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%v of the group %q", w, w.Group())
}

// WorkArrivedFor waits at most d nanoseconds until every rank has made the call, and returns 1 if it has: for who goes on waiting
// until then, see [collective.Work.ArrivedOn].
//
//plait:waits
func WorkArrivedFor(h Object, d int64) (status Status) {
	defer protect("work", &status)
	done, err := work(h).ArrivedOn(time.Duration(d))
	if err != nil {
		return failure(err)
	}
	return truth(done)
}

// WorkWaitFor waits at most d nanoseconds for the end of a collective, and returns 1 if it has come.
//
//plait:waits
func WorkWaitFor(h Object, d int64) (status Status) {
	defer protect("work", &status)
	done, err := work(h).WaitFor(time.Duration(d))
	if err != nil {
		return failure(err)
	}
	return truth(done)
}

// WorkWaitOn is [WorkWaitFor] for who does nothing else until the end: see [collective.Work.ArrivedOn].
//
//plait:waits
func WorkWaitOn(h Object, d int64) (status Status) {
	defer protect("work", &status)
	done, err := work(h).WaitOn(time.Duration(d))
	if err != nil {
		return failure(err)
	}
	return truth(done)
}

// WorkDone returns 1 if a collective is done or has failed.
func WorkDone(h Object) (status Status) {
	defer protect("work", &status)
	return truth(work(h).Done())
}

// WorkSource returns the rank that sent what a finished recv received.
func WorkSource(h Object) (status int64) {
	defer protect("work", &status)
	return int64(work(h).Source())
}

// WorkPayloadSize returns how many bytes a rank gave to a finished exchange.
func WorkPayloadSize(h Object, rank int64) (status int64) {
	defer protect("work", &status)
	return int64(len(work(h).Payloads()[rank]))
}

// WorkPayload copies the bytes that a rank gave to a finished exchange.
func WorkPayload(h Object, rank int64, out BytesOut, n int64) (status Status) {
	defer protect("work", &status)
	copy(handle.Slice[byte](out, n), work(h).Payloads()[rank])
	return 0
}

// AllReduceSync replaces tensors, count of each device in a row, by their reduction over the devices: the numbers of the
// reductions are those of [CollectiveStart]. One thread calls it for all devices.
//
//plait:waits
func AllReduceSync(ts Tensors, devices, count, reduction int64) (status Status) {
	defer protect("all_reduce_sync", &status)
	defer using(tensors(ts, devices*count)...)()
	all := tensors(ts, devices*count)
	lists := make([][]*core.Tensor, devices)
	for d := range lists {
		lists[d] = all[d*int(count) : (d+1)*int(count)]
	}
	return failure(collective.AllReduceSyncMany(lists, collective.ReduceOp(reduction)))
}

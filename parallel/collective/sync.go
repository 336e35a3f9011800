package collective

import (
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
)

// AllReduceSync replaces each tensor by the reduction of all of them, in their order. They must have one shape and dtype. One thread calls
// it for all devices; there are no ranks. It returns once the work is launched, and later calls on the tensors wait for it.
func AllReduceSync(tensors []*core.Tensor, o ReduceOp) error {
	lists := make([][]*core.Tensor, len(tensors))
	for i, t := range tensors {
		lists[i] = []*core.Tensor{t}
	}
	return AllReduceSyncMany(lists, o)
}

// AllReduceSyncMany is [AllReduceSync] for several tensors per device, such as the gradients of replicas: lists[d][i] is tensor i of device
// d. If a replica spans several devices, each tensor is reduced among its own devices.
func AllReduceSyncMany(lists [][]*core.Tensor, o ReduceOp) error {
	_, err := launchSync("all_reduce_sync", KindAllReduce, lists, o, nil)
	return err
}

// ReduceSyncMany is [AllReduceSyncMany] that replaces only the first device's tensors. The first device's own tensor comes last in the sum,
// so that a GPU can add the others' sum to it. made[d], if not nil, is an event of device d's stream after which nothing uses its tensors;
// the work then does not wait for later calls.
func ReduceSyncMany(lists [][]*core.Tensor, o ReduceOp, made []core.Event) error {
	_, err := launchSync("reduce_sync", KindReduce, lists, o, made)
	return err
}

// BroadcastSyncMany copies the first device's tensors to all other devices and returns the works; see [AllReduceSyncMany].
func BroadcastSyncMany(lists [][]*core.Tensor) (Works, error) {
	return launchSync("broadcast_sync", KindBroadcast, lists, Sum, nil)
}

// launchSync launches collectives whose tensors on all devices belong to the calling thread.
func launchSync(name string, kind Kind, lists [][]*core.Tensor, o ReduceOp, made []core.Event) (works Works, err error) {
	if len(lists) == 0 {
		return nil, core.Errorf(core.ValueError, name, "got no tensors")
	}
	for d, list := range lists {
		if len(list) != len(lists[0]) {
			return nil, core.Errorf(core.ValueError, name, "got %d tensors of device %d and %d of the first", len(list), d, len(lists[0]))
		}
		for i, t := range list {
			if err := t.Usable(name); err != nil {
				return nil, err
			}
			if kind.reduces() {
				if err := o.check(name, t.DType()); err != nil {
					return nil, err
				}
			}
			if !t.Contiguous() {
				return nil, core.Errorf(core.ValueError, name, "got a tensor of shape %v with strides %v, want contiguous ones", t.Shape(), t.Strides())
			}
			if first := lists[0][i]; t.DType() != first.DType() || t.Numel() != first.Numel() {
				return nil, core.Errorf(core.ShapeError, name, "tensor %d is %v, that of the first device %v", i, t, first)
			}
		}
	}
	var groups [][]int // indices of tensors on the same devices
	for i := range lists[0] {
		k := slices.IndexFunc(groups, func(g []int) bool {
			return !slices.ContainsFunc(lists, func(l []*core.Tensor) bool { return l[i].Device() != l[g[0]].Device() })
		})
		if k < 0 {
			groups, k = append(groups, nil), len(groups)
		}
		groups[k] = append(groups[k], i)
	}
	for _, g := range groups {
		w, err := launchGroup(&Operation{Kind: kind, Op: o, Note: name, rootLast: kind == KindReduce}, lists, g, made)
		if err != nil {
			return works, err
		}
		works = append(works, w)
	}
	return works, nil
}

// launchGroup launches one collective of the tensors with the given indices, and returns the first device's work.
func launchGroup(like *Operation, lists [][]*core.Tensor, numbers []int, made []core.Event) (*Work, error) {
	calls := make([]*rankCall, len(lists))
	for d, list := range lists {
		o := *like
		p := &rankCall{rank: d, op: &o, work: newWork(o.Note)}
		for _, i := range numbers {
			t, _, err := p.op.usable(list[i])
			if err != nil {
				return nil, err
			}
			p.op.Ins = append(p.op.Ins, Piece{Tensor: t, N: t.Numel()})
		}
		if o.Kind == KindAllReduce || (o.Kind == KindReduce) == (d == 0) {
			p.op.Outs = p.op.Ins
		}
		if made != nil {
			p.made = made[d]
		}
		calls[d] = p
	}
	for d, p := range calls {
		for i := range p.op.Ins {
			p.op.Ins[i].locate()
		}
		if _, err := p.op.inputsToCopy(d, p.op.Ins, p.op.Outs); err != nil {
			return nil, core.Errorf(core.ValueError, like.Note, "device %d: %w", d, err)
		}
	}
	for d, p := range calls {
		if err := p.borrow(streamsOf(core.CurrentContext().Rank(), d)); err != nil {
			for _, q := range calls[:d+1] {
				q.work.settle(nil, err)
				q.work.restoreOutputs()
			}
			return nil, err
		}
	}
	if err := launch(calls, len(calls)-1, relayOf(core.CurrentContext().Rank())); err != nil {
		for _, p := range calls {
			p.work.settle(nil, err)
			p.work.restoreOutputs()
		}
		return nil, err
	}
	for _, p := range calls {
		if p.work.shared() {
			return p.work, p.work.Wait()
		}
	}
	return calls[0].work, nil
}

// syncState holds the communication streams of these calls, per calling rank.
var syncState struct {
	sync.Mutex
	streams map[[2]int]*streams
	relays  map[int]*relay
}

// streamsOf returns the streams for device d of the lists.
func streamsOf(rank, d int) *streams {
	syncState.Lock()
	defer syncState.Unlock()
	key := [2]int{rank, d}
	s := syncState.streams[key]
	if s == nil {
		s = &streams{rank: rank}
		if syncState.streams == nil {
			syncState.streams = map[[2]int]*streams{}
		}
		syncState.streams[key] = s
	}
	return s
}

// relayOf returns the relay for these calls of a rank.
func relayOf(rank int) *relay {
	syncState.Lock()
	defer syncState.Unlock()
	r := syncState.relays[rank]
	if r == nil {
		r = &relay{}
		if syncState.relays == nil {
			syncState.relays = map[int]*relay{}
		}
		syncState.relays[rank] = r
	}
	return r
}

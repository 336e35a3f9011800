package collective

import (
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
)

// AllReduceSync replaces each of tensors, of one shape and dtype, by the reduction of all of them in their order. One thread
// calls it for all devices: it needs no ranks. It returns once the work is launched; what is launched on the tensors later
// waits for it.
func AllReduceSync(tensors []*core.Tensor, o ReduceOp) error {
	lists := make([][]*core.Tensor, len(tensors))
	for i, t := range tensors {
		lists[i] = []*core.Tensor{t}
	}
	return AllReduceSyncMany(lists, o)
}

// AllReduceSyncMany is [AllReduceSync] of several tensors of each device, such as the gradients of replicas of a model:
// lists[d][i] is the tensor i of device d. A replica may itself be on several devices: its tensors are then reduced device by
// device.
func AllReduceSyncMany(lists [][]*core.Tensor, o ReduceOp) error {
	_, err := together("all_reduce_sync", KindAllReduce, lists, o, nil)
	return err
}

// ReduceSyncMany is [AllReduceSyncMany] of which only the tensors of the first device are replaced, by the reduction of those
// of the others, in their order, and then of their own: a GPU adds what the others have to what it has. made[d], if there is
// one, is an event of device d's stream after which nothing that was launched uses its tensors, so that the work need not wait
// for what was launched since.
func ReduceSyncMany(lists [][]*core.Tensor, o ReduceOp, made []core.Event) error {
	_, err := together("reduce_sync", KindReduce, lists, o, made)
	return err
}

// BroadcastSyncMany replaces the tensors of all devices by those of the first, and returns the works; see [AllReduceSyncMany].
func BroadcastSyncMany(lists [][]*core.Tensor) (Works, error) {
	return together("broadcast_sync", KindBroadcast, lists, Sum, nil)
}

// together launches collectives of which the calling thread has the tensors of all.
func together(name string, kind Kind, lists [][]*core.Tensor, o ReduceOp, made []core.Event) (works Works, err error) {
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
	var groups [][]int // of tensors, by number, that are on the same devices
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
		w, err := launchTogether(&Operation{Kind: kind, Op: o, Note: name, rootLast: kind == KindReduce}, lists, g, made)
		if err != nil {
			return works, err
		}
		works = append(works, w)
	}
	return works, nil
}

// launchTogether launches a collective of the tensors with the given numbers, and returns the first device's work.
func launchTogether(like *Operation, lists [][]*core.Tensor, numbers []int, made []core.Event) (*Work, error) {
	posts := make([]*post, len(lists))
	for d, list := range lists {
		o := *like
		p := &post{rank: d, op: &o, work: newWork(o.Note)}
		for _, i := range numbers {
			p.op.Ins = append(p.op.Ins, Piece{Tensor: list[i], N: list[i].Numel()})
		}
		if o.Kind == KindAllReduce || (o.Kind == KindReduce) == (d == 0) {
			p.op.Outs = p.op.Ins
		}
		if made != nil {
			p.made = made[d]
		}
		posts[d] = p
	}
	for d, p := range posts {
		for i := range p.op.Ins {
			p.op.Ins[i].locate()
		}
		if _, err := p.op.apart(d, p.op.Ins, p.op.Outs); err != nil {
			return nil, core.Errorf(core.ValueError, like.Note, "device %d: %w", d, err)
		}
	}
	for d, p := range posts {
		if err := p.borrow(streamsOf(core.CurrentContext().Rank(), d)); err != nil {
			for _, q := range posts[:d+1] {
				q.work.settle(nil, err)
				q.work.refused()
			}
			return nil, err
		}
	}
	if err := launch(posts, len(posts)-1, relayOf(core.CurrentContext().Rank())); err != nil {
		for _, p := range posts {
			p.work.settle(nil, err)
			p.work.refused()
		}
		return nil, err
	}
	for _, p := range posts {
		if p.work.shared() {
			return p.work, p.work.Wait()
		}
	}
	return posts[0].work, nil
}

// byThread are the communication streams of the calls that take the tensors of all devices, for each rank that makes them.
var byThread struct {
	sync.Mutex
	streams map[[2]int]*streams
	relays  map[int]*relay
}

// streamsOf returns the streams for the device with number d in the lists of such calls.
func streamsOf(rank, d int) *streams {
	byThread.Lock()
	defer byThread.Unlock()
	key := [2]int{rank, d}
	s := byThread.streams[key]
	if s == nil {
		s = &streams{rank: rank}
		if byThread.streams == nil {
			byThread.streams = map[[2]int]*streams{}
		}
		byThread.streams[key] = s
	}
	return s
}

// relayOf returns the relay for such calls of a rank.
func relayOf(rank int) *relay {
	byThread.Lock()
	defer byThread.Unlock()
	r := byThread.relays[rank]
	if r == nil {
		r = &relay{}
		if byThread.relays == nil {
			byThread.relays = map[int]*relay{}
		}
		byThread.relays[rank] = r
	}
	return r
}

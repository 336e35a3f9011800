package autograd

import (
	"container/heap"

	"github.com/plait-ml/plait/core"
)

// ready are the nodes that can run, the newest of a device first. Devices take turns: a thread that gave out all of one device's
// work before it came to the next would leave that one idle when the first one's queue is full.
type ready struct {
	early queue // leaves and prompt nodes, which run before all others
	lanes []lane
	last  int // the lane that had its turn
	count int
}

type lane struct {
	device core.Device
	nodes  queue
}

// add makes a node, whose gradients are on a device, one that can run.
func (r *ready) add(n *core.Node, device core.Device) {
	r.count++
	if n.Prompt || n.Leaf() != nil {
		heap.Push(&r.early, n)
		return
	}
	for i := range r.lanes {
		if r.lanes[i].device == device {
			heap.Push(&r.lanes[i].nodes, n)
			return
		}
	}
	r.lanes = append(r.lanes, lane{device, queue{n}})
}

// next takes out the node that is to run.
func (r *ready) next() *core.Node {
	r.count--
	if len(r.early) > 0 {
		return heap.Pop(&r.early).(*core.Node)
	}
	for {
		if r.last++; r.last >= len(r.lanes) {
			r.last = 0
		}
		if l := &r.lanes[r.last]; len(l.nodes) > 0 {
			return heap.Pop(&l.nodes).(*core.Node)
		}
	}
}

// queue is a heap of nodes, the newest first.
type queue []*core.Node

func (q queue) Len() int           { return len(q) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool { return q[i].ID > q[j].ID }
func (q *queue) Push(x any)        { *q = append(*q, x.(*core.Node)) }

func (q *queue) Pop() any {
	old := *q
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return n
}

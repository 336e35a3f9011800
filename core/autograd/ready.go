package autograd

import (
	"container/heap"

	"github.com/plait-ml/plait/core"
)

// ready holds the nodes that can run, newest first. Devices take turns: if all nodes of one device ran first and filled its queue, the
// other devices would be idle.
type ready struct {
	first   queue // leaves and prompt nodes, which run before all others
	devices []deviceQueue
	last    int   // index of the device that ran last
	final   queue // leaves that run after all others
	count   int
}

type deviceQueue struct {
	device core.Device
	nodes  queue
}

// add enqueues a node whose gradients are on device.
func (r *ready) add(n *core.Node, device core.Device) {
	r.count++
	if leaf := n.Leaf(); leaf != nil && leaf.Last() != nil {
		heap.Push(&r.final, n)
		return
	} else if n.Prompt || leaf != nil {
		heap.Push(&r.first, n)
		return
	}
	for i := range r.devices {
		if r.devices[i].device == device {
			heap.Push(&r.devices[i].nodes, n)
			return
		}
	}
	r.devices = append(r.devices, deviceQueue{device, queue{n}})
}

// next removes and returns the node to run next.
func (r *ready) next() *core.Node {
	r.count--
	if len(r.first) > 0 {
		return heap.Pop(&r.first).(*core.Node)
	}
	if r.count+1 == len(r.final) {
		return heap.Pop(&r.final).(*core.Node)
	}
	for {
		if r.last++; r.last >= len(r.devices) {
			r.last = 0
		}
		if l := &r.devices[r.last]; len(l.nodes) > 0 {
			return heap.Pop(&l.nodes).(*core.Node)
		}
	}
}

// queue is a heap of nodes, newest first.
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

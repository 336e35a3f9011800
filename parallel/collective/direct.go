package collective

// Collectives of devices that reach each other's memory. They run as on CPUs, by calls of the kernel "combine" on memory of all ranks.

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// maxDirect is how many devices can take part. A call binds the memory of all inputs and outputs, and a program of a GPU binds 16 buffers.
const maxDirect = 8

// reachable reports whether the memory of all calls, which the host cannot address, is within the reach of each of their devices, and
// whether these compute the operation with the bits of the host.
func reachable(calls []*rankCall) bool {
	var devices []core.PeerDevice
	for _, p := range calls {
		if p.stream == nil {
			continue // it has no tensors
		}
		d, ok := p.stream.Device().(core.PeerDevice)
		if !ok {
			return false
		}
		for _, other := range devices {
			if !d.Reaches(other) || !other.Reaches(d) {
				return false
			}
		}
		devices = append(devices, d)
	}
	if len(calls) > maxDirect || len(devices) == 0 {
		return false
	}
	return calls[0].op.Op != Avg || !calls[0].op.Kind.reduces() || devices[0].Divides(float64(len(calls)))
}

// useDirect gives each call the stream for direct exchange with a peer.
func useDirect(calls []*rankCall, peer func(p *rankCall) int) error {
	for _, p := range calls {
		if p.stream == nil {
			continue
		}
		s, err := p.streams.find(p.op.name(), p.stream.Device(), peer(p), direct)
		if err != nil {
			return err
		}
		p.stream = s
	}
	return nil
}

// maxSegments is how many steps one call of the kernel takes at most.
const maxSegments = 64

// batches groups steps for calls of the kernel: a GPU needs more time to begin a call than for a small piece. The steps of a batch have one
// owner and operands of one kind and number. dtype returns the dtype of a piece.
func batches(steps []*step, dtype func(s source) core.DType) (list [][]*step) {
	fit := func(a, b *step) bool {
		return a.owner == b.owner && a.op == b.op && a.divisor == b.divisor && len(a.ins) == len(b.ins) && len(a.outs) == len(b.outs) &&
			dtype(a.ins[0]) == dtype(b.ins[0])
	}
	for _, s := range steps {
		i := slices.IndexFunc(list, func(b []*step) bool { return len(b) < maxSegments && fit(b[0], s) })
		if i < 0 {
			i = len(list)
			list = append(list, nil)
		}
		list[i] = append(list[i], s)
	}
	return list
}

// single returns each step as a batch of its own.
func single(steps []*step) (list [][]*step) {
	for i := range steps {
		list = append(list, steps[i:i+1])
	}
	return list
}

// submit has the devices begin with what was launched before the events.
func submit(events []core.Event) {
	for _, e := range events {
		e.WaitFor(0)
	}
}

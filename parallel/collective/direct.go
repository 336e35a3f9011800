package collective

// Collectives of devices that reach each other's memory. They run as on CPUs, by calls of the kernel "combine" on memory of all ranks.

import (
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

// submit has the devices begin with what was launched before the events.
func submit(events []core.Event) {
	for _, e := range events {
		e.WaitFor(0)
	}
}

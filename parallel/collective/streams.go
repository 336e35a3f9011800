package collective

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
)

// everyone is the peer of the streams for collectives.
const everyone = -1

// streams are the communication streams of one rank in one group. Each device has one for collectives and one per peer for send and recv,
// so that waiting for one peer delays neither other peers nor the rank's computation.
type streams struct {
	rank int

	mu     sync.Mutex
	closed bool
	open   map[streamKey]core.Stream
}

// A streamKey identifies a stream. On devices that the host cannot address, copies to the host have their own stream, because copies from
// the host may have to wait.
type streamKey struct {
	device, peer int
	use          streamUse
}

// A streamUse is what a stream is for: copies from the host, and all work on devices that the host can address; copies to the host; direct
// exchange with other devices; or the ends of work that runs on no stream.
type streamUse uint8

const (
	ordinary streamUse = iota
	toHost
	direct
	ends
)

func (s *streams) of(op string, dev core.Device, peer int) (core.Stream, error) {
	return s.find(op, dev, peer, ordinary)
}

// stagers returns the streams of a device that the host cannot address.
func (s *streams) stagers(op string, dev core.Device, peer int) (l stagers, err error) {
	for _, to := range []struct {
		stream *core.Stager
		use    streamUse
	}{{&l.toHost, toHost}, {&l.fromHost, ordinary}} {
		stream, err := s.find(op, dev, peer, to.use)
		if err != nil {
			return stagers{}, err
		}
		stager, ok := stream.(core.Stager)
		if !ok {
			return stagers{}, core.Errorf(core.NotImplemented, op, "%v does not support staged copies to the host", dev)
		}
		*to.stream = stager
	}
	return l, nil
}

func (s *streams) find(op string, dev core.Device, peer int, use streamUse) (core.Stream, error) {
	if dev == nil {
		return nil, core.Errorf(core.TypeError, op, "got a tensor without memory")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, closed(op)
	}
	key := streamKey{dev.Ordinal(), peer, use}
	stream := s.open[key]
	if stream == nil {
		if d, ok := dev.(core.PeerDevice); ok && use == direct {
			stream = d.NewPeerStream(s.rank)
		} else {
			stream = dev.NewStream(s.rank)
		}
		if s.open == nil {
			s.open = map[streamKey]core.Stream{}
		}
		s.open[key] = stream
	}
	return stream, nil
}

// noteEnd has [core.Device.Synchronize] wait for the end of a call that no stream of the device runs as a whole. The stream for that has no calls,
// so nothing else waits for it.
func (p *rankCall) noteEnd(end core.Event) {
	if p.stream == nil {
		return
	}
	if s, err := p.streams.find(p.op.name(), p.stream.Device(), everyone, ends); err == nil {
		s.Wait(end)
	}
}

func closed(op string) error {
	return core.Errorf(core.StateError, op, "this rank has left the group: it was destroyed, or closed")
}

func (s *streams) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// running returns an event for each stream that still has calls to run.
func (s *streams) running() (ends []core.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range s.open {
		if e := stream.Record(); !e.Done() {
			ends = append(ends, e)
		}
	}
	return ends
}

// has reports whether the stream is one of these.
func (s *streams) has(stream core.Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.open {
		if open == stream {
			return true
		}
	}
	return false
}

// close closes the streams. Until they are closed, the world still looks for deadlocks among them.
func (s *streams) close() error {
	s.mu.Lock()
	s.closed = true
	list := slices.Collect(maps.Values(s.open))
	s.mu.Unlock()
	var errs []error
	for _, stream := range list {
		errs = append(errs, stream.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = nil
	return errors.Join(errs...)
}

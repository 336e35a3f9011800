package collective

import (
	"errors"
	"sync"

	"github.com/plait-ml/plait/core"
)

// everyone is the peer of the streams on which a rank takes part in collectives.
const everyone = -1

// streams are the communication streams of one rank in one group: on each of its devices those for collectives, and those for
// each peer that it sends to or receives from. So no wait for one peer holds up another, or the rank's own computation.
type streams struct {
	rank int

	mu     sync.Mutex
	closed bool
	open   map[streamKey]core.Stream
}

// A streamKey names a stream. What leaves a device that the host cannot address has a stream of its own: it may have to wait
// for what comes in.
type streamKey struct {
	device, peer int
	leaves       bool
}

func (s *streams) of(op string, dev core.Device, peer int) (core.Stream, error) {
	return s.find(op, dev, peer, false)
}

// lane returns the streams of a device that the host cannot address.
func (s *streams) lane(op string, dev core.Device, peer int) (l lane, err error) {
	for _, to := range []struct {
		stream *core.Stager
		leaves bool
	}{{&l.leaving, true}, {&l.entering, false}} {
		stream, err := s.find(op, dev, peer, to.leaves)
		if err != nil {
			return lane{}, err
		}
		stager, ok := stream.(core.Stager)
		if !ok {
			return lane{}, core.Errorf(core.NotImplemented, op, "memory of %v cannot be copied to the host piece by piece", dev)
		}
		*to.stream = stager
	}
	return l, nil
}

func (s *streams) find(op string, dev core.Device, peer int, leaves bool) (core.Stream, error) {
	if dev == nil {
		return nil, core.Errorf(core.TypeError, op, "got a tensor without memory")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, closed(op)
	}
	key := streamKey{dev.Ordinal(), peer, leaves}
	stream := s.open[key]
	if stream == nil {
		stream = dev.NewStream(s.rank)
		if s.open == nil {
			s.open = map[streamKey]core.Stream{}
		}
		s.open[key] = stream
	}
	return stream, nil
}

func closed(op string) error {
	return core.Errorf(core.StateError, op, "this rank has left the group: it was destroyed, or closed")
}

func (s *streams) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *streams) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, stream := range s.open {
		errs = append(errs, stream.Close())
	}
	s.open = nil
	return errors.Join(errs...)
}

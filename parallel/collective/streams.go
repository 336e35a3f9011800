package collective

import (
	"errors"
	"sync"

	"github.com/plait-ml/plait/core"
)

// everyone is the peer of the stream on which a rank takes part in collectives.
const everyone = -1

// streams are the communication streams of one rank in one group: on each of its devices one for collectives, and one for
// each peer that sends to it. So no wait for one peer holds up another, or the rank's own computation.
type streams struct {
	rank int

	mu     sync.Mutex
	closed bool
	open   map[streamKey]core.Stream
}

type streamKey struct{ device, peer int }

func (s *streams) of(op string, dev core.Device, peer int) (core.Stream, error) {
	if dev == nil {
		return nil, core.Errorf(core.TypeError, op, "got a tensor without memory")
	}
	if !dev.HostAccessible() {
		return nil, core.Errorf(core.NotImplemented, op, "the local backend needs memory that the host can address, %v has its own", dev)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, core.Errorf(core.StateError, op, "the group was closed")
	}
	key := streamKey{dev.Ordinal(), peer}
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

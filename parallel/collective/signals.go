package collective

// What the signals of a device need: words that other processes set, and streams that wait for them.

import (
	"sync"

	"github.com/plait-ml/plait/core"
)

const (
	// wordsAtOnce is how many words are allocated at a time.
	wordsAtOnce = 1024
	// wordsPerSlot: one is set when tensors are ready, the other when steps have run.
	wordsPerSlot = 2
	// maxLanes is how many lanes of a device there are at most. CUDA has eight connections to a GPU by default; streams that share one wait for
	// each other.
	maxLanes = 4
)

// A slot is the words of a device that one other process sets in one job. Each job has a number that the words have not reached.
type slot struct {
	memory core.Memory
	word   int // the first one
	number uint32
	place
}

func (s *slot) ready() core.Signal {
	return core.Signal{Memory: s.memory, Word: s.word, Number: s.number}
}
func (s *slot) done() core.Signal {
	return core.Signal{Memory: s.memory, Word: s.word + 1, Number: s.number}
}

// A laneKey names a channel of a group.
type laneKey struct{ group, channel uint64 }

// A lane is a stream of jobs whose devices wait for each other. All processes launch those of one channel in the same order. Those of several
// channels have lanes of their own: launched here in one order and there in another, they would wait for each other.
type lane struct {
	core.SignalStream
	rank int
	jobs int
}

// signals are the slots and lanes of a device.
type signals struct {
	mu     sync.Mutex
	blocks []core.Memory
	spare  []slot
	number uint32
	lanes  map[laneKey]*lane
	idle   []*lane
}

// hasLane reports whether the device has a lane for a channel, or may make one.
func (o *ownDevice) hasLane(key laneKey) bool {
	s := &o.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.Signals() && (s.lanes[key] != nil || len(s.idle) > 0 || len(s.lanes) < maxLanes)
}

// takeLane returns the lane of a channel for a job of a rank.
func (o *ownDevice) takeLane(key laneKey, rank int) *lane {
	s := &o.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[key]
	if l == nil {
		for i, free := range s.idle {
			if free.rank == rank {
				l, s.idle = free, append(s.idle[:i], s.idle[i+1:]...)
				break
			}
		}
	}
	if l == nil {
		l = &lane{SignalStream: o.NewPeerStream(rank).(core.SignalStream), rank: rank}
	}
	if s.lanes == nil {
		s.lanes = map[laneKey]*lane{}
	}
	s.lanes[key] = l
	l.jobs++
	return l
}

// leaveLane ends a job's use of a lane.
func (o *ownDevice) leaveLane(key laneKey) {
	s := &o.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[key]
	if l.jobs--; l.jobs == 0 {
		delete(s.lanes, key)
		s.idle = append(s.idle, l)
	}
}

// takeSlot returns a slot for another process.
func (o *ownDevice) takeSlot() (slot, error) {
	s := &o.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spare) == 0 {
		m, err := o.NewSignals(wordsAtOnce)
		if err != nil {
			return slot{}, err
		}
		s.blocks = append(s.blocks, m)
		block, at, err := o.Share(m)
		if err != nil {
			return slot{}, err
		}
		const wordSize = 4
		for i := 0; i < wordsAtOnce; i += wordsPerSlot {
			s.spare = append(s.spare, slot{memory: m, word: i, place: place{block, at + wordSize*i}})
		}
	}
	last := len(s.spare) - 1
	x := s.spare[last]
	s.spare = s.spare[:last]
	s.number++
	x.number = s.number
	return x, nil
}

// freeSlot ends a job's use of a slot: nobody sets its words any more.
func (o *ownDevice) freeSlot(x slot) {
	s := &o.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = append(s.spare, x)
}

// closeSignals frees what the device has for signals. No job uses it.
func (o *ownDevice) closeSignals() {
	s := &o.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.idle {
		l.Close()
	}
	for _, m := range s.blocks {
		o.FreeSignals(m)
	}
	s.idle, s.blocks, s.spare = nil, nil, nil
}

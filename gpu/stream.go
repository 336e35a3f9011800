package gpu

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/gpu/kernel/fusion"
)

// A stream's worker turns calls into batches of commands, which the device's owner gives to the GPU. Of the calls launched, taken is the
// last one recorded, sent the last one on its way to the GPU.
type stream struct {
	backend.Stream
	device *Device
	spare  chan *batch

	// Written by hosts.
	_        backend.CacheLine
	releases fusion.Releases // that the worker has not seen
	wanted   atomic.Uint64   // somebody waits for this call
	firstCut atomic.Uint64   // of cuts; 0 if there is none
	carries  atomic.Bool     // copies for collectives
	markMu   sync.Mutex
	marks    []mark // in order
	cutMu    sync.Mutex
	cuts     []uint64 // in order, the calls that end a batch, since somebody else goes on from there

	// Written by the worker.
	_       backend.CacheLine
	taken   atomic.Uint64
	sent    atomic.Uint64
	scratch backend.Cache // of memory in the worker's order
	faults  core.Memory   // a word for each call of a batch that may find a fault

	// Written by the driver's thread as well.
	_      backend.CacheLine
	flying atomic.Int32 // batches on the GPU
	loaded atomic.Int64 // elements that their calls go through, if it is made of software
}

func newStream(d *Device, rank int) *stream {
	s := &stream{device: d, spare: make(chan *batch, inFlight+1)}
	s.scratch.Open(&d.memory)
	s.Open(s, backend.Options{
		Device: d, Base: d.Device, Rank: rank, Memory: &d.memory, Unit: granule, Runner: s, Inline: -1, Sync: d.sync, Taken: &s.taken,
	})
	return s
}

// RunHere implements [backend.Runner]. Nobody calls it: calls become batches, by the worker.
func (s *stream) RunHere(*core.Call) {}

// Free implements [core.Stream].
func (s *stream) Free(m core.Memory, after ...core.Event) {
	if len(after) == 0 {
		s.releases.Note(m.Handle, s.Tail.Load())
	}
	s.Stream.Free(m, after...)
}

// want makes the worker send call n and those before it.
func (s *stream) want(n uint64) {
	for {
		w := s.wanted.Load()
		if w >= n || s.wanted.CompareAndSwap(w, n) {
			break
		}
	}
	s.Rouse()
}

// Demand implements [backend.Runner]: it is want of a call that ends its batch, also where later calls are wanted before the worker
// comes to it.
func (s *stream) Demand(n uint64) {
	if s.sent.Load() < n {
		s.cutMu.Lock()
		if i, found := slices.BinarySearch(s.cuts, n); !found {
			s.cuts = slices.Insert(s.cuts, i, n)
			s.firstCut.Store(s.cuts[0])
		}
		s.cutMu.Unlock()
	}
	s.want(n)
}

// dropCuts forgets the cuts up to call number sent.
func (s *stream) dropCuts(sent uint64) {
	if first := s.firstCut.Load(); first == 0 || first > sent {
		return
	}
	s.cutMu.Lock()
	defer s.cutMu.Unlock()
	i, _ := slices.BinarySearch(s.cuts, sent+1)
	s.cuts = slices.Delete(s.cuts, 0, i)
	s.firstCut.Store(0)
	if len(s.cuts) > 0 {
		s.firstCut.Store(s.cuts[0])
	}
}

// waitSent blocks until call n is on its way to the GPU.
func (s *stream) waitSent(n uint64) {
	if s.sent.Load() < n {
		s.Demand(n)
		s.Until(&s.sent, n)
	}
}

// point returns the stream and the call that an event is of, if it is one of a stream of this device.
func (d *Device) point(e core.Event) (s *stream, number uint64, here bool) {
	if p, ok := e.(backend.Event); ok {
		s, ok = p.Stream().(*stream)
		return s, p.Number(), ok && s.device == d
	}
	return nil, 0, false
}

// A lateError is what a batch's end has told. The stream and every tensor that it reaches have this one, so that it can be explained
// for all of them.
type lateError struct {
	err    error
	better atomic.Pointer[error]
}

func (e *lateError) Error() string { return e.Unwrap().Error() }

// Unwrap returns the better error, if there is one.
func (e *lateError) Unwrap() error {
	if better := e.better.Load(); better != nil {
		return *better
	}
	return e.err
}

// Failure returns the first unread error, and leaves it unread.
func (s *stream) Failure() error {
	err := s.Errors.Get()
	if late, ok := err.(*lateError); ok {
		return late.Unwrap()
	}
	return err
}

// Explain puts a better error in the place of the first unread one, if that is old, also where tensors have it.
func (s *stream) Explain(old, better error) {
	if late, ok := s.Errors.Get().(*lateError); ok {
		if late.Unwrap() == old {
			late.better.Store(&better)
		}
		return
	}
	s.Errors.Replace(old, better)
}

// TakeError implements [core.Stream].
func (s *stream) TakeError() error {
	if err := s.device.lost.Get(); err != nil {
		return err
	}
	return s.Errors.Take()
}

// Close implements [core.Stream].
func (s *stream) Close() error {
	err := s.Stream.Close()
	s.scratch.Close()
	s.Locked(func() {
		if s.faults.Handle != 0 {
			s.device.memory.Release(s.faults)
			s.faults = core.Memory{}
		}
	})
	return err
}

package gpu

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/kernel/fusion"
)

// A stream is an in-order queue of calls on a GPU. Its worker records calls into batches of commands, which the driver thread submits.
// recorded is the number of the last call that was recorded, submitted that of the last one given to the driver thread.
type stream struct {
	backend.Stream
	device *Device
	queue  driver.Queue // of a peer stream; nil for the queue that all other streams share
	spare  chan *batch

	// Written by hosts.
	_              backend.CacheLine
	releases       fusion.Releases // frees that the worker has not seen yet
	requested      atomic.Uint64   // the last call that somebody waits for
	firstCut       atomic.Uint64   // the first of cuts; 0 if there is none
	forCollectives atomic.Bool     // the stream copies tensors of collectives
	markMu         sync.Mutex
	marks          []mark // sorted by call
	cutMu          sync.Mutex
	cuts           []uint64 // sorted: the calls that end a batch, because another stream or the host continues from there

	// Written by the worker.
	_         backend.CacheLine
	recorded  atomic.Uint64
	submitted atomic.Uint64
	scratch   backend.Cache      // scratch memory, reused in the order of recording
	behind    map[*stream]uint64 // streams of other queues, and the last call of each that what is recorded next runs behind
	faults    core.Memory        // one word for each call of a batch that may report a fault

	// Written by the driver thread, inFlight and queuedElements by the worker too.
	_              backend.CacheLine
	inFlight       atomic.Int32  // batches submitted and not ended
	queuedElements atomic.Int64  // elements that these batches process; counted on software adapters only
	batches        []*batch      // these batches, in the order of submission; used on the driver thread only
	given          atomic.Uint64 // the last call that the driver has
	fenceMu        sync.Mutex
	fences         []pointedFence // of these batches, on a GPU that can be linked
}

func newStream(d *Device, rank int) *stream {
	s := &stream{device: d, spare: make(chan *batch, maxInFlight+1)}
	s.scratch.Open(&d.memory)
	s.Open(s, backend.Options{
		Device: d, Base: d.Device, Rank: rank, Memory: &d.memory, Unit: granule, Runner: s, Inline: -1, Sync: d.sync, Taken: &s.recorded,
		Spin: spinOf(d.adapter),
	})
	return s
}

// RunHere implements [backend.Runner]. It is never called, because the worker runs every call.
func (s *stream) RunHere(*core.Call) {}

// Free implements [core.Stream].
func (s *stream) Free(m core.Memory, after ...core.Event) {
	if len(after) == 0 {
		s.releases.Note(m.Handle, s.Tail.Load())
	}
	s.Stream.Free(m, after...)
}

// request makes the worker submit call n and those before it.
func (s *stream) request(n uint64) {
	for {
		w := s.requested.Load()
		if w >= n || s.requested.CompareAndSwap(w, n) {
			break
		}
	}
	s.Rouse()
}

// Demand implements [backend.Runner]. It is request for a call that must end its batch, even if later calls are requested before the worker
// reaches it.
func (s *stream) Demand(n uint64) {
	if s.submitted.Load() < n {
		s.cutMu.Lock()
		if i, found := slices.BinarySearch(s.cuts, n); !found {
			s.cuts = slices.Insert(s.cuts, i, n)
			s.firstCut.Store(s.cuts[0])
		}
		s.cutMu.Unlock()
	}
	s.request(n)
}

// Help implements [backend.Runner]. It does nothing: the calls are the device's work.
func (s *stream) Help(uint64) {}

// dropCuts removes the cuts up to call number sent.
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

// waitSubmitted waits until call n has been submitted, at most for d, and reports whether it has.
func (s *stream) waitSubmitted(n uint64, d time.Duration) bool {
	s.Demand(n)
	return s.UntilFor(&s.submitted, n, d)
}

// waitGiven waits until the driver has call n, at most for d, and reports whether it has.
func (s *stream) waitGiven(n uint64, d time.Duration) bool {
	s.Demand(n)
	return s.UntilFor(&s.given, n, d)
}

// A lateError is an error that was found when a batch ended. The stream and every tensor that it reaches share one pointer to it, so that a
// better error can replace it everywhere.
type lateError struct {
	err         error
	replacement atomic.Pointer[error]
}

func (e *lateError) Error() string { return e.Unwrap().Error() }

// Unwrap returns the replacement if there is one, otherwise the original error.
func (e *lateError) Unwrap() error {
	if better := e.replacement.Load(); better != nil {
		return *better
	}
	return e.err
}

// FoundLate tells the error from those that the host finds before a call is launched. Package pipeline looks for the method.
func (e *lateError) FoundLate() {}

// Failure returns the first unread error and leaves it unread.
func (s *stream) Failure() error {
	err := s.Errors.Get()
	if late, ok := err.(*lateError); ok {
		return late.Unwrap()
	}
	return err
}

// Explain replaces the first unread error by a better one, if it is old. Tensors that hold it see the better one too.
func (s *stream) Explain(old, better error) {
	if late, ok := s.Errors.Get().(*lateError); ok {
		if late.Unwrap() == old {
			late.replacement.Store(&better)
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
	if q := s.queue; q != nil {
		s.device.thread.do(q.Release)
	}
	s.Locked(func() {
		if s.faults.Handle != 0 {
			s.device.memory.Release(s.faults)
			s.faults = core.Memory{}
		}
	})
	return err
}

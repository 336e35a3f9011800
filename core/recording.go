package core

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// recordings are the recordings in progress, by thread.
var recordings struct {
	active   atomic.Int32
	mu       sync.Mutex
	byThread map[uintptr]*Recording
}

// A Recording is the calls that a thread launches on one stream between [Record] and [Recording.End], with what they need to run again:
// [Recording.Replay] launches them with new random numbers and new numbers of optimisers, on the same memory. Memory that is allocated
// meanwhile comes from a pool that only the recording uses, in program order as before.
//
// What cannot be replayed, such as reading a value, refuses the recording: the thread goes on as if there were none.
type Recording struct {
	thread     uintptr
	stream     Stream // of the first call or allocation
	reason     error  // why the recording cannot be replayed
	pool       *recordedPool
	events     []recordedEvent
	pieces     []recordedPiece      // allocations, in order
	live       map[memoryKey]int    // the pieces in use, by address
	externals  []recordedExternal   // storages that are older than the recording
	externalOf map[*Storage]int     // their indices
	generators []*recordedGenerator // that were used
	leaves     []*recordedLeaf      // whose gradients were used
	leafOf     map[*AutogradMeta]*recordedLeaf
	checks     []func() error
	actions    []func()
	outputs    []*Tensor
	replays    uint32
	groups     []recordedGroup // by the event that they begin with
	grouped    bool
	ended      bool
}

// A recordedEvent is a call, or the release of a piece.
type recordedEvent struct {
	call  *recordedCall // nil for a release
	piece int
}

// A recordedPiece is memory that was allocated in a recording.
type recordedPiece struct {
	memory  Memory
	storage *Storage // the one that had it; after the end of a recording, if that is gone, one that only carries failures
	epoch   uint32
	size    int  // of the storage
	held    bool // the storage outlives the recording
}

// A recordedExternal is a storage that is older than the recording.
type recordedExternal struct {
	storage *Storage
	epoch   uint32
	changed bool // in place
}

// A memoryKey tells pieces of memory apart.
type memoryKey struct {
	ptr    unsafe.Pointer
	handle uint64
}

func (m *Memory) key() memoryKey { return memoryKey{m.Ptr, m.Handle} }

// Record begins a recording of the calling thread, which must not change until [Recording.End]. It takes over the memory of before, an
// ended recording of the same function that will not be replayed any more; nil for none. It fails if the thread records already.
func Record(before *Recording) (*Recording, error) {
	r := &Recording{
		thread: CurrentThread(), live: map[memoryKey]int{}, externalOf: map[*Storage]int{}, leafOf: map[*AutogradMeta]*recordedLeaf{},
	}
	recordings.mu.Lock()
	defer recordings.mu.Unlock()
	if recordings.byThread[r.thread] != nil {
		return nil, Errorf(StateError, "record", "the thread records already")
	}
	if before != nil {
		r.pool, before.pool = before.pool, nil
	}
	if r.pool == nil {
		r.pool = &recordedPool{}
	}
	if recordings.byThread == nil {
		recordings.byThread = map[uintptr]*Recording{}
	}
	recordings.byThread[r.thread] = r
	recordings.active.Add(1)
	return r, nil
}

// CurrentRecording returns the recording of the calling thread that is in progress, or nil.
func CurrentRecording() *Recording {
	if recordings.active.Load() == 0 {
		return nil
	}
	thread := CurrentThread()
	recordings.mu.Lock()
	defer recordings.mu.Unlock()
	return recordings.byThread[thread]
}

// refuseRecording refuses the calling thread's recording, if there is one.
func refuseRecording(format string, args ...any) {
	if r := CurrentRecording(); r != nil {
		r.Refuse(format, args...)
	}
}

// RefuseRecording refuses the calling thread's recording, if there is one: what the thread does, which reason says, is not done again by a
// replay.
func RefuseRecording(reason string) { refuseRecording("%s", reason) }

// Refuse says why the recording cannot be replayed. The first reason counts.
func (r *Recording) Refuse(format string, args ...any) {
	if r.reason == nil {
		r.reason = Errorf(StateError, "replay", format, args...)
	}
}

// Err returns why the recording cannot be replayed, or nil.
func (r *Recording) Err() error { return r.reason }

// Stream returns the stream whose calls are recorded, or nil.
func (r *Recording) Stream() Stream { return r.stream }

// Check adds a condition of replays. Before a replay launches anything, each condition returns nil or why the step must run in full.
func (r *Recording) Check(condition func() error) { r.checks = append(r.checks, condition) }

// After adds a function that runs after each replay's launches: what the step does beside calls.
func (r *Recording) After(action func()) { r.actions = append(r.actions, action) }

// on reports whether the recording covers stream s. Its first use decides.
func (r *Recording) on(s Stream) bool {
	switch {
	case r.reason != nil:
		return false
	case r.stream == nil:
		r.stream = s
	case r.stream != s:
		r.Refuse("the step uses %v and %v, and calls of one stream only can be replayed", r.stream.Device(), s.Device())
		return false
	}
	return true
}

// Alloc returns memory of a size class from the recording's pool, or new memory from allocate, for stream s. It returns false if the
// recording does not cover the stream.
func (r *Recording) Alloc(s Stream, class int, allocate func() (Memory, error)) (m Memory, ok bool, err error) {
	if !r.on(s) {
		return Memory{}, false, nil
	}
	if m, ok = r.pool.take(class); !ok {
		if m, err = allocate(); err != nil {
			return m, true, err
		}
		m.pool = r.pool
	}
	r.live[m.key()] = len(r.pieces)
	piece := recordedPiece{memory: m}
	piece.memory.recycled = nil
	r.pieces = append(r.pieces, piece)
	return m, true, nil
}

// A recordedPool is the memory of the recordings of one function.
type recordedPool struct {
	mu     sync.Mutex
	free   map[int][]Memory // by size
	closed bool
}

func (p *recordedPool) take(size int) (m Memory, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.free[size]
	if len(list) == 0 {
		return Memory{}, false
	}
	m = list[len(list)-1]
	list[len(list)-1] = Memory{}
	p.free[size] = list[:len(list)-1]
	return m, true
}

// FreeRecorded takes back memory that belongs to recordings, and reports whether it does. Other memory is the caller's to free.
func FreeRecorded(m *Memory) bool {
	p := m.pool
	if p == nil {
		return false
	}
	if r := CurrentRecording(); r != nil && r.pool == p {
		if i, ok := r.live[m.key()]; ok {
			delete(r.live, m.key())
			r.events = append(r.events, recordedEvent{piece: i})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		m.pool = nil
		return false
	}
	if p.free == nil {
		p.free = map[int][]Memory{}
	}
	p.free[m.Size] = append(p.free[m.Size], *m)
	return true
}

// trim gives the free memory back to the stream that the pieces do not use.
func (p *recordedPool) trim(s Stream, pieces []recordedPiece) {
	used := map[memoryKey]bool{}
	for i := range pieces {
		used[pieces[i].memory.key()] = true
	}
	var unused []Memory
	p.mu.Lock()
	for size, list := range p.free {
		kept := list[:0]
		for _, m := range list {
			if used[m.key()] {
				kept = append(kept, m)
			} else {
				unused = append(unused, m)
			}
		}
		clear(list[len(kept):])
		p.free[size] = kept
	}
	p.mu.Unlock()
	for _, m := range unused {
		m.pool = nil
		s.Free(m)
	}
}

// close gives the free memory back to the stream. What is in use follows when it is released.
func (p *recordedPool) close(s Stream) {
	p.mu.Lock()
	free := p.free
	p.free, p.closed = nil, true
	p.mu.Unlock()
	for _, list := range free {
		for _, m := range list {
			m.pool = nil
			s.Free(m)
		}
	}
}

package backend

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

// A machine is a device whose streams count calls instead of running them, and only when allowed to.
type machine struct {
	*Device
	mu       sync.Mutex
	released []core.Memory
}

func newMachine() *machine { return &machine{Device: NewDevice("machine", 0, 1<<20)} }

func (m *machine) EmptyCache()                 {}
func (m *machine) Reserved() int               { return 0 }
func (m *machine) HostAccessible() bool        { return false }
func (m *machine) Supports(core.KernelID) bool { return true }

func (m *machine) NewStream(rank int) core.Stream {
	s := &counter{gate: make(chan struct{}, 1<<16)}
	s.Open(s, Options{Device: m, Base: m.Device, Rank: rank, Memory: m, Unit: 64, Runner: s, Inline: -1})
	return s
}

func (m *machine) Allocate(_, class, _ int) (core.Memory, error) {
	return core.Memory{Size: class}, nil
}

func (m *machine) Release(x core.Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released = append(m.released, x)
}

func (m *machine) freed() []core.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.released)
}

type counter struct {
	Stream
	gate    chan struct{} // one token per call that may run
	workers atomic.Int32
}

func (s *counter) Upload(core.Memory, int, []byte)   {}
func (s *counter) Download([]byte, core.Memory, int) {}
func (s *counter) Demand(uint64)                     {}
func (s *counter) Help(uint64)                       {}
func (s *counter) RunHere(*core.Call)                {}

func (s *counter) Work() {
	s.workers.Add(1)
	for {
		c, n := s.First()
		switch {
		case c != nil:
			<-s.gate
			s.Perform(c, func(c *core.Call) error {
				if c.Fn == nil {
					return nil
				}
				return c.Fn()
			})
			c.Clear()
			s.Done.Store(n)
			s.Took()
		case s.Ended():
			return
		default:
			s.Sleep()
		}
	}
}

func (s *counter) let(n int) {
	for range n {
		s.gate <- struct{}{}
	}
}

func launch(s *counter, fn func() error) {
	c := s.Begin(-1, "test")
	c.Fn = fn
	s.Launch(c)
}

func nothing() error { return nil }

// A call that did not wake the worker runs after a while if nobody does.
func TestACallThatNobodyAwaitsRuns(t *testing.T) {
	s := newMachine().NewStream(0).(*counter)
	s.defers = 10
	s.let(2)
	c := s.Begin(0, "test")
	c.Work = 1
	s.Launch(c)
	require.True(t, s.deferred.Load())
	require.Eventually(t, func() bool { return s.Tail.Load() == s.Done.Load() }, waitLong, waitShort)
	require.NoError(t, s.Close())
}

// A turns is a stream whose calls do nothing, and are run by its worker and by those who wait for them.
type turns struct {
	Stream
	turn sync.Mutex
}

func (s *turns) Upload(core.Memory, int, []byte)   {}
func (s *turns) Download([]byte, core.Memory, int) {}
func (s *turns) Demand(uint64)                     {}
func (s *turns) RunHere(*core.Call)                {}

func (s *turns) run() bool {
	c, n := s.First()
	if c != nil {
		c.Clear()
		s.Done.Store(n)
		s.Took()
	}
	return c != nil
}

func (s *turns) Help(n uint64) {
	for s.Done.Load() < n && s.turn.TryLock() {
		ran := s.run()
		s.turn.Unlock()
		if !ran {
			return
		}
	}
}

func (s *turns) Work() {
	for {
		s.turn.Lock()
		ran := s.run()
		s.turn.Unlock()
		if !ran {
			if s.Ended() {
				return
			}
			s.Sleep()
		}
	}
}

// Threads that wait for a call run it, and leave none of those after it undone, without help by the timer.
func TestACallBehindAnAwaitedOneRuns(t *testing.T) {
	m := newMachine()
	s := &turns{}
	s.Open(s, Options{Device: m, Base: m.Device, Memory: m, Unit: 64, Runner: s, Inline: -1, Defer: 1 << 20, Spin: 1})
	s.deferTime = time.Hour
	var last atomic.Uint64
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for !stop.Load() {
				s.Finish(last.Load())
			}
		})
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		var number uint64
		for i := range 2 {
			c := s.Begin(0, "test")
			c.Work = 1
			if number = s.Enqueue(c); i == 0 {
				last.Store(number)
			}
		}
		if !s.FinishFor(number, 10*time.Second) {
			t.Error("nobody runs the call")
			s.Rouse()
			break
		}
	}
	stop.Store(true)
	readers.Wait()
	require.NoError(t, s.Close())
}

func TestAStreamIsNearlyFullUntilItIsHalfEmpty(t *testing.T) {
	s := newMachine().NewStream(0).(*counter)
	for range nearlyFullSize + 1 {
		require.False(t, s.NearlyFull())
		launch(s, nothing)
	}
	require.True(t, s.NearlyFull())
	s.let(nearlyFullSize - queueSize/2)
	s.Finish(nearlyFullSize - queueSize/2)
	require.True(t, s.NearlyFull())
	s.let(1)
	s.Finish(nearlyFullSize + 1 - queueSize/2)
	require.False(t, s.NearlyFull())
	s.let(queueSize)
	require.NoError(t, s.Close())
}

// A host sets the flag after the queue was emptied. Nobody would ever clear it, since hosts that see the flag launch nothing.
func TestAnEmptyStreamIsNotNearlyFull(t *testing.T) {
	s := newMachine().NewStream(0).(*counter)
	s.nearlyFull.Store(true)
	core.AddNearlyFullQueues(1)
	require.False(t, s.NearlyFull())
	require.False(t, core.QueueNearlyFull())
	require.NoError(t, s.Close())
}

// A closed stream runs later calls and waits for them. Its worker ends again.
func TestAClosedStreamRunsCalls(t *testing.T) {
	s := newMachine().NewStream(0).(*counter)
	s.let(10)
	launch(s, nothing)
	require.NoError(t, s.Close())
	for i := range 3 {
		ran := false
		launch(s, func() error { ran = true; return nil })
		require.True(t, ran)
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.working && s.slots == nil
		}, waitLong, waitShort, i)
	}
	require.NoError(t, s.Close())
	require.Empty(t, s.base.Streams())
}

func TestAPanicIsTheErrorOfItsCall(t *testing.T) {
	s := newMachine().NewStream(0).(*counter)
	s.let(2)
	launch(s, func() error { panic("oops") })
	launch(s, nothing)
	err := s.Synchronize()
	require.ErrorContains(t, err, "test: internal error: oops")
	kind, _ := core.KindOf(err)
	require.Equal(t, core.StateError, kind)
	require.NoError(t, s.Close(), "it was read")
}

package collective

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest/wiretest"
)

// A losingTransport counts the processes that it is told to lose.
type losingTransport struct {
	*wiretest.Transport
	lost atomic.Int32
}

func (t *losingTransport) Lose(process int, err error) {
	t.lost.Add(1)
	t.Transport.Lose(process, err)
}

// TestLeavingWhileOthersAreBusy ends a process whose part in the last operation is done, while another process's tensor is not ready for
// it. The process that has left is not lost to the transport, which would end without the others.
func TestLeavingWhileOthersAreBusy(t *testing.T) {
	for _, n := range []int{3, 100000} {
		net := wiretest.New(2, 0, 1)
		var errs [2]error
		var all sync.WaitGroup
		for p := range errs {
			all.Go(func() {
				transport := &losingTransport{Transport: net.Transport(p)}
				w, err := JoinWorld(transport, 1, longTimeout)
				if errs[p] = err; err != nil {
					return
				}
				errs[p] = errors.Join(w.Spawn(nil, func(r *Rank) error {
					x := filled(n, float64(1+p))
					if p == 0 {
						return r.World.Broadcast(x, 0).Wait()
					}
					over := make(chan struct{})
					if n == 3 { // the data of larger tensors is sent when all are ready
						s := core.CurrentContext().Stream(x.Device())
						c := s.Begin(-1, "hold")
						c.Work, c.Fn = math.MaxInt, func() error { <-over; return nil }
						s.Launch(c.Out(x))
					}
					last := r.World.Broadcast(x, 0)
					for w.world.lostProcess(0) == nil {
						time.Sleep(time.Millisecond)
					}
					close(over)
					return errors.Join(last.Wait(), allEqual(x, 1))
				}), w.Close())
				assert.Zero(t, transport.lost.Load())
			})
		}
		all.Wait()
		require.NoError(t, errors.Join(errs[:]...))
	}
}

// A lingeringTransport is slow with the word that all that was sent is valid: before it posts that, and after.
type lingeringTransport struct {
	*losingTransport
}

func (t *lingeringTransport) Send(to int, tag uint32, data []byte, done func(error)) {
	t.losingTransport.Send(to, tag, data, func(err error) { go done(err) })
}

func (t *lingeringTransport) Post(to int, message []byte) {
	pause := time.Duration(0)
	if messageKind(message[0]) == ended {
		pause = 50 * time.Millisecond
	}
	time.Sleep(pause)
	t.losingTransport.Post(to, message)
	time.Sleep(pause)
}

// TestLeavingAfterTheLastWord ends processes that have received all, while the sender's job is still about to end. The sender, too, leaves only
// after that word.
func TestLeavingAfterTheLastWord(t *testing.T) {
	for _, processes := range []int{2, 3} { // one receiver hears the last word earlier than several: see noteSent
		net := wiretest.New(processes, 0, 1)
		errs := make([]error, processes)
		var all sync.WaitGroup
		for p := range errs {
			all.Go(func() {
				transport := &losingTransport{Transport: net.Transport(p)}
				w, err := JoinWorld(&lingeringTransport{transport}, 1, longTimeout)
				if errs[p] = err; err != nil {
					return
				}
				errs[p] = errors.Join(w.Spawn(nil, func(r *Rank) error {
					x := filled(100000, float64(1+p))
					if p == 0 { // the others are ready first
						s := core.CurrentContext().Stream(x.Device())
						c := s.Begin(-1, "slow")
						c.Work, c.Fn = math.MaxInt, func() error { time.Sleep(50 * time.Millisecond); return nil }
						s.Launch(c.Out(x))
					}
					return errors.Join(r.World.Broadcast(x, 0).Wait(), allEqual(x, 1))
				}), w.Close())
				assert.Zero(t, transport.lost.Load())
			})
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
	}
}

// TestLeavingBeforeAnEmptySend ends a process that has received or sent a tensor without elements, before the other one's tensor is ready.
func TestLeavingBeforeAnEmptySend(t *testing.T) {
	for _, slow := range [][2]time.Duration{{50 * time.Millisecond, 0}, {20 * time.Millisecond, 200 * time.Millisecond}} {
		require.NoError(t, eachProcess(wiretest.New(2, 0, 1), []int{1, 1}, longTimeout, func(w *World, _ int) error {
			return w.Spawn(nil, func(r *Rank) error {
				x := filled(0, 1)
				if pause := slow[r.Rank]; pause > 0 {
					s := core.CurrentContext().Stream(x.Device())
					c := s.Begin(-1, "slow")
					c.Work, c.Fn = math.MaxInt, func() error { time.Sleep(pause); return nil }
					s.Launch(c.Out(x))
				}
				if r.Rank == 1 {
					return r.World.Recv(x, 0, 0).Wait()
				}
				return r.World.Send(x, 1, 0).Wait()
			})
		}), "pauses of %v", slow)
	}
}

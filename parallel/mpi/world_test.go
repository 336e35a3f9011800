//go:build cgo && linux

package mpi_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/parallel/mpi"
)

func TestMessages(t *testing.T) {
	each(t, func(t *testing.T, l launcher) { l.world(t, l.most, "messages") })
}

// messages runs all kinds of messages in one world, in which each process sends to the next and receives from the one before.
func messages(t *testing.T) {
	tr := join(t, mpi.Options{})
	require.Equal(t, "mpi", tr.Name())
	n, me := tr.Processes(), tr.Process()
	require.Greater(t, n, 1)
	r := ring{t: t, Transport: tr, last: new(atomic.Int32), next: (me + 1) % n, previous: (me + n - 1) % n}
	r.posts() // first, since its messages arrive before the listener is there
	r.sizes()
	r.pieces()
	r.tags()
	r.many()
	r.wrongLengths()
	r.wrongProcesses()
	r.pendingAtClose()
}

type ring struct {
	t *testing.T
	*mpi.Transport
	next, previous int
	last           *atomic.Int32 // number of last words that were heard
}

// lastWords are posted just before the end.
var lastWords = []byte("these are the last words")

// pattern returns bytes that depend on the process and a number.
func pattern(process, number, length int) []byte {
	out := make([]byte, length)
	source := rand.NewChaCha8([32]byte{byte(process), byte(number), byte(number >> 8)})
	source.Read(out) //nolint:errcheck // it never fails
	return out
}

// exchange sends data to the next process and returns what the one before sent, with the error of the receive.
func (r ring) exchange(tag uint32, data, into []byte) error {
	sent, received := make(chan error, 1), make(chan error, 1)
	r.Recv(r.previous, tag, into, func(err error) { received <- err })
	r.Send(r.next, tag, data, func(err error) { sent <- err })
	require.NoError(r.t, await(r.t, sent))
	return await(r.t, received)
}

func (r ring) sizes() {
	for i, size := range []int{0, 1, 7, 4095, 4096, 4097, 1<<16 - 1, 1 << 16, 1<<16 + 1, 8 << 20} {
		into := make([]byte, size)
		require.NoError(r.t, r.exchange(uint32(i), pattern(r.Process(), i, size), into))
		require.True(r.t, bytes.Equal(pattern(r.previous, i, size), into), size)
	}
	// Memory that is not Go's, tags at their ends, and a waiter that polls.
	const size = 1 << 20
	from, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(r.t, err)
	into, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(r.t, err)
	for _, tag := range []uint32{0, 1<<24 - 1} {
		copy(from, pattern(r.Process(), int(tag), size))
		var wait sync.WaitGroup
		wait.Add(2)
		done := make(chan struct{})
		r.Recv(r.previous, tag, into, func(err error) { require.NoError(r.t, err); wait.Done() })
		r.Send(r.next, tag, from, func(err error) { require.NoError(r.t, err); wait.Done() })
		go func() { wait.Wait(); close(done) }()
		for end := time.Now().Add(patience / 2); ; {
			r.Progress()
			select {
			case <-done:
			default:
				require.True(r.t, time.Now().Before(end), "nothing comes")
				continue
			}
			break
		}
		require.True(r.t, bytes.Equal(pattern(r.previous, int(tag), size), into))
	}
	require.NoError(r.t, syscall.Munmap(from))
	require.NoError(r.t, syscall.Munmap(into))
}

// pieces sends data that is cut into several messages.
func (r ring) pieces() {
	mpi.SetPieceBytes(100_000)
	defer mpi.SetPieceBytes(1 << 30)
	for i, size := range []int{99_999, 100_000, 100_001, 200_000, 1_234_567} {
		into := make([]byte, size)
		require.NoError(r.t, r.exchange(9, pattern(r.Process(), i, size), into))
		require.True(r.t, bytes.Equal(pattern(r.previous, i, size), into), size)
	}
	r.barrier()
}

// barrier waits until all processes have come to it, by messages that go round twice.
func (r ring) barrier() {
	for range 2 * r.Processes() {
		require.NoError(r.t, r.exchange(7777, nil, nil))
	}
}

// tags receives messages in another order than that in which they are sent; those of one tag stay in order.
func (r ring) tags() {
	const tags, each = 20, 4
	size := func(i int) int { return 1 + i*1000%70_000 }
	done := make(chan error, 2*tags*each)
	for i := range tags * each {
		r.Send(r.next, uint32(i%tags), pattern(r.Process(), i, size(i)), func(err error) { done <- err })
	}
	into := make([][]byte, tags*each)
	for tag := tags - 1; tag >= 0; tag-- {
		for k := range each {
			i := tag + k*tags
			into[i] = make([]byte, size(i))
			r.Recv(r.previous, uint32(tag), into[i], func(err error) { done <- err })
		}
	}
	for range 2 * tags * each {
		require.NoError(r.t, await(r.t, done))
	}
	for i := range into {
		require.True(r.t, bytes.Equal(pattern(r.previous, i, size(i)), into[i]), i)
	}
}

// many sends from many goroutines at the same time, each with a tag of its own.
func (r ring) many() {
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 50 {
				size := (g*977 + i*331) % 20_000
				into := make([]byte, size)
				if err := r.exchange(uint32(100+g), pattern(r.Process(), g*50+i, size), into); err != nil {
					r.t.Error(err)
				}
				if !bytes.Equal(pattern(r.previous, g*50+i, size), into) {
					r.t.Errorf("goroutine %d got other bytes", g)
				}
			}
		})
	}
	wait.Wait()
}

// posts sends messages of many lengths from many goroutines to all processes, itself too.
func (r ring) posts() {
	const goroutines = 6
	lengths := []int{0, 1, 100, 4087, 4088, 4089, 4096, 5000, 100_000, 3, 1 << 20}
	var wait sync.WaitGroup
	for g := range goroutines {
		wait.Go(func() {
			for i, length := range lengths {
				for p := range r.Processes() {
					head := []byte{byte(g), byte(i)}
					message := append(head, pattern(r.Process(), g*100+i, length)...)
					r.Post(p, message)
					clear(message) // it was copied
				}
			}
		})
	}
	wait.Wait()
	time.Sleep(20 * time.Millisecond) // for messages to arrive while nobody listens

	total := goroutines * len(lengths) * r.Processes()
	got := make([][goroutines]int, r.Processes())
	count, done := 0, make(chan error, 1)
	var once sync.Once
	fail := func(err error) { once.Do(func() { done <- err }) }
	r.Listen(func(from int, message []byte) {
		if bytes.Equal(message, lastWords) {
			r.last.Add(1)
			return
		}
		g, i := int(message[0]), int(message[1])
		if got[from][g] != i {
			fail(fmt.Errorf("message %d of goroutine %d of process %d came at place %d", i, g, from, got[from][g]))
		}
		got[from][g]++
		if !bytes.Equal(pattern(from, g*100+i, lengths[i]), message[2:]) {
			fail(fmt.Errorf("message %d of goroutine %d of process %d has other bytes", i, g, from))
		}
		if count++; count == total {
			fail(nil)
		}
	})
	require.NoError(r.t, await(r.t, done))
	r.barrier()
}

func (r ring) wrongLengths() {
	require.ErrorContains(r.t, r.exchange(1, make([]byte, 10), make([]byte, 11)), "got 10 bytes, want 11")
	require.ErrorContains(r.t, r.exchange(1, make([]byte, 10), make([]byte, 9)), "got more than the 9 bytes")
	into := make([]byte, 10)
	require.NoError(r.t, r.exchange(1, pattern(r.Process(), 1, 10), into), "the process is not lost for it")
	require.Equal(r.t, pattern(r.previous, 1, 10), into)
}

func (r ring) wrongProcesses() {
	lost := make(chan error, 4)
	r.Post(-1, nil) // before somebody is there to hear of it
	r.Lost(func(process int, err error) { lost <- fmt.Errorf("%d: %w", process, err) })
	require.ErrorContains(r.t, await(r.t, lost), "-1: mpi: Post: there is no process -1")
	done := make(chan error, 2)
	r.Send(r.Processes(), 0, nil, func(err error) { done <- err })
	require.ErrorContains(r.t, await(r.t, done), fmt.Sprintf("Send: there is no process %d, want 0 to %d", r.Processes(), r.Processes()-1))
	r.Recv(-1, 0, nil, func(err error) { done <- err })
	require.ErrorContains(r.t, await(r.t, done), "Recv: there is no process -1")
	r.Lose(99, nil)
}

// pendingAtClose closes with messages that are on their way and a receive whose message never comes.
func (r ring) pendingAtClose() {
	r.barrier()
	sent, received, never := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	into := make([]byte, 1<<20)
	r.Recv(r.previous, 1, into, func(err error) { received <- err })
	r.Send(r.next, 1, pattern(r.Process(), 1, 1<<20), func(err error) { sent <- err })
	unused := make([]byte, 1<<20)
	r.Recv(r.previous, 2, unused, func(err error) { never <- err })
	require.NoError(r.t, await(r.t, received))
	const posts = 1000
	var stop atomic.Bool
	var wait sync.WaitGroup
	for range 2 { // who poll, so that messages are left to them
		wait.Go(func() {
			for !stop.Load() {
				r.Progress()
			}
		})
	}
	for range posts {
		r.Post(r.next, lastWords)
	}
	require.NoError(r.t, r.Close())
	stop.Store(true)
	wait.Wait()
	if r.Processes() == 2 { // of more, messages may overtake the last meeting
		require.Equal(r.t, int32(posts), r.last.Load())
	}
	require.NoError(r.t, await(r.t, sent))
	require.True(r.t, bytes.Equal(pattern(r.previous, 1, 1<<20), into))
	err := await(r.t, never)
	require.ErrorContains(r.t, err, "closed")
	var held *mpi.HeldError
	require.False(r.t, errors.As(err, &held), "a receive whose message did not come gives its memory back")

	require.NoError(r.t, r.Close(), "a second time")
	after := make(chan error, 1)
	r.Send(r.next, 1, nil, func(err error) { after <- err })
	r.Progress()
	require.ErrorContains(r.t, await(r.t, after), "closed")
	r.Post(r.next, nil)
	r.Lose(r.next, nil)
}

func TestOneProcess(t *testing.T) {
	each(t, func(t *testing.T, l launcher) { alone(t, "alone", l.environment...) })
}

func onlyOne(t *testing.T) {
	number := int32(0)
	_, err := mpi.Join(mpi.Options{Communicator: &number})
	require.ErrorContains(t, err, "nobody has initialised MPI")
	tr := join(t, mpi.Options{})
	require.Equal(t, []int{0, 1}, []int{tr.Process(), tr.Processes()})
	require.Panics(t, func() { *(*int)(nil) = 1 }, "signals are Go's, whatever the library wants to do with them")
	heard := make(chan []byte, 1)
	tr.Listen(func(_ int, message []byte) { heard <- message })
	tr.Post(0, []byte("to myself"))
	require.Equal(t, "to myself", string(await(t, heard)))
	done := make(chan error, 2)
	into := make([]byte, 3)
	tr.Send(0, 1, []byte{1, 2, 3}, func(err error) { done <- err })
	tr.Recv(0, 1, into, func(err error) { done <- err })
	require.NoError(t, errors.Join(await(t, done), await(t, done)))
	require.Equal(t, []byte{1, 2, 3}, into)
	require.NoError(t, tr.Close())
	_, err = mpi.Join(mpi.Options{})
	require.ErrorContains(t, err, "a process can initialise it only once")
}

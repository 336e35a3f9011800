package gpu_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/collective"
)

const linkLimit = time.Minute

// freshFake is the index of the next device of the linked fake driver that a test may lose.
var freshFake atomic.Int32

// linkedFake returns a device of the fake driver whose GPUs are linked.
func linkedFake(t *testing.T, index int) *gpu.Device {
	t.Helper()
	d, err := core.OpenDevice(fmt.Sprint("fakelink:", index))
	require.NoError(t, err)
	return d.(*gpu.Device)
}

func linkedNames(from, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("fakelink:", from+i))
	}
	return names
}

// numbers returns n numbers on the rank's device, the same for the same salt on any device.
func numbers(r *collective.Rank, n, salt int) *core.Tensor {
	rng := rand.New(rand.NewPCG(uint64(r.Rank), uint64(salt)))
	v := make([]float32, n)
	for i := range v {
		v[i] = rng.Float32() - 0.5
	}
	return op.ToDevice(core.FromSlice(v), r.Device)
}

// everyCollective runs rounds of collectives on the same tensors, and returns their contents.
func everyCollective(r *collective.Rank, n int) (all [][]byte, err error) {
	g, size := r.World, r.World.Size()
	me := r.Rank
	x, y, sum := numbers(r, n, 1), numbers(r, n, 2), numbers(r, n, 3)
	full, parts := numbers(r, n*size, 4), numbers(r, n*size, 5)
	ins, outs := make([]*core.Tensor, size), make([]*core.Tensor, size)
	for q := range size {
		ins[q], outs[q] = numbers(r, n+q+me, 10+q), numbers(r, n+q+me, 20+q)
	}
	var works collective.Works
	for i := range 6 {
		if i%size == me {
			time.Sleep(time.Millisecond)
		}
		works = append(works, g.AllReduce(x, collective.Sum), g.AllGatherInto(full, x), g.ReduceScatterInto(sum, full, collective.Sum))
		works = append(works, g.Broadcast(y, i%size), g.Reduce(x, i%size, collective.Sum), g.AllToAll(outs, ins))
		works = append(works, g.Send(sum, (me+1)%size, i), g.Recv(y, (me+size-1)%size, i), g.AllReduceMany([]*core.Tensor{y, full}, collective.Sum))
		if size&(size-1) == 0 {
			works = append(works, g.AllReduce(parts, collective.Avg))
		}
	}
	if err := works.Wait(); err != nil {
		return nil, err
	}
	for _, t := range append(outs, x, y, sum, full, parts) {
		b, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

func onLinked(t *testing.T, devices []string, fn func(r *collective.Rank) ([][]byte, error)) [][][]byte {
	t.Helper()
	got := make([][][]byte, len(devices))
	require.NoError(t, collective.Spawn(len(devices), devices, collective.Options{Timeout: linkLimit}, func(r *collective.Rank) (err error) {
		got[r.Rank], err = fn(r)
		return err
	}))
	return got
}

// TestLinkedCollectives checks that collectives of GPUs that reach each other have the bits of CPUs, and move nothing through the host.
func TestLinkedCollectives(t *testing.T) {
	for _, size := range []int{2, 3, 4} {
		for _, n := range []int{7, 5000} { // one by one, and in vectors
			want := onLinked(t, []string{"cpu:0", "cpu:0", "cpu:0", "cpu:0"}[:size], func(r *collective.Rank) ([][]byte, error) { return everyCollective(r, n) })
			got := onLinked(t, linkedNames(0, size), func(r *collective.Rank) ([][]byte, error) {
				d := r.Device.(*gpu.Device)
				before := d.Traffic()
				all, err := everyCollective(r, n)
				assert.Zero(t, r.World.Stats().Staged)
				assert.Greater(t, d.Traffic().PeerBytes, before.PeerBytes)
				read := 0
				for _, b := range all {
					read += len(b)
				}
				assert.Equal(t, read, d.Traffic().DownloadBytes-before.DownloadBytes)
				return all, err
			})
			require.Equal(t, want, got, "%d ranks, %d elements", size, n)
		}
	}
}

// TestUnlinkedCollectives checks that the pairs without access to each other go through the host.
func TestUnlinkedCollectives(t *testing.T) {
	gpu.Unlink(linkedFake(t, 11))
	fn := func(r *collective.Rank) ([][]byte, error) {
		x := numbers(r, 100, 1)
		if err := r.World.AllReduce(x, collective.Sum).Wait(); err != nil {
			return nil, err
		}
		if r.Device.Kind() == "fakelink" {
			assert.NotZero(t, r.World.Stats().Staged)
		}
		b, err := x.Bytes()
		return [][]byte{b}, err
	}
	require.Equal(t, onLinked(t, []string{"cpu:0", "cpu:0", "cpu:0"}, fn), onLinked(t, linkedNames(10, 3), fn))
}

// TestLinkedCopiesAreQueued checks that a GPU is given a copy from another, and work behind it, before the other has the value.
func TestLinkedCopiesAreQueued(t *testing.T) {
	from, to := linkedFake(t, 20), linkedFake(t, 21)
	release := gpu.HoldQueue(from)
	x := op.ToDevice(core.FromSlice([]float32{1, 2, 3}), from)
	for _, move := range []func(x *core.Tensor, d core.Device) *core.Tensor{collective.ToDevice, op.ToDevice} {
		before := to.Traffic().Submits
		y := move(x, to)
		require.NoError(t, y.Err())
		z := make(chan []float32)
		go func() {
			v, err := core.Values[float32](y)
			assert.NoError(t, err)
			z <- v
		}()
		for start := time.Now(); to.Traffic().Submits == before; {
			require.Less(t, time.Since(start), linkLimit)
			time.Sleep(time.Millisecond)
		}
		select {
		case <-z:
			require.Fail(t, "the copy did not wait")
		default:
		}
		defer func() { require.Equal(t, []float32{1, 2, 3}, <-z) }()
	}
	release()
	require.Zero(t, from.Traffic().Downloads)
}

// TestCopiesBetweenCommands checks that a GPU is given a peer stream's copy, and has its end seen, while it is being given a batch.
func TestCopiesBetweenCommands(t *testing.T) {
	d := linkedFake(t, 22)
	s, peer := core.CurrentContext().Stream(d), d.NewPeerStream(0)
	x := op.ToDevice(core.FromSlice([]float32{1, 2, 3}), d)
	m, err := s.Alloc(64)
	require.NoError(t, err)
	copies := func() <-chan struct{} {
		f, err := peer.(core.Stager).Fetch([]core.Region{{Memory: m, Size: 64}}, nil)
		require.NoError(t, err)
		ended := make(chan struct{})
		go func() {
			assert.NoError(t, f.Wait())
			f.Release()
			close(ended)
		}()
		return ended
	}
	require.NoError(t, op.Add(x, x).Wait()) // makes the program
	<-copies()
	var held atomic.Bool
	release := make(chan struct{})
	gpu.YieldUntil(d, func() bool {
		held.Store(true)
		select {
		case <-release:
			return true
		default:
			return false
		}
	})
	y := op.Add(x, x)
	gpu.Submit(s)
	require.Eventually(t, held.Load, linkLimit, time.Millisecond)
	select {
	case <-copies():
	case <-time.After(linkLimit):
		require.Fail(t, "the copy waited for the batch")
	}
	require.False(t, y.WaitFor(0))
	close(release)
	require.NoError(t, y.Wait())
	s.Free(m)
	require.NoError(t, peer.Close())
}

// TestLinkedDeviceLost checks that ranks whose GPUs wait for a lost one get an error.
func TestLinkedDeviceLost(t *testing.T) {
	from := 1000 + int(freshFake.Add(3))
	names, first := linkedNames(from, 2), linkedFake(t, from)
	err := collective.Spawn(2, names, collective.Options{Timeout: linkLimit}, func(r *collective.Rank) error {
		x := numbers(r, 10, 1)
		if err := r.World.Barrier(); err != nil {
			return err
		}
		if r.Rank == 0 {
			gpu.HoldQueue(first)
			x = numbers(r, 10, 2) // does not get there
		}
		w := r.World.AllReduce(x, collective.Sum)
		if r.Rank == 0 {
			gpu.Submit(core.CurrentContext().Stream(first))
			gpu.Lose(first, "it fell off the bus")
		}
		done, err := w.WaitFor(linkLimit / 2)
		assert.True(t, done)
		if err == nil {
			_, err = x.Bytes()
		}
		assert.ErrorContains(t, err, "is lost", "rank %d", r.Rank)
		return nil
	})
	require.ErrorContains(t, err, "fell off the bus")
	later := op.ToDevice(core.FromSlice([]float32{1}), linkedFake(t, from+2))
	require.NoError(t, later.Err())
	require.NoError(t, later.Wait())
}

// TestLinkedFaults checks ranks that leave, that are late, and that disagree.
func TestLinkedFaults(t *testing.T) {
	err := collective.Spawn(2, linkedNames(40, 2), collective.Options{Timeout: linkLimit}, func(r *collective.Rank) error {
		x := numbers(r, 10, 1)
		if err := r.World.AllReduce(x, collective.Sum).Wait(); err != nil || r.Rank == 1 {
			return err
		}
		return r.World.AllReduce(x, collective.Sum).Wait()
	})
	require.ErrorContains(t, err, "rank 1 is gone")
	over := make(chan struct{})
	err = collective.Spawn(2, linkedNames(40, 2), collective.Options{Timeout: 50 * time.Millisecond, Log: func(string) {}}, func(r *collective.Rank) error {
		if r.Rank == 0 {
			x := numbers(r, 10, 1)
			err := r.World.AllReduce(x, collective.Sum).Wait()
			assert.ErrorContains(t, err, "rank 1 has not arrived")
			_, err = x.Bytes()
			assert.NoError(t, err, "its contents are unchanged")
			close(over)
		}
		<-over
		return nil
	})
	require.NoError(t, err)
}

// TestLinkedDeadlock checks that ranks that use results of two groups in different orders get an error.
func TestLinkedDeadlock(t *testing.T) {
	err := collective.Spawn(2, linkedNames(50, 2), collective.Options{Timeout: linkLimit}, func(r *collective.Rank) error {
		other, err := r.World.New([]int{0, 1}, collective.Options{Name: "other", Timeout: linkLimit})
		if err != nil {
			return err
		}
		a, b := r.World, other
		if r.Rank == 1 {
			a, b = b, a
		}
		x := numbers(r, 10, 1)
		a.AllReduce(x, collective.Sum)
		b.AllReduce(x, collective.Sum)
		assert.ErrorContains(t, x.Wait(), "deadlock, collectives wait for each other's results: rank ")
		y := numbers(r, 10, 2)
		for _, g := range []*collective.Group{r.World, other} {
			if err := g.AllReduce(y, collective.Sum).Wait(); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
}

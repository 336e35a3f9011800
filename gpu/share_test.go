package gpu_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest/wiretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/collective"
)

// onProcesses runs fn on ranks in processes that are parts of this one, with counts ranks each, whose GPUs share their memory.
func onProcesses(net *wiretest.Net, counts []int, devices []string, o collective.Options, fn func(r *collective.Rank) error) error {
	errs := make([]error, len(counts))
	var wg sync.WaitGroup
	first := 0
	for p, n := range counts {
		own := devices[first : first+n]
		first += n
		wg.Go(func() {
			w, err := collective.JoinWorld(net.Transport(p), n, o)
			if err != nil {
				errs[p] = err
				return
			}
			errs[p] = errors.Join(w.Spawn(own, fn), w.Close())
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// meet runs sums until those of all ranks go from GPU to GPU.
func meet(r *collective.Rank) error {
	d := r.Device.(*gpu.Device)
	for start := time.Now(); time.Since(start) < linkLimit; {
		before := r.World.Stats().Staged
		x, all := numbers(r, 100, 1), core.FromSlice([]float32{0})
		if err := r.World.AllReduce(x, collective.Sum).Wait(); err != nil {
			return err
		}
		if r.World.Stats().Staged == before {
			all = core.FromSlice([]float32{1})
		}
		if err := r.World.AllReduce(all, collective.Min).Wait(); err != nil {
			return err
		}
		if v, err := core.Values[float32](all); err != nil || v[0] == 1 {
			return err
		}
	}
	return fmt.Errorf("%v reaches no other", d)
}

var processLayouts = [][]int{{1, 1}, {1, 1, 1}, {2, 2}, {1, 3}}

// TestSharedCollectives checks that collectives of GPUs that reach each other across processes have the bits of CPUs, and move nothing through
// the host. GPUs that take signals use them if each process has one.
func TestSharedCollectives(t *testing.T) {
	t.Run("signals", func(t *testing.T) { sharedCollectives(t, 60) })
	before := gpu.Awaited()
	t.Run("hosts", func(t *testing.T) { sharedCollectives(t, gpu.MuteLinks+60) })
	require.Equal(t, before, gpu.Awaited())
}

func sharedCollectives(t *testing.T, first int) {
	for _, counts := range processLayouts {
		size := 0
		for _, n := range counts {
			size += n
		}
		signals := first < gpu.MuteLinks && size == len(counts)
		for _, n := range []int{0, 7, 5000} {
			awaited := gpu.Awaited()
			want := onLinked(t, []string{"cpu:0", "cpu:0", "cpu:0", "cpu:0"}[:size], func(r *collective.Rank) ([][]byte, error) { return everyCollective(r, n) })
			got := make([][][]byte, size)
			net := wiretest.New(len(counts), 100*time.Microsecond, uint64(n))
			err := onProcesses(net, counts, linkedNames(first, size), collective.Options{Timeout: linkLimit}, func(r *collective.Rank) (err error) {
				if err := r.World.AllReduce(numbers(r, 0, 1), collective.Sum).Wait(); err != nil {
					return err
				}
				if err := meet(r); err != nil {
					return err
				}
				d := r.Device.(*gpu.Device)
				before, staged := d.Traffic(), r.World.Stats().Staged
				got[r.Rank], err = everyCollective(r, n)
				assert.Equal(t, staged, r.World.Stats().Staged)
				assert.Greater(t, d.Traffic().PeerBytes, before.PeerBytes)
				read := 0
				for _, b := range got[r.Rank] {
					read += len(b)
				}
				assert.Equal(t, read, d.Traffic().DownloadBytes-before.DownloadBytes)
				return err
			})
			require.NoError(t, err)
			require.Equal(t, want, got, "%v ranks, %d elements", counts, n)
			require.Equal(t, signals, gpu.Awaited() > awaited)
			require.Zero(t, gpu.OpenedBlocks(), "they are closed with the world")
		}
	}
}

// TestRefusedSharing checks that what cannot be opened goes through the host, with the same bits.
func TestRefusedSharing(t *testing.T) {
	gpu.RefuseShared(true)
	defer gpu.RefuseShared(false)
	want := onLinked(t, []string{"cpu:0", "cpu:0"}, func(r *collective.Rank) ([][]byte, error) { return everyCollective(r, 50) })
	got := make([][][]byte, 2)
	err := onProcesses(wiretest.New(2, 0, 1), []int{1, 1}, linkedNames(70, 2), collective.Options{Timeout: linkLimit}, func(r *collective.Rank) (err error) {
		got[r.Rank], err = everyCollective(r, 50)
		assert.NotZero(t, r.World.Stats().Staged)
		return err
	})
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestHalvesWithinWords checks tensors that begin within a word: two GPUs could write parts of it, so they go through the host.
func TestHalvesWithinWords(t *testing.T) {
	err := onProcesses(wiretest.New(2, 0, 1), []int{1, 1}, linkedNames(70, 2), collective.Options{Timeout: linkLimit}, func(r *collective.Rank) error {
		if err := meet(r); err != nil {
			return err
		}
		x := op.To(core.FromSlice([]float32{1, 2, 3, 4, 5}), core.BFloat16)
		x = op.ToDevice(x, r.Device)
		staged := r.World.Stats().Staged
		if err := r.World.AllReduce(op.Narrow(x, 0, 1, 3), collective.Sum).Wait(); err != nil {
			return err
		}
		assert.Greater(t, r.World.Stats().Staged, staged)
		return nil
	})
	require.NoError(t, err)
}

// TestSharedMemoryIsKept checks that memory which another process may have opened stays allocated.
func TestSharedMemoryIsKept(t *testing.T) {
	err := onProcesses(wiretest.New(2, 0, 1), []int{1, 1}, linkedNames(80, 2), collective.Options{Timeout: linkLimit}, func(r *collective.Rank) error {
		if err := meet(r); err != nil {
			return err
		}
		d := r.Device.(*gpu.Device)
		held := d.Reserved()
		d.EmptyCache()
		assert.Equal(t, held, d.Reserved())
		return nil
	})
	require.NoError(t, err)
}

// TestSharingFaults checks ranks whose tensors fail, that leave, and whose processes are lost.
func TestSharingFaults(t *testing.T) {
	t.Run("signals", func(t *testing.T) { sharingFaults(t, 90) })
	t.Run("hosts", func(t *testing.T) { sharingFaults(t, gpu.MuteLinks+90) })
}

func sharingFaults(t *testing.T, first int) {
	fails := func(fn func(net *wiretest.Net, r *collective.Rank, x *core.Tensor) error) error {
		net := wiretest.New(2, 0, 1)
		o := collective.Options{Timeout: 5 * time.Second, Log: func(string) {}}
		return onProcesses(net, []int{1, 1}, linkedNames(first, 2), o, func(r *collective.Rank) error {
			if err := meet(r); err != nil {
				return err
			}
			return fn(net, r, numbers(r, 5000, 1))
		})
	}
	err := fails(func(_ *wiretest.Net, r *collective.Rank, x *core.Tensor) error {
		if r.Rank == 1 {
			return errors.New("it has enough")
		}
		return r.World.AllReduce(x, collective.Sum).Wait()
	})
	require.ErrorContains(t, err, "rank 1 is gone")
	err = fails(func(_ *wiretest.Net, r *collective.Rank, x *core.Tensor) error {
		if r.Rank == 1 { // an input that fails after the call
			stream := core.CurrentContext().Stream(r.Device)
			c := stream.Begin(-1, "late").Out(x)
			c.Fn = func() error {
				time.Sleep(20 * time.Millisecond)
				return errors.New("it is broken")
			}
			if err := core.Launch(stream, c); err != nil {
				return err
			}
		}
		err := r.World.AllReduce(x, collective.Sum).Wait()
		if err == nil {
			err = x.Wait()
		}
		assert.ErrorContains(t, err, "it is broken", "rank %d", r.Rank)
		return nil
	})
	require.NoError(t, err)
	_ = fails(func(net *wiretest.Net, r *collective.Rank, x *core.Tensor) error {
		if r.Rank == 1 {
			net.Lose(1, false)
		}
		err := r.World.AllReduce(x, collective.Sum).Wait()
		assert.Error(t, err, "rank %d", r.Rank)
		return nil
	})
}

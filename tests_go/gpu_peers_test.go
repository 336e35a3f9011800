package tests_go

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/collective"
)

// linkedGPUs returns the names of the machine's GPUs that reach each other, or skips the test if there are not two.
func linkedGPUs(t testing.TB) (names []string) {
	t.Helper()
	needGPU(t)
	var list []core.Device
	for i := range gpu.Count() {
		d, err := core.OpenDevice(fmt.Sprint("gpu:", i))
		require.NoError(t, err)
		reached := true
		for _, other := range list {
			reached = reached && core.Reaches(d, other) && core.Reaches(other, d)
		}
		if reached {
			list = append(list, d)
			names = append(names, d.String())
		}
	}
	if len(names) < 2 {
		t.Skip("no two GPUs that reach each other's memory")
	}
	return names
}

// traffic returns the bytes that GPUs have exchanged with the host and with each other.
func traffic(t testing.TB, names []string) (host, peers int) {
	t.Helper()
	for _, name := range names {
		d, err := core.OpenDevice(name)
		require.NoError(t, err)
		c := d.(*gpu.Device).Traffic()
		host += c.UploadedBytes + c.DownloadBytes
		peers += c.PeerBytes
	}
	return host, peers
}

// 1. and 3. On GPUs that reach each other, collectives have the bits of CPUs, for every dtype and operation, of small and large tensors that
// begin anywhere.
func TestCase01And03OnLinkedGPUs(t *testing.T) {
	names := linkedGPUs(t)
	for _, world := range []int{2, 3} { // three ranks share two GPUs
		fn := func(r *collective.Rank) (all [][]byte, err error) {
			for _, d := range kinds {
				for _, n := range []int{0, 1, 7, 3001, 70001} {
					got, err := everyCollective(r, d, n)
					if err != nil {
						return nil, fmt.Errorf("%v[%d]: %w", d, n, err)
					}
					all = append(all, got...)
				}
			}
			for _, d := range []core.DType{core.Float32, core.BFloat16, core.Float16} {
				for _, from := range []int{0, 1, 8} {
					x := random(r, 3<<20, 100, d)
					if err := r.World.AllReduce(op.Narrow(x, 0, from, 3<<20-from-3), collective.Avg).Wait(); err != nil {
						return nil, err
					}
					b, err := x.Bytes()
					if err != nil {
						return nil, err
					}
					all = append(all, b)
				}
			}
			if r.Device.Kind() == "gpu" {
				assert.Zero(t, r.World.Stats().Staged)
			}
			return all, nil
		}
		want, got := on(t, world, []string{"cpu:0"}, fn), on(t, world, names[:2], fn)
		for r := range want {
			for i := range want[r] {
				require.True(t, string(want[r][i]) == string(got[r][i]), "%d ranks: result %d of rank %d", world, i, r)
			}
		}
	}
}

// Rounds of collectives and computation on linked GPUs, in which nothing goes through the host.
func TestLinkedGPUsExchangeDirectly(t *testing.T) {
	names := linkedGPUs(t)[:2]
	fn := func(r *collective.Rank) ([][]byte, error) {
		x, g := random(r, 1<<20, 1, core.Float32), random(r, 1<<20, 2, core.Float32)
		got := random(r, 1<<20, 3, core.Float32)
		if err := r.World.Barrier(); err != nil {
			return nil, err
		}
		before := 0
		if r.Device.Kind() == "gpu" {
			before, _ = traffic(t, []string{r.Device.String()})
		}
		var works collective.Works
		for i := range 30 {
			works = append(works, r.World.AllReduce(g, collective.Avg))
			op.AddInPlace(x, op.Mul(g, core.Num(0.5)))
			works = append(works, r.World.Send(x, 1-r.Rank, i), r.World.Recv(got, 1-r.Rank, i))
			op.AddInPlace(g, op.Mul(got, core.Num(0.25)))
		}
		if err := works.Wait(); err != nil {
			return nil, err
		}
		if r.Device.Kind() == "gpu" {
			after, peers := traffic(t, []string{r.Device.String()})
			assert.Equal(t, before, after)
			assert.NotZero(t, peers)
		}
		return bytesOf(x, g, got)
	}
	require.Equal(t, on(t, 2, []string{"cpu:0"}, fn), on(t, 2, names, fn))
}

// A copy to a linked GPU, and its gradient, do not go through the host.
func TestCopiesBetweenLinkedGPUs(t *testing.T) {
	names := linkedGPUs(t)[:2]
	var devices []core.Device
	for _, name := range names {
		d, err := core.OpenDevice(name)
		require.NoError(t, err)
		devices = append(devices, d)
	}
	for _, move := range []func(x *core.Tensor, d core.Device) *core.Tensor{op.ToDevice, collective.ToDevice} {
		x := op.OnesWith([]int{1000}, op.TensorOptions{Device: devices[0]}).SetRequiresGrad(true)
		require.NoError(t, x.Wait())
		before, _ := traffic(t, names)
		y := move(op.Mul(x, core.Num(3)), devices[1])
		sum := op.Sum(op.Mul(y, y), nil, false)
		require.NoError(t, autograd.Backward(sum))
		require.NoError(t, core.Synchronize())
		after, _ := traffic(t, names)
		require.Less(t, after-before, 100, "numbers alone")
		got, err := core.Values[float32](x.Grad())
		require.NoError(t, err)
		require.Equal(t, float32(18), got[999])
	}
}

// A fault on one GPU is known to those that have used the result.
func TestFaultsOfLinkedGPUs(t *testing.T) {
	names := linkedGPUs(t)[:2]
	for range 20 {
		on(t, 2, names, func(r *collective.Rank) ([][]byte, error) {
			x, sound := random(r, 10, 1, core.Float32), random(r, 10, 2, core.Float32)
			if r.Rank == 1 {
				x = op.IndexSelect(x, 0, op.ToDevice(core.FromSlice([]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 99}), r.Device))
			}
			err := r.World.AllReduce(x, collective.Sum).Wait()
			assert.ErrorContains(t, err, "out of range")
			_, _ = bytesOf(x) // takes the stream's error
			assert.NoError(t, r.World.AllReduce(sound, collective.Sum).Wait())
			return nil, nil
		})
	}
}

// BenchmarkAllReduceOfLinkedGPUs prints the time of an all-reduce, alone and of several in a row.
func BenchmarkAllReduceOfLinkedGPUs(b *testing.B) {
	names := linkedGPUs(b)[:2]
	for _, bytes := range []int{4, 64 << 10, 1 << 20, 16 << 20, 256 << 20} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) {
			err := collective.Spawn(2, names, collective.Options{}, func(r *collective.Rank) error {
				x := op.ZerosWith([]int{bytes / 4}, op.TensorOptions{Device: r.Device})
				run := func(n int) error {
					var works collective.Works
					for range n {
						works = append(works, r.World.AllReduce(x, collective.Sum))
					}
					return works.Wait()
				}
				if err := run(3); err != nil {
					return err
				}
				if err := r.World.Barrier(); err != nil {
					return err
				}
				start := time.Now()
				for range b.N {
					if err := run(1); err != nil {
						return err
					}
				}
				alone := time.Since(start)
				start = time.Now()
				if err := run(b.N); err != nil {
					return err
				}
				if row := time.Since(start); r.Rank == 0 {
					b.ReportMetric(float64(alone.Microseconds())/float64(b.N), "us/alone")
					b.ReportMetric(float64(row.Microseconds())/float64(b.N), "us/row")
				}
				return nil
			})
			require.NoError(b, err)
		})
	}
}

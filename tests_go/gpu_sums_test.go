package tests_go

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/collective"
)

// reach reports whether two devices use each other's memory.
func reach(t *testing.T, a, b string) bool {
	t.Helper()
	d, err := core.OpenDevice(a)
	require.NoError(t, err)
	e, err := core.OpenDevice(b)
	require.NoError(t, err)
	return core.Reaches(d, e)
}

// Sums that end on one of two GPUs, which adds what it has itself: the bits are those of CPUs, and its part stays where it is.
func TestCase03SumsOnTheirOwnGPU(t *testing.T) {
	needGPU(t)
	fn := func(o collective.ReduceOp, d core.DType, half int) func(r *collective.Rank) ([][]byte, error) {
		return func(r *collective.Rank) ([][]byte, error) {
			in, out := random(r, 2*half, 1, d), random(r, half, 2, d)
			x, y := random(r, half, 3, d), random(r, 9, 4, d)
			works := collective.Works{r.World.ReduceScatterInto(out, in, o), r.World.Reduce(x, 1, o), r.World.Reduce(y, 1, o)}
			if err := works.Wait(); err != nil {
				return nil, err
			}
			if r.Device.Kind() == "gpu" && o != collective.Max {
				size := d.Size()
				want := 2*half*size + (half+9)*size
				if d != core.Float32 {
					want += half * size // its own part, too
					if r.Rank == 1 {
						want += (half + 9) * size
					}
				}
				if reach(t, "gpu:0", "gpu:1") {
					want = 0
				}
				assert.Equal(t, want, r.World.Stats().Staged)
			}
			return bytesOf(in, out, x, y)
		}
	}
	for _, c := range []struct {
		op   collective.ReduceOp
		d    core.DType
		half int
	}{
		{collective.Sum, core.Float32, 3001}, {collective.Avg, core.Float32, 2<<20 + 5}, // more than a chunk
		{collective.Sum, core.BFloat16, 3001}, {collective.Avg, core.BFloat16, 3001}, {collective.Max, core.Float32, 3001},
	} {
		fn := fn(c.op, c.d, c.half)
		want, got := on(t, 2, []string{"cpu:0"}, fn), on(t, 2, []string{"gpu:0", "gpu:1"}, fn)
		for r := range want {
			for i := range want[r] {
				require.True(t, string(want[r][i]) == string(got[r][i]), "%v, rank %d, tensor %d", c, r, i)
			}
		}
	}
}

// A sum of one rank's part alone has no rest that its GPU could add.
func TestCase01SumsOfOneRank(t *testing.T) {
	needGPU(t)
	for _, o := range []collective.ReduceOp{collective.Sum, collective.Avg} {
		got := on(t, 1, []string{"gpu:0"}, func(r *collective.Rank) ([][]byte, error) {
			in, out := random(r, 9, 1, core.Float32), random(r, 9, 2, core.Float32)
			if err := r.World.ReduceScatterInto(out, in, o).Wait(); err != nil {
				return nil, err
			}
			return bytesOf(in, out)
		})
		require.Equal(t, got[0][0], got[0][1], "%v", o)
	}
}

// One thread's sum goes to the first device, on which it is added to what is there, last; of this nothing goes to the host.
func TestReduceSyncOnGPUs(t *testing.T) {
	needGPU(t)
	sum := func(devices ...string) (bytes []byte, downloaded int) {
		lists := make([][]*core.Tensor, len(devices))
		for i, name := range devices {
			d, err := core.OpenDevice(name)
			require.NoError(t, err)
			for k, n := range []int{1, 50000} {
				lists[i] = append(lists[i], random(&collective.Rank{Rank: i, Device: d}, n, k, core.Float32))
			}
		}
		before := 0
		g, ok := lists[0][0].Device().(*gpu.Device)
		if ok {
			before = g.Traffic().DownloadBytes
		}
		require.NoError(t, collective.ReduceSyncMany(lists, collective.Sum, nil))
		require.NoError(t, core.Synchronize())
		if ok {
			downloaded = g.Traffic().DownloadBytes - before
		}
		bytes, err := op.Cat(lists[0], 0).Bytes()
		require.NoError(t, err)
		return bytes, downloaded
	}
	for _, devices := range [][]string{{"gpu:0", "gpu:1"}, {"gpu:0", "gpu:1", "cpu:0"}, {"gpu:0", "cpu:0", "gpu:1", "cpu:0"}} {
		t.Run(fmt.Sprint(devices), func(t *testing.T) {
			want, _ := sum([]string{"cpu:0", "cpu:0", "cpu:0", "cpu:0"}[:len(devices)]...)
			got, downloaded := sum(devices...)
			require.Equal(t, want, got)
			require.Zero(t, downloaded)
		})
	}
}

package tests_go

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/collective"
)

// needGPU skips a test where there is neither a GPU nor lavapipe.
func needGPU(t testing.TB) {
	t.Helper()
	os.Setenv("PLAIT_SOFTWARE_GPU", "2")
	if gpu.Count() == 0 {
		const line = "no GPU to test on (%s); apt-get install libvulkan1 mesa-vulkan-drivers brings one made of software"
		if os.Getenv("CI") == "true" {
			t.Fatalf(line, gpu.Reason())
		}
		t.Skipf(line, gpu.Reason())
	}
}

// places are where ranks may be: all on one GPU, or in turn on a GPU and the CPU.
var places = map[string][]string{"gpu": {"gpu:0"}, "mixed": {"gpu:0", "cpu:0"}, "mixed, the CPU first": {"cpu:0", "gpu:0"}}

// on runs fn on n ranks and returns what each returned.
func on(t *testing.T, n int, devices []string, fn func(r *collective.Rank) ([][]byte, error)) [][][]byte {
	t.Helper()
	got := make([][][]byte, n)
	require.NoError(t, spawn(t, n, devices, func(r *collective.Rank) (err error) {
		got[r.Rank], err = fn(r)
		return err
	}))
	return got
}

// limit is how long ranks of a test may take.
const limit = time.Minute

// spawn is [collective.Spawn] for at most [limit], after which the test fails with what the ranks did last and where every
// goroutine is.
func spawn(t *testing.T, n int, devices []string, fn func(r *collective.Rank) error) error {
	t.Helper()
	worlds := make([]*collective.Group, n)
	var mu sync.Mutex
	ended := make(chan error, 1)
	go func() {
		o := collective.Options{Timeout: limit, Log: func(string) {}}
		ended <- collective.Spawn(n, devices, o, func(r *collective.Rank) error {
			mu.Lock()
			worlds[r.Rank] = r.World
			mu.Unlock()
			return fn(r)
		})
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
	}
	mu.Lock()
	defer mu.Unlock()
	for i, g := range worlds {
		if g != nil {
			t.Logf("rank %d: %v", i, g.Recorder())
		}
	}
	var stacks strings.Builder
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 1))
	t.Fatalf("%d ranks on %v have not come to an end in %v\n%s", n, devices, limit, stacks.String())
	return nil
}

// random returns n numbers on the rank's device, the same for the same salt on any device.
func random(r *collective.Rank, n, salt int, d core.DType) *core.Tensor {
	rng := rand.New(rand.NewPCG(uint64(r.Rank), uint64(salt)))
	v := make([]float64, n)
	for i := range v {
		if v[i] = rng.NormFloat64(); !d.IsFloat() {
			v[i] = float64(rng.IntN(7))
		}
	}
	cpu, err := core.OpenDevice("cpu:0")
	if err != nil {
		return core.ErrorTensor(err)
	}
	return op.ToDevice(op.To(op.ToDevice(core.FromSlice(v), cpu), d), r.Device)
}

// bytesOf returns the contents of tensors.
func bytesOf(ts ...*core.Tensor) (list [][]byte, err error) {
	for _, t := range ts {
		var b []byte
		if b, err = t.Bytes(); err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

var kinds = []core.DType{core.Float32, core.Float16, core.BFloat16, core.Int64, core.Int32, core.Uint8, core.Bool}

// 1. and 3. On GPUs, and on GPUs and CPUs together, collectives give the bits that they give on CPUs.
func TestCase01And03OnGPUs(t *testing.T) {
	needGPU(t)
	for name, devices := range places {
		for _, world := range []int{2, 3} {
			t.Run(fmt.Sprint(name, world), func(t *testing.T) {
				fn := func(r *collective.Rank) (all [][]byte, err error) {
					for _, d := range kinds[:coretest.Rounds(len(kinds))] {
						for _, n := range []int{0, 1, 7, 3001} {
							got, err := everyCollective(r, d, n)
							if err != nil {
								return nil, fmt.Errorf("%v[%d]: %w", d, n, err)
							}
							all = append(all, got...)
						}
					}
					return all, nil
				}
				want := on(t, world, []string{"cpu:0"}, fn)
				got := on(t, world, devices, fn)
				for r := range want {
					require.Len(t, got[r], len(want[r]))
					for i := range want[r] {
						require.Equal(t, want[r][i], got[r][i], "result %d of rank %d", i, r)
					}
				}
			})
		}
	}
}

// everyCollective runs each collective once and returns what it wrote.
func everyCollective(r *collective.Rank, d core.DType, n int) (all [][]byte, err error) {
	g, size := r.World, r.World.Size()
	salt := 0
	fresh := func(n int) *core.Tensor { salt++; return random(r, n, salt, d) }
	keep := func(w *collective.Work, ts ...*core.Tensor) {
		if err != nil {
			return
		}
		if err = w.Wait(); err != nil {
			return
		}
		var b [][]byte
		if b, err = bytesOf(ts...); err == nil {
			all = append(all, b...)
		}
	}
	ops := []collective.ReduceOp{collective.Sum, collective.Product, collective.Min, collective.Max}
	if d.IsFloat() {
		ops = append(ops, collective.Avg)
	} else {
		ops = append(ops, collective.BitAnd, collective.BitOr, collective.BitXor)
	}
	for _, o := range ops {
		x := fresh(n)
		keep(g.AllReduce(x, o), x)
	}
	several := []*core.Tensor{fresh(n), fresh(1), fresh(2*n + 1)}
	keep(g.AllReduceMany(several, collective.Sum), several...)
	x := fresh(n)
	keep(g.Broadcast(x, size-1), x)
	x = fresh(n)
	keep(g.Reduce(x, 1, collective.Sum), x)
	parts := func(of func(q int) int) (ts []*core.Tensor) {
		for q := range size {
			ts = append(ts, fresh(of(q)))
		}
		return ts
	}
	uneven := func(q int) int { return n + q }
	outs, in := parts(uneven), fresh(uneven(g.Rank()))
	keep(g.AllGather(outs, in), outs...)
	out, in := fresh(n*size), fresh(n)
	keep(g.AllGatherInto(out, in), out)
	ins := parts(uneven)
	out = fresh(uneven(g.Rank()))
	keep(g.ReduceScatter(out, ins, collective.Sum), out)
	in, out = fresh(n*size), fresh(n)
	keep(g.ReduceScatterInto(out, in, collective.Sum), out)
	ins = parts(func(q int) int { return n + q + g.Rank() })
	outs = parts(func(q int) int { return n + q + g.Rank() })
	keep(g.AllToAll(outs, ins), outs...)
	in, outs = fresh(n), parts(func(int) int { return n })
	keep(g.Gather(outs, in, 0), outs...)
	ins, out = parts(func(int) int { return n }), fresh(n)
	keep(g.Scatter(out, ins, 1), out)
	// Around the ring, both ways at once.
	next, before := (g.Rank()+1)%size, (g.Rank()+size-1)%size
	a, b, c, e := fresh(n), fresh(n), fresh(n), fresh(n)
	works := collective.Works{g.Send(a, next, 1), g.Recv(b, before, 1), g.Send(c, before, 2), g.Recv(e, next, 2)}
	if err == nil {
		err = works.Wait()
	}
	keep(g.StartExchange("", nil), b, e)
	return all, err
}

// More than one chunk, from the middle of a tensor. Ranks on one GPU copy nothing to the host.
func TestCase01LargeOnGPUs(t *testing.T) {
	needGPU(t)
	mixed := false
	fn := func(r *collective.Rank) ([][]byte, error) {
		n := (1+coretest.Rounds(2))<<20 + 3 // more than a chunk
		x := random(r, n, 1, core.Float32)
		y := op.Narrow(x, 0, 1, n-1)
		w := r.World.AllReduce(y, collective.Avg)
		z := op.Mul(y, core.Num(3)) // waits by itself
		u := r.World.AllReduce(z, collective.Sum)
		for _, w := range []*collective.Work{w, u} {
			if err := w.Wait(); err != nil {
				return nil, err
			}
		}
		if r.Device.Kind() == "gpu" && mixed {
			assert.Equal(t, 2*2*4*(n-1), r.World.Stats().Staged)
		} else {
			assert.Zero(t, r.World.Stats().Staged)
		}
		return bytesOf(x, z)
	}
	want := on(t, 2, []string{"cpu:0"}, fn)
	for name, devices := range places {
		mixed = len(devices) > 1
		got := on(t, 2, devices, fn)
		for r := range want {
			for i := range want[r] {
				require.True(t, slices.Equal(want[r][i], got[r][i]), "%s: tensor %d of rank %d", name, i, r)
			}
		}
	}
}

// 2. Rounds in a row, some of them unread, with ranks that dawdle, computation in between and groups that overlap.
func TestCase02RoundsOnGPUs(t *testing.T) {
	needGPU(t)
	const world, rounds = 3, 60
	fn := func(r *collective.Rank) ([][]byte, error) {
		rng := rand.New(rand.NewPCG(uint64(r.Rank), uint64(time.Now().UnixNano())))
		pair, err := r.World.New([]int{0, 1}, collective.Options{})
		if err != nil {
			return nil, err
		}
		x, y := random(r, 1000, 1, core.Float32), random(r, 300, 2, core.Float32)
		var works collective.Works
		for i := range rounds {
			if rng.IntN(4) == 0 {
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
			}
			works = append(works, r.World.AllReduce(x, collective.Avg))
			op.AddInPlace(x, core.Num(float64(r.Rank)))
			if pair != nil {
				works = append(works, pair.AllReduce(y, collective.Avg))
			}
			op.AddInPlace(y, op.Narrow(x, 0, i, 300))
			if i%7 == 0 {
				if err := works.Wait(); err != nil {
					return nil, err
				}
				works = nil
			}
		}
		if err := works.Wait(); err != nil {
			return nil, err
		}
		return bytesOf(x, y)
	}
	want := on(t, world, []string{"cpu:0"}, fn)
	for name, devices := range places {
		require.Equal(t, want, on(t, world, devices, fn), name)
	}
}

// Contents that an earlier failure made undefined do not go round; nor does a rank that leaves keep the others waiting.
func TestFailuresOnGPUs(t *testing.T) {
	needGPU(t)
	on(t, 2, []string{"gpu:0"}, func(r *collective.Rank) ([][]byte, error) {
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
	err := spawn(t, 2, []string{"gpu:0"}, func(r *collective.Rank) error {
		x := random(r, 10, 1, core.Float32)
		if err := r.World.AllReduce(x, collective.Sum).Wait(); err != nil || r.Rank == 1 {
			return err
		}
		return r.World.AllReduce(x, collective.Sum).Wait()
	})
	require.ErrorContains(t, err, "rank 1 is gone")
}

// Who sends through the host does not wait until the receivers have it.
func TestSendersGoOnOnGPUs(t *testing.T) {
	needGPU(t)
	if reach(t, "gpu:0", "gpu:1") {
		t.Skip("these GPUs exchange directly, so that a sender waits as on CPUs")
	}
	lists := make([][]*core.Tensor, 2)
	for i, name := range []string{"gpu:0", "gpu:1"} {
		d, err := core.OpenDevice(name)
		require.NoError(t, err)
		lists[i] = []*core.Tensor{op.ToDevice(core.FromSlice([]float32{float32(i), 7}), d)}
	}
	leave := make(chan struct{})
	stay(lists[1][0].Device(), leave)
	works, err := collective.BroadcastSyncMany(lists)
	require.NoError(t, err)
	for _, w := range works {
		done, err := w.WaitFor(limit / 4)
		require.NoError(t, err)
		require.True(t, done)
	}
	close(leave)
	for _, list := range lists {
		v, err := core.Values[float32](list[0])
		require.NoError(t, err)
		require.Equal(t, []float32{0, 7}, v)
	}
}

// One thread, several tensors, one of them on the CPU.
func TestAllReduceSyncOnGPUs(t *testing.T) {
	needGPU(t)
	for _, devices := range [][]string{{"gpu:0", "gpu:0"}, {"gpu:0", "cpu:0", "gpu:0"}} {
		var lists [][]*core.Tensor
		for i, name := range devices {
			d, err := core.OpenDevice(name)
			require.NoError(t, err)
			v := core.FromSlice([]float32{float32(i), 1, 2})
			lists = append(lists, []*core.Tensor{op.ToDevice(v, d), op.ToDevice(core.FromSlice([]float32{5}), d)})
		}
		require.NoError(t, collective.AllReduceSyncMany(lists, collective.Avg))
		n := float32(len(devices))
		for _, list := range lists {
			v, err := core.Values[float32](list[0])
			require.NoError(t, err)
			require.Equal(t, []float32{(n - 1) / 2, 1, 2}, v)
		}
	}
}

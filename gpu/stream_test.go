package gpu_test

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

func value(t *testing.T, x *core.Tensor) float64 {
	t.Helper()
	v, err := x.Item()
	require.NoError(t, err)
	return v
}

func TestStreamsWaitForEachOther(t *testing.T) {
	d := device(t)
	one, two := d.NewStream(0), d.NewStream(0)
	defer one.Close()
	defer two.Close()
	core.Tidy(func() {
		var x *core.Tensor
		core.WithStream(one, func() { x = on(d, 1000) })
		for range 20 {
			core.WithStream(two, func() { x = op.Add(x, core.Num(1)) })
			core.WithStream(one, func() { x = op.Mul(x, core.Num(0.5)) })
		}
		require.InDelta(t, 1, value(t, op.Mean(x, nil, false)), 1e-5)
	})
}

// A gate is an event that a test completes.
type gate chan struct{}

func (g gate) Done() bool {
	select {
	case <-g:
		return true
	default:
		return false
	}
}

func (g gate) Wait() { <-g }

func (g gate) WaitFor(time.Duration) bool { return g.Done() }

func (g gate) Stream() core.Stream { return nil }

// TestBatchesEndAtAwaitedEvents waits for events of a stream in the wrong order and before its worker has reached them. Batches
// must end at these events.
func TestBatchesEndAtAwaitedEvents(t *testing.T) {
	d := secondDevice(t, "gpu:6") // no other test submits to it
	s := d.NewStream(0)
	defer s.Close()
	core.Tidy(func() {
		var x *core.Tensor
		core.WithStream(s, func() { x = on(d, 1000) })
		require.NoError(t, s.Synchronize())
		before := d.Traffic().Submits
		g := make(gate)
		s.Wait(g)
		var points []core.Event
		core.WithStream(s, func() {
			for range 3 {
				for range 5 {
					op.AddInPlace(x, core.Num(1))
				}
				points = append(points, s.Record())
			}
		})
		points[2].WaitFor(0)
		points[0].WaitFor(0)
		close(g)
		points[2].Wait()
		require.Equal(t, 2, d.Traffic().Submits-before)
		core.WithStream(s, func() { require.InDelta(t, 15.5, value(t, op.Mean(x, nil, false)), 1e-5) })
	})
}

// TestPanickingMark checks that a mark that panics is the stream's error, and that later marks are called.
func TestPanickingMark(t *testing.T) {
	s := device(t).NewStream(0)
	defer s.Close()
	for i := range 2 {
		called := make(chan struct{})
		for _, fn := range []func(){func() { panic("oops") }, func() { close(called) }} {
			c := s.Begin(-1, "mark")
			c.Mark = fn
			s.Launch(c)
		}
		require.ErrorContains(t, s.Synchronize(), "oops", i)
		<-called
	}
}

// TestMarks checks that marks are called in order, once each, after the preceding work and the events that they wait for.
func TestMarks(t *testing.T) {
	d := device(t)
	s, other := d.NewStream(0), d.NewStream(0)
	defer s.Close()
	defer other.Close()
	core.Tidy(func() {
		var mu sync.Mutex
		var reached []int
		mark := func(s core.Stream, i int, wait *core.Tensor) {
			c := s.Begin(-1, "mark")
			if wait != nil {
				c.In(wait)
			}
			c.Mark = func() {
				mu.Lock()
				defer mu.Unlock()
				reached = append(reached, i)
			}
			s.Launch(c)
		}
		mark(s, 0, nil) // with no work before it
		var x *core.Tensor
		core.WithStream(s, func() {
			x = on(d, 1000)
			for i := range 20 {
				x = op.Add(x, core.Num(1))
				mark(s, 2*i+1, nil)
				mark(s, 2*i+2, nil)
			}
		})
		mark(other, 41, x)
		require.NoError(t, other.Synchronize())
		want := make([]int, 42)
		for i := range want {
			want[i] = i
		}
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, want, reached)
	})
}

func TestDevicesWaitForEachOther(t *testing.T) {
	d := device(t)
	host, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	core.Tidy(func() {
		x := op.Zeros(1000)
		for range 10 {
			x = op.ToDevice(op.Add(op.ToDevice(x, d), core.Num(1)), host)
			x = op.Add(x, core.Num(1))
		}
		require.Equal(t, 20.0, value(t, op.Mean(x, nil, false)))
		require.Equal(t, host, x.Device())
	})
}

func TestManyGoroutines(t *testing.T) {
	d := device(t)
	var wait sync.WaitGroup
	errs := make(chan error, 8)
	for i := range 8 {
		wait.Go(func() {
			s := d.NewStream(i)
			defer s.Close()
			core.WithStream(s, func() {
				core.Tidy(func() {
					for k := range 20 {
						x := on(d, 100+k)
						for range 10 {
							x = op.Add(x, core.Num(1))
						}
						if v, err := op.Mean(x, nil, false).Item(); err != nil || math.Abs(v-10.5) > 1e-5 {
							errs <- fmt.Errorf("got %v, %v", v, err)
							return
						}
						if k%5 == 0 {
							runtime.GC() // runs while buffers are being mapped
						}
					}
				})
			})
		})
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// usageAfterGC returns the bytes in use after garbage collection.
func usageAfterGC(d core.Device) int {
	for range 3 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	return core.MemoryUsage(d).Current
}

func TestMemoryIsReused(t *testing.T) {
	d := device(t)
	require.NoError(t, d.Synchronize())
	start := usageAfterGC(d)
	var held int
	for round := range 1000 {
		core.Tidy(func() {
			x := on(d, 5000+round%7)
			op.Mul(op.Add(x, x), x)
		})
		if round == 100 {
			require.NoError(t, d.Synchronize())
			held = d.Reserved()
		}
	}
	require.NoError(t, d.Synchronize())
	require.LessOrEqual(t, usageAfterGC(d), start)
	require.LessOrEqual(t, d.Reserved(), held)
}

// TestSlowSoftwareGetsSmallBatches checks that a slow software adapter gets little work at a time, because work cannot be
// cancelled.
func TestSlowSoftwareGetsSmallBatches(t *testing.T) {
	d := secondDevice(t, "gpu:7")
	core.Tidy(func() {
		x := on(d, 64)
		require.Equal(t, 32.0, value(t, op.Sum(x, nil, false)))
		gpu.PretendSlow(d)
		before := d.Traffic().Submits
		for range 200 {
			x = op.CumSum(x, 0)
		}
		require.NoError(t, d.Synchronize())
		require.Greater(t, d.Traffic().Submits-before, 20, "a batch of all would be one or two")
	})
}

func TestTooLargeTensor(t *testing.T) {
	d := device(t)
	f := core.Float32
	x := op.EmptyWith([]int{d.Limits().Binding/4 + 1}, op.TensorOptions{DType: &f, Device: d})
	require.ErrorContains(t, x.Err(), "can see of one tensor")
	kind, _ := core.KindOf(x.Err())
	require.Equal(t, core.MemoryError, kind)
	core.Tidy(func() { require.Equal(t, 1.0, value(t, op.Sum(on(d, 2), nil, false))) })
}

func TestEmbeddingIndexOutOfRange(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		w := on(d, 10, 4)
		bad := op.ToDevice(core.FromSlice([]int64{3, 1 << 40, 2}), d)
		_, err := op.Embedding(bad, w, op.EmbeddingOptions{}).Bytes()
		require.ErrorContains(t, err, "out of range")
		kind, _ := core.KindOf(err)
		require.Equal(t, core.IndexError, kind)
		good := op.ToDevice(core.FromSlice([]int64{3, 9}), d)
		require.Equal(t, 4.0, value(t, op.Sum(op.Embedding(good, w, op.EmbeddingOptions{}), nil, false)), "the stream goes on")
	})
}

func TestProbabilityOutOfRange(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		good := op.ToDevice(core.FromSlice(make([]float32, 300)), d)
		bad := op.ToDevice(core.FromSlice(append(make([]float32, 299), 1.5)), d)
		for what, pair := range map[string][2]*core.Tensor{"input": {bad, good}, "target": {good, bad}} {
			_, err := op.BinaryCrossEntropy(pair[0], pair[1], op.BCEOptions{}).Item()
			require.ErrorContains(t, err, "all elements of "+what+" should be between 0 and 1, the one at position 299 of [300] is not")
			kind, _ := core.KindOf(err)
			require.Equal(t, core.ValueError, kind)
		}
		require.Equal(t, 0.0, value(t, op.BinaryCrossEntropy(good, good, op.BCEOptions{})), "the stream goes on")
	})
}

func TestUnsupportedOpsFailAtTheCall(t *testing.T) {
	d := device(t)
	require.False(t, d.Supports(core.Kernel("no_such_kernel")))
	require.True(t, d.Supports(core.Kernel("matmul")))
	core.Tidy(func() {
		f := core.Float64
		x := op.EmptyWith([]int{2}, op.TensorOptions{DType: &f, Device: d})
		require.NoError(t, x.Err(), "bits of any dtype can be kept and copied")
		version := x.Storage().Version()
		if d.Float64() {
			require.NoError(t, op.Exp(x).Err())
			return
		}
		values, indices := op.Sort(x, 0, op.SortOptions{})
		for _, y := range []*core.Tensor{op.Exp(x), op.AddInPlace(x, core.Num(1)), op.To(x, core.Float32), values} {
			require.ErrorContains(t, y.Err(), "float64 is not supported")
			kind, _ := core.KindOf(y.Err())
			require.Equal(t, core.NotImplemented, kind)
		}
		_, err := indices.Bytes()
		require.ErrorContains(t, err, "float64 is not supported")
		require.Equal(t, version, x.Storage().Version(), "a refused operation in place changes nothing")
		require.NoError(t, d.Synchronize(), "nothing was launched")
	})
}

// hold blocks the stream until release is called.
func hold(s core.Stream) (release func()) {
	gate := make(chan struct{})
	c := s.Begin(-1, "hold")
	c.Fn = func() error {
		<-gate
		return nil
	}
	s.Launch(c)
	return func() { close(gate) }
}

// TestReadIsQueuedEarly checks that a read is submitted together with the work that it reads, before the host waits.
func TestReadIsQueuedEarly(t *testing.T) {
	d := device(t)
	s := d.NewStream(0)
	defer s.Close()
	core.Tidy(func() {
		core.WithStream(s, func() {
			x := op.Add(on(d, 1), core.Num(1))
			require.Equal(t, 1.5, value(t, x))
			release := hold(s)
			before := d.Traffic()
			got := make(chan float64)
			go func() { got <- value(t, op.Mul(x, core.Num(2))) }()
			require.Eventually(t, func() bool { return d.Traffic().Downloads > before.Downloads }, 20*time.Second, time.Millisecond)
			release()
			require.Equal(t, 3.0, <-got)
		})
	})
}

func TestWaitFor(t *testing.T) {
	d := device(t)
	s := d.NewStream(0)
	defer s.Close()
	core.Tidy(func() {
		core.WithStream(s, func() {
			x := on(d, 1)
			release := hold(s)
			y := op.Add(x, core.Num(1))
			for _, feedThreshold := range []time.Duration{0, time.Microsecond, 25 * time.Microsecond, 3 * time.Millisecond} {
				start := time.Now()
				require.False(t, y.WaitFor(feedThreshold))
				require.GreaterOrEqual(t, time.Since(start), feedThreshold)
			}
			known := make(chan bool)
			go func() { known <- y.WaitFor(time.Hour) }()
			release()
			require.True(t, <-known)
			require.True(t, y.WaitFor(0))
		})
	})
}

// TestIdleGPUStartsEarly checks that an idle GPU gets work before a whole batch is recorded.
func TestIdleGPUStartsEarly(t *testing.T) {
	d := device(t)
	s := d.NewStream(0)
	defer s.Close()
	core.Tidy(func() {
		core.WithStream(s, func() {
			x := on(d, 4)
			require.NoError(t, s.Synchronize())
			release := hold(s)
			before := d.Traffic().Submits
			for range 40 { // fewer than a batch has
				x = op.CumSum(x, 0)
			}
			release()
			require.NoError(t, s.Synchronize())
			require.Greater(t, d.Traffic().Submits, before+1)
		})
	})
}

// TestFetchesAreSubmittedOneByOne checks that a fetch to the host does not wait for later fetches.
func TestFetchesAreSubmittedOneByOne(t *testing.T) {
	d := device(t)
	s := d.NewStream(0)
	defer s.Close()
	m, err := s.Alloc(3 << 10)
	require.NoError(t, err)
	defer s.Free(m)
	release := hold(s)
	before := d.Traffic().Submits
	var pieces []core.Fetched
	for i := range 3 {
		f, err := s.(core.Stager).Fetch([]core.Region{{Memory: m, Offset: i << 10, Size: 1 << 10}}, nil)
		require.NoError(t, err)
		pieces = append(pieces, f)
	}
	release()
	for _, f := range pieces {
		require.NoError(t, f.Wait())
		f.Release()
	}
	require.Greater(t, d.Traffic().Submits, before+1)
}

// TestHostOnlyCalls checks that a host-only call does not wait for the device.
func TestHostOnlyCalls(t *testing.T) {
	d := device(t)
	s := d.NewStream(0)
	defer s.Close()
	core.Tidy(func() {
		core.WithStream(s, func() {
			x := on(d, 4)
			for _, alone := range []bool{false, true} {
				require.NoError(t, s.Synchronize())
				release := hold(s)
				before, during := d.Traffic().Submits, 0
				x = op.CumSum(x, 0)
				c := s.Begin(-1, "look")
				c.HostOnly = alone
				c.Fn = func() error {
					during = d.Traffic().Submits
					return nil
				}
				s.Launch(c)
				release()
				require.NoError(t, s.Synchronize())
				if alone {
					require.Equal(t, before, during)
				} else {
					require.Equal(t, before+1, during)
				}
			}
		})
	})
}

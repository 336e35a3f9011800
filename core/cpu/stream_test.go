package cpu_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/op"
)

const large = 1 << 17 // elements; too many for the caller's thread

func device(t testing.TB) core.Device {
	t.Helper()
	d, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	return d
}

func TestCallsRunInOrder(t *testing.T) {
	core.Tidy(func() {
		for _, n := range []int{1, 1000, large} {
			x := core.FromSlice(make([]float32, n))
			one := core.FromSlice([]float32{1})
			for range 3000 {
				op.AddInPlace(x, one)
			}
			v, err := core.Values[float64](x)
			require.NoError(t, err)
			for _, e := range v {
				require.Equal(t, 3000.0, e)
			}
		}
	})
}

// chain enqueues n operations without inputs and returns the peak of used bytes above the start.
func chain(t testing.TB, n int) int {
	start := coretest.Settle(t, device(t))
	core.ResetPeak(device(t))
	for _, size := range []int{1000, large} {
		steps := n
		if size == large {
			steps = n / 100
		}
		x := op.Ones(size)
		for range steps {
			y := op.Mul(x, core.Num(0.5))
			z := op.Add(y, x)
			y.Release()
			x.Release()
			x = z
		}
		x.Release()
	}
	peak := core.MemoryUsage(device(t)).Peak - start
	require.NoError(t, device(t).Synchronize())
	require.Equal(t, start, core.MemoryUsage(device(t)).Current)
	return peak
}

func TestPeakDoesNotDependOnHowFarTheHostRunsAhead(t *testing.T) {
	n := 500_000
	if testing.Short() {
		n = 20_000
	}
	if os.Getenv("PLAIT_TEST_CHAIN") != "" {
		fmt.Printf("peak=%d\n", chain(t, n))
		return
	}
	chain(t, 100) // the first blocks come from a slab that holds many
	reserved := device(t).Reserved()
	peak := chain(t, n)
	require.LessOrEqual(t, peak, 3*4*large)
	require.LessOrEqual(t, device(t).Reserved()-reserved, 4*4*large, "memory must stay flat")
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPeakDoesNotDepend", "-test.v", fmt.Sprintf("-test.short=%v", testing.Short()))
	cmd.Env = append(os.Environ(), "PLAIT_TEST_CHAIN=1", "PLAIT_SYNC=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), fmt.Sprintf("peak=%d\n", peak))
}

func TestUnreleasedTensorsAreCollected(t *testing.T) {
	start := coretest.Settle(t, device(t))
	for range 100 {
		x := core.FromSlice(make([]float32, 5000)).SetRequiresGrad(true)
		op.Mul(x, x)
	}
	require.Equal(t, start, coretest.Settle(t, device(t)))
}

func TestOutOfMemoryIsAnError(t *testing.T) {
	old := cpu.MemoryLimit()
	defer cpu.SetMemoryLimit(old)
	coretest.Settle(t, device(t))
	device(t).EmptyCache()
	cpu.SetMemoryLimit(device(t).Reserved() + 16<<20)
	a := op.Ones(2 << 20)
	require.NoError(t, a.Err())
	b := op.Ones(4 << 20)
	require.Error(t, b.Err())
	kind, _ := core.KindOf(b.Err())
	require.Equal(t, core.MemoryError, kind)
	require.Contains(t, b.Err().Error(), fmt.Sprint(16<<20))
	require.Contains(t, b.Err().Error(), "cpu:0")
	a.Release() // cached now, and released to make room
	c := op.Ones(3 << 20)
	require.NoError(t, c.Wait())
	c.Release()
}

func TestExecutionErrorsTravel(t *testing.T) {
	boom := errors.New("boom")
	failing := func(x *core.Tensor) *core.Tensor {
		y := op.Clone(x)
		s := x.Storage().Stream()
		c := s.Begin(-1, "failing").Out(y).In(x)
		c.Fn = func() error { return boom }
		s.Launch(c)
		return y
	}
	for _, n := range []int{10, large} {
		x := op.Ones(n)
		y := failing(x)
		z := op.Add(y, x)
		target := op.Ones(n)
		op.AddInPlace(target, y) // is skipped
		fine := op.Add(x, x)
		require.ErrorIs(t, z.Wait(), boom)
		require.ErrorIs(t, y.Wait(), boom)
		require.ErrorIs(t, target.Wait(), boom, "it is not what the program takes it for")
		v, err := core.Values[float32](fine)
		require.NoError(t, err)
		require.Equal(t, float32(2), v[n-1])

		failing(x)
		require.ErrorIs(t, fine.Wait(), boom, "the first unread error surfaces at the next read")
		require.NoError(t, fine.Wait())

		op.AddInPlace(fine, y)
		require.NoError(t, x.Storage().Stream().Synchronize(), "the cause was read")
		require.ErrorIs(t, fine.Wait(), boom, "what was left out tells whoever reads its target")
		op.FillInPlace(op.Narrow(target, 0, 0, n/2), core.Num(3))
		require.ErrorIs(t, target.Wait(), boom, "a part is sound, the rest is not")
		op.AddInPlace(op.FillInPlace(target, core.Num(3)), x)
		v, err = core.Values[float32](target)
		require.NoError(t, err, "all is overwritten")
		require.Equal(t, float32(4), v[n-1])
	}
}

var registerPanic = sync.OnceFunc(func() {
	kernel.Register(core.Kernel("test_panic"), func(*kernel.Context, *core.Call) error { panic("oops") })
})

func TestAPanickingKernelIsAnError(t *testing.T) {
	registerPanic()
	x := op.Ones(4)
	s := x.Storage().Stream()
	c := s.Begin(core.Kernel("test_panic"), "test").Out(x)
	s.Launch(c)
	require.ErrorContains(t, x.Wait(), "oops")
	missing := op.Ones(4)
	s.Launch(s.Begin(core.Kernel("test_missing"), "test").Out(missing))
	require.ErrorContains(t, missing.Wait(), `no kernel "test_missing"`)
}

// A panic while a call is filled in leaves nothing locked.
func TestACallThatIsNotLaunchedLocksNothing(t *testing.T) {
	x := op.Ones(4)
	s := x.Storage().Stream()
	for range 3 {
		require.Panics(t, func() {
			c := s.Begin(-1, "lost").Out(x)
			c.Ints[5] = 1
		})
		first, second := s.Begin(-1, "first"), s.Begin(-1, "second")
		order := []string{}
		first.Fn = func() error { order = append(order, "first"); return nil }
		second.Fn = func() error { order = append(order, "second"); return nil }
		y := op.Add(x, x) // others may allocate too
		s.Launch(second)
		s.Launch(first)
		require.NoError(t, y.Wait())
		require.Equal(t, []string{"second", "first"}, order)
	}
}

// A call with an operand without memory gets its error; it does not panic.
func TestACallOfAnErrorFails(t *testing.T) {
	boom := core.Errorf(core.MemoryError, "clone", "boom")
	released := op.Ones(4)
	released.Release()
	for want, bad := range map[string]*core.Tensor{"boom": core.ErrorTensor(boom), "a tensor that was released": released} {
		x, y := op.Ones(4), op.Ones(4)
		s := x.Storage().Stream()
		c := s.Begin(core.Kernel("copy"), "test").Out(y).In(bad)
		c.InPlace = true
		require.ErrorContains(t, c.Err(), want)
		s.Launch(c)
		require.ErrorContains(t, s.TakeError(), want)
		require.NoError(t, y.Wait(), "the target is as it was")
		s.Launch(s.Begin(core.Kernel("copy"), "test").Out(x).In(bad))
		require.ErrorContains(t, x.Wait(), want)
		require.NoError(t, op.Add(y, y).Wait())
	}
}

func TestStreamsWaitForOneAnother(t *testing.T) {
	d := device(t)
	side := d.NewStream(0)
	defer side.Close()
	for range 50 {
		core.Tidy(func() {
			x := op.Zeros(large)
			for i := range 20 {
				op.AddInPlace(x, core.Num(1)) // on the home stream
				core.WithStream(side, func() {
					op.MulInPlace(x, core.Num(2))
					y := op.Add(x, x) // on the side stream
					if i == 7 {
						y.Release()
					}
				})
			}
			v, err := core.Values[float64](x)
			require.NoError(t, err)
			require.Equal(t, 2097150.0, v[0])
			require.Equal(t, 2097150.0, v[large-1])
		})
	}
}

func TestReleasedMemoryIsNotReusedWhileAnotherStreamReadsIt(t *testing.T) {
	side := device(t).NewStream(0)
	defer side.Close()
	for range 100 {
		x := op.Full([]int{large}, core.Num(3), op.TensorOptions{})
		var y *core.Tensor
		core.WithStream(side, func() {
			c := side.Begin(-1, "sleep").In(x)
			c.Fn = func() error { time.Sleep(100 * time.Microsecond); return nil }
			c.Work = large * 2
			side.Launch(c)
			y = op.Clone(x)
		})
		x.Release()
		z := op.Full([]int{large}, core.Num(5), op.TensorOptions{}) // gets x's memory, but only after y is computed
		v, err := core.Values[float32](y)
		require.NoError(t, err)
		require.Equal(t, float32(3), v[large-1])
		y.Release()
		z.Release()
	}
}

func TestManyGoroutinesShareAStream(t *testing.T) {
	start := coretest.Settle(t, device(t))
	var group sync.WaitGroup
	for g := range 50 {
		group.Go(func() {
			core.Tidy(func() {
				n := 10 + g*1000
				x := op.Full([]int{n}, core.Num(float64(g)), op.TensorOptions{})
				for range 50 {
					x = op.Add(x, core.Num(1))
				}
				v, err := core.Values[float32](x)
				if err != nil || v[n-1] != float32(g+50) {
					t.Error(g, err)
				}
			})
		})
	}
	group.Wait()
	require.Equal(t, start, coretest.Settle(t, device(t)))
}

// A few calls of an idle stream do not wake its worker: whoever waits for them, in any way, sees them done.
func TestCallsThatWakeNobodyAreDone(t *testing.T) {
	d := device(t)
	x := op.Ones(large)
	defer x.Release()
	other := d.NewStream(1)
	defer other.Close()
	ways := map[string]func(y *core.Tensor, e core.Event){
		"read":  func(*core.Tensor, core.Event) {},
		"wait":  func(_ *core.Tensor, e core.Event) { e.Wait() },
		"limit": func(_ *core.Tensor, e core.Event) { require.True(t, e.WaitFor(time.Minute)) },
		"poll":  func(_ *core.Tensor, e core.Event) { require.Eventually(t, e.Done, time.Minute, time.Millisecond) },
		"stream": func(_ *core.Tensor, e core.Event) {
			other.Wait(e)
			other.Record().Wait()
			require.NoError(t, other.Synchronize())
		},
		"sleep": func(*core.Tensor, core.Event) { time.Sleep(time.Millisecond) },
	}
	for name, wait := range ways {
		for _, calls := range []int{1, 3, 20} {
			for range 50 {
				core.Tidy(func() {
					require.NoError(t, d.Synchronize())
					y := op.Add(x, core.Num(1))
					for range calls - 1 {
						y = op.Add(y, core.Num(1))
					}
					wait(y, y.Storage().Stream().Record())
					v, err := core.Values[float32](y)
					require.NoError(t, err)
					require.Equal(t, float32(calls+1), v[0], name)
					require.Equal(t, float32(calls+1), v[large-1], name)
				})
			}
		}
	}
}

// Threads that wait for their own calls run those of the others before them, while the worker may do so too.
func TestThreadsThatWaitTakeTurns(t *testing.T) {
	const threads, rounds = 6, 300
	sums := make([]*core.Tensor, threads)
	var wg sync.WaitGroup
	for i := range threads {
		sums[i] = op.Zeros(large / 4)
		wg.Add(1)
		go func() {
			defer wg.Done()
			one := core.Num(1)
			for r := range rounds {
				op.AddInPlace(sums[i], one)
				switch (r + i) % 4 {
				case 0:
					_ = sums[i].Wait()
				case 1:
					sums[i].Storage().Stream().Record().WaitFor(time.Microsecond)
				}
			}
		}()
	}
	wg.Wait()
	for _, s := range sums {
		v, err := core.Values[float32](s)
		require.NoError(t, err)
		for _, e := range v {
			require.Equal(t, float32(rounds), e)
		}
		s.Release()
	}
}

func TestSeveralDevicesShareTheThreads(t *testing.T) {
	require.ErrorContains(t, cpu.SetNumThreads(0), "at least 1")
	old := cpu.NumThreads()
	defer cpu.SetNumThreads(old)
	require.NoError(t, cpu.SetNumThreads(4))
	a, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	b, err := core.OpenDevice("cpu:1")
	require.NoError(t, err)
	require.Equal(t, 2, a.(*cpu.Device).Threads())
	require.Equal(t, 2, b.(*cpu.Device).Threads())
	_, err = core.OpenDevice("cpu:9999")
	require.ErrorContains(t, err, "at most")
	_, err = core.OpenDevice("tpu:0")
	require.ErrorContains(t, err, `no devices of kind "tpu"`)
	_, err = core.OpenDevice("gpu:0") // this program does not import it
	require.ErrorContains(t, err, `no devices of kind "gpu", want one of [cpu]; a program that imports github.com/plait-ml/plait/gpu has GPUs`)
	_, err = core.OpenDevice("cpu:x")
	require.Error(t, err)
	x := op.Ones(3)
	y := op.ToDevice(x, b)
	require.ErrorContains(t, op.Add(x, y).Err(), "cpu:0 and cpu:1")
	v, err := core.Values[float32](op.ToDevice(op.Add(y, y), a))
	require.NoError(t, err)
	require.Equal(t, []float32{2, 2, 2}, v)
}

func TestMemoryIsCountedByCategoryAndRank(t *testing.T) {
	d := device(t)
	coretest.Settle(t, device(t))
	before := core.CategoryUsage(d, core.Parameter).Current
	ctx := core.NewRankContext(3, d)
	defer ctx.Free()
	core.WithContext(ctx, func() {
		core.WithCategory(core.Parameter, func() {
			x := op.Ones(1000)
			require.Equal(t, 4032, core.CategoryUsage(d, core.Parameter).Current-before)
			require.Equal(t, 4032, core.RankCategoryUsage(d, 3, core.Parameter).Current)
			x.Storage().SetCategory(core.OptimizerState)
			require.Equal(t, 0, core.RankCategoryUsage(d, 3, core.Parameter).Current)
			require.Equal(t, 4032, core.RankCategoryUsage(d, 3, core.OptimizerState).Current)
			x.Release()
		})
	})
	require.Equal(t, 0, core.RankUsage(d, 3).Current)
	require.Equal(t, before, core.CategoryUsage(d, core.Parameter).Current)
}

func TestAStorageCanBeEmptiedAndRefilled(t *testing.T) {
	d := device(t)
	x := op.Ones(1000)
	view := op.AsStrided(x, []int{10}, []int{1}, 5)
	before := coretest.Settle(t, d)
	x.Storage().Empty()
	require.Equal(t, before-4032, core.MemoryUsage(d).Current)
	require.ErrorContains(t, op.Add(view, view).Err(), "emptied")
	require.NoError(t, x.Storage().Refill())
	require.Equal(t, before, core.MemoryUsage(d).Current)
	op.CopyInPlace(x, op.Full([]int{1000}, core.Num(4), op.TensorOptions{}))
	v, err := core.Values[float32](view)
	require.NoError(t, err)
	require.Equal(t, float32(4), v[9])
}

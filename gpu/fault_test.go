package gpu_test

import (
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// secondDevice returns another software device. On a hardware GPU it skips the test.
func secondDevice(t *testing.T, name string) *gpu.Device {
	t.Helper()
	if !device(t).Software() {
		t.Skip("software adapters alone are there several times")
	}
	d, err := core.OpenDevice(name)
	require.NoError(t, err)
	return d.(*gpu.Device)
}

func TestLostDevice(t *testing.T) {
	d := secondDevice(t, "gpu:3")
	core.Tidy(func() {
		ready, pending := op.Mul(on(d, 100), core.Num(2)), on(d, 1<<20)
		require.Equal(t, 100.0, value(t, op.Sum(ready, nil, false)))
		for range 50 {
			pending = op.Add(op.Exp(pending), core.Num(1))
		}
		gpu.Lose(d, "the bus is gone")
		for _, x := range []*core.Tensor{pending, ready} {
			_, err := x.Bytes()
			require.ErrorContains(t, err, "is lost: the bus is gone")
			kind, _ := core.KindOf(err)
			require.Equal(t, core.DeviceError, kind)
		}
		require.ErrorContains(t, op.Add(ready, ready).Err(), "is lost", "said at the call")
		require.ErrorContains(t, op.ToDevice(op.Ones(3), d).Err(), "is lost")
		require.ErrorContains(t, d.Synchronize(), "is lost")
		_, err := op.Sum(pending, nil, false).Item()
		require.ErrorContains(t, err, "is lost")
		require.Equal(t, 100.0, value(t, op.Sum(on(device(t), 200), nil, false)), "others go on")
	})
}

// TestLostWithBatchesInFlight loses a device between two batches, so that the second ends at once, and the first later.
func TestLostWithBatchesInFlight(t *testing.T) {
	opened, err := core.OpenDevice("fakegpu:1")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	s := d.NewStream(0)
	defer s.Close()
	core.WithStream(s, func() {
		core.Tidy(func() {
			x := op.ToDevice(op.Ones(3), d)
			op.ExpInPlace(x) // compiles the program, which needs the driver
			require.NoError(t, s.Synchronize())
			gpu.LoseNext(d, "the bus is gone")
			release := gpu.HoldThread(d)
			for range 2 {
				op.ExpInPlace(x)
				gpu.Submit(s)
			}
			release()
			done, tail := gpu.Ended(s)
			require.Equal(t, tail, done)
			_, err := x.Bytes()
			require.ErrorContains(t, err, "is lost: the bus is gone")
		})
	})
}

// TestFaultPropagates makes a kernel report a fault when calls that use its output were recorded already. These must fail too,
// whichever error is read first.
func TestFaultPropagates(t *testing.T) {
	d := device(t)
	s, other := d.NewStream(0), d.NewStream(0)
	defer s.Close()
	defer other.Close()
	for _, fused := range []bool{false, true} {
		restore := gpu.SetFusion(d, fused)
		core.WithStream(s, func() {
			core.Tidy(func() {
				w, one, target, filled, written := on(d, 10, 4), on(d, 1), on(d, 3, 4), on(d, 3, 4), on(d, 10, 4)
				bad := op.ToDevice(core.FromSlice([]int64{3, 1 << 40, 2}), d)
				require.NoError(t, s.Synchronize())
				release := hold(s)
				y := op.Embedding(bad, w, op.EmbeddingOptions{})
				z := op.Exp(op.Add(y, one))
				op.AddInPlace(target, z)
				op.FillInPlace(op.AddInPlace(filled, z), core.Num(2))
				op.IndexAddInPlace(written, 0, bad, target)
				var elsewhere *core.Tensor
				core.WithStream(other, func() { elsewhere = op.Mul(z, one) })
				sound := op.Add(w, one)
				release()
				require.ErrorContains(t, sound.Wait(), "out of range", "the first read is told")
				require.NoError(t, sound.Wait())
				for name, x := range map[string]*core.Tensor{"y": y, "z": z, "target": target, "written": written, "elsewhere": elsewhere} {
					for range 2 {
						require.ErrorContains(t, x.Wait(), "out of range", "%s, fused %v", name, fused)
					}
				}
				_ = other.Synchronize()
				require.NoError(t, s.Synchronize())
				require.Equal(t, 24.0, value(t, op.Sum(filled, nil, false)), "all of it was overwritten")
				require.NoError(t, op.Add(w, one).Wait())
			})
		})
		_ = s.Synchronize()
		restore()
	}
}

// TestFaultInPlace makes an in-place op report a fault. It has written the elements in range, so its target must fail.
func TestFaultInPlace(t *testing.T) {
	d := device(t)
	s := d.NewStream(0)
	defer s.Close()
	core.WithStream(s, func() {
		core.Tidy(func() {
			target, rows := on(d, 10, 4), on(d, 3, 4)
			bad := op.ToDevice(core.FromSlice([]int64{3, 1 << 40, 2}), d)
			op.IndexAddInPlace(target, 0, bad, rows)
			require.ErrorContains(t, s.Synchronize(), "out of range")
			require.ErrorContains(t, target.Wait(), "out of range")
			require.ErrorContains(t, op.Add(target, target).Wait(), "out of range")
			require.NoError(t, op.FillInPlace(target, core.Num(3)).Wait())
			require.Equal(t, 120.0, value(t, op.Sum(target, nil, false)))
		})
	})
}

// TestKilledDriverThreadIsReplaced kills the thread that calls the driver. Another one must replace it.
func TestKilledDriverThreadIsReplaced(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		x := on(d, 1000)
		for i := range 40 {
			x = op.Add(x, core.Num(1))
			gpu.KillThread(d)
			if i%8 == 0 {
				require.Equal(t, float64(i)+1.5, value(t, op.Amax(x, nil, false)))
			}
		}
		back := op.ToDevice(op.ToDevice(x, cpuDevice(t)), d)
		gpu.KillThread(d)
		require.Equal(t, 40.5, value(t, op.Amin(back, nil, false)))
		require.NoError(t, d.Synchronize())
	})
}

func TestDriverThreadPanicIsAnError(t *testing.T) {
	d := secondDevice(t, "gpu:4")
	core.Tidy(func() {
		pending := on(d, 1<<20)
		for range 50 {
			pending = op.Add(op.Exp(pending), core.Num(1))
		}
		gpu.Panic(d, "a bug")
		_, err := pending.Bytes()
		require.ErrorContains(t, err, "is lost: internal error: a bug")
		kind, _ := core.KindOf(err)
		require.Equal(t, core.DeviceError, kind)
		require.ErrorContains(t, op.Add(pending, pending).Err(), "is lost")
		require.Equal(t, 100.0, value(t, op.Sum(on(device(t), 200), nil, false)), "others go on")
	})
}

// TestPanicInSubmitEndsWaits makes the driver thread panic while it submits a batch. Waits for the batch and for its reads must
// end.
func TestPanicInSubmitEndsWaits(t *testing.T) {
	d := secondDevice(t, "gpu:5")
	s := d.NewStream(0)
	for i, ended := range gpu.PanicInSubmit(s) {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody ended wait ", i)
		}
	}
	require.ErrorContains(t, s.Synchronize(), "is lost: internal error")
	require.ErrorContains(t, s.Close(), "is lost: internal error")
}

func TestWaitLongerThanTheDriversTimeout(t *testing.T) {
	if testing.Short() || sized(t, false, true) {
		t.Skip("longer than five seconds: runs on a GPU of hardware, or with -all")
	}
	d := device(t)
	const long = 5500 * time.Millisecond
	// The number of products is below the queue's limit, so that only the read at the end waits.
	n, rounds, most := 256, 32, 256
	for took := time.Duration(0); took < long && n <= 1<<14; {
		core.Tidy(func() {
			shift := op.ToDevice(op.Roll(op.Eye(n, n, op.TensorOptions{}), []int{1}, []int{0}), d) // each product rolls the rows by one
			first := op.ToDevice(op.Randn(n, n), d)
			x := first
			for range rounds {
				y := op.MatMul(shift, x)
				if x != first {
					x.Release()
				}
				x = y
			}
			start := time.Now()
			got, err := core.Values[float32](x)
			require.NoError(t, err)
			took = time.Since(start)
			want, err := core.Values[float32](op.Roll(first, []int{rounds}, []int{0}))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
		if enough := int(1.25*float64(rounds)*float64(long)/float64(took)) + 1; enough <= most {
			rounds = enough
		} else {
			n, rounds = 2*n, 32
		}
		t.Logf("waited for %v", took)
	}
}

func TestTwoDevices(t *testing.T) {
	devices := []*gpu.Device{device(t), secondDevice(t, "gpu:1")}
	var wait sync.WaitGroup
	results := make([]float64, 2)
	for i, d := range devices {
		wait.Go(func() {
			ctx := core.NewRankContext(i, nil)
			defer ctx.Free()
			core.WithContext(ctx, func() {
				core.Tidy(func() {
					x := op.Mul(on(d, 64, 64), core.Num(2))
					for range 100 {
						x = op.Mul(op.MatMul(x, x), core.Num(1.0/64))
					}
					results[i], _ = op.Sum(x, nil, false).Item()
				})
			})
		})
	}
	wait.Wait()
	require.Equal(t, []float64{4096, 4096}, results)
	core.Tidy(func() {
		x := on(devices[0], 1000)
		for i := range 10 {
			x = op.Add(op.ToDevice(x, devices[(i+1)%2]), core.Num(1))
		}
		require.Equal(t, 10.5, value(t, op.Amax(x, nil, false)))
		err := op.Add(on(devices[0], 2), on(devices[1], 2)).Err()
		require.ErrorContains(t, err, devices[0].String())
		require.ErrorContains(t, err, devices[1].String())
	})
}

func TestOutOfMemoryNamesSizes(t *testing.T) {
	d := secondDevice(t, "gpu:2")
	gpu.LimitMemory(d, 96<<20)
	core.Tidy(func() {
		var held []*core.Tensor
		var err error
		for range 100 {
			x := on(d, 1<<20)
			if err = x.Err(); err != nil {
				break
			}
			held = append(held, x)
		}
		require.ErrorContains(t, err, "no room for 4194304 bytes on gpu:2")
		require.ErrorContains(t, err, "PLAIT_GPU_MEMORY")
		kind, _ := core.KindOf(err)
		require.Equal(t, core.MemoryError, kind)
		require.NotEmpty(t, held)
		// An op that needs scratch memory fails, and its input can still be read.
		v, i := op.Sort(held[0], 0, op.SortOptions{})
		_, failed := v.Bytes()
		require.Error(t, failed)
		_ = i
		_ = d.Synchronize()
		held[0].Release() // makes room for the sum
		require.Equal(t, float64(1<<19), value(t, op.Sum(held[len(held)-1], nil, false)))
		for _, x := range held[1:] {
			x.Release()
		}
	})
	core.Tidy(func() { require.Equal(t, 4e6, value(t, op.Sum(on(d, 8_000_000), nil, false))) })
}

func TestStreamsLeakNothing(t *testing.T) {
	d := secondDevice(t, "gpu:1")
	round := func() {
		s := d.NewStream(0)
		core.WithStream(s, func() {
			core.Tidy(func() {
				x := on(d, 1000)
				index := op.ToDevice(core.FromSlice([]int64{1, 5, 999}), d)
				value(t, op.Sum(op.IndexSelect(x, 0, index), nil, false)) // allocates a fault word
				v, _ := op.Sort(x, 0, op.SortOptions{})                   // allocates scratch memory
				value(t, op.Sum(v, nil, false))
			})
		})
		require.NoError(t, s.Close())
	}
	for range 3 {
		round()
	}
	d.EmptyCache()
	reserved, free := d.Reserved(), gpu.FreeBytes(d)
	for range 40 {
		round()
	}
	d.EmptyCache()
	require.Equal(t, reserved, d.Reserved())
	require.Equal(t, free, gpu.FreeBytes(d))
}

// TestMissingDriver checks that without a driver, or without permission to use a GPU, the error is one line and the CPU works.
func TestMissingDriver(t *testing.T) {
	if os.Getenv("VK_ICD_FILENAMES") == "/dev/null" {
		require.Zero(t, gpu.Count())
		require.NotEmpty(t, gpu.Reason())
		require.NotContains(t, gpu.Reason(), "\n")
		_, err := core.OpenDevice("gpu:0")
		require.ErrorContains(t, err, "there is no GPU: "+gpu.Reason())
		require.Equal(t, 2.0, value(t, op.Sum(op.Ones(2), nil, false)))
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), "VK_ICD_FILENAMES=/dev/null", "VK_DRIVER_FILES=/dev/null", "PLAIT_GPU_DRIVER=webgpu")
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	require.True(t, strings.Contains(string(out), "PASS"), string(out))
}

// TestPackedDTypesOfOddSizes checks sizes around every unit that kernels work in, in dtypes smaller than a word.
func TestPackedDTypesOfOddSizes(t *testing.T) {
	device(t)
	for _, d := range []core.DType{core.Float16, core.BFloat16, core.Uint8, core.Bool} {
		for _, n := range []int{1, 3, 255, 257, 1023, 4097} {
			v := make([]float64, n)
			for i := range v {
				v[i] = float64(i % 7)
			}
			v[n/2] = math.Min(v[n/2], 1)
			x := op.To(core.FromSlice(v), d)
			sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
				a := x[0]
				out := []*core.Tensor{
					op.Flip(a, []int{0}), op.Cat([]*core.Tensor{a, op.Slice(a, 0, n/3, n, 1), a}, 0), op.Clone(op.Slice(a, 0, 0, n, 2)),
					op.Ne(a, core.Num(2)), op.Sum(op.To(a, core.Int64), nil, false),
				}
				if n > 2 {
					b := op.Clone(a)
					op.CopyInPlace(op.Slice(b, 0, 1, n-1, 1), op.Slice(a, 0, 2, n, 1)) // must keep the other elements of the first and last words
					out = append(out, b)
				}
				return out
			}, x)
		}
	}
}

package gpu_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// keepBusy keeps the GPU busy, so that the following calls are queued together.
func keepBusy(d core.Device) {
	n := 512
	if g, ok := d.(*gpu.Device); ok && g.Software() {
		n = 256
	}
	x := on(d, n, n)
	op.MatMul(x, x).Release()
	x.Release()
}

// randomProgram runs a random program of elementwise ops on tensors of one shape, with several dtypes, broadcasting, views,
// in-place ops, and tensors that are released on the way. It returns the bytes of the remaining tensors.
func randomProgram(t *testing.T, d core.Device, seed uint64, calls int) [][]byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	shapes := [][]int{{5, 8}, {3, 4, 12}, {7, 3}, {130}, {2, 3, 5}}
	shape := shapes[rng.IntN(len(shapes))]
	random := func(shape ...int) *core.Tensor {
		v := make([]float32, core.Numel(shape))
		for i := range v {
			v[i] = 4*rng.Float32() - 2
		}
		return op.ToDevice(core.FromSlice(v, shape...), d)
	}
	var out [][]byte
	core.Tidy(func() {
		wide := append([]int(nil), shape...)
		last := len(wide) - 1
		wide[last] = 2*shape[last] + 4
		buffer := random(wide...)
		row, one := random(shape[last]), random(1)
		shift := 2
		if shape[last]%4 == 0 {
			shift = 4
		}
		var views [3]*core.Tensor // two of them overlap
		for i, at := range []int{0, shift, shape[last] + 4} {
			views[i] = op.Narrow(buffer, last, at, shape[last])
		}
		pool := append([]*core.Tensor{random(shape...), random(shape...)}, views[:]...)
		owned := map[*core.Tensor]bool{pool[0]: true, pool[1]: true}
		floats := []core.DType{core.Float32, core.Float16, core.BFloat16}
		pick := func() *core.Tensor { return pool[rng.IntN(len(pool))] }
		keepBusy(d)
		for range calls {
			x, y := pick(), pick()
			var z *core.Tensor
			switch rng.IntN(19) {
			case 0:
				z = op.Add(x, y)
			case 1:
				z = op.Mul(x, y)
			case 2:
				z = op.Sub(op.Mul(x, core.Num(1.7)), y)
			case 3:
				z = op.Tanh(x)
			case 4:
				z = op.Exp(op.Neg(op.Abs(x)))
			case 5:
				z = op.Add(x, row)
			case 6:
				z = op.Mul(x, one)
			case 7:
				z = op.Where(op.Gt(x, y), x, core.Num(0.25))
			case 8:
				z = op.To(x, floats[rng.IntN(3)])
			case 9:
				z = op.To(op.To(op.Mul(x, core.Num(9)), core.Int64), core.Float32)
			case 10:
				z = op.Add(op.To(op.To(x, core.Int32), core.Float32), y)
			case 11:
				z = op.Addcmul(x, y, x, 0.3)
			case 12:
				op.AddInPlace(x, core.Num(0.5))
			case 13:
				if x.DType() == core.Float32 {
					op.MulInPlace(x, y)
				}
			case 14:
				op.CopyInPlace(x, y)
			case 15:
				z = op.ZerosLike(x, op.TensorOptions{})
			case 16:
				z = op.Sigmoid(op.Div(x, op.Add(op.Mul(y, y), core.Num(1))))
			case 17:
				z = op.To(op.To(op.Clamp(op.Mul(x, core.Num(30)), core.Num(0), core.Num(255)), core.Uint8), core.Float32)
			case 18:
				i := rng.IntN(3)
				op.AddInPlace(views[i], core.Num(0.5))
				z = op.Mul(views[rng.IntN(3)], y)
			}
			if z != nil {
				pool = append(pool, z)
				owned[z] = true
			}
			if len(pool) > 6 {
				i := rng.IntN(len(pool))
				if owned[pool[i]] {
					pool[i].Release()
					pool = append(pool[:i:i], pool[i+1:]...)
				}
			}
		}
		for _, x := range append(pool, buffer) {
			require.NoError(t, x.Err())
			b, err := op.Contiguous(x).Bytes()
			require.NoError(t, err)
			out = append(out, append([]byte(nil), b...))
		}
	})
	return out
}

// TestFusionIsBitwiseEqual runs random programs with and without fusion.
func TestFusionIsBitwiseEqual(t *testing.T) {
	d := device(t)
	seeds := uint64(coretest.Rounds(8))
	if *all {
		seeds = 100
	}
	fused := 0
	for seed := range seeds {
		restore := gpu.SetFusion(d, false)
		want := randomProgram(t, d, seed, 20)
		restore()
		restore = gpu.SetFusion(d, true)
		before := d.Traffic().Fused
		got := randomProgram(t, d, seed, 20)
		fused += d.Traffic().Fused - before
		restore()
		require.Equal(t, want, got, "seed %d", seed)
	}
	require.Greater(t, fused, int(seeds))
}

// countFused returns how many calls of fn were fused into another call: the most of several tries, because an idle GPU starts a
// fusion early.
func countFused(t *testing.T, d *gpu.Device, want int, fn func()) int {
	t.Helper()
	defer gpu.SetFusion(d, true)()
	most := 0
	for range 20 {
		require.NoError(t, d.Synchronize())
		before := d.Traffic().Fused
		core.Tidy(func() {
			keepBusy(d)
			fn()
		})
		require.NoError(t, d.Synchronize())
		if most = max(most, d.Traffic().Fused-before); most >= want {
			break
		}
	}
	return most
}

func TestChainIsOneKernel(t *testing.T) {
	d := device(t)
	x := on(d, 6, 12)
	defer x.Release()
	require.Equal(t, 8, countFused(t, d, 8, func() { geluByHand(x) }))
	gates := on(d, 6, 48)
	defer gates.Release()
	require.Equal(t, 8, countFused(t, d, 8, func() { lstmCell(gates, x) }), "views of one tensor")
	p, g, m, v := on(d, 6, 12), on(d, 6, 12), on(d, 6, 12), on(d, 6, 12)
	defer releasing(nil, p, g, m, v)
	require.Equal(t, 12, countFused(t, d, 12, func() { adamWByHand(p, g, m, v) }), "in place")
	require.Zero(t, countFused(t, d, 0, func() {
		for range 3 {
			op.Add(x, g).Release()
		}
	}), "a result that nobody reads is computed")
}

// TestReleasedValuesAreNotWritten checks that a fusion does not write an intermediate result that was released. Its memory must
// be unchanged.
func TestReleasedValuesAreNotWritten(t *testing.T) {
	d := device(t)
	const n = 777
	x := on(d, n)
	defer x.Release()
	for _, held := range []bool{false, true} {
		var left float64
		fused := countFused(t, d, 1, func() {
			old := op.FullLike(x, core.Num(7), op.TensorOptions{})
			require.NoError(t, d.Synchronize())
			handle := old.Storage().Memory().Handle
			keepBusy(d)
			old.Release()
			y := op.Mul(x, x)
			require.Equal(t, handle, y.Storage().Memory().Handle)
			var z *core.Tensor
			if held {
				z = op.Add(y, core.Num(1))
			} else {
				z = releasing(op.Add(y, core.Num(1)), y)
				y = op.EmptyLike(x, op.TensorOptions{})
			}
			left = value(t, op.Mean(y, nil, false))
			require.InDelta(t, 1.25, value(t, op.Mean(z, nil, false)), 1e-6)
		})
		require.Equal(t, 1, fused)
		if held {
			require.InDelta(t, 0.25, left, 1e-6)
		} else {
			require.InDelta(t, 7, left, 1e-6)
		}
	}
}

// TestFusionReusesMemory checks that memory released in a chain is reused by later calls of the same batch.
func TestFusionReusesMemory(t *testing.T) {
	d := device(t)
	usage := func(on bool) (peak, current int, sum float64) {
		defer gpu.SetFusion(d, on)()
		require.NoError(t, d.Synchronize())
		before := usageAfterGC(d)
		core.ResetPeak(d)
		core.Tidy(func() {
			x := op.ToDevice(op.Linspace(-1, 1, 32*32, op.TensorOptions{}), d)
			x = op.Reshape(x, 32, 32)
			keepBusy(d)
			for range 12 {
				y := geluByHand(x)
				z := releasing(op.MatMul(y, y), y)
				x = releasing(op.Tanh(z), x, z)
			}
			sum = value(t, op.Sum(op.Abs(x), nil, false))
		})
		require.NoError(t, d.Synchronize())
		now := core.MemoryUsage(d)
		return now.Peak - before, now.Current - before, sum
	}
	peak, current, sum := usage(false)
	require.Zero(t, current)
	require.NotZero(t, sum)
	fusedPeak, current, fusedSum := usage(true)
	require.Zero(t, current)
	require.Equal(t, sum, fusedSum)
	require.LessOrEqual(t, fusedPeak, peak)
}

// TestFailureInAChain has a failed tensor among the inputs of a chain, and a fault in the middle of one.
func TestFailureInAChain(t *testing.T) {
	d := device(t)
	defer gpu.SetFusion(d, true)()
	core.Tidy(func() {
		x, w := on(d, 10), on(d, 10, 4)
		bad := op.Embedding(op.ToDevice(core.FromSlice([]int64{3, 11}), d), w, op.EmbeddingOptions{})
		require.ErrorContains(t, d.Synchronize(), "out of range")
		keepBusy(d)
		y := op.Add(op.Mul(x, x), core.Num(1))
		failed := op.Tanh(op.Add(bad, core.Num(1)))
		z := op.Mul(op.Add(y, x), core.Num(2))
		_, err := failed.Bytes()
		require.ErrorContains(t, err, "embedding: ")
		require.ErrorContains(t, err, "out of range")
		require.Equal(t, 3.5, value(t, op.Mean(z, nil, false)))

		i := op.ToDevice(core.FromSlice([]int64{8, 9}), d)
		q := op.FloorDivide(op.Add(i, core.IntNum(1)), op.Sub(i, core.IntNum(8)))
		_, err = op.Add(op.Mul(q, i), core.IntNum(1)).Bytes()
		require.ErrorContains(t, err, "floor_divide: integer division by zero")
		require.Equal(t, 3.5, value(t, op.Mean(z, nil, false)))
	})
}

// TestTrainingCompilesInItsFirstSteps checks that later steps of a training loop compile no programs.
func TestTrainingCompilesInItsFirstSteps(t *testing.T) {
	d := device(t)
	gpu.DropFusions(d)
	core.Tidy(func() {
		x, w, g := on(d, 16, 16), on(d, 16, 16), on(d, 16, 16)
		m, v := op.ZerosLike(w, op.TensorOptions{}), op.ZerosLike(w, op.TensorOptions{})
		step := func() {
			core.Tidy(func() {
				keepBusy(d)
				y := geluByHand(op.MatMul(x, w))
				adamWByHand(w, releasing(op.Mul(y, g), y), m, v)
			})
			require.NoError(t, d.Synchronize())
		}
		for range 4 {
			step()
		}
		compiled, fused := gpu.Compiled(d), d.Traffic().Fused
		require.Positive(t, compiled)
		for range 8 {
			step()
		}
		require.Equal(t, compiled, gpu.Compiled(d))
		require.Greater(t, d.Traffic().Fused, fused)
	})
}

// TestFusionBindingLimit runs a chain with more results than a program can bind.
func TestFusionBindingLimit(t *testing.T) {
	d := device(t)
	x := on(d, 33)
	defer x.Release()
	for _, bindings := range []int{8, d.Limits().Bindings} {
		restore := gpu.LimitBindings(d, bindings)
		const calls = 40
		fused := countFused(t, d, calls/2, func() {
			held := []*core.Tensor{x}
			for i := range calls {
				held = append(held, op.Add(held[i], core.Num(0.25)))
			}
			for i, y := range held {
				require.Equal(t, 33*(0.5+0.25*float64(i)), value(t, op.Sum(y, nil, false)))
			}
		})
		restore()
		require.Greater(t, fused, calls/2)
		require.LessOrEqual(t, fused, calls-calls/min(bindings, 16))
	}
}

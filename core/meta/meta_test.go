package meta_test

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/meta"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func devices(t *testing.T) (none, real core.Device) {
	none, err := core.OpenDevice("meta")
	require.NoError(t, err)
	real, err = core.OpenDevice("cpu:0")
	require.NoError(t, err)
	return none, real
}

// ways of making a tensor of shape [9, 7]; those marked make parts alone.
var ways = []struct {
	name  string
	parts bool
	make  func() *core.Tensor
}{
	{"uniform", true, func() *core.Tensor { return nn.InitXavierUniform(op.Empty(9, 7), 1) }},
	{"normal in float64", true, func() *core.Tensor {
		d := core.Float64
		return nn.InitNormal(op.EmptyWith([]int{9, 7}, op.TensorOptions{DType: &d}), 1, 0.5)
	}},
	{"half", true, func() *core.Tensor {
		d := core.BFloat16
		return nn.InitTruncNormal(op.EmptyWith([]int{9, 7}, op.TensorOptions{DType: &d}), 0, 1, -2, 2)
	}},
	{"twice", true, func() *core.Tensor { return nn.InitKaimingUniform(op.Randn(9, 7), nn.KaimingOptions{}) }},
	{"arithmetic", true, func() *core.Tensor {
		x := op.Add(op.Mul(op.Randn(9, 7), core.Num(0.02)), core.Num(1))
		return op.To(op.Exp(op.AddInPlace(x, op.Rand(9, 7))), core.Float32)
	}},
	{"integers", true, func() *core.Tensor { return op.To(op.Randint(-5, 1000, 9, 7), core.Float32) }},
	{"bernoulli", true, func() *core.Tensor { return op.BernoulliInPlace(op.Empty(9, 7), core.Num(0.5), op.RandomOptions{}) }},
	{"ones", true, func() *core.Tensor { return nn.InitOnes(op.Empty(9, 7)) }},
	{"orthogonal", false, func() *core.Tensor { return nn.InitOrthogonal(op.Empty(9, 7), 1) }},
	{"identity", false, func() *core.Tensor { return nn.InitEye(op.Empty(9, 7)) }},
	{"a row of zeros", false, func() *core.Tensor {
		x := op.Randn(9, 7)
		op.ZeroInPlace(op.Narrow(x, 0, 3, 1))
		return x
	}},
	{"before it changed", false, func() *core.Tensor {
		x := op.Randn(9, 7)
		y := op.MatMul(x, op.Ones(7, 7))
		nn.InitNormal(x, 3, 1)
		return op.Add(y, x)
	}},
	{"transposed", false, func() *core.Tensor { return op.Transpose(op.Randn(7, 9), 0, 1) }},
}

// What is made of a tensor that had no values has the bits of one that always had them, and so does every part; and random
// numbers go on where they would have.
func TestTheSameBits(t *testing.T) {
	none, real := devices(t)
	for _, w := range ways {
		core.ManualSeed(11)
		op.Rand(3) // the rank's generator is not at its beginning
		want, err := core.Values[float64](op.To(w.make(), core.Float64))
		require.NoError(t, err, w.name)
		next, err := op.Rand(1).Item()
		require.NoError(t, err)

		core.ManualSeed(11)
		op.Rand(3)
		var x *core.Tensor
		core.WithDevice(none, func() { x = w.make() })
		require.NoError(t, x.Err(), w.name)
		require.Equal(t, "meta", x.Device().String())
		after, err := op.Rand(1).Item()
		require.NoError(t, err)
		require.Equal(t, next, after, "%s: the number after it", w.name)

		made := meta.Materialize(x, real)
		require.Equal(t, x.Shape(), made.Shape(), w.name)
		got, err := core.Values[float64](op.To(made, core.Float64))
		require.NoError(t, err, w.name)
		require.Equal(t, want, got, w.name)
		if !x.Contiguous() {
			continue
		}
		for _, r := range [][2]int{{0, 63}, {0, 7}, {7, 21}, {14, 14}, {35, 63}, {62, 63}} {
			got, err := core.Values[float64](op.To(meta.Part(x, r[0], r[1], real), core.Float64))
			require.NoError(t, err, w.name)
			require.Equal(t, want[r[0]:r[1]], got, "%s: elements %v", w.name, r)
		}
	}
}

// A part is made without the rest, where that can be.
func TestAPartTakesItsMemoryAlone(t *testing.T) {
	none, err := core.OpenDevice("meta")
	require.NoError(t, err)
	real, err := core.OpenDevice("cpu:41") // on which no other test leaves anything
	require.NoError(t, err)
	const rows = 4096
	var x *core.Tensor
	core.WithDevice(none, func() { x = nn.InitKaimingUniform(op.Empty(rows, 256), nn.KaimingOptions{}) })
	core.ResetPeak(real)
	part := meta.Part(x, 1024, 2048, real)
	require.NoError(t, part.Wait())
	require.LessOrEqual(t, core.MemoryUsage(real).Peak, 4*1024)
	part.Release()
	require.Zero(t, core.MemoryUsage(real).Current)
}

// Operations infer shapes and dtypes, and record their graphs; values are refused where they are asked for.
func TestWithoutValues(t *testing.T) {
	none, real := devices(t)
	core.WithDevice(none, func() {
		m := nn.NewSequential(nn.NewConv2d(3, 8, 3, nn.ConvOptions{}), nn.NewReLU())
		y := m.Forward(op.Ones(2, 3, 10, 10))
		require.Equal(t, []int{2, 8, 8, 8}, y.Shape())
		require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
		require.Equal(t, []int{8, 3, 3, 3}, nn.Parameters(m)[0].Grad().Shape())
		_, err := op.Sum(y, nil, false).Item()
		require.ErrorContains(t, err, "a tensor of shape [] on the meta device has no values")
		require.ErrorContains(t, op.ToDevice(y, real).Err(), "no values")
		require.ErrorContains(t, op.NonZero(y).Err(), "no values")
		require.Error(t, op.Add(y, op.EmptyWith([]int{1}, op.TensorOptions{Device: real})).Err())
	})
	require.Zero(t, none.Reserved())
}

// What does not follow from calls alone says so.
func TestWhatCannotBeRepeated(t *testing.T) {
	none, real := devices(t)
	large := op.ToDevice(op.Ones(1<<18+1), none)
	require.ErrorContains(t, meta.Materialize(large, real).Err(), "its values lay on another device")
	small := op.ToDevice(op.Arange(nil, core.IntNum(5), nil, op.TensorOptions{}), none)
	got, err := core.Values[int](meta.Materialize(small, real))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 3, 4}, got)
	core.WithDevice(none, func() {
		x := op.Ones(2)
		for range 5000 {
			op.AddInPlace(x, op.Reshape(x, 2))
		}
		require.ErrorContains(t, meta.Materialize(x, real).Err(), "changed too often")
	})
	_, err = core.OpenDevice("meta:1")
	require.ErrorContains(t, err, "one meta device")
	require.ErrorContains(t, meta.Part(large, 3, 1, real).Err(), "got elements [3, 1)")
}

// A digest tells values, not tensors.
func TestDigest(t *testing.T) {
	none, err := core.OpenDevice("meta")
	require.NoError(t, err)
	digest := func(seed uint64, fill func() *core.Tensor) (d uint64) {
		core.WithDevice(none, func() {
			core.ManualSeed(seed)
			var err error
			d, err = meta.Digest(fill())
			require.NoError(t, err)
		})
		return d
	}
	rows := []func() *core.Tensor{
		func() *core.Tensor { return op.Rand(3, 2) },
		func() *core.Tensor { return op.Rand(2, 3) },
		func() *core.Tensor { return op.Randn(3, 2) },
		func() *core.Tensor { return op.Mul(op.Rand(3, 2), core.Num(2)) },
		func() *core.Tensor { return op.Mul(op.Rand(3, 2), core.Num(3)) },
		func() *core.Tensor { op.Rand(1); return op.Rand(3, 2) },
		func() *core.Tensor { return op.Ones(3, 2) },
		func() *core.Tensor { return op.ToDevice(core.FromSlice([]float32{1, 2}), none) },
		func() *core.Tensor { return op.ToDevice(core.FromSlice([]float32{1, 3}), none) },
	}
	seen := map[uint64]int{}
	for i, fill := range rows {
		d := digest(1, fill)
		require.Equal(t, d, digest(1, fill), "row %d", i)
		require.NotContains(t, seen, d, "row %d", i)
		seen[d] = i
	}
	require.NotEqual(t, digest(1, rows[0]), digest(2, rows[0]))
	require.Equal(t, digest(1, rows[6]), digest(2, rows[6]))
	elsewhere, err := meta.Digest(core.FromSlice([]float32{1}))
	require.NoError(t, err)
	require.Zero(t, elsewhere)
}

// A device may hold so many bytes of its own.
func TestADevicesOwnLimit(t *testing.T) {
	dev, err := core.OpenDevice("cpu:42")
	require.NoError(t, err)
	dev.(*cpu.Device).SetMemoryLimit(1 << 20)
	core.WithDevice(dev, func() {
		x := op.Ones(100, 1000)
		require.NoError(t, x.Wait())
		err := op.Ones(200, 1000).Err()
		require.ErrorContains(t, err, fmt.Sprintf("of %d allowed bytes", 1<<20))
		x.Release()
	})
}

package gpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// everyResult asks for all results of unique.
var everyResult = op.UniqueOptions{Inverse: true, Counts: true}

func TestUnique(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	rng := rand.New(rand.NewPCG(5, 6))
	for _, shape := range [][]int{{0}, {1}, {37}, {1500}, {40, 100}} {
		for _, d := range []core.DType{core.Float32, core.Int64, core.Bool, core.BFloat16} {
			v := make([]float64, core.Numel(shape))
			for i := range v {
				v[i] = float64(rng.IntN(max(len(v)/3, 2)))
				if d == core.Float32 && rng.IntN(20) == 0 {
					v[i] = math.NaN()
				}
			}
			x := op.To(op.Reshape(core.FromSlice(v, len(v)), shape...), d)
			sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
				a, b, c := op.Unique(x[0], nil, everyResult)
				e, f, g := op.UniqueConsecutive(x[0], nil, everyResult)
				h, _, k := op.Unique(x[0], nil, op.UniqueOptions{Counts: true})
				l, m, _ := op.UniqueConsecutive(x[0], nil, op.UniqueOptions{Inverse: true})
				out := []*core.Tensor{a, b, c, e, f, g, h, k, l, m}
				for dim := range shape {
					a, b, c := op.Unique(x[0], &dim, everyResult)
					e, f, g := op.UniqueConsecutive(x[0], &dim, everyResult)
					out = append(out, a, b, c, e, f, g)
				}
				return out
			}, x)
		}
	}
}

// TestUniqueRange compares many integers of small ranges, whose upper digits are not sorted, and of a large one.
func TestUniqueRange(t *testing.T) {
	if testing.Short() {
		t.Skip("sorts many elements")
	}
	device(t)
	rng := rand.New(rand.NewPCG(11, 12))
	for _, span := range []int64{1, 300, 1 << 31, 1 << 40} {
		v := make([]int64, sized(t, 1<<18, 1<<16)+5)
		for i := range v {
			v[i] = rng.Int64N(span) - 3<<40
		}
		sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
			a, b, c := op.Unique(x[0], nil, everyResult)
			return []*core.Tensor{a, b, c}
		}, core.FromSlice(v))
	}
}

// TestUniqueGrowsAsSorts checks that the work grows with the number of elements, and is a small multiple of that of sorting them.
func TestUniqueGrowsAsSorts(t *testing.T) {
	opened, err := core.OpenDevice("fakegpu")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	work := func(n int, fn func(x *core.Tensor)) (dispatches, groups int) {
		core.Tidy(func() {
			f := core.Float32
			x := op.EmptyWith([]int{n}, op.TensorOptions{DType: &f, Device: d})
			require.NoError(t, d.Synchronize())
			_, before := gpu.Ran(d)
			already := gpu.Groups(d)
			fn(x)
			_ = d.Synchronize() // the results are meaningless
			_, after := gpu.Ran(d)
			dispatches, groups = after-before, gpu.Groups(d)-already
		})
		return dispatches, groups
	}
	last := 0
	for n := 1 << 16; n <= 1<<22; n *= 4 {
		sortDispatches, sorted := work(n, func(x *core.Tensor) { op.Sort(x, 0, op.SortOptions{}) })
		dispatches, groups := work(n, func(x *core.Tensor) { op.Unique(x, nil, everyResult) })
		require.LessOrEqual(t, dispatches, sortDispatches+8)
		require.LessOrEqual(t, groups, 2*sorted)
		if last > 0 {
			require.LessOrEqual(t, groups, 4*last+4)
		}
		last = groups
	}
}

func TestUniqueRows(t *testing.T) {
	device(t)
	rng := rand.New(rand.NewPCG(7, 8))
	v := make([]float64, 3*999)
	for i := range v {
		v[i] = float64(rng.IntN(3))
	}
	v[5] = math.NaN()
	rows, columns := 0, 1
	sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
		a, b, c := op.Unique(x[0], &rows, everyResult)
		e, f, g := op.Unique(op.Transpose(x[0], 0, 1), &columns, everyResult)
		return []*core.Tensor{a, b, c, e, f, g}
	}, op.To(op.Reshape(core.FromSlice(v, len(v)), 999, 3), core.Float32))
}

func TestRandPerm(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	for _, n := range []int{0, 1, 2, 999, 5000, 20_001} {
		core.Tidy(func() {
			core.ManualSeed(11)
			want := op.Randperm(n)
			core.ManualSeed(11)
			got := op.RandpermWith(n, op.RandomOptions{Device: d})
			if err := equal(t, want, got, 0, "permutation"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestBincount(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	rng := rand.New(rand.NewPCG(9, 10))
	index, weight := make([]int64, 70_000), make([]float32, 70_000)
	for i := range index {
		index[i], weight[i] = int64(rng.IntN(50)*rng.IntN(20)), float32(rng.IntN(8))
	}
	sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
		return []*core.Tensor{
			op.BinCount(x[0], nil, 0), op.BinCount(x[0], x[1], 2000), op.HistC(x[1], 7, 0, 0), op.HistC(x[1], 16, 1, 5),
			op.BinCount(op.Narrow(x[0], 0, 0, 0), op.Narrow(x[1], 0, 0, 0), 3),
		}
	}, core.FromSlice(index), core.FromSlice(weight))
}

// TestLargeBins counts bins with so many elements that neither one workgroup nor one float32 sum can add their weights.
func TestLargeBins(t *testing.T) {
	if !*all {
		t.Skip("sorts millions of elements: runs with -all")
	}
	device(t)
	const n = 4_300_000
	sameBits(t, func(x ...*core.Tensor) []*core.Tensor { return []*core.Tensor{op.BinCount(x[0], x[1], 2)} },
		op.To(op.Zeros(n), core.Int64), op.Ones(n))
}

// TestMultinomial compares draws from more weights than a workgroup reads at a time, mostly 0, with the CPU. Sums may round
// differently.
func TestMultinomial(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	core.Tidy(func() {
		w := op.Relu(op.Randn(2, 100_000))
		for _, replacement := range []bool{true, false} {
			core.ManualSeed(5)
			want := op.Multinomial(w, 2000, replacement, op.RandomOptions{})
			core.ManualSeed(5)
			got := op.Multinomial(op.ToDevice(w, d), 2000, replacement, op.RandomOptions{})
			g, err := core.Values[int64](got)
			require.NoError(t, err)
			v, err := core.Values[int64](want)
			require.NoError(t, err)
			weights, err := core.Values[float32](w)
			require.NoError(t, err)
			other := 0
			for i := range v {
				require.Positive(t, weights[i/2000*100_000+int(g[i])])
				if v[i] != g[i] {
					other++
				}
			}
			require.Less(t, other, len(v)/10)
		}
	})
}

// TestSelectManyElements selects from more elements than one level of prefix sums counts.
func TestSelectManyElements(t *testing.T) {
	if testing.Short() {
		t.Skip("large")
	}
	device(t)
	for _, n := range []int{700_001, 500_004} { // masks of the second are read four elements at a time
		x := op.Randn(3, n)
		sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
			mask := op.Gt(x[0], core.Num(1))
			return []*core.Tensor{op.NonZero(mask), op.MaskedSelect(x[0], mask), op.MaskedSelect(op.Transpose(x[0], 0, 1), op.Transpose(mask, 0, 1)),
				op.MaskedScatter(x[0], mask, op.Ravel(op.Neg(x[0])))}
		}, x)
	}
}

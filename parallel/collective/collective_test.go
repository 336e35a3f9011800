package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// patient is the timeout of groups in tests that no rank should reach.
var patient = Options{Timeout: 2 * time.Minute}

// onCPU0 makes all ranks share one device.
var onCPU0 = []string{"cpu:0"}

// integers returns n small numbers that depend on rank and salt.
func integers(n, rank, salt int) []float64 {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(salt)))
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(r.IntN(5))
	}
	return v
}

func tensorOf(v []float64, d core.DType) *core.Tensor { return op.To(core.FromSlice(v), d) }

// 1. Every reduction, dtype and size, for worlds of 1 to 7 ranks, some sharing devices.
func TestCase01AllReduce(t *testing.T) {
	apply := map[ReduceOp]func(a, b float64) float64{
		Sum: func(a, b float64) float64 { return a + b }, Avg: func(a, b float64) float64 { return a + b },
		Product: func(a, b float64) float64 { return a * b },
		Min:     func(a, b float64) float64 { return min(a, b) }, Max: func(a, b float64) float64 { return max(a, b) },
		BitAnd: func(a, b float64) float64 { return float64(int(a) & int(b)) },
		BitOr:  func(a, b float64) float64 { return float64(int(a) | int(b)) },
		BitXor: func(a, b float64) float64 { return float64(int(a) ^ int(b)) },
	}
	for _, world := range []int{1, 2, 3, 5, 7} {
		sizes := []int{0, 1, 7, 5000}
		data, wants := map[int][][]float64{}, map[int]map[ReduceOp][]float64{}
		for _, n := range sizes {
			for r := range world {
				data[n] = append(data[n], integers(n, r, n))
			}
			wants[n] = map[ReduceOp][]float64{}
			for o, f := range apply {
				want := slices.Clone(data[n][0])
				for _, v := range data[n][1:] {
					for j := range want {
						want[j] = f(want[j], v[j])
					}
				}
				wants[n][o] = want
			}
		}
		for _, devices := range [][]string{onCPU0, {"cpu:0", "cpu:1"}} {
			err := Spawn(world, devices, patient, func(r *Rank) error {
				for _, n := range sizes {
					for _, d := range core.DTypes() {
						for o := Sum; o <= BitXor; o++ {
							if d == core.Bool || o.check("", d) != nil {
								continue
							}
							want := wants[n][o]
							x := tensorOf(data[n][r.Rank], d)
							if err := r.World.AllReduce(x, o).Wait(); err != nil {
								return err
							}
							got, err := core.Values[float64](x)
							if err != nil {
								return err
							}
							for j := range want {
								w := want[j]
								if o == Avg {
									w /= float64(world)
								}
								switch d { // halves are rounded once, at the end
								case core.Float32:
									w = float64(float32(w))
								case core.Float16:
									w = float64(core.Float16Value(core.Float16Bits(float32(w))))
								case core.BFloat16:
									w = float64(core.BFloat16Value(core.BFloat16Bits(float32(w))))
								case core.Uint8:
									w = float64(uint8(int(w)))
								}
								if got[j] != w {
									return fmt.Errorf("%v of %v over %d ranks, %d elements: element %d is %v, want %v", o, d, world, n, j, got[j], w)
								}
							}
						}
					}
				}
				return nil
			})
			require.NoError(t, err)
		}
	}
}

func TestAllReduceOfBools(t *testing.T) {
	require.NoError(t, Spawn(2, onCPU0, patient, func(r *Rank) error {
		expected := map[ReduceOp][]bool{Sum: {false, true, true}, Product: {false, false, true}, Max: {false, true, true}, BitXor: {false, true, false}}
		for _, o := range []ReduceOp{Sum, Product, Max, BitXor} {
			want := expected[o]
			x := core.FromSlice([]bool{false, r.Rank == 1, true})
			if err := r.World.AllReduce(x, o).Wait(); err != nil {
				return err
			}
			got, _ := core.Values[bool](x)
			if !slices.Equal(got, want) {
				return fmt.Errorf("%v: got %v, want %v", o, got, want)
			}
		}
		return nil
	}))
}

// 1. The collectives that move pieces, even and uneven, with views that are not contiguous.
func TestCase01Pieces(t *testing.T) {
	for _, world := range []int{1, 2, 3, 4} {
		err := Spawn(world, nil, patient, func(r *Rank) error {
			g := r.World
			piece := func(rank, n int) *core.Tensor {
				v := make([]float64, n)
				for i := range v {
					v[i] = float64(100*rank + i)
				}
				return core.FromSlice(v)
			}
			var errs []error
			same := func(what string, x, y *core.Tensor) {
				a, err := core.Values[float64](x)
				b, err2 := core.Values[float64](y)
				if err != nil || err2 != nil || !slices.Equal(a, b) {
					errs = append(errs, fmt.Errorf("%s of rank %d: got %v, want %v (%v, %v)", what, r.Rank, a, b, err, err2))
				}
			}
			check := func(err error) { errs = append(errs, err) }

			x := piece(r.Rank, 4)
			check(g.Broadcast(x, world-1).Wait())
			same("broadcast", x, piece(world-1, 4))

			x = piece(r.Rank, 3)
			check(g.Reduce(x, 0, Max).Wait())
			if r.Rank == 0 {
				same("reduce", x, piece(world-1, 3))
			} else {
				same("reduce elsewhere", x, piece(r.Rank, 3))
			}

			outs := make([]*core.Tensor, world)
			for i := range outs {
				outs[i] = op.Zeros(i + 1)
				outs[i] = op.To(outs[i], core.Float64)
			}
			check(g.AllGather(outs, piece(r.Rank, r.Rank+1)).Wait())
			for i := range outs {
				same("all_gather", outs[i], piece(i, i+1))
			}

			all := op.To(op.Zeros(world, 2), core.Float64)
			own := op.Narrow(all, 0, r.Rank, 1) // in place: the rank's own part
			op.CopyInPlace(own, piece(r.Rank, 2))
			check(g.AllGatherInto(all, own).Wait())
			for i := range world {
				same("all_gather_into", op.Narrow(all, 0, i, 1), piece(i, 2))
			}

			ins := make([]*core.Tensor, world)
			for i := range ins {
				ins[i] = op.Add(piece(0, i+1), core.Num(float64(r.Rank)))
			}
			sum := op.To(op.Zeros(r.Rank+1), core.Float64)
			check(g.ReduceScatter(sum, ins, Sum).Wait())
			same("reduce_scatter", sum, op.Add(op.Mul(piece(0, r.Rank+1), core.Num(float64(world))), core.Num(float64(world*(world-1)/2))))

			// Columns of a matrix are not contiguous: they are gathered and written back.
			m := op.To(op.Zeros(world, 3), core.Float64)
			op.CopyInPlace(op.Select(m, 1, 1), op.Add(piece(0, world), core.Num(float64(r.Rank))))
			check(g.AllReduce(op.Select(m, 1, 1), Max).Wait())
			same("all_reduce of a column", op.Select(m, 1, 1), op.Add(piece(0, world), core.Num(float64(world-1))))

			from, to := make([]*core.Tensor, world), make([]*core.Tensor, world)
			for i := range from {
				from[i] = piece(10*r.Rank+i, 2)
				to[i] = op.To(op.Zeros(2), core.Float64)
			}
			check(g.AllToAll(to, from).Wait())
			for i := range to {
				same("all_to_all", to[i], piece(10*i+r.Rank, 2))
			}

			var gathered []*core.Tensor
			if r.Rank == world-1 {
				for range world {
					gathered = append(gathered, op.To(op.Zeros(2), core.Float64))
				}
			}
			check(g.Gather(gathered, piece(r.Rank, 2), world-1).Wait())
			for i := range gathered {
				same("gather", gathered[i], piece(i, 2))
			}

			var scattered []*core.Tensor
			if r.Rank == 0 {
				for i := range world {
					scattered = append(scattered, piece(i, 2))
				}
			}
			got := op.To(op.Zeros(2), core.Float64)
			check(g.Scatter(got, scattered, 0).Wait())
			same("scatter", got, piece(r.Rank, 2))
			return errors.Join(errs...)
		})
		require.NoError(t, err)
	}
}

func TestAllToAllInto(t *testing.T) {
	require.NoError(t, Spawn(2, nil, patient, func(r *Rank) error {
		in := core.FromSlice([]float64{1, 2, 3})
		sizes, outSizes := []int{1, 2}, []int{1, 1}
		if r.Rank == 1 {
			outSizes = []int{2, 2}
		}
		out := op.To(op.Zeros(outSizes[0]+outSizes[1]), core.Float64)
		if err := r.World.AllToAllInto(out, in, outSizes, sizes).Wait(); err != nil {
			return err
		}
		got, err := core.Values[float64](out)
		if want := [][]float64{{1, 1}, {2, 3, 2, 3}}[r.Rank]; !slices.Equal(got, want) {
			return fmt.Errorf("got %v, want %v (%v)", got, want, err)
		}
		return nil
	}))
}

// 2. Thousands of calls one after the other, each rank late at random: no call meets another.
func TestCase02ManyRounds(t *testing.T) {
	const world = 3
	rounds := 10000
	if testing.Short() {
		rounds = 1000
	}
	require.NoError(t, Spawn(world, onCPU0, patient, func(r *Rank) error {
		random := rand.New(rand.NewPCG(1, uint64(r.Rank)))
		for i := range rounds {
			if random.IntN(100) == 0 {
				time.Sleep(time.Duration(random.IntN(200)) * time.Microsecond)
			}
			x := core.FromSlice([]float64{float64(i), float64(r.Rank)})
			if i%2 == 0 {
				r.World.AllReduce(x, Sum)
			} else {
				r.World.Broadcast(x, i%world)
			}
			if random.IntN(4) == 0 || i == rounds-1 {
				got, err := core.Values[float64](x)
				want := []float64{world * float64(i), world * (world - 1) / 2}
				if i%2 == 1 {
					want = []float64{float64(i), float64(i % world)}
				}
				if err != nil || !slices.Equal(got, want) {
					return fmt.Errorf("round %d: got %v, want %v (%v)", i, got, want, err)
				}
			}
			x.Release()
		}
		return nil
	}))
}

// 3. The bits are those of a sum in the order of the ranks, on every rank, for any cut of the data.
func TestCase03SameBits(t *testing.T) {
	const world, n = 5, 70000
	data := make([][]float32, world)
	for r := range data {
		random := rand.New(rand.NewPCG(7, uint64(r)))
		data[r] = make([]float32, n)
		for i := range data[r] {
			data[r][i] = float32(random.NormFloat64()) * float32(int(1)<<(random.IntN(20)))
		}
	}
	want := slices.Clone(data[0])
	for r := 1; r < world; r++ {
		for i, v := range data[r] {
			want[i] += v
		}
	}
	for i := range want {
		want[i] /= world
	}
	for _, piece := range []int{n, 1000, 333, 33000} {
		require.NoError(t, Spawn(world, nil, patient, func(r *Rank) error {
			x := core.FromSlice(data[r.Rank])
			for from := 0; from < n; from += piece {
				r.World.AllReduce(op.Narrow(x, 0, from, min(piece, n-from)), Avg)
			}
			got, err := core.Values[float32](x)
			if err != nil {
				return err
			}
			for i := range want {
				if got[i] != want[i] {
					return fmt.Errorf("pieces of %d: element %d is %v, want %v", piece, i, got[i], want[i])
				}
			}
			return nil
		}))
	}
	parts := make([]*core.Tensor, world)
	for r := range parts {
		parts[r] = core.FromSlice(data[r])
	}
	require.NoError(t, AllReduceSync(parts, Avg))
	for r := range parts {
		got, err := core.Values[float32](parts[r])
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

// 3. One thread's sum on the first device adds what the others have, in their order, to what it has, last.
func TestCase03ReduceSyncOrder(t *testing.T) {
	for _, c := range []struct {
		values []float32
		want   float32
	}{
		{[]float32{1, 1e8, -1e8, 1}, 2}, // 0 or 1 if its own came earlier
		{[]float32{1e8, 1, 1e8, -1e8}, 1e8},
		{[]float32{-1e8, 1e8, 1, 0}, 0},
	} {
		lists := make([][]*core.Tensor, len(c.values))
		for i, v := range c.values {
			lists[i] = []*core.Tensor{core.FromSlice([]float32{v})}
		}
		require.NoError(t, ReduceSyncMany(lists, Sum, nil))
		got, err := lists[0][0].Item()
		require.NoError(t, err)
		assert.EqualValues(t, c.want, got, c.values)
	}
}

// 4. Ranks that disagree all get an error that says what each wants, and their tensors stay as they were.
func TestCase04Disagreement(t *testing.T) {
	cases := map[string]struct {
		call func(r *Rank, x *core.Tensor) *Work
		want []string
	}{
		"shape": {func(r *Rank, x *core.Tensor) *Work {
			if r.Rank == 1 {
				x = core.FromSlice([]float64{1, 2})
			}
			return r.World.AllReduce(x, Sum)
		}, []string{"all_reduce", "#1", "rank 1 calls", "float64[3]", "float64[2]"}},
		"dtype": {func(r *Rank, x *core.Tensor) *Work {
			if r.Rank == 2 {
				x = op.To(x, core.Float32)
			}
			return r.World.AllReduce(x, Sum)
		}, []string{"rank 2 calls", "float32[3]"}},
		"operation": {func(r *Rank, x *core.Tensor) *Work {
			if r.Rank == 0 {
				return r.World.Broadcast(x, 0)
			}
			return r.World.AllReduce(x, Sum)
		}, []string{"broadcast(root 0)", "all_reduce(sum)"}},
		"reduction": {func(r *Rank, x *core.Tensor) *Work {
			if r.Rank == 0 {
				return r.World.AllReduce(x, Max)
			}
			return r.World.AllReduce(x, Min)
		}, []string{"all_reduce(max)", "all_reduce(min)", "rank 0 calls"}},
		"pieces": {func(r *Rank, x *core.Tensor) *Work {
			out := op.To(op.Zeros(9), core.Float64)
			if r.Rank == 1 {
				out = op.To(op.Zeros(12), core.Float64)
			}
			return r.World.AllGatherInto(out, x)
		}, []string{"all_gather"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			got := map[int]error{}
			require.NoError(t, Spawn(3, nil, patient, func(r *Rank) error {
				x := core.FromSlice([]float64{1, 2, 3})
				err := c.call(r, x).Wait()
				mu.Lock()
				got[r.Rank] = err
				mu.Unlock()
				v, err := core.Values[float64](x)
				if err == nil && !slices.Equal(v, []float64{1, 2, 3}) {
					err = fmt.Errorf("the tensor became %v", v)
				}
				return err
			}))
			for rank := range 3 {
				require.Error(t, got[rank])
				kind, _ := core.KindOf(got[rank])
				assert.Equal(t, core.DistributedError, kind)
			}
			for _, part := range c.want {
				found := false
				for _, err := range got {
					found = found || err != nil && strings.Contains(err.Error(), part)
				}
				assert.True(t, found, "no rank's error has %q: %v", part, got)
			}
		})
	}
}

// An asynchronous collective that fails leaves the error with the tensor, until somebody has read it from the work.
func TestFailureReachesTheTensor(t *testing.T) {
	require.NoError(t, Spawn(2, nil, patient, func(r *Rank) error {
		x := core.FromSlice(make([]float64, 2+r.Rank))
		w := r.World.AllReduce(x, Sum)
		y := op.Add(x, core.Num(1))
		if _, err := y.Item(); err == nil {
			return errors.New("no error from what depends on a failed collective")
		}
		if _, err := core.Values[float64](y); err == nil {
			return errors.New("no error from what depends on a failed collective")
		}
		core.CurrentContext().Stream(r.Device).TakeError()
		if w.Wait() == nil {
			return errors.New("no error from the work")
		}
		_, err := core.Values[float64](x)
		return err
	}))
}

// A rank that finds no memory before it has come to a collective waits for the others' work within bounds: it may be waiting
// for this rank. The allocation fails as one without other ranks does.
func TestNoMemoryWhileOthersWait(t *testing.T) {
	d, err := core.OpenDevice("cpu:7")
	require.NoError(t, err)
	limited := d.(interface{ SetMemoryLimit(bytes int) })
	limited.SetMemoryLimit(64 << 20)
	defer limited.SetMemoryLimit(0)
	gone := make(chan struct{})
	require.NoError(t, Spawn(2, []string{"cpu:7"}, patient, func(r *Rank) error {
		x := op.Ones(100)
		if r.Rank == 0 {
			<-gone
			require.ErrorContains(t, op.Ones(64<<20).Err(), "out of memory")
			return r.World.AllReduce(x, Sum).Wait()
		}
		w := r.World.AllReduce(x, Sum)
		y := op.Mul(x, core.Num(2)) // waits for the other rank
		close(gone)
		if err := w.Wait(); err != nil {
			return err
		}
		v, err := core.Values[float32](y)
		require.Equal(t, float32(4), v[0])
		return err
	}))
}

// Links that are slowed change no result, of any number of bytes.
func TestLinkRate(t *testing.T) {
	o := patient
	o.LinkRate = 50e6
	require.NoError(t, Spawn(3, nil, o, func(r *Rank) error {
		x := tensorOf(integers(3000, r.Rank, 1), core.Float32)
		works := Works{r.World.AllReduce(x, Sum)}
		got := op.Zeros(3000)
		works = append(works, r.World.Send(x, (r.Rank+1)%3, 0), r.World.Recv(got, (r.Rank+2)%3, 0))
		if err := works.Wait(); err != nil {
			return err
		}
		v, err := core.Values[float64](got)
		if err != nil {
			return err
		}
		one, two, three := integers(3000, 0, 1), integers(3000, 1, 1), integers(3000, 2, 1)
		for i := range v {
			if want := one[i] + two[i] + three[i]; v[i] != want {
				return fmt.Errorf("element %d is %v, want %v", i, v[i], want)
			}
		}
		return nil
	}))
	_, err := NewWorld(2, Options{LinkRate: -1})
	require.ErrorContains(t, err, "link rate")
}

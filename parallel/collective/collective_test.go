package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// longTimeout is a timeout that no test should reach.
var longTimeout = Options{Timeout: 2 * time.Minute}

// onCPU0 puts all ranks on one device.
var onCPU0 = []string{"cpu:0"}

// smallIntegers returns n integers from 0 to 4 that depend on rank and salt.
func smallIntegers(n, rank, salt int) []float64 {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(salt)))
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(r.IntN(5))
	}
	return v
}

// tensorOf returns a tensor of v in dtype d.
func tensorOf(v []float64, d core.DType) *core.Tensor { return op.To(core.FromSlice(v), d) }

// TestCase01AllReduce checks every reduction, dtype and size for 1 to 7 ranks, with and without shared devices.
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
				data[n] = append(data[n], smallIntegers(n, r, n))
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
			err := spawn(world, devices, longTimeout, func(r *Rank) error {
				for _, n := range sizes {
					for _, d := range core.RealDTypes() {
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
								case core.Int8:
									w = float64(int8(int(w)))
								case core.Int16:
									w = float64(int16(int(w)))
								case core.Uint16:
									w = float64(uint16(int(w)))
								case core.Uint32:
									w = float64(uint32(int(w)))
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
	require.NoError(t, spawn(2, onCPU0, longTimeout, func(r *Rank) error {
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

// TestCase01AllCollectives checks every collective, with equal and unequal sizes and non-contiguous views.
func TestCase01AllCollectives(t *testing.T) {
	for _, world := range []int{1, 2, 3, 4} {
		err := spawn(world, nil, longTimeout, func(r *Rank) error {
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
			own := op.Narrow(all, 0, r.Rank, 1) // in place: the input is part of the output
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

			// A column of a matrix is not contiguous. The collective uses a copy and writes it back.
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
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
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

// TestCase02ManyRounds makes thousands of consecutive calls with random delays. No call may be matched with another call.
func TestCase02ManyRounds(t *testing.T) {
	const world = 3
	rounds := 10000
	if testing.Short() {
		rounds = 1000
	}
	require.NoError(t, spawn(world, onCPU0, longTimeout, func(r *Rank) error {
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

// TestLinkRate checks that simulated slow links change no result.
func TestLinkRate(t *testing.T) {
	o := longTimeout
	o.LinkRate = 50e6
	require.NoError(t, spawn(3, nil, o, func(r *Rank) error {
		x := tensorOf(smallIntegers(3000, r.Rank, 1), core.Float32)
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
		one, two, three := smallIntegers(3000, 0, 1), smallIntegers(3000, 1, 1), smallIntegers(3000, 2, 1)
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

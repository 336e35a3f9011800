package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func TestRowsOfTensors(t *testing.T) {
	x := op.Zeros(4, 6, 8)
	for _, c := range []struct {
		what string
		t    *core.Tensor
		want rows
		ok   bool
	}{
		{"a whole", x, rows{1, 192, 1}, true},
		{"a part of the first dimension", op.Narrow(x, 0, 1, 2), rows{1, 96, 1}, true},
		{"a part of the second", op.Narrow(x, 1, 1, 2), rows{4, 16, 48}, true},
		{"a part of the last", op.Narrow(x, 2, 3, 5), rows{24, 5, 8}, true},
		{"one element of the last", op.Narrow(x, 2, 3, 1), rows{24, 1, 8}, true},
		{"a part of one row", op.Narrow(op.Narrow(x, 0, 2, 1), 1, 3, 2), rows{1, 16, 1}, true},
		{"pieces", op.Narrow(op.Unflatten(x, 1, 3, 2), 2, 1, 1), rows{12, 8, 16}, true},
		{"parts of two dimensions", op.Narrow(op.Narrow(x, 1, 1, 2), 2, 3, 5), rows{}, false},
		{"transposed", op.Transpose(x, 1, 2), rows{}, false},
		{"expanded", op.Expand(op.Narrow(x, 0, 0, 1), 4, 6, 8), rows{}, false},
		{"a number", op.Zeros(), rows{1, 1, 1}, true},
	} {
		got, ok := rowsOf(c.t)
		require.Equal(t, c.ok, ok, c.what)
		require.Equal(t, c.want, got, c.what)
	}
}

func TestRowsMeet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() rows {
		length := 1 + r.IntN(5)
		return rows{1 + r.IntN(5), length, length + 1 + r.IntN(6)}
	}
	elements := func(r rows, from int) map[int]bool {
		all := map[int]bool{}
		for i := range r.n {
			for j := range r.length {
				all[from+i*r.stride+j] = true
			}
		}
		return all
	}
	met := 0
	for range 5000 {
		a, b, by := random(), random(), r.IntN(80)-40
		want, in := false, elements(a, 0)
		for e := range elements(b, by) {
			want = want || in[e]
		}
		require.Equal(t, want, a.meets(b, by), "%v and %v, %d later", a, b, by)
		if want {
			met++
		}
	}
	require.Greater(t, met, 1000)
	require.Less(t, met, 4000)
}

// parts returns the ranges into which sizes divide a dimension of x.
func parts(x *core.Tensor, d int, sizes []int) (list []*core.Tensor) {
	at := 0
	for _, n := range sizes {
		list = append(list, op.Narrow(x, d, at, n))
		at += n
	}
	return list
}

// TestCollectivesOfParts checks collectives of parts of each dimension, some of them empty, in place and through copies.
func TestCollectivesOfParts(t *testing.T) {
	for _, world := range []int{1, 2, 3} {
		require.NoError(t, spawn(world, nil, longTimeout, func(r *Rank) error {
			g := r.World
			var errs []error
			same := func(what string, got, want *core.Tensor) {
				a, err := core.Values[float64](op.To(got, core.Float64))
				b, err2 := core.Values[float64](op.To(want, core.Float64))
				if err != nil || err2 != nil || !slices.Equal(a, b) {
					errs = append(errs, fmt.Errorf("%s on rank %d: got %v, want %v (%v, %v)", what, r.Rank, a, b, err, err2))
				}
			}
			check := func(w *Work) { errs = append(errs, w.Wait()) }
			for _, size := range []int{3, 40} { // rows shorter and longer than minRow
				for d := range 3 {
					for _, sizes := range [][]int{{2, 2, 2}, {3, 1, 0}, {0, 0, 4}} {
						sizes = sizes[:world]
						shape := []int{2, 3, size}
						shape[d] = 0
						for _, n := range sizes {
							shape[d] += n
						}
						for _, dt := range core.RealDTypes() {
							what := fmt.Sprintf("%v of parts %v of dimension %d of %v", dt, sizes, d, shape)
							whole := func(rank int) *core.Tensor {
								x := tensorOf(smallIntegers(core.Numel(shape), rank, d), dt)
								return op.Reshape(x, shape...)
							}
							out := op.Full(shape, core.Num(1), op.TensorOptions{DType: &dt})
							check(g.AllGather(parts(out, d, sizes), op.Clone(parts(whole(0), d, sizes)[r.Rank])))
							same("all_gather "+what, out, whole(0))

							own := op.Clone(parts(whole(0), d, sizes)[r.Rank])
							if dt != core.Bool {
								sum := whole(0)
								for i := 1; i < world; i++ {
									sum = op.Add(sum, whole(i))
								}
								check(g.ReduceScatter(own, parts(whole(r.Rank), d, sizes), Sum))
								same("reduce_scatter "+what, own, parts(sum, d, sizes)[r.Rank])
							}

							mine := make([]int, world) // what each rank sends to this one
							for i := range mine {
								mine[i] = sizes[r.Rank]
							}
							got := slices.Clone(shape)
							got[d] = world * sizes[r.Rank]
							all := op.Zeros(got...)
							all = op.To(all, dt)
							check(g.AllToAll(parts(all, d, mine), parts(whole(r.Rank), d, sizes)))
							for i, p := range parts(all, d, mine) {
								same("all_to_all "+what, p, parts(whole(i), d, sizes)[r.Rank])
							}

							out = op.Full(shape, core.Num(1), op.TensorOptions{DType: &dt})
							check(g.Gather(parts(out, d, sizes), op.Clone(parts(whole(0), d, sizes)[r.Rank]), 0))
							if r.Rank == 0 {
								same("gather "+what, out, whole(0))
							}
							own = op.ZerosLike(own, op.TensorOptions{})
							check(g.Scatter(own, parts(whole(r.Rank), d, sizes), world-1))
							same("scatter "+what, own, parts(whole(world-1), d, sizes)[r.Rank])
						}
					}
				}
			}
			return errors.Join(errs...)
		}))
	}
}

// TestGatherOfAPartOfItsOutput gathers parts that are in their places already.
func TestGatherOfAPartOfItsOutput(t *testing.T) {
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
		want := op.Reshape(tensorOf(smallIntegers(200, 0, 0), core.Float32), 4, 50)
		out := op.Zeros(4, 50)
		outs := parts(out, 1, []int{30, 20})
		op.CopyInPlace(outs[r.Rank], parts(want, 1, []int{30, 20})[r.Rank])
		if err := r.World.AllGather(outs, outs[r.Rank]).Wait(); err != nil {
			return err
		}
		if same, err := core.Values[bool](op.All(op.Eq(out, want), nil, false)); err != nil || !same[0] {
			return fmt.Errorf("got %v, want %v (%v)", out, want, err)
		}
		return nil
	}))
}

func TestPartsThatShareElements(t *testing.T) {
	require.NoError(t, spawn(2, onCPU0, longTimeout, func(r *Rank) error {
		x := op.Zeros(4, 64)
		err := r.World.AllGather([]*core.Tensor{op.Narrow(x, 1, 0, 32), op.Narrow(x, 1, 31, 32)}, op.Zeros(4, 32)).Wait()
		if kind, _ := core.KindOf(err); kind != core.ValueError {
			return fmt.Errorf("got %v, want an error", err)
		}
		return nil
	}))
}

// TestReduceScatterOfOtherRows sums parts that lie in other rows on each rank.
func TestReduceScatterOfOtherRows(t *testing.T) {
	require.NoError(t, spawn(3, nil, longTimeout, func(r *Rank) error {
		v := tensorOf(smallIntegers(960, 0, 0), core.Float64)
		width := []int{40, 60, 120}[r.Rank] // of the rows
		room := op.To(op.Zeros(960/width, 3, width), core.Float64)
		ins := make([]*core.Tensor, 3)
		for i := range ins {
			ins[i] = op.Select(room, 1, i)
			op.CopyInPlace(ins[i], op.Reshape(op.Add(v, core.Num(float64(i))), 960/width, width))
		}
		out := op.To(op.Zeros(960), core.Float64)
		if err := r.World.ReduceScatter(out, ins, Sum).Wait(); err != nil {
			return err
		}
		want := op.Mul(op.Add(v, core.Num(float64(r.Rank))), core.Num(3))
		if same, err := core.Values[bool](op.All(op.Eq(out, want), nil, false)); err != nil || !same[0] {
			return fmt.Errorf("rank %d: got %v, want %v (%v)", r.Rank, out, want, err)
		}
		return nil
	}))
}

// TestStepsByRow checks the steps for a rank whose memory the host cannot address: each is within one row of every piece.
func TestStepsByRow(t *testing.T) {
	piece := func(r rows) Piece { return Piece{N: 120, dtype: core.Float32, rows: r} }
	send := &Operation{Kind: KindAllToAll, Ins: []Piece{piece(rows{}), piece(rows{3, 40, 100})}, Outs: []Piece{piece(rows{}), piece(rows{2, 60, 64})}}
	want := func(whole bool, steps ...[3]int) {
		t.Helper()
		plan, ok := cutsOf(send, whole)
		require.True(t, ok)
		require.Equal(t, steps, plan)
	}
	// Rank 0 sends its first piece to itself, and its second one to rank 1, whose first one comes back.
	want(true, [3]int{0, 120}, [3]int{0, 60}, [3]int{60, 60}, [3]int{0, 40}, [3]int{40, 40}, [3]int{80, 40},
		[3]int{0, 40}, [3]int{40, 20}, [3]int{60, 20}, [3]int{80, 40})
	want(false, [3]int{0, 120}, [3]int{0, 120, 2}, [3]int{0, 120, 3}, [3]int{0, 40}, [3]int{40, 20}, [3]int{60, 20}, [3]int{80, 40})
	p := piece(rows{3, 40, 100})
	require.Equal(t, []int{0, 39, 100, 239}, []int{p.at(0), p.at(39), p.at(40), p.at(119)})
}

// cutsOf returns the steps when two ranks do the same: where they begin, how long they are, and their rows.
func cutsOf(o *Operation, whole bool) (list [][3]int, ok bool) {
	other := *o
	plan, ok := steps([]*Operation{o, &other}, 0, whole, false)
	for _, s := range plan {
		list = append(list, [3]int{s.from, s.n, s.rows})
	}
	return list, ok
}

package tensor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// numbered returns a tensor whose elements are all different.
func numbered(shape ...int) *core.Tensor {
	n := make([]float64, core.Numel(shape))
	for i := range n {
		n[i] = float64(i + 1)
	}
	return op.Reshape(core.FromSlice(n), shape...)
}

// has fails unless the calling rank has the elements of a matrix' rows.
func has(t *core.Tensor, whole *core.Tensor, rows []int) error {
	want := op.Narrow(whole, 0, 0, 0)
	for _, r := range rows {
		want = op.Cat([]*core.Tensor{want, op.Narrow(whole, 0, r, 1)}, 0)
	}
	if err := t.Err(); err != nil {
		return err
	}
	return equal([]*core.Tensor{tensor.Local(t, nil)}, []*core.Tensor{want})
}

// chunks divides a list as ranks do.
func chunks(list []int, k int) [][]int {
	out, size := make([][]int, k), (len(list)+k-1)/k
	for i := range out {
		out[i] = list[min(i*size, len(list)):min((i+1)*size, len(list))]
	}
	return out
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// TestInterleavedRows compares which rows ranks have with lists that are divided step by step.
func TestInterleavedRows(t *testing.T) {
	s, r, cut := core.Shard(0), core.Replicate(), core.InterleavedShard
	later := func(n int, shape, at []int) []int { // along the second dimension of the mesh first
		return chunks(chunks(upTo(n), shape[1])[at[1]], shape[0])[at[0]]
	}
	for _, c := range []struct {
		mesh   []int
		placed []core.Placement
		rows   func(n int, shape, at []int) []int
	}{
		{[]int{2, 2}, []core.Placement{cut(0, 2), s}, later},
		{[]int{2, 3}, []core.Placement{cut(0, 3), s}, later},
		{[]int{3, 2}, []core.Placement{cut(0, 2), s}, later},
		{[]int{3, 2, 2}, []core.Placement{cut(0, 2), s, r}, later},
		{[]int{3, 2, 2}, []core.Placement{cut(0, 4), s, s}, func(n int, shape, at []int) []int {
			return chunks(chunks(chunks(upTo(n), shape[1])[at[1]], shape[2])[at[2]], shape[0])[at[0]]
		}},
		{[]int{3, 2, 2}, []core.Placement{cut(0, 4), cut(0, 2), s}, func(n int, shape, at []int) []int {
			return chunks(chunks(chunks(upTo(n), shape[2])[at[2]], shape[1])[at[1]], shape[0])[at[0]]
		}},
		{[]int{3, 2, 2}, []core.Placement{cut(0, 2), cut(0, 2), s}, func(n int, shape, at []int) []int {
			return chunks(chunks(chunks(upTo(n), shape[2])[at[2]], shape[0])[at[0]], shape[1])[at[1]]
		}},
		{[]int{3, 2}, []core.Placement{cut(0, 2), cut(0, 3)}, func(n int, shape, at []int) (out []int) { // the second cuts 3 pieces before
			for _, piece := range chunks(upTo(n), min(3, max(n, 1))) {
				out = append(out, chunks(piece, shape[1])[at[1]]...)
			}
			return chunks(out, shape[0])[at[0]]
		}},
		{[]int{2, 2}, []core.Placement{cut(0, 2), r}, func(n int, shape, at []int) (out []int) {
			for _, piece := range chunks(upTo(n), 2) {
				out = append(out, chunks(piece, shape[0])[at[0]]...)
			}
			return out
		}},
		{[]int{4}, []core.Placement{cut(0, 3)}, func(n int, shape, at []int) (out []int) {
			for _, piece := range chunks(upTo(n), 3) {
				out = append(out, chunks(piece, shape[0])[at[0]]...)
			}
			return out
		}},
		{[]int{2, 2}, []core.Placement{cut(0, 3), s}, func(n int, shape, at []int) (out []int) { // 3 is no number of ranks
			for _, piece := range chunks(upTo(n), 3) {
				out = append(out, chunks(piece, shape[0])[at[0]]...)
			}
			return chunks(out, shape[1])[at[1]]
		}},
	} {
		onMesh(t, c.mesh, func(m *mesh.Mesh) error {
			for _, n := range []int{0, 1, 2, 3, 5, 7, 9, 12, 13} {
				x := numbered(n, 2)
				d := tensor.Distribute(x, m, c.placed)
				rows := c.rows(n, m.Shape(), m.Coordinate())
				if err := has(d, x, rows); err != nil {
					return fmt.Errorf("%v of %d rows at %v: %w", c.placed, n, m.Coordinate(), err)
				}
				if err := equal([]*core.Tensor{tensor.Full(d)}, []*core.Tensor{x}); err != nil {
					return fmt.Errorf("the whole of %v of %d rows: %w", c.placed, n, err)
				}
				var boxed []int
				for _, b := range tensor.Boxes(d) {
					assert.Equal(t, []int{len(boxed), 0}, b.At)
					assert.Equal(t, []int{b.Shape[0], 2}, b.Shape)
					for i := range b.Shape[0] {
						boxed = append(boxed, b.Offset[0]+i)
					}
				}
				if !slices.Equal(boxed, rows) {
					return fmt.Errorf("boxes of rows %v, want %v", boxed, rows)
				}
				if len(rows) > 0 {
					assert.Equal(t, rows[0], tensor.Offset(d)[0])
				}
			}
			return nil
		})
	}
}

// TestInterleavedMoves redistributes between placements, and compares parts and gradients with those of tensors that are distributed so.
func TestInterleavedMoves(t *testing.T) {
	all := []core.Placement{core.Replicate(), core.Shard(0), core.Shard(1), core.InterleavedShard(0, 2), core.InterleavedShard(0, 3),
		core.InterleavedShard(1, 2), core.Partial(core.Sums)}
	for _, c := range []struct {
		mesh  []int
		every int // of how many moves one is tried
	}{{[]int{2}, 1}, {[]int{3}, 1}, {[]int{2, 2}, 8}, {[]int{2, 3}, 20}, {[]int{3, 2, 2}, 600}} {
		var lists [][]core.Placement
		for range c.mesh {
			before := lists
			if before == nil {
				before = [][]core.Placement{nil}
			}
			lists = nil
			for _, list := range before {
				for _, p := range all {
					lists = append(lists, append(slices.Clone(list), p))
				}
			}
		}
		onMesh(t, c.mesh, func(m *mesh.Mesh) error {
			random := rand.New(rand.NewPCG(1, uint64(len(c.mesh))))
			for _, from := range lists {
				for _, to := range lists {
					if random.IntN(c.every) > 0 {
						continue
					}
					x := numbered([]int{1, 2, 5, 7, 12}[random.IntN(5)], []int{1, 3, 4}[random.IntN(3)])
					if err := moves(x, m, from, to); err != nil {
						return fmt.Errorf("%v of shape %v from %v to %v: %w", m, x.Shape(), from, to, err)
					}
				}
			}
			return nil
		})
	}
}

func moves(x *core.Tensor, m *mesh.Mesh, from, to []core.Placement) (err error) {
	core.Tidy(func() {
		d := tensor.Distribute(x, m, from).SetRequiresGrad(true)
		y := tensor.Redistribute(d, to)
		got := []*core.Tensor{tensor.Full(y)}
		want := []*core.Tensor{x}
		if !y.Parts().Pending() {
			got, want = append(got, tensor.Local(y, nil)), append(want, tensor.Local(tensor.Distribute(x, m, to), nil))
		}
		if err = equal(got, want); err != nil {
			return
		}
		w := weights(x)
		loss := op.Sum(op.Mul(y, tensor.Distribute(w, m, nil)), nil, false)
		if err = autograd.Backward(loss); err != nil {
			return
		}
		if err = equal([]*core.Tensor{tensor.Full(d.Grad())}, []*core.Tensor{w}); err != nil {
			err = fmt.Errorf("gradient: %w", err)
		}
	})
	return err
}

// TestInterleavedMovesAlongOneDimension counts what is exchanged where only one dimension of the mesh has to exchange anything.
func TestInterleavedMovesAlongOneDimension(t *testing.T) {
	s, r, cut := core.Shard(0), core.Replicate(), core.InterleavedShard(0, 2)
	for _, c := range []struct {
		from, to []core.Placement
		calls    [2]int
	}{
		{[]core.Placement{cut, s}, []core.Placement{r, s}, [2]int{1, 0}},
		{[]core.Placement{cut, s}, []core.Placement{cut, r}, [2]int{0, 1}},
		{[]core.Placement{cut, r}, []core.Placement{cut, s}, [2]int{0, 0}},
		{[]core.Placement{cut, r}, []core.Placement{s, r}, [2]int{1, 0}},
		{[]core.Placement{r, core.Partial(core.Sums)}, []core.Placement{r, cut}, [2]int{0, 1}},
		{[]core.Placement{cut, r}, []core.Placement{core.Shard(1), r}, [2]int{1, 0}},
		{[]core.Placement{cut, s}, []core.Placement{r, r}, [2]int{1, 1}},
		{[]core.Placement{cut, s}, []core.Placement{s, s}, [2]int{1, 1}},
		{[]core.Placement{cut, s}, []core.Placement{s, r}, [2]int{1, 2}},
		{[]core.Placement{s, s}, []core.Placement{r, s}, [2]int{2, 1}},
	} {
		onMesh(t, []int{2, 2}, func(m *mesh.Mesh) error {
			d := tensor.Distribute(numbered(7, 2), m, c.from)
			calls := func(i int) int { return len(m.Group(i).Recorder()) }
			before := [2]int{calls(0), calls(1)}
			if err := tensor.Redistribute(d, c.to).Err(); err != nil {
				return err
			}
			if got := [2]int{calls(0) - before[0], calls(1) - before[1]}; got != c.calls {
				return fmt.Errorf("from %v to %v: %v collectives along the dimensions of the mesh, want %v", c.from, c.to, got, c.calls)
			}
			return nil
		})
	}
}

// TestOpsOnInterleavedRows counts: ops that work on rows alike leave interleaved rows where they are.
func TestOpsOnInterleavedRows(t *testing.T) {
	onMesh(t, []int{2, 2}, func(m *mesh.Mesh) error {
		placed := []core.Placement{core.InterleavedShard(0, 2), core.Shard(0)}
		sums := []core.Placement{core.Partial(core.Sums), core.Partial(core.Sums)}
		x, z := numbered(7, 3), numbered(3, 2)
		a, b := tensor.Distribute(x, m, placed), tensor.Distribute(z, m, nil)
		before := len(m.Group(0).Recorder()) + len(m.Group(1).Recorder())
		for _, c := range []struct {
			got, want *core.Tensor
			placed    []core.Placement
		}{
			{op.Mul(a, op.Exp(a)), op.Mul(x, op.Exp(x)), placed},
			{op.MatMul(a, b), op.MatMul(x, z), placed},
			{op.Transpose(a, 0, 1), op.Transpose(x, 0, 1), []core.Placement{core.InterleavedShard(1, 2), core.Shard(1)}},
			{op.Sum(a, []int{1}, false), op.Sum(x, []int{1}, false), placed},
			{op.Sum(a, []int{0}, false), op.Sum(x, []int{0}, false), sums},
			{op.AddInPlace(tensor.Distribute(x, m, placed), a), op.Add(x, x), placed},
		} {
			if err := c.got.Err(); err != nil {
				return err
			}
			if got := tensor.Placements(c.got); !slices.Equal(got, c.placed) {
				return fmt.Errorf("got placements %v, want %v", got, c.placed)
			}
			defer func() { assert.NoError(t, equal([]*core.Tensor{tensor.Full(c.got)}, []*core.Tensor{c.want})) }()
		}
		distributions := 2 * 2 // each sends its tensor and a generator's state along both dimensions
		if n := len(m.Group(0).Recorder()) + len(m.Group(1).Recorder()) - before - distributions; n != 0 {
			return fmt.Errorf("%d collectives, want none", n)
		}
		return nil
	})
}

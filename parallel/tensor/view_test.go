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

// calls returns how many collectives a rank has begun along the dimensions of a mesh.
func calls(m *mesh.Mesh) (n int) {
	for i := range m.Shape() {
		n += len(m.Group(i).Recorder())
	}
	return n
}

// TestViewsOfShards counts: views whose result has a placement for what the ranks have exchange nothing.
func TestViewsOfShards(t *testing.T) {
	s, r, cut := core.Shard, core.Replicate(), core.InterleavedShard
	for _, c := range []struct {
		mesh, from, to []int
		placed, want   []core.Placement
	}{
		{[]int{2}, []int{4, 6}, []int{24}, []core.Placement{s(0)}, []core.Placement{s(0)}},
		{[]int{2}, []int{4, 6}, []int{24}, []core.Placement{s(1)}, []core.Placement{cut(0, 4)}},
		{[]int{3}, []int{5, 7}, []int{35}, []core.Placement{s(1)}, []core.Placement{cut(0, 5)}}, // uneven parts
		{[]int{3}, []int{5, 2}, []int{10}, []core.Placement{s(1)}, []core.Placement{cut(0, 5)}}, // the last rank has none
		{[]int{2}, []int{4, 6, 5}, []int{4, 30}, []core.Placement{s(1)}, []core.Placement{s(1)}},
		{[]int{2}, []int{4, 6, 5}, []int{24, 5}, []core.Placement{s(1)}, []core.Placement{cut(0, 4)}},
		{[]int{2}, []int{4, 6, 5}, []int{24, 5}, []core.Placement{s(2)}, []core.Placement{s(1)}},
		{[]int{2}, []int{3, 5, 7}, []int{15, 7}, []core.Placement{s(1)}, []core.Placement{cut(0, 3)}},
		{[]int{2}, []int{24, 5}, []int{4, 6, 5}, []core.Placement{cut(0, 4)}, []core.Placement{s(1)}},
		{[]int{2}, []int{15, 7}, []int{3, 5, 7}, []core.Placement{cut(0, 3)}, []core.Placement{s(1)}},
		{[]int{2}, []int{24}, []int{4, 6}, []core.Placement{s(0)}, []core.Placement{s(0)}},
		{[]int{2}, []int{7, 1, 1}, []int{7, 1}, []core.Placement{s(1)}, []core.Placement{s(1)}}, // of two that are alike the first
		{[]int{2}, []int{24}, []int{2, 4, 3}, []core.Placement{cut(0, 4)}, []core.Placement{cut(1, 2)}},
		{[]int{2}, []int{6, 4}, []int{8, 3}, []core.Placement{s(0)}, []core.Placement{s(0)}},
		{[]int{2, 2}, []int{4, 6}, []int{24}, []core.Placement{s(0), s(1)}, []core.Placement{s(0), cut(0, 2)}},
		{[]int{2, 2}, []int{2, 6}, []int{12}, []core.Placement{s(0), s(1)}, []core.Placement{s(0), s(0)}},
		{[]int{2, 2}, []int{4, 6}, []int{24}, []core.Placement{s(1), s(0)}, []core.Placement{cut(0, 4), s(0)}},
		{[]int{2, 2}, []int{6, 5}, []int{30}, []core.Placement{s(0), s(1)}, []core.Placement{s(0), cut(0, 3)}},
		{[]int{2, 2}, []int{3, 8}, []int{24}, []core.Placement{s(1), s(1)}, []core.Placement{cut(0, 3), cut(0, 3)}},
		{[]int{2, 2}, []int{4, 6}, []int{24}, []core.Placement{core.Partial(core.Sums), s(1)}, []core.Placement{core.Partial(core.Sums), cut(0, 4)}},
		{[]int{2, 3}, []int{4, 9, 2}, []int{36, 2}, []core.Placement{s(0), s(1)}, []core.Placement{s(0), cut(0, 2)}},
		{[]int{2, 2}, []int{3, 4}, []int{3, 1, 4}, []core.Placement{cut(1, 2), s(1)}, []core.Placement{cut(2, 2), s(2)}},
		{[]int{2, 2}, []int{5, 3}, []int{5, 3, 1}, []core.Placement{s(0), r}, []core.Placement{s(0), r}},
	} {
		onMesh(t, c.mesh, func(m *mesh.Mesh) error {
			x := numbered(c.from...)
			d := tensor.Distribute(x, m, c.placed)
			before := calls(m)
			y := op.Reshape(d, c.to...)
			if err := y.Err(); err != nil {
				return err
			}
			n := calls(m) - before
			assert.Equal(t, c.want, tensor.Placements(y), "%v", c)
			assert.Zero(t, n, "%v", c)
			return equal([]*core.Tensor{tensor.Full(y)}, []*core.Tensor{op.Reshape(x, c.to...)})
		})
	}
}

// TestSlicesOfAll counts: what takes all of a sharded dimension leaves it where it is.
func TestSlicesOfAll(t *testing.T) {
	onMesh(t, []int{3}, func(m *mesh.Mesh) error {
		x := numbered(5, 4)
		d := tensor.Distribute(x, m, []core.Placement{core.Shard(0)})
		before := calls(m)
		for _, f := range []func(x *core.Tensor) *core.Tensor{
			func(x *core.Tensor) *core.Tensor { return op.Slice(x, 0, 0, 9, 1) },
			func(x *core.Tensor) *core.Tensor { return op.Narrow(x, 0, 0, 5) },
			func(x *core.Tensor) *core.Tensor { return op.Index(x, core.All(), core.At(1)) },
		} {
			y := f(d)
			if err := y.Err(); err != nil {
				return err
			}
			assert.Equal(t, []core.Placement{core.Shard(0)}, tensor.Placements(y))
			defer func() { assert.NoError(t, equal([]*core.Tensor{tensor.Full(y)}, []*core.Tensor{f(x)})) }()
		}
		assert.Zero(t, calls(m)-before)
		return nil
	})
}

// TestViewsThatMove gathers nothing where another dimension can be sharded for the view.
func TestViewsThatMove(t *testing.T) {
	s := core.Shard
	for _, c := range []struct {
		mesh, from, to []int
		placed         []core.Placement
		gathers        bool
	}{
		{[]int{2}, []int{5, 6}, []int{30}, []core.Placement{s(0)}, false},          // by columns
		{[]int{2, 2}, []int{5, 6}, []int{30}, []core.Placement{s(0), s(1)}, false}, // both by columns
		{[]int{3}, []int{4, 6}, []int{8, 3}, []core.Placement{s(1)}, true},
		{[]int{2}, []int{5, 1}, []int{5}, []core.Placement{s(0)}, false},
		{[]int{2}, []int{6, 35}, []int{10, 21}, []core.Placement{s(1)}, false}, // by rows, which are divided in the same places
	} {
		onMesh(t, c.mesh, func(m *mesh.Mesh) error {
			x := numbered(c.from...)
			before := tensor.GatheredBytes()
			y := op.View(tensor.Distribute(x, m, c.placed), c.to...)
			if err := y.Err(); err != nil {
				return err
			}
			if err := equal([]*core.Tensor{tensor.Full(y)}, []*core.Tensor{op.Reshape(x, c.to...)}); err != nil {
				return fmt.Errorf("%v: %w", c, err)
			}
			assert.Equal(t, c.gathers, tensor.GatheredBytes() > before, "%v", c)
			return nil
		})
	}
}

// shapes returns random factorisations of n, with ones.
func shapes(n int, random *rand.Rand) (shape []int) {
	for rest := n; ; {
		k := []int{1, 2, 3, 5, 7}[random.IntN(5)]
		switch {
		case rest == 1 && len(shape) > 0 && random.IntN(3) > 0 || len(shape) == 5:
			if len(shape) > 0 {
				shape[random.IntN(len(shape))] *= rest
			}
			return shape
		case rest%k == 0:
			shape, rest = append(shape, k), rest/k
		}
	}
}

// TestRandomViews compares values, parts and gradients of views with those on one device.
func TestRandomViews(t *testing.T) {
	for _, axes := range [][]int{{2}, {3}, {2, 2}, {2, 3}, {2, 2, 2}} {
		onMesh(t, axes, func(m *mesh.Mesh) error {
			random := rand.New(rand.NewPCG(3, uint64(core.Numel(axes)+len(axes))))
			for range 80 {
				n := []int{1, 6, 12, 30, 60, 24, 36, 84, 0}[random.IntN(9)]
				from, to := shapes(max(n, 1), random), shapes(max(n, 1), random)
				if n == 0 {
					from, to = []int{3, 0, 2}, []int{0, 4}
				}
				var placed []core.Placement
				for range axes {
					d := random.IntN(len(from))
					placed = append(placed, []core.Placement{core.Shard(d), core.Shard(d), core.InterleavedShard(d, 2), core.InterleavedShard(d, 3), core.Replicate(), core.Partial(core.Sums)}[random.IntN(6)])
				}
				if err := views(numbered(from...), m, placed, to); err != nil {
					return fmt.Errorf("%v from %v to %v on %v: %w", placed, from, to, axes, err)
				}
			}
			return nil
		})
	}
}

func views(x *core.Tensor, m *mesh.Mesh, placed []core.Placement, to []int) (err error) {
	core.Tidy(func() {
		d := tensor.Distribute(x, m, placed).SetRequiresGrad(true)
		y := op.Reshape(d, to...)
		z := op.Reshape(x, to...)
		if err = y.Err(); err != nil {
			return
		}
		got, want := []*core.Tensor{tensor.Full(y)}, []*core.Tensor{z}
		if !y.Parts().Pending() {
			got, want = append(got, tensor.Local(y, nil)), append(want, tensor.Local(tensor.Distribute(z, m, tensor.Placements(y)), nil))
		}
		if err = equal(got, want); err != nil {
			err = fmt.Errorf("as %v: %w", tensor.Placements(y), err)
			return
		}
		w := weights(z)
		if err = autograd.Backward(op.Sum(op.Mul(op.Sin(y), tensor.Distribute(w, m, nil)), nil, false)); err != nil {
			return
		}
		want = []*core.Tensor{op.Reshape(op.Mul(op.Cos(z), w), x.Shape()...)}
		if err = equal([]*core.Tensor{tensor.Full(d.Grad())}, want); err != nil {
			err = fmt.Errorf("gradient: %w", err)
		}
		if !slices.Equal(d.Grad().Shape(), x.Shape()) {
			err = fmt.Errorf("gradient of shape %v", d.Grad().Shape())
		}
	})
	return err
}

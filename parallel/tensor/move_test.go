package tensor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// TestMovesOfEachDimension gathers, scatters and exchanges parts of each dimension, some of them uneven or empty, of each dtype.
func TestMovesOfEachDimension(t *testing.T) {
	for _, devices := range [][]string{{"cpu:0"}, {"cpu:0", "cpu:1"}, {"cpu:0", "cpu:0", "cpu:1"}} {
		ranks := len(devices)
		require.NoError(t, collective.Spawn(ranks, devices, collective.Options{Timeout: 2 * time.Minute}, func(r *collective.Rank) error {
			m, err := mesh.New(r.World, []int{ranks}, mesh.Options{})
			if err != nil {
				return err
			}
			for _, shape := range [][]int{{6, 6, 48}, {5, 7, 33}, {2, 1, 2}, {4, 0, 32}} {
				for _, d := range core.DTypes() {
					x := op.To(op.Remainder(numbered(shape...), core.Num(11)), d)
					if err := movesOf(m, x); err != nil {
						return fmt.Errorf("%v of shape %v on %d ranks: %w", d, shape, ranks, err)
					}
				}
			}
			return nil
		}))
	}
}

// movesOf fails unless x has the same elements after it was moved between placements.
func movesOf(m *mesh.Mesh, x *core.Tensor) (err error) {
	same := func(what any, got *core.Tensor, times int) {
		want := op.To(op.Mul(op.To(x, core.Complex128), core.Num(float64(times))), core.Complex128)
		if x.DType() == core.Bool {
			want = op.To(x, core.Complex128)
		}
		a, errA := core.Values[complex128](op.To(got, core.Complex128))
		b, errB := core.Values[complex128](want)
		if err == nil && (errA != nil || errB != nil || !slices.Equal(a, b)) {
			err = fmt.Errorf("%v: got %v, want %v (%v, %v)", what, got, want, errA, errB)
		}
	}
	core.Tidy(func() {
		var all [][]core.Placement
		for d := range x.Dim() {
			all = append(all, []core.Placement{core.Shard(d)}, []core.Placement{core.InterleavedShard(d, 2)})
		}
		for _, from := range all {
			part := tensor.Distribute(x, m, from)
			same(from, tensor.Full(part), 1)
			for _, to := range all {
				same(fmt.Sprint(from, " to ", to), tensor.Full(tensor.Redistribute(part, to)), 1)
			}
			sum := tensor.FromLocal(x, m, []core.Placement{core.Partial(core.Sums)}, nil)
			same(fmt.Sprint("a sum to ", from), tensor.Full(tensor.Redistribute(sum, from)), m.Size())
			if x.DType() != core.Bool { // a transposed tensor is not contiguous
				turned := tensor.FromLocal(op.Transpose(op.Contiguous(op.Transpose(x, 0, 2)), 0, 2), m, []core.Placement{core.Partial(core.Sums)}, nil)
				same(fmt.Sprint("a transposed sum to ", from), tensor.Full(tensor.Redistribute(turned, from)), m.Size())
			}
		}
	})
	return err
}

// TestMovesReleaseMemory checks that moves keep no memory but that of their results, which the caller releases.
func TestMovesReleaseMemory(t *testing.T) {
	onMesh(t, []int{2}, func(m *mesh.Mesh) error {
		x := op.Zeros(4, 6, 64)
		dev := x.Device()
		sharded := []core.Placement{core.Shard(1)}
		move := func() error {
			part := tensor.Distribute(x, m, sharded)
			whole := tensor.Redistribute(part, nil)
			again := tensor.Redistribute(whole, []core.Placement{core.Shard(2)})
			sum := op.Add(part, again) // moves one of them
			drawn := op.Dropout(part, 0.5, true)
			for _, t := range []*core.Tensor{part, whole, again, sum, drawn} {
				if t.Err() != nil {
					return t.Err()
				}
				t.Release()
			}
			return m.Group(0).Barrier()
		}
		if err := move(); err != nil { // makes generators alike
			return err
		}
		before := core.MemoryUsage(dev).Current
		if err := m.Group(0).Barrier(); err != nil {
			return err
		}
		for range 3 {
			if err := move(); err != nil {
				return err
			}
		}
		if now := core.MemoryUsage(dev).Current; now != before {
			return fmt.Errorf("%d bytes are in use after moves, %d before", now, before)
		}
		return m.Group(0).Barrier()
	})
}

// TestRanksWithOtherShapes checks that ranks get an error if their tensors have other shapes, also where the parts have as many elements.
func TestRanksWithOtherShapes(t *testing.T) {
	for _, shapes := range [][2][]int{{{2, 3}, {2, 4}}, {{2, 6}, {3, 4}}} {
		for what, placed := range map[string][2]core.Placement{
			"all_gather": {core.Shard(1), core.Replicate()}, "reduce_scatter": {core.Partial(core.Sums), core.Shard(1)},
		} {
			onMesh(t, []int{2}, func(m *mesh.Mesh) error {
				shape := shapes[m.Coordinate()[0]]
				x := tensor.Make(m, placed[:1], shape, func(local []int) *core.Tensor { return op.Ones(local...) })
				_, err := core.Values[float32](here(tensor.Redistribute(x, placed[1:])))
				if kind, _ := core.KindOf(err); kind != core.DistributedError || !strings.Contains(err.Error(), what) {
					return fmt.Errorf("got %v, want an error of %s", err, what)
				}
				return nil
			})
		}
	}
}

// here returns the calling rank's part, or the tensor's error.
func here(t *core.Tensor) *core.Tensor {
	if t.Err() != nil {
		return t
	}
	return tensor.Local(t, nil)
}

package tensor

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mesh"
)

// BenchmarkOverhead compares operations on distributed tensors that exchange nothing with those on their parts.
func BenchmarkOverhead(b *testing.B) {
	err := collective.Spawn(1, nil, collective.Options{}, func(r *collective.Rank) error {
		m, err := mesh.New(r.World, []int{1}, mesh.Options{})
		if err != nil {
			return err
		}
		local := op.Rand(8, 8).Keep()
		rows := Distribute(local, m, []core.Placement{core.Shard(0)}).Keep()
		columns := Distribute(local, m, []core.Placement{core.Shard(1)}).Keep()
		pieces := Distribute(local, m, []core.Placement{core.InterleavedShard(0, 4)}).Keep()
		all := Distribute(local, m, nil).Keep()
		for _, c := range []struct {
			name string
			run  func(x, y *core.Tensor) *core.Tensor
			x, y *core.Tensor
		}{
			{"add", op.Add, rows, rows},
			{"linear", func(x, y *core.Tensor) *core.Tensor { return op.Linear(x, y, nil) }, all, rows},
			{"transpose", func(x, _ *core.Tensor) *core.Tensor { return op.Transpose(x, 0, 1) }, rows, rows},
			{"view", func(x, _ *core.Tensor) *core.Tensor { return op.Reshape(x, 64) }, rows, rows},
			{"view of columns", func(x, _ *core.Tensor) *core.Tensor { return op.Reshape(x, 64) }, columns, columns},
			{"interleaved add", op.Add, pieces, pieces},
			{"gelu", func(x, _ *core.Tensor) *core.Tensor { return op.Gelu(x, "none") }, rows, rows},
		} {
			for _, of := range []struct {
				name string
				x, y *core.Tensor
			}{{"distributed", c.x, c.y}, {"local", local, local}} {
				b.Run(c.name+"/"+of.name, func(b *testing.B) {
					for range b.N {
						core.Tidy(func() { c.run(of.x, of.y) })
					}
				})
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

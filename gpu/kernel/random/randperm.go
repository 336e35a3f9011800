package random

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Randperm, permutationCall)
}

// permutationCall writes a permutation of 0, ..., n-1: the order of random keys. Ints: seed, offset.
func permutationCall(r *shader.Recorder, c *core.Call) error {
	out := &c.Outs[0]
	n := out.Numel()
	if n == 0 {
		return nil
	}
	e, err := primitive.SortLines(r, "randperm", 1, n, n, true, func(s *shader.Builder) func() string {
		seed, offset := s.Long(c.Ints[0]), s.Long(c.Ints[1])
		return func() string {
			return `fn key_of(line: u32, index: u32) -> vec2<u32> {
  let w = plait_philox(` + seed + `, plait_add_i64(` + offset + `, vec2<u32>(index / 2u, 0u)));
  return select(w.yx, w.wz, (index & 1u) == 1u);
}
`
		}
	})
	if err != nil {
		return err
	}
	s := shader.New(r, "permutation")
	y, sorted, count := s.Out("y", out, expr.I64, expr.Number), e.Bind(s, "sorted"), s.Uint(n)
	return s.Run(r, shader.GroupsFor(n), func() string {
		return sorted + shader.Each(count, "  st_y("+y+" + i, vec2<u32>(sorted_index(i), 0u));\n")
	})
}

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

// permutationCall writes a permutation of 0, ..., n-1 by sorting random keys.
func permutationCall(r *shader.Recorder, c *core.Call) error {
	out := &c.Outs[0]
	n := out.Numel()
	if n == 0 {
		return nil
	}
	e, err := primitive.SortLines(r, "randperm", 1, n, n, 64, true, func(s *shader.Builder) func(w *shader.Text) {
		a := contract.DrawOf(c)
		seed, offset := s.Long(a.Seed), s.Long(a.Offset)
		return func(w *shader.Text) {
			w.Func("key_of(line: u32, index: u32) -> pair", `let w = plait_philox(%s, plait_add_i64(%s, pair(index / 2u, 0u)));
  return select(w.yx, w.wz, (index & 1u) == 1u);`, seed, offset)
		}
	})
	if err != nil {
		return err
	}
	s := shader.New(r, "permutation")
	y, sorted, count := s.Out("y", out, expr.I64, expr.Number), e.Bind(s, "sorted"), s.Uint(n)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		sorted(w)
		w.Each(count)
		w.Add("  st_y(%s + i, pair(sorted_index(i), 0u));", y)
	})
}

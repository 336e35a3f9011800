package indexing

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// bagIndicesCall checks an offset and looks for the bag of a sample in each invocation.
func bagIndicesCall(r *shader.Recorder, c *core.Call) error {
	out, offsets := &c.Outs[0], &c.Ins[0]
	n := max(out.Numel(), offsets.Numel())
	if n == 0 {
		return nil
	}
	s := shader.New(r, "bag_indices")
	x, y := s.In("offset", offsets, expr.I64, expr.Number), s.Out("y", out, expr.I64, expr.Number)
	count, samples, bags := s.Uint(n), s.Uint(out.Numel()), s.Uint(offsets.Numel())
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error { return contract.BagOffsetError(c, int(at), c.Outs[0].Numel()) })
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  if (i < %s) {
    let here = ld_offset(%s + i);
    var least = 0u;
    var most = 0u;
    if (i > 0u) {
      least = ld_offset(%s + i - 1u).x;
      most = %s;
    }
    if (here.y != 0u || here.x < least || here.x > most) { %s }
  }`, bags, x, x, samples, fault("i"))
		w.Add(`  if (i < %s) {
    var low = 0u;
    var high = %s;
    for (var k = 0u; k < 32u && low < high; k++) {
      let middle = (low + high) / 2u;
      if (ld_offset(%s + middle).x <= i) { low = middle + 1u; } else { high = middle; }
    }
    st_y(%s + i, pair(max(low, 1u) - 1u, 0u)); // a bag also behind wrong offsets
  }`, samples, bags, x, y)
	})
}

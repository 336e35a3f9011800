package loss

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.CheckProbabilities, checkProbabilitiesCall) }

// checkProbabilitiesCall is an error if an element of its contiguous input is not in [0, 1]. It does not write its output, which only
// carries the error. Ints: 0 for an input, 1 for a target.
func checkProbabilitiesCall(r *shader.Recorder, c *core.Call) error {
	in := &c.Ins[0]
	n := in.Numel()
	if n == 0 {
		return nil
	}
	s := shader.New(r, "check_probabilities")
	x, count := s.In("x", in, expr.F32, expr.Number), s.Uint(n)
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error {
		return core.Errorf(core.ValueError, c.Op, "all elements of %s should be between 0 and 1, the one at position %d of %v is not; "+
			"binary_cross_entropy_with_logits takes any input", contract.CheckedOperand(c), at, c.Ins[0].Shape)
	})
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let v = ld_x(%s + i);
  if (!(v >= 0.0 && v <= 1.0)) { %s }`, x, fault("i"))
	})
}

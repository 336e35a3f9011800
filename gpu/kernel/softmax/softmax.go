// Package softmax computes softmax, its logarithm and their gradients along a dimension.
package softmax

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// Kernels in this file work on rows, each by a workgroup whose invocations go along it.

func init() {
	for _, log := range []bool{false, true} {
		forward, backward := contract.Softmax, contract.SoftmaxBackward
		if log {
			forward, backward = contract.LogSoftmax, contract.LogSoftmaxBackward
		}
		name := forward.String()
		kernel.Register(forward, func(r *shader.Recorder, c *core.Call) error { return softmaxCall(r, c, name, log) })
		kernel.Register(backward, func(r *shader.Recorder, c *core.Call) error { return softmaxBackwardCall(r, c, name+"_backward", log) })
	}
}

func softmaxCall(r *shader.Recorder, c *core.Call, name string, log bool) error {
	s := shader.New(r, name)
	t := primitive.NewRowText(s, primitive.AxisOf(c.Ins[0].Shape, int(c.Ints[0])))
	t.In("x", &c.Ins[0])
	t.Out("y", &c.Outs[0])
	head := t.Open(r.GPU.Software)
	if t.Line.N == 0 {
		return nil
	}
	return s.Run(r, t.Line.Rows(), func() string {
		// The exponential does not know NaN, which makes the sum NaN instead, and so all of the row.
		term, value, last := "t = t + plait_exp_share($x - most);", "plait_exp_share($x - most) * share", "  let share = 1.0 / total;\n"
		if t.Held > 0 && !log {
			term, value = "$x = plait_exp_share($x - most); t = t + $x;", "$x * share"
		}
		if log {
			value, last = "($x - most) - log_total", "  let log_total = plait_log_f32(total);\n"
		}
		return shader.WorkgroupReduce("most", "f32", "max(a, b)", t.Width) + shader.WorkgroupSum(t.Width) + head() +
			"  var m = -" + shader.Infinity + ";\n  var bits = 0u;\n" + t.Pass("m = max(m, $x); bits = max(bits, bitcast<u32>($x) & 0x7fffffffu);") +
			"  let most = whole_most(lane, m);\n  var t = select(0.0, plait_nan(), bits > 0x7f800000u);\n" + t.Pass(term) +
			"  let total = whole_sum(lane, t);\n" + last + t.Pass("$y = "+value+";") + "}\n"
	})
}

func softmaxBackwardCall(r *shader.Recorder, c *core.Call, name string, log bool) error {
	s := shader.New(r, name)
	t := primitive.NewRowText(s, primitive.AxisOf(c.Ins[0].Shape, int(c.Ints[0])))
	t.In("y", &c.Ins[0])
	t.In("g", &c.Ins[1])
	t.Out("dx", &c.Outs[0])
	head := t.Open(r.GPU.Software)
	if t.Line.N == 0 {
		return nil
	}
	return s.Run(r, t.Line.Rows(), func() string {
		term, value := "$y * $g", "$y * ($g - total)"
		if log {
			term, value = "$g", "$g - plait_exp_f32($y) * total"
		}
		return shader.WorkgroupSum(t.Width) + head() + "  var t = 0.0;\n" + t.Pass("t = t + "+term+";") +
			"  let total = whole_sum(lane, t);\n" + t.Pass("$dx = "+value+";") + "}\n"
	})
}

// Package softmax has the GPU kernels of softmax, log-softmax and their gradients along a dimension. One workgroup computes a row.
package softmax

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

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
	t := primitive.NewRowText(s, primitive.AxisOf(c.Ins[0].Shape, contract.Dim(c)))
	t.In("x", &c.Ins[0])
	t.Out("y", &c.Outs[0])
	head := t.Open(r.GPU.Software)
	if t.Line.N == 0 {
		return nil
	}
	return s.Run(r, t.Line.Rows(), func(w *shader.Text) {
		// plait_exp_share ignores NaN. A NaN in the row therefore makes the sum NaN, and with it the whole row.
		term, value, last := "t = t + plait_exp_share($x - most);", "plait_exp_share($x - most) * share", "  let share = 1.0 / total;\n"
		if t.Held > 0 && !log {
			term, value = "$x = plait_exp_share($x - most); t = t + $x;", "$x * share"
		}
		if log {
			value, last = "($x - most) - log_total", "  let log_total = plait_log_f32(total);\n"
		}
		w.Reduce("most", shader.Real, "max(a, b)", t.Width)
		w.Sum(t.Width)
		head(w)
		w.Add(`  var m = -%s;
  var bits = 0u;`, shader.Infinity)
		w.Put(t.Pass("m = max(m, $x); bits = max(bits, plait_magnitude($x));"))
		w.Add(`  let most = whole_most(lane, m);
  var t = select(0.0, plait_nan(), bits > 0x7f800000u);`)
		w.Put(t.Pass(term))
		w.Add("  let total = whole_sum(lane, t);")
		w.Put(last)
		w.Put(t.Pass("$y = " + value + ";"))
	})
}

func softmaxBackwardCall(r *shader.Recorder, c *core.Call, name string, log bool) error {
	s := shader.New(r, name)
	t := primitive.NewRowText(s, primitive.AxisOf(c.Ins[0].Shape, contract.Dim(c)))
	t.In("y", &c.Ins[0])
	t.In("g", &c.Ins[1])
	t.Out("dx", &c.Outs[0])
	head := t.Open(r.GPU.Software)
	if t.Line.N == 0 {
		return nil
	}
	return s.Run(r, t.Line.Rows(), func(w *shader.Text) {
		term, value := "$y * $g", "$y * ($g - total)"
		if log {
			term, value = "$g", "$g - plait_exp_f32($y) * total"
		}
		w.Sum(t.Width)
		head(w)
		w.Add("  var t = 0.0;")
		w.Put(t.Pass("t = t + " + term + ";"))
		w.Add("  let total = whole_sum(lane, t);")
		w.Put(t.Pass("$dx = " + value + ";"))
	})
}

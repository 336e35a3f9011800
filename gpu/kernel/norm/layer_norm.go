package norm

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.LayerNorm, layerNormCall)
	kernel.Register(contract.LayerNormBackward, layerNormBackwardCall)
}

func layerNormCall(r *shader.Recorder, c *core.Call) error {
	a := contract.LayerNormOf(c)
	rows, n, rms := a.Rows, a.N, a.RMS
	s := shader.New(r, "layer_norm")
	t := primitive.NewRowText(s, primitive.Axis{Outer: rows, N: n, Inner: 1})
	t.In("x", &c.Ins[0])
	t.Out("y", &c.Outs[0])
	affine := ""
	for i, name := range []string{"w", "b"} {
		if o := &c.Ins[1+i]; s.Flag(o.Present()) {
			t.InBroadcast(name, o)
			affine += "v = v " + []string{"*", "+"}[i] + " $" + name + "; "
		}
	}
	stats := ""
	if s.Flag(c.Outs[1].Present()) {
		stats = s.Out("stats", &c.Outs[1], expr.F32, expr.Number)
	}
	value := "$y = v;"
	if s.Flag(len(c.Outs) > 2) { // a fusion asks for the cast of y
		t.Out("copied", &c.Outs[2])
		value += " $copied = v;"
	}
	eps, share, rowsWord := s.Float(contract.Eps(c)), s.Float(1/float64(n)), s.Uint(rows)
	s.Flag(rms)
	head := t.Open(r.GPU.Software)
	if rows == 0 || n == 0 {
		return nil
	}
	return s.Run(r, rows, func(w *shader.Text) {
		w.Sum(t.Width)
		head(w)
		w.Add("  var t = 0.0;")
		if rms {
			w.Add("  let mean = 0.0;")
		} else {
			w.Put(t.Pass("t = t + $x;"))
			w.Add(`  let mean = whole_sum(lane, t) * %s;
  t = 0.0;`, share)
		}
		w.Put(t.Pass("let d = $x - mean; t = t + d * d;"))
		w.Add("  let scale = 1.0 / sqrt(whole_sum(lane, t) * %s + %s);", share, eps)
		if stats != "" {
			w.Add("  if (lane == 0u) { st_stats(%s + group, mean); st_stats(%s + %s + group, scale); }", stats, stats, rowsWord)
		}
		w.Put(t.Pass("var v = ($x - mean) * scale; " + affine + value))
	})
}

// A layerNormGradient is a call of layer_norm_backward. Absent operands are nil.
type layerNormGradient struct {
	x, g, w, stats, arrived *core.Operand
	dx, cast                *core.Operand   // cast is a copy of dx in another dtype, which a fusion asks for
	sums                    []*core.Operand // dweight, dbias
	rows, n                 int
	rms                     bool
}

func layerNormBackwardCall(r *shader.Recorder, c *core.Call) error {
	a := contract.LayerNormOf(c)
	p := layerNormGradient{
		x: &c.Ins[0], g: &c.Ins[1], w: shader.OrNil(&c.Ins[2]), stats: &c.Ins[3], arrived: shader.OrNil(&c.Ins[4]),
		dx: shader.OrNil(&c.Outs[0]), sums: []*core.Operand{shader.OrNil(&c.Outs[1]), shader.OrNil(&c.Outs[2])},
		rows: a.Rows, n: a.N, rms: a.RMS,
	}
	if len(c.Outs) > 3 {
		p.cast = &c.Outs[3]
	}
	if p.n == 0 {
		return nil
	}
	if p.dx == nil || p.rows == 0 {
		return p.parameterGradients(r)
	}
	if p.sumCount() > 0 {
		if width, held := p.rowRegisters(r.GPU.Software); held > 0 {
			return p.allGradients(r, width, held)
		}
	}
	if err := p.inputGradient(r); err != nil {
		return err
	}
	return p.parameterGradients(r)
}

// sumCount returns how many parameter gradients are computed.
func (p *layerNormGradient) sumCount() int {
	n := 0
	for _, o := range p.sums {
		if o != nil {
			n++
		}
	}
	return n
}

// vec4 reports whether the operands that are present can be read as vec4.
func (p *layerNormGradient) vec4(operands ...*core.Operand) bool {
	vec4 := p.n%4 == 0
	for _, o := range operands {
		vec4 = vec4 && (o == nil || shader.Vec4(o))
	}
	return vec4
}

// inputGradient computes dx alone.
func (p *layerNormGradient) inputGradient(r *shader.Recorder) error {
	s := shader.New(r, "layer_norm_backward")
	t := primitive.NewRowText(s, primitive.Axis{Outer: p.rows, N: p.n, Inner: 1})
	t.In("x", p.x)
	t.In("g", p.g)
	t.Out("dx", p.dx)
	slope, more := "$g", ""
	if s.Flag(p.w != nil) {
		t.InBroadcast("w", p.w)
		slope = "$g * $w"
	}
	if s.Flag(p.arrived != nil) {
		t.InOnce("arrived", p.arrived)
		more = " + $arrived"
	}
	if s.Flag(p.cast != nil) {
		t.Out("copied", p.cast)
		more += "; $copied = $dx"
	}
	stats, rows, share := s.In("stats", p.stats, expr.F32, expr.Number), s.Uint(p.rows), s.Float(1/float64(p.n))
	s.Flag(p.rms)
	head := t.Open(r.GPU.Software)
	return s.Run(r, p.rows, func(w *shader.Text) {
		mean := "ld_stats(" + stats + " + group)"
		if p.rms {
			mean = "0.0"
		}
		w.Sum(t.Width)
		head(w)
		w.Add(`  let mean = %s;
  let scale = ld_stats(%s + %s + group);
  var a = 0.0;
  var b = 0.0;`, mean, stats, rows)
		w.Put(t.Pass("let d = " + slope + "; a = a + d; b = b + d * (($x - mean) * scale);"))
		if p.rms {
			w.Add("  let first_moment = 0.0;")
		} else {
			w.Add("  let first_moment = whole_sum(lane, a) * %s;", share)
		}
		w.Add("  let second_moment = whole_sum(lane, b) * %s;", share)
		w.Put(t.Pass("let d = " + slope + "; $dx = scale * (d - first_moment - ($x - mean) * scale * second_moment)" + more + ";"))
	})
}

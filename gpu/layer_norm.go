package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() {
	register("layer_norm", layerNormCall)
	register("layer_norm_backward", layerNormBackwardCall)
}

// layerNormCall: y, stats [mean, 1/deviation] = f(x, weight, bias) with ints rows, n, rms and float eps.
func layerNormCall(r *recorder, c *core.Call) error {
	rows, n, rms := int(c.Ints[0]), int(c.Ints[1]), c.Ints[2] != 0
	s := newShader(r, "layer_norm")
	t := s.row(line{rows, n, 1})
	t.in("x", &c.Ins[0])
	t.out("y", &c.Outs[0])
	affine := ""
	for i, name := range []string{"w", "b"} {
		if o := &c.Ins[1+i]; s.flag(o.Present()) {
			t.same(name, o)
			affine += "v = v " + []string{"*", "+"}[i] + " $" + name + "; "
		}
	}
	stats := ""
	if s.flag(c.Outs[1].Present()) {
		stats = s.out("stats", &c.Outs[1], expr.F32, expr.Number)
	}
	eps, share, rowsWord := s.float(c.Floats[0]), s.float(1/float64(n)), s.uint(rows)
	s.flag(rms)
	head := t.open(r.device.adapter.Software)
	if rows == 0 || n == 0 {
		return nil
	}
	return s.run(r, rows, func() string {
		text := wholeSum(t.width) + head() + "  var t = 0.0;\n"
		if rms {
			text += "  let mean = 0.0;\n"
		} else {
			text += t.pass("t = t + $x;") + "  let mean = whole_sum(lane, t) * " + share + ";\n  t = 0.0;\n"
		}
		text += t.pass("let d = $x - mean; t = t + d * d;") +
			"  let scale = 1.0 / sqrt(whole_sum(lane, t) * " + share + " + " + eps + ");\n"
		if stats != "" {
			text += "  if (lane == 0u) { st_stats(" + stats + " + group, mean); st_stats(" + stats + " + " + rowsWord + " + group, scale); }\n"
		}
		return text + t.pass("var v = ($x - mean) * scale; "+affine+"$y = v;") + "}\n"
	})
}

// A layerNormGradient is a call of layer_norm_backward. Operands that are absent are nil.
type layerNormGradient struct {
	x, g, w, stats, arrived *core.Operand
	dx                      *core.Operand
	sums                    []*core.Operand // dweight, dbias
	rows, n                 int
	rms                     bool
}

// layerNormBackwardCall: dx, dweight, dbias = f(x, dy, weight, stats, arrived) with ints rows, n, rms. Outputs, weight and arrived may
// be absent; arrived is added to dx, with which it shares no memory.
func layerNormBackwardCall(r *recorder, c *core.Call) error {
	p := layerNormGradient{
		x: &c.Ins[0], g: &c.Ins[1], w: present(&c.Ins[2]), stats: &c.Ins[3], arrived: present(&c.Ins[4]),
		dx: present(&c.Outs[0]), sums: []*core.Operand{present(&c.Outs[1]), present(&c.Outs[2])},
		rows: int(c.Ints[0]), n: int(c.Ints[1]), rms: c.Ints[2] != 0,
	}
	if p.n == 0 {
		return nil
	}
	if p.dx == nil || p.rows == 0 {
		return p.columns(r)
	}
	if p.parts() > 0 {
		if width, held := p.held(r.device.adapter.Software); held > 0 {
			return p.together(r, width, held)
		}
	}
	if err := p.inputs(r); err != nil {
		return err
	}
	return p.columns(r)
}

// present returns the operand, or nil if it is absent.
func present(o *core.Operand) *core.Operand {
	if !o.Present() {
		return nil
	}
	return o
}

// parts returns how many sums of each column are wanted.
func (p *layerNormGradient) parts() int {
	n := 0
	for _, o := range p.sums {
		if o != nil {
			n++
		}
	}
	return n
}

// fours reports whether the operands, those that are present, are read by fours.
func (p *layerNormGradient) fours(operands ...*core.Operand) bool {
	four := p.n%4 == 0
	for _, o := range operands {
		four = four && (o == nil || o.DType == core.Float32 && base(o)%4 == 0)
	}
	return four
}

// inputs computes dx alone.
func (p *layerNormGradient) inputs(r *recorder) error {
	s := newShader(r, "layer_norm_backward")
	t := s.row(line{p.rows, p.n, 1})
	t.in("x", p.x)
	t.in("g", p.g)
	t.out("dx", p.dx)
	slope, more := "$g", ""
	if s.flag(p.w != nil) {
		t.same("w", p.w)
		slope = "$g * $w"
	}
	if s.flag(p.arrived != nil) {
		t.once("arrived", p.arrived)
		more = " + $arrived"
	}
	stats, rows, share := s.in("stats", p.stats, expr.F32, expr.Number), s.uint(p.rows), s.float(1/float64(p.n))
	s.flag(p.rms)
	head := t.open(r.device.adapter.Software)
	return s.run(r, p.rows, func() string {
		mean := "ld_stats(" + stats + " + group)"
		if p.rms {
			mean = "0.0"
		}
		text := wholeSum(t.width) + head() + "  let mean = " + mean + ";\n  let scale = ld_stats(" + stats + " + " + rows + " + group);\n" +
			"  var a = 0.0;\n  var b = 0.0;\n" + t.pass("let d = "+slope+"; a = a + d; b = b + d * (($x - mean) * scale);")
		if p.rms {
			text += "  let first_moment = 0.0;\n"
		} else {
			text += "  let first_moment = whole_sum(lane, a) * " + share + ";\n"
		}
		return text + "  let second_moment = whole_sum(lane, b) * " + share + ";\n" +
			t.pass("let d = "+slope+"; $dx = scale * (d - first_moment - ($x - mean) * scale * second_moment)"+more+";") + "}\n"
	})
}

// Package loss has the GPU kernels of classification losses.
package loss

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.CrossEntropy, func(r *shader.Recorder, c *core.Call) error { return classLoss(r, c, true) })
	kernel.Register(contract.CrossEntropyBackward, crossEntropyBackwardCall)
	kernel.Register(contract.NLLLoss, func(r *shader.Recorder, c *core.Call) error { return classLoss(r, c, false) })
	kernel.Register(contract.NLLLossBackward, nllBackwardCall)
}

// A classProblem is the common part of classification losses: scores [batch, classes, inner], a target for each sample, and an optional
// weight for each class. Strings are expressions.
type classProblem struct {
	line                  primitive.Axis
	width                 int
	vec4                  bool // scores are read as vec4, except for elements at the ends of rows
	wholeRows             bool // rows of gradients begin and end at multiples of four elements, with padding at their end
	several               int  // scores, or vec4 of them, that an invocation reads in an iteration
	x, target, weight     string
	keep, even, ignored   string
	probabilities, smooth bool
}

// bind binds x, target and weight, the first inputs, and adds the parameters.
func (p *classProblem) bind(r *shader.Recorder, s *shader.Builder, c *core.Call) {
	x, target, weight := &c.Ins[0], &c.Ins[1], &c.Ins[2]
	a := contract.ClassLossOf(c)
	p.line = primitive.Axis{Outer: a.Batch, N: a.Classes, Inner: a.Inner}
	p.width = primitive.RowThreads(p.line.N)
	p.several = 8
	if p.vec4 = s.Flag(p.line.Inner == 1 && shader.HasVec4(x.DType)); p.vec4 {
		p.several = 4
	}
	if r.GPU.Software { // software adapters take long to compile long programs
		p.several /= 4
	}
	p.x = s.In("x", x, expr.F32, expr.Number)
	s.Bindings[len(s.Bindings)-1].Vec4 = p.vec4
	if p.probabilities = s.Flag(target.DType != core.Int64); p.probabilities {
		p.target = s.In("truth", target, expr.F32, expr.Number)
	} else {
		p.target = s.In("truth", target, expr.I64, expr.Number)
	}
	if s.Flag(weight.Present()) {
		p.weight = s.In("weight", weight, expr.F32, expr.Number)
	}
	smoothing := contract.Smoothing(c)
	p.smooth = s.Flag(smoothing > 0)
	p.keep, p.even = s.Float(1-smoothing), s.Float(smoothing/float64(max(p.line.N, 1)))
	p.ignored = s.Long(a.IgnoreIndex)
}

// weightAt returns the expression for the weight of a class.
func (p *classProblem) weightAt(class string) string {
	if p.weight == "" {
		return "1.0"
	}
	return "ld_weight(" + p.weight + " + " + class + ")"
}

// class returns statements that define y, the sample's class, and counts, which is false if the class is invalid or ignored.
func (p *classProblem) class(sample string) string {
	return fmt.Sprintf(`  let wanted = ld_truth(%s + %s);
  let ignored = all(wanted == %s);
  let counts = !ignored && wanted.y == 0u && wanted.x < n;
  let y = select(0u, wanted.x, counts);
`, p.target, sample, p.ignored)
}

// classLoss computes cross_entropy: loss, lse, total = f(x, target, weight); or nll_loss: loss, total = f(x, target, weight).
func classLoss(r *shader.Recorder, c *core.Call, entropy bool) error {
	a := contract.ClassLossOf(c)
	samples := a.Batch * a.Inner
	parts, err := r.Reals(2 * max(samples, 1))
	if err != nil {
		return err
	}
	var p classProblem
	s := shader.New(r, map[bool]string{true: "cross_entropy", false: "nll_loss"}[entropy])
	p.bind(r, s, c)
	to, samplesWord := s.RealsOf("parts", parts), s.Uint(samples)
	lse := ""
	if entropy {
		lse = s.Out("lse", &c.Outs[1], expr.F32, expr.Number)
	}
	fault := ""
	if !p.probabilities {
		fault = s.Faults(r, c, func(c *core.Call, at uint32) error {
			return core.Errorf(core.IndexError, c.Op, "the target at position %d of %v is no class, got %d classes and ignore_index %d",
				at, c.Ins[1].Shape, a.Classes, a.IgnoreIndex)
		})("group")
	}
	head := p.line.Open(s, p.width)
	if samples > 0 && p.line.N > 0 {
		if err := s.Run(r, samples, func(w *shader.Text) { p.loss(w, head, to, samplesWord, lse, fault, entropy) }); err != nil {
			return err
		}
	}
	total := &c.Outs[len(c.Outs)-1]
	return finishLoss(r, parts, samples, &c.Outs[0], total, a.Reduction)
}

// loss writes the program for a sample's loss and its weight in the mean.
func (p *classProblem) loss(w *shader.Text, head func(w *shader.Text), to, samples, lse, fault string, entropy bool) {
	if entropy {
		w.Reduce("most", shader.Real, "max(a, b)", p.width)
	}
	w.Sum(p.width)
	head(w)
	if entropy {
		p.lse(w, lse)
	}
	w.Add("  var a = 0.0;\n  var b = 0.0;\n  var loss = 0.0;\n  var share = 0.0;")
	sums := func(target string) {
		w.Put(primitive.Along(p.width, fmt.Sprintf("let q = %s%s; a = a + q; b = b + q * ld_x(%s + at);", p.weightAt("j"), target, p.x)))
		w.Add("  let mass = whole_sum(lane, a);\n  let score = whole_sum(lane, b);")
	}
	switch {
	case p.probabilities:
		sums(fmt.Sprintf(" * (ld_truth(%s + at) * %s + %s)", p.target, p.keep, p.even))
		w.Add("  loss = lse * mass - score;\n  share = 1.0;")
	case entropy:
		if p.smooth {
			sums("")
		}
		w.Put(p.class("group"))
		w.Add("  if (counts) {\n    share = %s;\n    loss = %s * share * (lse - ld_x(%s + first + y * step));", p.weightAt("y"), p.keep, p.x)
		if p.smooth {
			w.Add("    loss = loss + %s * (lse * mass - score);", p.even)
		}
		w.Add("  }")
	default:
		w.Put(p.class("group"))
		w.Add("  if (counts) {\n    share = %s;\n    loss = -share * ld_x(%s + first + y * step);\n  }", p.weightAt("y"), p.x)
	}
	if fault != "" {
		w.Add("  if (lane == 0u && !counts && !ignored) { %s }", fault)
	}
	w.Add("  if (lane == 0u) {\n    parts[%s + group] = loss;\n    parts[%s + %s + group] = share;\n  }", to, to, samples)
}

// largest is the largest finite number.
const largest = "plait_largest()"

// lse writes statements that define lse, the logarithm of the sum of the exponentials of a row's scores. They read the scores once: each
// invocation keeps the maximum so far and the sum of exponentials relative to it (Milakov and Gimelshein, "Online normalizer calculation
// for softmax", 2018).
func (p *classProblem) lse(w *shader.Text, to string) {
	// An iteration loads all its scores before it uses one, so that all loads are in flight at once.
	fold := func(reads string, scores []string) string {
		top, shares, bits := "m", "t * plait_exp_share(m - top)", "bits"
		for _, v := range scores {
			top = "max(" + top + ", " + v + ")"
			shares += " + plait_exp_share(" + v + " - top)"
			bits = "max(" + bits + ", plait_magnitude(" + v + "))"
		}
		return fmt.Sprintf(`%s    let top = %s;
    t = %s;
    m = top;
    bits = %s;
`, reads, top, shares, bits)
	}
	w.Add("  var m = -%s;\n  var t = 0.0;\n  var bits = 0u;", largest)
	if p.vec4 {
		w.Put(vec4sOf(p.x))
		w.Add("  let near = (%s + first + head) >> 2u;", p.x)
		w.Put(primitive.Unroll("q", "vec4s", p.width, p.several, func(numbers []string) string {
			reads, scores := "", []string(nil)
			for k, q := range numbers {
				reads += fmt.Sprintf("    let v%d = ld4_x(near + %s);\n", k, q)
				for c := range 4 {
					scores = append(scores, fmt.Sprintf("v%d.%s", k, shader.Component(c)))
				}
			}
			return fold(reads, scores)
		}))
		w.Put(rowEnds(fold(fmt.Sprintf("    let v = ld_x(%s + first + j);\n", p.x), []string{"v"})))
	} else {
		w.Put(primitive.Unroll("i", "n", p.width, p.several, func(numbers []string) string {
			reads, scores := "", []string(nil)
			for k, j := range numbers {
				reads += fmt.Sprintf("    let v%d = ld_x(%s + first + %s * step);\n", k, p.x, j)
				scores = append(scores, fmt.Sprintf("v%d", k))
			}
			return fold(reads, scores)
		}))
	}
	// plait_exp_share ignores NaN, so NaN is looked for, and so is an infinite maximum. A score of minus infinity has an exponential of 0,
	// even if the maximum is the lowest number.
	w.Add(`  let most = whole_most(lane, m);
  t = select(t * plait_exp_share(m - most), plait_nan(), bits > 0x7f800000u || most > %s);
  let lse = most + plait_log_f32(whole_sum(lane, t));
  if (lane == 0u) { st_lse(%s + group, lse); }`, largest, to)
}

// finishLoss reduces the losses of samples in parts, which are followed by the weights in the mean.
func finishLoss(r *shader.Recorder, parts core.Memory, samples int, loss, total *core.Operand, reduction contract.LossReduction) error {
	if reduction != contract.LossMean && reduction != contract.LossSum {
		s := shader.New(r, "losses")
		from, to, n := s.RealsOf("parts", parts), s.Out("y", loss, expr.F32, expr.Number), s.Uint(samples)
		if err := s.Run(r, shader.GroupsFor(samples), func(w *shader.Text) {
			w.Each(n)
			w.Add("  st_y(%s + i, parts[%s + i]);", to, from)
		}); err != nil {
			return err
		}
	}
	s := shader.New(r, "loss")
	from, n := s.RealsOf("parts", parts), s.Uint(samples)
	to, y, value := "", "", "sum"
	if s.Flag(total.Present()) {
		to = s.Out("total", total, expr.F32, expr.Number)
	}
	s.Specialize(int(reduction))
	switch reduction {
	case contract.LossMean:
		y, value = s.Out("y", loss, expr.F32, expr.Number), "sum / count"
	case contract.LossSum:
		y = s.Out("y", loss, expr.F32, expr.Number)
	}
	return s.Run(r, 1, func(w *shader.Text) {
		w.Sum(256)
		w.Main(256)
		w.Add(`  var a = 0.0;
  var b = 0.0;
  for (var j = li; j < %s; j += 256u) {
    a = a + parts[%s + j];
    b = b + parts[%s + %s + j];
  }
  let sum = whole_sum(li, a);
  let count = whole_sum(li, b);
  if (li > 0u) { return; }`, n, from, from, n)
		if to != "" {
			w.Add("  st_total(%s, count);", to)
		}
		if y != "" {
			w.Add("  st_y(%s, %s);", y, value)
		}
	})
}

// gradient binds the gradient of the loss and the total. It returns the expression for the gradient of a sample's loss.
func (p *classProblem) gradient(s *shader.Builder, c *core.Call, g, total *core.Operand, sample string) string {
	at := s.In("g", g, expr.F32, expr.Number)
	sum := s.In("total", total, expr.F32, expr.Number)
	reduction := contract.ClassLossOf(c).Reduction
	s.Specialize(int(reduction))
	switch reduction {
	case contract.LossMean:
		return "ld_g(" + at + ") / ld_total(" + sum + ")"
	case contract.LossSum:
		return "ld_g(" + at + ")"
	}
	return "ld_g(" + at + " + " + sample + ")"
}

// crossEntropyBackwardCall: dx, dtarget = f(x, target, weight, dloss, lse, total). Outputs may be absent.
func crossEntropyBackwardCall(r *shader.Recorder, c *core.Call) error {
	var p classProblem
	s := shader.New(r, "cross_entropy_backward")
	p.bind(r, s, c)
	dxWhole, writes := wholeRows(&c.Outs[0], p.line.N)
	vec4 := s.Flag(p.vec4 && !p.probabilities && writes)
	p.wholeRows = s.Flag(dxWhole)
	sample := "group"
	if vec4 {
		sample = "row"
	}
	g := p.gradient(s, c, &c.Ins[3], &c.Ins[5], sample)
	lse := s.In("lse", &c.Ins[4], expr.F32, expr.Number)
	dx, dtarget := "", ""
	if s.Flag(c.Outs[0].Present()) {
		dx = bindRows(s, "dx", &c.Outs[0], sample)
		s.Bindings[len(s.Bindings)-1].Vec4 = vec4
	}
	if s.Flag(c.Outs[1].Present()) {
		dtarget = bindRows(s, "dtarget", &c.Outs[1], sample)
	}
	if p.line.Rows() == 0 || p.line.N == 0 {
		return nil
	}
	var head func(w *shader.Text)
	groups := p.line.Rows()
	if vec4 {
		piece := p.several * p.width
		if p.weight != "" && p.smooth { // each workgroup of a row sums all weights
			piece = p.line.N
		}
		head, groups = p.line.OpenPieces(s, p.width, piece)
	} else {
		head = p.line.Open(s, p.width)
	}
	return s.Run(r, groups, func(w *shader.Text) {
		if vec4 {
			shifted(w)
		}
		w.Sum(p.width)
		head(w)
		w.Add(`  let lse = ld_lse(%s + %s);
  let g = %s;`, lse, sample, g)
		if p.probabilities {
			share := "ld_truth(" + p.target + " + at) * " + p.keep + " + " + p.even
			w.Add("  var a = 0.0;")
			w.Put(primitive.Along(p.width, "a = a + "+p.weightAt("j")+" * ("+share+");"))
			w.Add("  let mass = whole_sum(lane, a);")
			body := "let v = ld_x(" + p.x + " + at); "
			if dx != "" {
				body += "st_dx(" + dx + " + at, plait_exp_f32(v - lse) * (g * mass) - g * " + p.weightAt("j") + " * (" + share + ")); "
			}
			if dtarget != "" {
				body += "st_dtarget(" + dtarget + " + at, -g * " + p.keep + " * " + p.weightAt("j") + " * (v - lse));"
			}
			w.Put(primitive.Along(p.width, body))
			return
		}
		w.Put(p.class(sample))
		mass := "real(n)"
		if p.weight != "" && p.smooth {
			w.Add("  var a = 0.0;")
			w.Put(primitive.Along(p.width, "a = a + "+p.weightAt("j")+";"))
			w.Add("  let mass = whole_sum(lane, a);")
			mass = "mass"
		}
		w.Add(`  let wy = %s;
  let share = g * (%s * wy + %s * %s);`, p.weightAt("y"), p.keep, p.even, mass)
		// If lse is not finite, the gradients are NaN.
		w.Add(`  let scale = select(share, plait_nan(), plait_unbounded(lse));
  let hit = g * %s * wy;`, p.keep)
		slope := func(v, j string) string {
			d := "plait_exp_share(" + v + " - lse) * scale - select(0.0, hit, " + j + " == y)"
			if p.smooth {
				d += " - g * " + p.even + " * " + p.weightAt(j)
			}
			return "select(0.0, " + d + ", counts)"
		}
		if vec4 {
			p.gradientsVec4(w, dx, slope)
			return
		}
		w.Put(primitive.Along(p.width, "st_dx("+dx+" + at, "+slope("ld_x("+p.x+" + at)", "j")+");"))
	})
}

// wholeRows reports whether rows of a 16-bit output begin at multiples of four elements and end there or have padding up to there; and
// whether rows can be written as vec4: those of wider dtypes always can.
func wholeRows(o *core.Operand, n int) (whole, vec4 bool) {
	if !o.Present() || shader.PerWord(o.DType) == 1 {
		return false, true
	}
	apart := n
	if len(o.Shape) == 2 {
		apart = o.Strides[0]
	}
	whole = shader.Vec4(o, apart)
	return whole, whole
}

// bindRows binds an output whose rows may be padded. It returns the expression that is added to an index into unpadded rows.
func bindRows(s *shader.Builder, name string, o *core.Operand, row string) string {
	first, gap := s.Out(name, o, expr.F32, expr.Number), 0
	if len(o.Shape) == 2 {
		gap = o.Strides[0] - o.Shape[1]
	}
	if s.Flag(gap > 0) {
		first += " + " + row + " * " + s.Uint(gap)
	}
	return first
}

// nllBackwardCall: dx = f(x, target, weight, dloss, total).
func nllBackwardCall(r *shader.Recorder, c *core.Call) error {
	var p classProblem
	s := shader.New(r, "nll_loss_backward")
	p.bind(r, s, c)
	g := p.gradient(s, c, &c.Ins[3], &c.Ins[4], "group")
	dx := s.Out("dx", &c.Outs[0], expr.F32, expr.Number)
	head := p.line.Open(s, p.width)
	if p.line.Rows() == 0 || p.line.N == 0 {
		return nil
	}
	return s.Run(r, p.line.Rows(), func(w *shader.Text) {
		head(w)
		w.Add("  let g = %s;", g)
		w.Put(p.class("group"))
		w.Put(primitive.Along(p.width, "st_dx("+dx+" + at, select(0.0, -g * "+p.weightAt("y")+", counts && j == y));"))
	})
}

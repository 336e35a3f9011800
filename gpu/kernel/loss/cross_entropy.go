// Package loss computes losses of classes.
package loss

import (
	"fmt"
	"strings"

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

// Indices into the integer attributes of the kernels in this file, and what is done with the losses of samples.
const (
	lossBatch = iota
	lossClasses
	lossInner
	lossReduction
	lossIgnored

	lossMean = 1
	lossSum  = 2
)

// A classProblem is what the losses on classes share: scores [batch, classes, inner], a target for each sample, and
// perhaps a weight for each class. Its fields are WGSL.
type classProblem struct {
	line                  primitive.Axis
	width                 int
	fours                 bool // each row's scores, but for a few at its ends, are read by fours
	several               int  // scores or fours that an invocation reads at once
	x, target, weight     string
	keep, even, ignored   string
	probabilities, smooth bool
}

// bind adds the problem to a shader: x, target and weight are the first inputs, label smoothing the first float.
func (p *classProblem) bind(r *shader.Recorder, s *shader.Builder, c *core.Call) {
	x, target, weight := &c.Ins[0], &c.Ins[1], &c.Ins[2]
	p.line = primitive.Axis{Outer: int(c.Ints[lossBatch]), N: int(c.Ints[lossClasses]), Inner: int(c.Ints[lossInner])}
	p.width = primitive.RowThreads(p.line.N)
	p.several = 8
	if p.fours = s.Flag(p.line.Inner == 1 && x.DType == core.Float32); p.fours {
		p.several = 4
	}
	if r.GPU.Software { // compiles long programs slowly
		p.several /= 4
	}
	p.x = s.In("x", x, expr.F32, expr.Number)
	s.Bindings[len(s.Bindings)-1].Vec4 = p.fours
	if p.probabilities = s.Flag(target.DType != core.Int64); p.probabilities {
		p.target = s.In("truth", target, expr.F32, expr.Number)
	} else {
		p.target = s.In("truth", target, expr.I64, expr.Number)
	}
	if s.Flag(weight.Present()) {
		p.weight = s.In("weight", weight, expr.F32, expr.Number)
	}
	smoothing := 0.0
	if len(c.Floats) > 0 {
		smoothing = c.Floats[0]
	}
	p.smooth = s.Flag(smoothing > 0)
	p.keep, p.even = s.Float(1-smoothing), s.Float(smoothing/float64(max(p.line.N, 1)))
	p.ignored = s.Long(c.Ints[lossIgnored])
}

// weightAt returns WGSL for the weight of a class.
func (p *classProblem) weightAt(class string) string {
	if p.weight == "" {
		return "1.0"
	}
	return "ld_weight(" + p.weight + " + " + class + ")"
}

// class returns statements that define y, the sample's class, and counts, whether it is one that counts.
func (p *classProblem) class(sample string) string {
	return "  let wanted = ld_truth(" + p.target + " + " + sample + ");\n" +
		"  let ignored = all(wanted == " + p.ignored + ");\n" +
		"  let counts = !ignored && wanted.y == 0u && wanted.x < n;\n  let y = select(0u, wanted.x, counts);\n"
}

// classLoss is cross_entropy: loss, lse, total = f(x, target, weight), and nll_loss: loss, total = f(x, target, weight).
func classLoss(r *shader.Recorder, c *core.Call, entropy bool) error {
	samples := int(c.Ints[lossBatch] * c.Ints[lossInner])
	parts, err := r.Temp(8 * max(samples, 1))
	if err != nil {
		return err
	}
	var p classProblem
	s := shader.New(r, map[bool]string{true: "cross_entropy", false: "nll_loss"}[entropy])
	p.bind(r, s, c)
	to, samplesWord := s.FloatsOf("parts", parts), s.Uint(samples)
	lse := ""
	if entropy {
		lse = s.Out("lse", &c.Outs[1], expr.F32, expr.Number)
	}
	fault := ""
	if !p.probabilities {
		fault = s.Faults(r, c, func(c *core.Call, at uint32) error {
			return core.Errorf(core.IndexError, c.Op, "the target at position %d of %v is no class, got %d classes and ignore_index %d",
				at, c.Ins[1].Shape, c.Ints[lossClasses], c.Ints[lossIgnored])
		})("group")
	}
	head := p.line.Open(s, p.width)
	if samples > 0 && p.line.N > 0 {
		if err := s.Run(r, samples, func() string { return p.lossText(head(), to, samplesWord, lse, fault, entropy) }); err != nil {
			return err
		}
	}
	total := &c.Outs[len(c.Outs)-1]
	return finishLoss(r, parts, samples, &c.Outs[0], total, int(c.Ints[lossReduction]))
}

func (p *classProblem) lossText(head, to, samples, lse, fault string, entropy bool) string {
	w := p.width
	text := shader.WorkgroupSum(w) + head
	if entropy {
		text = shader.WorkgroupReduce("most", "f32", "max(a, b)", w) + text + p.lseText(lse)
	}
	switch {
	case p.probabilities:
		text += "  var a = 0.0;\n  var b = 0.0;\n" +
			primitive.Along(w, "let q = "+p.weightAt("j")+" * (ld_truth("+p.target+" + at) * "+p.keep+" + "+p.even+"); a = a + q; b = b + q * ld_x("+p.x+" + at);") +
			"  let mass = whole_sum(lane, a);\n  let score = whole_sum(lane, b);\n  let loss = lse * mass - score;\n  let share = 1.0;\n"
	case entropy:
		if p.smooth {
			text += "  var a = 0.0;\n  var b = 0.0;\n" + primitive.Along(w, "let q = "+p.weightAt("j")+"; a = a + q; b = b + q * ld_x("+p.x+" + at);") +
				"  let mass = whole_sum(lane, a);\n  let score = whole_sum(lane, b);\n"
		}
		text += p.class("group") + "  var loss = 0.0;\n  var share = 0.0;\n  if (counts) {\n    share = " + p.weightAt("y") + ";\n" +
			"    loss = " + p.keep + " * share * (lse - ld_x(" + p.x + " + first + y * step));\n"
		if p.smooth {
			text += "    loss = loss + " + p.even + " * (lse * mass - score);\n"
		}
		text += "  }\n"
	default:
		text += p.class("group") + "  var loss = 0.0;\n  var share = 0.0;\n  if (counts) {\n    share = " + p.weightAt("y") + ";\n" +
			"    loss = -share * ld_x(" + p.x + " + first + y * step);\n  }\n"
	}
	if fault != "" {
		text += "  if (lane == 0u && !counts && !ignored) { " + fault + " }\n"
	}
	return text + "  if (lane == 0u) {\n    parts[" + to + " + group] = loss;\n    parts[" + to + " + " + samples + " + group] = share;\n  }\n}\n"
}

// largest is the largest number.
const largest = "bitcast<f32>(0x7f7fffffu)"

// lseText returns statements that define lse, the logarithm of the sum of the exponentials of a row's scores, which they read once:
// each invocation keeps the largest of its scores so far, and the sum of the others' shares of it (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018).
func (p *classProblem) lseText(to string) string {
	// All of a round is read before anything is done with it, so that as many reads are on their way.
	fold := func(reads string, scores []string) string {
		top, shares, bits := "m", "t * plait_exp_share(m - top)", "bits"
		for _, v := range scores {
			top = "max(" + top + ", " + v + ")"
			shares += " + plait_exp_share(" + v + " - top)"
			bits = "max(" + bits + ", bitcast<u32>(" + v + ") & 0x7fffffffu)"
		}
		return reads + "    let top = " + top + ";\n    t = " + shares + ";\n    m = top;\n    bits = " + bits + ";\n"
	}
	loop := ""
	if p.fours {
		loop = foursOf(p.x) + "  let near = (" + p.x + " + first + head) >> 2u;\n" + primitive.Unroll("q", "fours", p.width, p.several, func(numbers []string) string {
			reads, scores := "", []string(nil)
			for k, q := range numbers {
				reads += fmt.Sprintf("    let v%d = x[near + %s];\n", k, q)
				for _, c := range "xyzw" {
					scores = append(scores, fmt.Sprintf("v%d.%c", k, c))
				}
			}
			return fold(reads, scores)
		}) + ends(fold("    let v = ld_x("+p.x+" + first + j);\n", []string{"v"}))
	} else {
		loop = primitive.Unroll("i", "n", p.width, p.several, func(numbers []string) string {
			reads, scores := "", []string(nil)
			for k, j := range numbers {
				reads += fmt.Sprintf("    let v%d = ld_x(%s + first + %s * step);\n", k, p.x, j)
				scores = append(scores, fmt.Sprintf("v%d", k))
			}
			return fold(reads, scores)
		})
	}
	// Shares do not know NaN: it is looked for, as is the infinity that would be the largest score. Scores of minus infinity have none,
	// also of the lowest number.
	return "  var m = -" + largest + ";\n  var t = 0.0;\n  var bits = 0u;\n" + loop +
		"  let most = whole_most(lane, m);\n" +
		"  t = select(t * plait_exp_share(m - most), plait_nan(), bits > 0x7f800000u || most > " + largest + ");\n" +
		"  let lse = most + plait_log_f32(whole_sum(lane, t));\n  if (lane == 0u) { st_lse(" + to + " + group, lse); }\n"
}

// finishLoss reduces the losses of samples, which lie in parts before what each counts in a mean.
func finishLoss(r *shader.Recorder, parts core.Memory, samples int, loss, total *core.Operand, reduction int) error {
	if reduction != lossMean && reduction != lossSum {
		s := shader.New(r, "losses")
		from, to, n := s.FloatsOf("parts", parts), s.Out("y", loss, expr.F32, expr.Number), s.Uint(samples)
		if err := s.Run(r, shader.GroupsFor(samples), func() string {
			return shader.Each(n, "  st_y("+to+" + i, parts["+from+" + i]);\n")
		}); err != nil {
			return err
		}
	}
	s := shader.New(r, "loss")
	from, n := s.FloatsOf("parts", parts), s.Uint(samples)
	write := ""
	if s.Flag(total.Present()) {
		write += "    st_total(" + s.Out("total", total, expr.F32, expr.Number) + ", count);\n"
	}
	switch s.Specialize(reduction) {
	case lossMean:
		write += "    st_y(" + s.Out("y", loss, expr.F32, expr.Number) + ", sum / count);\n"
	case lossSum:
		write += "    st_y(" + s.Out("y", loss, expr.F32, expr.Number) + ", sum);\n"
	}
	return s.Run(r, 1, func() string {
		return shader.WorkgroupSum(256) + `@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) li: u32) {
  var a = 0.0;
  var b = 0.0;
  for (var j = li; j < ` + n + `; j += 256u) {
    a = a + parts[` + from + ` + j];
    b = b + parts[` + from + ` + ` + n + ` + j];
  }
  let sum = whole_sum(li, a);
  let count = whole_sum(li, b);
  if (li == 0u) {
` + write + "  }\n}\n"
	})
}

// gradient adds the gradient of the loss and the total to a shader and returns WGSL for that of a sample.
func (p *classProblem) gradient(s *shader.Builder, c *core.Call, g, total *core.Operand, sample string) string {
	at := s.In("g", g, expr.F32, expr.Number)
	sum := s.In("total", total, expr.F32, expr.Number)
	switch s.Specialize(int(c.Ints[lossReduction])) {
	case lossMean:
		return "ld_g(" + at + ") / ld_total(" + sum + ")"
	case lossSum:
		return "ld_g(" + at + ")"
	}
	return "ld_g(" + at + " + " + sample + ")"
}

// crossEntropyBackwardCall: dx, dtarget = f(x, target, weight, dloss, lse, total). Outputs may be absent.
func crossEntropyBackwardCall(r *shader.Recorder, c *core.Call) error {
	var p classProblem
	s := shader.New(r, "cross_entropy_backward")
	p.bind(r, s, c)
	fours := p.fours && !p.probabilities
	sample := "group"
	if fours {
		sample = "row"
	}
	g := p.gradient(s, c, &c.Ins[3], &c.Ins[5], sample)
	lse := s.In("lse", &c.Ins[4], expr.F32, expr.Number)
	dx, dtarget := "", ""
	if s.Flag(c.Outs[0].Present()) {
		dx = rowsApart(s, "dx", &c.Outs[0], sample)
		s.Bindings[len(s.Bindings)-1].Vec4 = fours
	}
	if s.Flag(c.Outs[1].Present()) {
		dtarget = rowsApart(s, "dtarget", &c.Outs[1], sample)
	}
	if p.line.Rows() == 0 || p.line.N == 0 {
		return nil
	}
	var head func() string
	groups := p.line.Rows()
	if fours {
		piece := p.several * p.width
		if p.weight != "" && p.smooth { // of which each workgroup sums all weights
			piece = p.line.N
		}
		head, groups = p.line.OpenPieces(s, p.width, piece)
	} else {
		head = p.line.Open(s, p.width)
	}
	return s.Run(r, groups, func() string {
		w := p.width
		text := shader.WorkgroupSum(w) + head() + "  let lse = ld_lse(" + lse + " + " + sample + ");\n  let g = " + g + ";\n"
		if p.probabilities {
			share := "ld_truth(" + p.target + " + at) * " + p.keep + " + " + p.even
			text += "  var a = 0.0;\n" + primitive.Along(w, "a = a + "+p.weightAt("j")+" * ("+share+");") + "  let mass = whole_sum(lane, a);\n"
			body := "let v = ld_x(" + p.x + " + at); "
			if dx != "" {
				body += "st_dx(" + dx + " + at, plait_exp_f32(v - lse) * (g * mass) - g * " + p.weightAt("j") + " * (" + share + ")); "
			}
			if dtarget != "" {
				body += "st_dtarget(" + dtarget + " + at, -g * " + p.keep + " * " + p.weightAt("j") + " * (v - lse));"
			}
			return text + primitive.Along(w, body) + "}\n"
		}
		text += p.class(sample)
		mass := "f32(n)"
		if p.weight != "" && p.smooth {
			text += "  var a = 0.0;\n" + primitive.Along(w, "a = a + "+p.weightAt("j")+";") + "  let mass = whole_sum(lane, a);\n"
			mass = "mass"
		}
		text += "  let wy = " + p.weightAt("y") + ";\n  let share = g * (" + p.keep + " * wy + " + p.even + " * " + mass + ");\n"
		// Where the logarithm is none, neither is any gradient.
		text += "  let scale = select(share, plait_nan(), (bitcast<u32>(lse) & 0x7fffffffu) >= 0x7f800000u);\n  let hit = g * " + p.keep + " * wy;\n"
		slope := func(v, j string) string {
			d := "plait_exp_share(" + v + " - lse) * scale - select(0.0, hit, " + j + " == y)"
			if p.smooth {
				d += " - g * " + p.even + " * " + p.weightAt(j)
			}
			return "select(0.0, " + d + ", counts)"
		}
		if fours {
			return shifted + text + p.slopesByFours(dx, slope) + "}\n"
		}
		return text + primitive.Along(w, "st_dx("+dx+" + at, "+slope("ld_x("+p.x+" + at)", "j")+");") + "}\n"
	})
}

// shifted is what begins phase elements after a.
const shifted = `fn shifted(a: vec4<f32>, b: vec4<f32>, phase: u32) -> vec4<f32> {
  let far = (phase & 2u) != 0u;
  let v = select(a, vec4<f32>(a.zw, b.xy), far);
  return select(v, vec4<f32>(v.yzw, select(b.x, b.z, far)), (phase & 1u) != 0u);
}
`

// foursOf returns statements that define how a row lies that begins at a position: the first head of its elements come before a
// multiple of four, and behind them as many fours.
func foursOf(first string) string {
	return "  let head = min((0u - (" + first + " + first)) & 3u, n);\n  let fours = (n - head) >> 2u;\n"
}

// ends returns statements that some invocations of a row run with an element j each that is in none of its fours.
func ends(body string) string {
	return "  let j = select(head + 4u * fours + lane - 4u, lane, lane < 4u);\n" +
		"  if (j < select(n, head, lane < 4u) && lane < 8u) {\n" + body + "  }\n"
}

// slopesByFours returns statements that write a piece of a row's gradients four at a time, of scores that may lie across two fours.
func (p *classProblem) slopesByFours(dx string, slope func(v, j string) string) string {
	text := foursOf(dx) + "  let begin = piece * most;\n  let count = min(max(fours, begin) - begin, most);\n  let from_x = " + p.x + " + first + head;\n" +
		"  let phase = from_x & 3u;\n  let near = (from_x >> 2u) + begin;\n  let to = ((" + dx + " + first + head) >> 2u) + begin;\n  let place = head + 4u * begin;\n"
	text += primitive.Unroll("q", "count", p.width, p.several, func(numbers []string) string {
		reads, writes := "", ""
		for k, q := range numbers {
			reads += fmt.Sprintf("    let q%[1]d = %[2]s;\n    let v%[1]d = shifted(x[near + q%[1]d], x[near + q%[1]d + 1u], phase);\n", k, q)
			var parts []string
			for c := range 4 {
				parts = append(parts, slope(fmt.Sprintf("v%d.%c", k, "xyzw"[c]), fmt.Sprintf("(place + q%d * 4u + %du)", k, c)))
			}
			writes += fmt.Sprintf("    dx[to + q%d] = vec4<f32>(%s);\n", k, strings.Join(parts, ", "))
		}
		return reads + writes
	})
	return text + "  if (piece != 0u) { return; }\n" +
		ends("    st_dx("+dx+" + first + j, "+slope("ld_x("+p.x+" + first + j)", "j")+");\n")
}

// rowsApart binds an output that is written as if its rows followed one another, and returns WGSL for where a row begins beyond
// its place then: the rows of a matrix may lie apart.
func rowsApart(s *shader.Builder, name string, o *core.Operand, row string) string {
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
	return s.Run(r, p.line.Rows(), func() string {
		return head() + "  let g = " + g + ";\n" + p.class("group") +
			primitive.Along(p.width, "st_dx("+dx+" + at, select(0.0, -g * "+p.weightAt("y")+", counts && j == y));") + "}\n"
	})
}

package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// Group and batch norm: statistics of parts of [batch, channels, inner], and factors and summands for each channel.

func init() {
	register("group_norm", groupNormCall)
	register("group_norm_backward", groupNormBackwardCall)
	register("batch_norm", batchNormCall)
	register("batch_norm_running", batchNormRunningCall)
	register("batch_norm_backward", batchNormBackwardCall)
}

// A normed is what these norms share: x [batch, channels, inner] contiguous, with statistics for each group of a batch's
// channels, or, where groups is 0, for each channel.
type normed struct{ batch, channels, inner, groups int }

func normedOf(c *core.Call) normed {
	return normed{batch: int(c.Ints[0]), channels: int(c.Ints[1]), inner: int(c.Ints[2])}
}

func (n normed) count() int { return n.batch * n.channels * n.inner }

// statistics returns how many means there are, and WGSL for the number of the one of image b and channel c.
func (n normed) statistics(s *shader) (count int, at string) {
	if n.groups == 0 {
		return n.channels, "c"
	}
	return n.batch * n.groups, "(b * " + s.uint(n.groups) + " + c / " + s.uint(n.channels/n.groups) + ")"
}

// floatOperand returns a contiguous float32 operand in scratch memory.
func floatOperand(m core.Memory, offset int, shape ...int) *core.Operand {
	o := &core.Operand{Memory: m, Offset: offset, DType: core.Float32, Shape: shape, Strides: make([]int, len(shape))}
	core.ContiguousStrides(shape, o.Strides)
	return o
}

// groupNormCall: y, stats [mean, 1/deviation] = f(x, weight, bias) with ints batch, channels, inner, groups and float eps.
func groupNormCall(r *recorder, c *core.Call) error {
	n := normedOf(c)
	n.groups = int(c.Ints[3])
	rows := n.batch * n.groups
	if n.count() == 0 {
		return nil
	}
	stats := &c.Outs[1]
	if !stats.Present() {
		m, err := r.temp(8 * rows)
		if err != nil {
			return err
		}
		stats = floatOperand(m, 0, 2, rows)
	}
	x := floatLike(&c.Ins[0], rows, n.count()/rows)
	if err := n.moments(r, x, []int64{1}, stats, rows, c.Floats[0], false); err != nil {
		return err
	}
	return n.apply(r, c, stats)
}

// floatLike returns a contiguous operand with another shape.
func floatLike(o *core.Operand, shape ...int) *core.Operand {
	v := *o
	v.Shape, v.Strides = shape, make([]int, len(shape))
	core.ContiguousStrides(shape, v.Strides)
	return &v
}

// moments writes to stats the mean over dims of x, one over the deviation, and, if wanted, the variance.
func (n normed) moments(r *recorder, x *core.Operand, dims []int64, stats *core.Operand, count int, eps float64, variance bool) error {
	m, err := r.temp(8 * count)
	if err != nil {
		return err
	}
	f, _ := foldOf("var", true, 0)
	v, mean := floatOperand(m, 0, count), floatOperand(m, count, count)
	if err := f.run(r, "var", x, []*core.Operand{v, mean}, dims, 0); err != nil {
		return err
	}
	s := newShader(r, "statistics")
	from, to, countWord, epsWord := s.floatsOf("m", m), s.out("y", stats, expr.F32, expr.Number), s.uint(count), s.float(eps)
	s.flag(variance)
	return s.run(r, groupsFor(count), func() string {
		text := "  let v = m[" + from + " + i];\n  st_y(" + to + " + i, m[" + from + " + " + countWord + " + i]);\n" +
			"  st_y(" + to + " + " + countWord + " + i, 1.0 / sqrt(v + " + epsWord + "));\n"
		if variance {
			text += "  st_y(" + to + " + 2u * " + countWord + " + i, v);\n"
		}
		return each(countWord, text)
	})
}

// apply writes y = (x - mean) / deviation * weight + bias.
func (n normed) apply(r *recorder, c *core.Call, stats *core.Operand) error {
	s := newShader(r, "norm")
	x, y := s.in("x", &c.Ins[0], expr.F32, expr.Number), s.out("y", &c.Outs[0], expr.F32, expr.Number)
	w := n.access(s, &c.Ins[0], &c.Outs[0])
	stat := s.in("stats", stats, expr.F32, expr.Number)
	affine := ""
	for i, name := range []string{"w", "a"} {
		if o := &c.Ins[1+i]; s.flag(o.Present()) {
			affine += "  v = v " + []string{"*", "+"}[i] + " ld_" + name + "(" + s.in(name, o, expr.F32, expr.Number) + " + c);\n"
		}
	}
	count, inner, channels := s.uint(n.count()/w.step), s.uint(n.inner/w.step), s.uint(n.channels)
	s.flag(n.groups == 0)
	total, at := n.statistics(s)
	totalWord := s.uint(total)
	return s.run(r, groupsFor(n.count()/w.step), func() string {
		return each(count, "  let plane = i / "+inner+";\n  let b = plane / "+channels+";\n  let c = plane - b * "+channels+";\n  let at = "+at+";\n"+
			"  var v = ("+w.load("x", x)+" - ld_stats("+stat+" + at)) * ld_stats("+stat+" + "+totalWord+" + at);\n"+affine+w.store("y", y, "v"))
	})
}

// A planeAccess is how programs access elements of planes: one by one or by fours, of one channel each.
type planeAccess struct{ step int }

// access decides for the operands, which are the shader's last.
func (n normed) access(s *shader, operands ...*core.Operand) planeAccess {
	four := n.inner%4 == 0
	for _, o := range operands {
		four = four && o.DType == core.Float32 && base(o)%4 == 0
	}
	if !s.flag(four) {
		return planeAccess{1}
	}
	for i := range operands {
		s.binds[len(s.binds)-1-i].four = true
	}
	return planeAccess{4}
}

// load returns WGSL for what invocation i reads of an operand that begins at first.
func (w planeAccess) load(name, first string) string {
	if w.step == 4 {
		return name + "[(" + first + " >> 2u) + i]"
	}
	return "ld_" + name + "(" + first + " + i)"
}

func (w planeAccess) store(name, first, value string) string {
	if w.step == 4 {
		return "  " + name + "[(" + first + " >> 2u) + i] = " + value + ";\n"
	}
	return "  st_" + name + "(" + first + " + i, " + value + ");\n"
}

// sums writes, for each channel, the sums of dy xhat and of dy to parts, in pieces: element [piece, which, channel]. Pieces
// are runs of images.
func (n normed) sums(r *recorder, x, g, stats *core.Operand) (parts core.Memory, pieces int, err error) {
	pieces = min(n.batch, max(4*busy/(n.channels*256), 1)) // an invocation has few loads on their way
	if parts, err = r.temp(8 * pieces * n.channels); err != nil {
		return parts, 0, err
	}
	s := newShader(r, "norm_backward (sums)")
	from, grad, stat := s.in("x", x, expr.F32, expr.Number), s.in("g", g, expr.F32, expr.Number), s.in("stats", stats, expr.F32, expr.Number)
	to := s.floatsOf("parts", parts)
	groups, channels, batch, inner, chunk := s.uint(pieces*n.channels), s.uint(n.channels), s.uint(n.batch), s.uint(n.inner), s.uint(ceil(n.batch, pieces))
	s.flag(n.groups == 0)
	total, at := n.statistics(s)
	totalWord := s.uint(total)
	width := 1
	for width < min(n.inner, 256) {
		width *= 2
	}
	across := s.uint(width)
	return parts, pieces, s.run(r, pieces*n.channels, func() string {
		// As many invocations as a plane needs, and of the rest others for other images: no divisions inside.
		return wholeSum(256) + "fn sums(li: u32, c: u32, begin: u32, end: u32) -> vec2<f32> {\n  var t = vec2<f32>();\n" +
			"  for (var b = begin + li / " + across + "; b < end; b += 256u / " + across + ") {\n    let at = " + at + ";\n" +
			"    let mean = ld_stats(" + stat + " + at);\n    let scale = ld_stats(" + stat + " + " + totalWord + " + at);\n" +
			"    let first = (b * " + channels + " + c) * " + inner + ";\n    for (var j = li % " + across + "; j < " + inner + "; j += " + across + ") {\n" +
			"      let d = ld_g(" + grad + " + first + j);\n" +
			"      t = t + vec2<f32>(d * ((ld_x(" + from + " + first + j) - mean) * scale), d);\n    }\n  }\n  return t;\n}\n" +
			`@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) li: u32) {
  let group = wg.y * grid.x + wg.x;
  if (group >= ` + groups + `) { return; }
  let c = group % ` + channels + `;
  let begin = min((group / ` + channels + `) * ` + chunk + `, ` + batch + `);
  let t = sums(li, c, begin, min(begin + ` + chunk + `, ` + batch + `));
  let first = whole_sum(li, t.x);
  let second = whole_sum(li, t.y);
  if (li == 0u) {
    let to = ` + to + ` + (group / ` + channels + `) * 2u * ` + channels + ` + c;
    parts[to] = first;
    parts[to + ` + channels + `] = second;
  }
}
`
	})
}

// parameters writes dweight and dbias where they are wanted, and returns the sums of both in scratch memory.
func (n normed) parameters(r *recorder, x, g, stats, dw, db *core.Operand) (*core.Operand, error) {
	parts, pieces, err := n.sums(r, x, g, stats)
	if err != nil {
		return nil, err
	}
	m, err := r.temp(8 * n.channels)
	if err != nil {
		return nil, err
	}
	all := floatOperand(m, 0, 2*n.channels)
	return all, sumParts(r, parts, pieces, n.channels, []*core.Operand{present(dw), present(db)}, all)
}

// groupNormBackwardCall: dx, dweight, dbias = f(x, dy, weight, stats) with ints batch, channels, inner, groups.
func groupNormBackwardCall(r *recorder, c *core.Call) error {
	n := normedOf(c)
	n.groups = int(c.Ints[3])
	x, g, w, stats := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3]
	if n.count() == 0 {
		for i := range c.Outs {
			if o := c.Outs[i]; o.Present() && o.Numel() > 0 {
				if err := copyCall(r, &core.Call{Outs: []core.Operand{o}, Ins: []core.Operand{{IsNumber: true}}}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if c.Outs[1].Present() || c.Outs[2].Present() {
		if _, err := n.parameters(r, x, g, stats, &c.Outs[1], &c.Outs[2]); err != nil {
			return err
		}
	}
	if !c.Outs[0].Present() {
		return nil
	}
	rows := n.batch * n.groups
	l := line{rows, n.count() / rows, 1}
	width := rowWidth(l.n)
	s := newShader(r, "group_norm_backward")
	from, grad, stat := s.in("x", x, expr.F32, expr.Number), s.in("g", g, expr.F32, expr.Number), s.in("stats", stats, expr.F32, expr.Number)
	dx, rowsWord := s.out("dx", &c.Outs[0], expr.F32, expr.Number), s.uint(rows)
	weight := ""
	if s.flag(w.Present()) {
		weight = " * ld_w(" + s.in("w", w, expr.F32, expr.Number) + " + (at / " + s.uint(n.inner) + ") % " + s.uint(n.channels) + ")"
	}
	head := l.open(s, width)
	return s.run(r, rows, func() string {
		return wholeSum(width) + head() + "  let mean = ld_stats(" + stat + " + group);\n  let scale = ld_stats(" + stat + " + " + rowsWord + " + group);\n" +
			"  var a = 0.0;\n  var b = 0.0;\n" +
			along(width, "let d = ld_g("+grad+" + at)"+weight+"; a = a + d; b = b + d * ((ld_x("+from+" + at) - mean) * scale);") +
			"  let first_moment = whole_sum(lane, a) / f32(n);\n  let second_moment = whole_sum(lane, b) / f32(n);\n" +
			along(width, "let d = ld_g("+grad+" + at)"+weight+"; st_dx("+dx+" + at, scale * (d - first_moment - (ld_x("+from+" + at) - mean) * scale * second_moment));") + "}\n"
	})
}

// batchNormCall: y, stats [mean, 1/deviation, variance] = f(x, weight, bias, running mean, running variance) with ints batch,
// channels, inner, training and float eps.
func batchNormCall(r *recorder, c *core.Call) error {
	n := normedOf(c)
	stats := &c.Outs[1]
	if c.Ints[3] != 0 {
		x := floatLike(&c.Ins[0], n.batch, n.channels, n.inner)
		if err := n.moments(r, x, []int64{0, 2}, stats, n.channels, c.Floats[0], true); err != nil {
			return err
		}
	} else {
		s := newShader(r, "running statistics")
		mean, variance, to := s.in("m", &c.Ins[3], expr.F32, expr.Number), s.in("v", &c.Ins[4], expr.F32, expr.Number), s.out("y", stats, expr.F32, expr.Number)
		count, eps := s.uint(n.channels), s.float(c.Floats[0])
		if err := s.run(r, groupsFor(n.channels), func() string {
			return each(count, "  let v = ld_v("+variance+" + i);\n  st_y("+to+" + i, ld_m("+mean+" + i));\n"+
				"  st_y("+to+" + "+count+" + i, 1.0 / sqrt(v + "+eps+"));\n  st_y("+to+" + 2u * "+count+" + i, v);\n")
		}); err != nil {
			return err
		}
	}
	if n.count() == 0 {
		return nil
	}
	return n.apply(r, c, stats)
}

// batchNormRunningCall moves the running mean and variance, its outputs, towards stats, its input, by the float momentum;
// the float count says of how many values the statistics are.
func batchNormRunningCall(r *recorder, c *core.Call) error {
	channels := c.Outs[0].Shape[0]
	s := newShader(r, "batch_norm_running")
	mean, variance := s.both("m", &c.Outs[0], expr.F32), s.both("v", &c.Outs[1], expr.F32)
	stats, count := s.in("stats", &c.Ins[0], expr.F32, expr.Number), s.uint(channels)
	momentum, unbiased := s.float(c.Floats[0]), s.float(c.Floats[1]/(c.Floats[1]-1))
	return s.run(r, groupsFor(channels), func() string {
		return each(count, "  let t = "+momentum+";\n  st_m("+mean+" + i, (1.0 - t) * ld_m("+mean+" + i) + t * ld_stats("+stats+" + i));\n"+
			"  st_v("+variance+" + i, (1.0 - t) * ld_v("+variance+" + i) + t * (ld_stats("+stats+" + 2u * "+count+" + i) * "+unbiased+"));\n")
	})
}

// batchNormBackwardCall: dx, dweight, dbias = f(x, dy, weight, stats) with ints batch, channels, inner, training.
func batchNormBackwardCall(r *recorder, c *core.Call) error {
	n, training := normedOf(c), c.Ints[3] != 0
	x, g, w, stats := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3]
	if n.count() == 0 {
		return nil
	}
	sums, err := n.parameters(r, x, g, stats, &c.Outs[1], &c.Outs[2])
	if err != nil || !c.Outs[0].Present() {
		return err
	}
	s := newShader(r, "batch_norm_backward")
	from, grad, dx := s.in("x", x, expr.F32, expr.Number), s.in("g", g, expr.F32, expr.Number), s.out("dx", &c.Outs[0], expr.F32, expr.Number)
	access := n.access(s, x, g, &c.Outs[0])
	stat, sum := s.in("stats", stats, expr.F32, expr.Number), s.in("sums", sums, expr.F32, expr.Number)
	factor := "scale"
	if s.flag(w.Present()) {
		factor += " * ld_w(" + s.in("w", w, expr.F32, expr.Number) + " + c)"
	}
	step := access.step
	count, inner, channels, size := s.uint(n.count()/step), s.uint(n.inner/step), s.uint(n.channels), s.float(1/float64(n.batch*n.inner))
	s.flag(training)
	return s.run(r, groupsFor(n.count()/step), func() string {
		text := "  let c = (i / " + inner + ") % " + channels + ";\n  let scale = ld_stats(" + stat + " + " + channels + " + c);\n  var d = " + access.load("g", grad) + ";\n"
		if training {
			text += "  let hat = (" + access.load("x", from) + " - ld_stats(" + stat + " + c)) * scale;\n" +
				"  d = d - ld_sums(" + sum + " + " + channels + " + c) * " + size + " - hat * (ld_sums(" + sum + " + c) * " + size + ");\n"
		}
		return each(count, text+access.store("dx", dx, "d * "+factor))
	})
}

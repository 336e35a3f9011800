// Package norm computes layer, group and batch norms and their gradients.
package norm

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/kernel/reduction"
	"github.com/plait-ml/plait/gpu/shader"
)

// Group and batch norm: statistics of parts of [batch, channels, inner], and factors and summands for each channel.

func init() {
	kernel.Register(contract.GroupNorm, groupNormCall)
	kernel.Register(contract.GroupNormBackward, groupNormBackwardCall)
	kernel.Register(contract.BatchNorm, batchNormCall)
	kernel.Register(contract.BatchNormRunning, batchNormRunningCall)
	kernel.Register(contract.BatchNormBackward, batchNormBackwardCall)
}

// A normed is what these norms share: x [batch, channels, inner] contiguous, with statistics for each group of a batch's
// channels, or, where groups is 0, for each channel.
type normed struct{ batch, channels, inner, groups int }

func normedOf(c *core.Call) normed {
	return normed{batch: int(c.Ints[0]), channels: int(c.Ints[1]), inner: int(c.Ints[2])}
}

func (n normed) count() int { return n.batch * n.channels * n.inner }

// statistics returns how many means there are, and WGSL for the number of the one of image b and channel c.
func (n normed) statistics(s *shader.Builder) (count int, at string) {
	if n.groups == 0 {
		return n.channels, "c"
	}
	return n.batch * n.groups, "(b * " + s.Uint(n.groups) + " + c / " + s.Uint(n.channels/n.groups) + ")"
}

// groupNormCall: y, stats [mean, 1/deviation] = f(x, weight, bias) with ints batch, channels, inner, groups and float eps.
func groupNormCall(r *shader.Recorder, c *core.Call) error {
	n := normedOf(c)
	n.groups = int(c.Ints[3])
	rows := n.batch * n.groups
	if n.count() == 0 {
		return nil
	}
	stats := &c.Outs[1]
	if !stats.Present() {
		m, err := r.Temp(8 * rows)
		if err != nil {
			return err
		}
		stats = shader.F32Operand(m, 0, 2, rows)
	}
	x := shader.F32Like(&c.Ins[0], rows, n.count()/rows)
	if err := n.moments(r, x, []int64{1}, stats, rows, c.Floats[0], false); err != nil {
		return err
	}
	return n.apply(r, c, stats)
}

// moments writes to stats the mean over dims of x, one over the deviation, and, if wanted, the variance.
func (n normed) moments(r *shader.Recorder, x *core.Operand, dims []int64, stats *core.Operand, count int, eps float64, variance bool) error {
	m, err := r.Temp(8 * count)
	if err != nil {
		return err
	}
	f, _ := reduction.Of("var", true, 0)
	v, mean := shader.F32Operand(m, 0, count), shader.F32Operand(m, count, count)
	if err := f.Run(r, "var", x, []*core.Operand{v, mean}, dims, 0); err != nil {
		return err
	}
	s := shader.New(r, "statistics")
	from, to, countWord, epsWord := s.FloatsOf("m", m), s.Out("y", stats, expr.F32, expr.Number), s.Uint(count), s.Float(eps)
	s.Flag(variance)
	return s.Run(r, shader.GroupsFor(count), func() string {
		text := "  let v = m[" + from + " + i];\n  st_y(" + to + " + i, m[" + from + " + " + countWord + " + i]);\n" +
			"  st_y(" + to + " + " + countWord + " + i, 1.0 / sqrt(v + " + epsWord + "));\n"
		if variance {
			text += "  st_y(" + to + " + 2u * " + countWord + " + i, v);\n"
		}
		return shader.Each(countWord, text)
	})
}

// apply writes y = (x - mean) / deviation * weight + bias.
func (n normed) apply(r *shader.Recorder, c *core.Call, stats *core.Operand) error {
	s := shader.New(r, "norm")
	x, y := s.In("x", &c.Ins[0], expr.F32, expr.Number), s.Out("y", &c.Outs[0], expr.F32, expr.Number)
	w := n.access(s, &c.Ins[0], &c.Outs[0])
	stat := s.In("stats", stats, expr.F32, expr.Number)
	affine := ""
	for i, name := range []string{"w", "a"} {
		if o := &c.Ins[1+i]; s.Flag(o.Present()) {
			affine += "  v = v " + []string{"*", "+"}[i] + " ld_" + name + "(" + s.In(name, o, expr.F32, expr.Number) + " + c);\n"
		}
	}
	count, inner, channels := s.Uint(n.count()/w.step), s.Uint(n.inner/w.step), s.Uint(n.channels)
	s.Flag(n.groups == 0)
	total, at := n.statistics(s)
	totalWord := s.Uint(total)
	return s.Run(r, shader.GroupsFor(n.count()/w.step), func() string {
		return shader.Each(count, "  let plane = i / "+inner+";\n  let b = plane / "+channels+";\n  let c = plane - b * "+channels+";\n  let at = "+at+";\n"+
			"  var v = ("+w.load("x", x)+" - ld_stats("+stat+" + at)) * ld_stats("+stat+" + "+totalWord+" + at);\n"+affine+w.store("y", y, "v"))
	})
}

// A planeAccess is how programs access elements of planes: one by one or by fours, of one channel each.
type planeAccess struct{ step int }

// access decides for the operands, which are the shader's last.
func (n normed) access(s *shader.Builder, operands ...*core.Operand) planeAccess {
	four := n.inner%4 == 0
	for _, o := range operands {
		four = four && o.DType == core.Float32 && shader.Base(o)%4 == 0
	}
	if !s.Flag(four) {
		return planeAccess{1}
	}
	for i := range operands {
		s.Bindings[len(s.Bindings)-1-i].Vec4 = true
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
func (n normed) sums(r *shader.Recorder, x, g, stats *core.Operand) (parts core.Memory, pieces int, err error) {
	pieces = min(n.batch, max(4*shader.SaturatingInvocations/(n.channels*256), 1)) // an invocation has few loads on their way
	if parts, err = r.Temp(8 * pieces * n.channels); err != nil {
		return parts, 0, err
	}
	s := shader.New(r, "norm_backward (sums)")
	from, grad, stat := s.In("x", x, expr.F32, expr.Number), s.In("g", g, expr.F32, expr.Number), s.In("stats", stats, expr.F32, expr.Number)
	to := s.FloatsOf("parts", parts)
	groups, channels, batch, inner, chunk := s.Uint(pieces*n.channels), s.Uint(n.channels), s.Uint(n.batch), s.Uint(n.inner), s.Uint(shader.Ceil(n.batch, pieces))
	s.Flag(n.groups == 0)
	total, at := n.statistics(s)
	totalWord := s.Uint(total)
	width := 1
	for width < min(n.inner, 256) {
		width *= 2
	}
	across := s.Uint(width)
	return parts, pieces, s.Run(r, pieces*n.channels, func() string {
		// As many invocations as a plane needs, and of the rest others for other images: no divisions inside.
		return shader.WorkgroupSum(256) + "fn sums(li: u32, c: u32, begin: u32, end: u32) -> vec2<f32> {\n  var t = vec2<f32>();\n" +
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
func (n normed) parameters(r *shader.Recorder, x, g, stats, dw, db *core.Operand) (*core.Operand, error) {
	parts, pieces, err := n.sums(r, x, g, stats)
	if err != nil {
		return nil, err
	}
	m, err := r.Temp(8 * n.channels)
	if err != nil {
		return nil, err
	}
	all := shader.F32Operand(m, 0, 2*n.channels)
	return all, primitive.SumPartials(r, parts, pieces, n.channels, []*core.Operand{shader.OrNil(dw), shader.OrNil(db)}, all)
}

// groupNormBackwardCall: dx, dweight, dbias = f(x, dy, weight, stats) with ints batch, channels, inner, groups.
func groupNormBackwardCall(r *shader.Recorder, c *core.Call) error {
	n := normedOf(c)
	n.groups = int(c.Ints[3])
	x, g, w, stats := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3]
	if n.count() == 0 {
		for i := range c.Outs {
			if o := c.Outs[i]; o.Present() && o.Numel() > 0 {
				if err := copying.Copy(r, &core.Call{Outs: []core.Operand{o}, Ins: []core.Operand{{IsNumber: true}}}); err != nil {
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
	l := primitive.Axis{Outer: rows, N: n.count() / rows, Inner: 1}
	width := primitive.RowThreads(l.N)
	s := shader.New(r, "group_norm_backward")
	from, grad, stat := s.In("x", x, expr.F32, expr.Number), s.In("g", g, expr.F32, expr.Number), s.In("stats", stats, expr.F32, expr.Number)
	dx, rowsWord := s.Out("dx", &c.Outs[0], expr.F32, expr.Number), s.Uint(rows)
	weight := ""
	if s.Flag(w.Present()) {
		weight = " * ld_w(" + s.In("w", w, expr.F32, expr.Number) + " + (at / " + s.Uint(n.inner) + ") % " + s.Uint(n.channels) + ")"
	}
	head := l.Open(s, width)
	return s.Run(r, rows, func() string {
		return shader.WorkgroupSum(width) + head() + "  let mean = ld_stats(" + stat + " + group);\n  let scale = ld_stats(" + stat + " + " + rowsWord + " + group);\n" +
			"  var a = 0.0;\n  var b = 0.0;\n" +
			primitive.Along(width, "let d = ld_g("+grad+" + at)"+weight+"; a = a + d; b = b + d * ((ld_x("+from+" + at) - mean) * scale);") +
			"  let first_moment = whole_sum(lane, a) / f32(n);\n  let second_moment = whole_sum(lane, b) / f32(n);\n" +
			primitive.Along(width, "let d = ld_g("+grad+" + at)"+weight+"; st_dx("+dx+" + at, scale * (d - first_moment - (ld_x("+from+" + at) - mean) * scale * second_moment));") + "}\n"
	})
}

// batchNormCall: y, stats [mean, 1/deviation, variance] = f(x, weight, bias, running mean, running variance) with ints batch,
// channels, inner, training and float eps.
func batchNormCall(r *shader.Recorder, c *core.Call) error {
	n := normedOf(c)
	stats := &c.Outs[1]
	if c.Ints[3] != 0 {
		x := shader.F32Like(&c.Ins[0], n.batch, n.channels, n.inner)
		if err := n.moments(r, x, []int64{0, 2}, stats, n.channels, c.Floats[0], true); err != nil {
			return err
		}
	} else {
		s := shader.New(r, "running statistics")
		mean, variance, to := s.In("m", &c.Ins[3], expr.F32, expr.Number), s.In("v", &c.Ins[4], expr.F32, expr.Number), s.Out("y", stats, expr.F32, expr.Number)
		count, eps := s.Uint(n.channels), s.Float(c.Floats[0])
		if err := s.Run(r, shader.GroupsFor(n.channels), func() string {
			return shader.Each(count, "  let v = ld_v("+variance+" + i);\n  st_y("+to+" + i, ld_m("+mean+" + i));\n"+
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
func batchNormRunningCall(r *shader.Recorder, c *core.Call) error {
	channels := c.Outs[0].Shape[0]
	s := shader.New(r, "batch_norm_running")
	mean, variance := s.Both("m", &c.Outs[0], expr.F32), s.Both("v", &c.Outs[1], expr.F32)
	stats, count := s.In("stats", &c.Ins[0], expr.F32, expr.Number), s.Uint(channels)
	momentum, unbiased := s.Float(c.Floats[0]), s.Float(c.Floats[1]/(c.Floats[1]-1))
	return s.Run(r, shader.GroupsFor(channels), func() string {
		return shader.Each(count, "  let t = "+momentum+";\n  st_m("+mean+" + i, (1.0 - t) * ld_m("+mean+" + i) + t * ld_stats("+stats+" + i));\n"+
			"  st_v("+variance+" + i, (1.0 - t) * ld_v("+variance+" + i) + t * (ld_stats("+stats+" + 2u * "+count+" + i) * "+unbiased+"));\n")
	})
}

// batchNormBackwardCall: dx, dweight, dbias = f(x, dy, weight, stats) with ints batch, channels, inner, training.
func batchNormBackwardCall(r *shader.Recorder, c *core.Call) error {
	n, training := normedOf(c), c.Ints[3] != 0
	x, g, w, stats := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3]
	if n.count() == 0 {
		return nil
	}
	sums, err := n.parameters(r, x, g, stats, &c.Outs[1], &c.Outs[2])
	if err != nil || !c.Outs[0].Present() {
		return err
	}
	s := shader.New(r, "batch_norm_backward")
	from, grad, dx := s.In("x", x, expr.F32, expr.Number), s.In("g", g, expr.F32, expr.Number), s.Out("dx", &c.Outs[0], expr.F32, expr.Number)
	access := n.access(s, x, g, &c.Outs[0])
	stat, sum := s.In("stats", stats, expr.F32, expr.Number), s.In("sums", sums, expr.F32, expr.Number)
	factor := "scale"
	if s.Flag(w.Present()) {
		factor += " * ld_w(" + s.In("w", w, expr.F32, expr.Number) + " + c)"
	}
	step := access.step
	count, inner, channels, size := s.Uint(n.count()/step), s.Uint(n.inner/step), s.Uint(n.channels), s.Float(1/float64(n.batch*n.inner))
	s.Flag(training)
	return s.Run(r, shader.GroupsFor(n.count()/step), func() string {
		text := "  let c = (i / " + inner + ") % " + channels + ";\n  let scale = ld_stats(" + stat + " + " + channels + " + c);\n  var d = " + access.load("g", grad) + ";\n"
		if training {
			text += "  let hat = (" + access.load("x", from) + " - ld_stats(" + stat + " + c)) * scale;\n" +
				"  d = d - ld_sums(" + sum + " + " + channels + " + c) * " + size + " - hat * (ld_sums(" + sum + " + c) * " + size + ");\n"
		}
		return shader.Each(count, text+access.store("dx", dx, "d * "+factor))
	})
}

// Package norm has the GPU kernels of layer, group and batch norm and their gradients. This file has group and batch norm: statistics over
// parts of [batch, channels, inner], then a scale and a shift for each channel.
package norm

import (
	"fmt"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/kernel/reduction"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.GroupNorm, groupNormCall)
	kernel.Register(contract.GroupNormBackward, groupNormBackwardCall)
	kernel.Register(contract.BatchNorm, batchNormCall)
	kernel.Register(contract.BatchNormRunning, batchNormRunningCall)
	kernel.Register(contract.BatchNormBackward, batchNormBackwardCall)
}

// A channelNorm is the shape [batch, channels, inner] of the input of group or batch norm, which is contiguous. Statistics are those of
// each group of a sample's channels; if groups is 0, those of each channel.
type channelNorm struct{ batch, channels, inner, groups int }

func groupNormShape(c *core.Call) channelNorm {
	a := contract.GroupNormOf(c)
	return channelNorm{a.Batch, a.Channels, a.Inner, a.Groups}
}

func batchNormShape(c *core.Call) (n channelNorm, training bool) {
	a := contract.BatchNormOf(c)
	return channelNorm{batch: a.Batch, channels: a.Channels, inner: a.Inner}, a.Training
}

func (n channelNorm) count() int { return n.batch * n.channels * n.inner }

// statistics returns the number of means, and the expression for the index of the mean of image b and channel c.
func (n channelNorm) statistics(s *shader.Builder) (count int, at string) {
	if n.groups == 0 {
		return n.channels, "c"
	}
	return n.batch * n.groups, "(b * " + s.Uint(n.groups) + " + c / " + s.Uint(n.channels/n.groups) + ")"
}

func groupNormCall(r *shader.Recorder, c *core.Call) error {
	n := groupNormShape(c)
	rows := n.batch * n.groups
	if n.count() == 0 {
		return nil
	}
	stats := &c.Outs[1]
	if !stats.Present() {
		m, err := r.Reals(2 * rows)
		if err != nil {
			return err
		}
		stats = r.RealOperand(m, 0, 2, rows)
	}
	x := shader.F32Like(&c.Ins[0], rows, n.count()/rows)
	if err := n.moments(r, x, []int64{1}, stats, rows, contract.Eps(c), false); err != nil {
		return err
	}
	return n.apply(r, c, stats)
}

// moments writes to stats the mean of x over dims, the reciprocal of the standard deviation and, if asked for, the variance.
func (n channelNorm) moments(r *shader.Recorder, x *core.Operand, dims []int64, stats *core.Operand, count int, eps float64, variance bool) error {
	m, err := r.Reals(2 * count)
	if err != nil {
		return err
	}
	f, _ := reduction.Of("var", true, 0)
	v, mean := r.RealOperand(m, 0, count), r.RealOperand(m, count, count)
	if err := f.Run(r, "var", x, []*core.Operand{v, mean}, dims, 0); err != nil {
		return err
	}
	s := shader.New(r, "statistics")
	from, to, countWord, epsWord := s.RealsOf("m", m), s.Out("y", stats, expr.F32, expr.Number), s.Uint(count), s.Float(eps)
	s.Flag(variance)
	return s.Run(r, shader.GroupsFor(count), func(w *shader.Text) {
		w.Each(countWord)
		w.Add(`  let v = m[%s + i];
  st_y(%s + i, m[%s + %s + i]);`, from, to, from, countWord)
		w.Add("  st_y(%s + %s + i, 1.0 / sqrt(v + %s));", to, countWord, epsWord)
		if variance {
			w.Add("  st_y(%s + 2u * %s + i, v);", to, countWord)
		}
	})
}

// apply computes y = (x - mean) / deviation * weight + bias.
func (n channelNorm) apply(r *shader.Recorder, c *core.Call, stats *core.Operand) error {
	s := shader.New(r, "norm")
	x, y := s.In("x", &c.Ins[0], expr.F32, expr.Number), s.Out("y", &c.Outs[0], expr.F32, expr.Number)
	access := n.access(s, &c.Ins[0], &c.Outs[0])
	stat := s.In("stats", stats, expr.F32, expr.Number)
	var affine [2]string // indices of the first elements of weight and bias
	for i, name := range []string{"w", "a"} {
		if o := &c.Ins[1+i]; s.Flag(o.Present()) {
			affine[i] = s.In(name, o, expr.F32, expr.Number)
		}
	}
	count, inner, channels := s.Uint(n.count()/access.step), s.Uint(n.inner/access.step), s.Uint(n.channels)
	s.Flag(n.groups == 0)
	total, at := n.statistics(s)
	totalWord := s.Uint(total)
	return s.Run(r, shader.GroupsFor(n.count()/access.step), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let plane = i / %s;
  let b = plane / %s;
  let c = plane - b * %s;
  let at = %s;`, inner, channels, channels, at)
		w.Add("  var v = (%s - ld_stats(%s + at)) * ld_stats(%s + %s + at);", access.load("x", x), stat, stat, totalWord)
		if affine[0] != "" {
			w.Add("  v = v * ld_w(%s + c);", affine[0])
		}
		if affine[1] != "" {
			w.Add("  v = v + ld_a(%s + c);", affine[1])
		}
		w.Put(access.store("y", y, "v"))
	})
}

// A planeAccess is how programs access the elements of a channel: step is 4 for vec4 and 1 otherwise.
type planeAccess struct{ step int }

// access chooses the access of operands, which must be the program's last bindings.
func (n channelNorm) access(s *shader.Builder, operands ...*core.Operand) planeAccess {
	vec4 := n.inner%4 == 0
	for _, o := range operands {
		vec4 = vec4 && shader.Vec4(o)
	}
	if !s.Flag(vec4) {
		return planeAccess{1}
	}
	for i := range operands {
		s.Bindings[len(s.Bindings)-1-i].Vec4 = true
	}
	return planeAccess{4}
}

// load returns the expression that loads the element or vec4 of invocation i.
func (w planeAccess) load(name, first string) string { return w.loadAt(name, first, "i") }

// loadAt returns the expression that loads an element or vec4 by its number.
func (w planeAccess) loadAt(name, first, number string) string {
	if w.step == 4 {
		return "ld4_" + name + "((" + first + " >> 2u) + " + number + ")"
	}
	return "ld_" + name + "(" + first + " + " + number + ")"
}

func (w planeAccess) store(name, first, value string) string {
	if w.step == 4 {
		return fmt.Sprintf("  st4_%s((%s >> 2u) + i, %s);\n", name, first, value)
	}
	return fmt.Sprintf("  st_%s(%s + i, %s);\n", name, first, value)
}

// sums writes partial sums of dy xhat and of dy to parts: element [piece, which, channel]. A piece is a range of images.
func (n channelNorm) sums(r *shader.Recorder, x, g, stats *core.Operand) (parts core.Memory, pieces int, err error) {
	pieces = min(n.batch, max(4*shader.SaturatingInvocations/(n.channels*256), 1)) // each invocation has few loads in flight
	if parts, err = r.Reals(2 * pieces * n.channels); err != nil {
		return parts, 0, err
	}
	s := shader.New(r, "norm_backward (sums)")
	from, grad := s.In("x", x, expr.F32, expr.Number), s.In("g", g, expr.F32, expr.Number)
	access := n.access(s, x, g)
	units := n.inner / access.step // of a plane, in vec4 or elements
	stat, to := s.In("stats", stats, expr.F32, expr.Number), s.RealsOf("parts", parts)
	groups, channels, batch, inner, chunk := s.Uint(pieces*n.channels), s.Uint(n.channels), s.Uint(n.batch), s.Uint(units), s.Uint(shader.Ceil(n.batch, pieces))
	s.Flag(n.groups == 0)
	total, at := n.statistics(s)
	totalWord := s.Uint(total)
	width := 1
	for width < min(units, 256) {
		width *= 2
	}
	across := s.Uint(width)
	return parts, pieces, s.Run(r, pieces*n.channels, func(w *shader.Text) {
		// A plane gets as many invocations as it needs; the others process further images. This avoids divisions in the loop.
		w.Sum(256)
		zero, result := "0.0", "real2(hats, all)"
		if access.step == 4 {
			zero, result = "real4()", "real2(hats.x + hats.y + hats.z + hats.w, all.x + all.y + all.z + all.w)"
		}
		w.Func("sums(li: u32, c: u32, begin: u32, end: u32) -> real2", `var hats = %[7]s;
  var all = %[7]s;
  for (var b = begin + li / %[1]s; b < end; b += 256u / %[1]s) {
    let at = %[2]s;
    let mean = ld_stats(%[3]s + at);
    let scale = ld_stats(%[3]s + %[4]s + at);
    let first = (b * %[5]s + c) * %[6]s;
    for (var j = li %% %[1]s; j < %[6]s; j += %[1]s) {
      let d = %[8]s;
      hats = hats + d * ((%[9]s - mean) * scale);
      all = all + d;
    }
  }
  return %[10]s;`, across, at, stat, totalWord, channels, inner, zero, access.loadAt("g", grad, "first + j"), access.loadAt("x", from, "first + j"), result)
		w.EachGroup(256, groups)
		w.Add(`  let c = group %% %[1]s;
  let begin = min((group / %[1]s) * %[2]s, %[3]s);
  let t = sums(li, c, begin, min(begin + %[2]s, %[3]s));
  let first = whole_sum(li, t.x);
  let second = whole_sum(li, t.y);
  if (li == 0u) {
    let to = %[4]s + (group / %[1]s) * 2u * %[1]s + c;
    parts[to] = first;
    parts[to + %[1]s] = second;
  }`, channels, chunk, batch, to)
	})
}

// parameters writes dweight and dbias if they are present, and returns the sums for both in scratch memory.
func (n channelNorm) parameters(r *shader.Recorder, x, g, stats, dw, db *core.Operand) (*core.Operand, error) {
	parts, pieces, err := n.sums(r, x, g, stats)
	if err != nil {
		return nil, err
	}
	m, err := r.Reals(2 * n.channels)
	if err != nil {
		return nil, err
	}
	all := r.RealOperand(m, 0, 2*n.channels)
	return all, primitive.SumPartials(r, parts, pieces, n.channels, []*core.Operand{shader.OrNil(dw), shader.OrNil(db)}, all)
}

func groupNormBackwardCall(r *shader.Recorder, c *core.Call) error {
	n := groupNormShape(c)
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
	return s.Run(r, rows, func(w *shader.Text) {
		w.Sum(width)
		head(w)
		w.Add(`  let mean = ld_stats(%s + group);
  let scale = ld_stats(%s + %s + group);
  var a = 0.0;
  var b = 0.0;`, stat, stat, rowsWord)
		w.Put(primitive.Along(width, "let d = ld_g("+grad+" + at)"+weight+"; a = a + d; b = b + d * ((ld_x("+from+" + at) - mean) * scale);"))
		w.Add(`  let first_moment = whole_sum(lane, a) / real(n);
  let second_moment = whole_sum(lane, b) / real(n);`)
		w.Put(primitive.Along(width, "let d = ld_g("+grad+" + at)"+weight+"; st_dx("+dx+" + at, scale * (d - first_moment - (ld_x("+from+" + at) - mean) * scale * second_moment));"))
	})
}

func batchNormCall(r *shader.Recorder, c *core.Call) error {
	n, training := batchNormShape(c)
	stats := &c.Outs[1]
	if training {
		x := shader.F32Like(&c.Ins[0], n.batch, n.channels, n.inner)
		if err := n.moments(r, x, []int64{0, 2}, stats, n.channels, contract.Eps(c), true); err != nil {
			return err
		}
	} else {
		s := shader.New(r, "running statistics")
		mean, variance, to := s.In("m", &c.Ins[3], expr.F32, expr.Number), s.In("v", &c.Ins[4], expr.F32, expr.Number), s.Out("y", stats, expr.F32, expr.Number)
		count, eps := s.Uint(n.channels), s.Float(contract.Eps(c))
		if err := s.Run(r, shader.GroupsFor(n.channels), func(w *shader.Text) {
			w.Each(count)
			w.Add(`  let v = ld_v(%s + i);
  st_y(%s + i, ld_m(%s + i));`, variance, to, mean)
			w.Add(`  st_y(%s + %s + i, 1.0 / sqrt(v + %s));
  st_y(%s + 2u * %s + i, v);`, to, count, eps, to, count)
		}); err != nil {
			return err
		}
	}
	if n.count() == 0 {
		return nil
	}
	return n.apply(r, c, stats)
}

func batchNormRunningCall(r *shader.Recorder, c *core.Call) error {
	channels := c.Outs[0].Shape[0]
	s := shader.New(r, "batch_norm_running")
	mean, variance := s.InOut("m", &c.Outs[0], expr.F32), s.InOut("v", &c.Outs[1], expr.F32)
	stats, count := s.In("stats", &c.Ins[0], expr.F32, expr.Number), s.Uint(channels)
	a := contract.BatchNormRunningOf(c)
	momentum, unbiased := s.Float(a.Momentum), s.Float(a.Count/(a.Count-1))
	return s.Run(r, shader.GroupsFor(channels), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let t = %s;
  st_m(%s + i, (1.0 - t) * ld_m(%s + i) + t * ld_stats(%s + i));`, momentum, mean, mean, stats)
		w.Add("  st_v(%s + i, (1.0 - t) * ld_v(%s + i) + t * (ld_stats(%s + 2u * %s + i) * %s));", variance, variance, stats, count, unbiased)
	})
}

func batchNormBackwardCall(r *shader.Recorder, c *core.Call) error {
	n, training := batchNormShape(c)
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
	return s.Run(r, shader.GroupsFor(n.count()/step), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let c = (i / %s) %% %s;
  let scale = ld_stats(%s + %s + c);
  var d = %s;`, inner, channels, stat, channels, access.load("g", grad))
		if training {
			w.Add("  let hat = (%s - ld_stats(%s + c)) * scale;", access.load("x", from), stat)
			w.Add("  d = d - ld_sums(%s + %s + c) * %s - hat * (ld_sums(%s + c) * %s);", sum, channels, size, sum, size)
		}
		w.Put(access.store("dx", dx, "d * "+factor))
	})
}

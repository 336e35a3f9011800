// Package interpolate has the GPU kernels that resize images.
package interpolate

import (
	"fmt"
	"math"
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Interpolate, func(r *shader.Recorder, c *core.Call) error {
		return newResampling(c, &c.Ins[0], &c.Outs[0]).forward(r, &c.Ins[0], &c.Outs[0])
	})
	kernel.Register(contract.InterpolateGrad, func(r *shader.Recorder, c *core.Call) error {
		return newResampling(c, &c.Outs[0], &c.Ins[0]).backward(r, &c.Ins[0], &c.Outs[0])
	})
}

// A resampling computes planes of size out from planes of size in. Both are contiguous; missing leading dimensions have size 1.
type resampling struct {
	planes  int
	in, out [3]int
	mode    contract.InterpolateMode
	align   bool
	scale   [3]float64 // scale factor; 0 if positions follow from the sizes
}

func newResampling(c *core.Call, in, out *core.Operand) *resampling {
	a := contract.InterpolateOf(c)
	nd := a.Spatial
	first := len(in.Shape) - nd
	p := &resampling{planes: core.Numel(in.Shape[:first]), in: [3]int{1, 1, 1}, out: [3]int{1, 1, 1}, mode: a.Mode, align: a.AlignCorners}
	for i := range nd {
		d := 3 - nd + i
		p.in[d], p.out[d], p.scale[d] = in.Shape[first+i], out.Shape[first+i], a.Scale[i]
	}
	return p
}

func (p *resampling) taps() int {
	switch p.mode {
	case contract.InterpolateLinear:
		return 2
	case contract.InterpolateCubic:
		return 4
	}
	return 1
}

// A tap is an input position that an output position reads, with its weight.
type tap struct {
	at     int
	weight float64
}

// tapsAt returns the taps of output position o along dimension d. If the input has one position there, there is one tap.
func (p *resampling) tapsAt(d, o int) []tap {
	in, out := p.in[d], p.out[d]
	clamp := func(i float64) int { return int(min(max(i, 0), float64(in-1))) }
	if p.mode == contract.InterpolateNearest || p.mode == contract.InterpolateNearestExact {
		if in == out && p.scale[d] <= 0 {
			return []tap{{o, 1}}
		}
		// The element is selected in single precision, as on the CPU.
		scale, half := float32(in)/float32(out), float32(0)
		if p.scale[d] > 0 {
			scale = float32(1 / p.scale[d])
		}
		if p.mode == contract.InterpolateNearestExact {
			half = 0.5
		}
		return []tap{{clamp(math.Floor(float64(float32((float32(o) + half) * scale)))), 1}}
	}
	if in == 1 {
		return []tap{{0, 1}}
	}
	scale := float64(in) / float64(out)
	if p.scale[d] > 0 {
		scale = 1 / p.scale[d]
	}
	x := (float64(o)+0.5)*scale - 0.5
	if p.align {
		scale = 0
		if out > 1 {
			scale = float64(in-1) / float64(out-1)
		}
		x = float64(o) * scale
	}
	if p.mode == contract.InterpolateLinear {
		x = max(x, 0)
		at := clamp(math.Floor(x))
		t := min(x-float64(at), 1)
		return []tap{{at, 1 - t}, {clamp(float64(at + 1)), t}}
	}
	first := math.Floor(x)
	list := make([]tap, 4)
	for k := range list {
		list[k] = tap{clamp(first - 1 + float64(k)), keys(math.Abs(x - (first - 1 + float64(k))))}
	}
	return list
}

// keys returns the weight of Keys' cubic convolution with a = -0.75 at a distance.
func keys(x float64) float64 {
	const a = -0.75
	if x <= 1 {
		return ((a+2)*x-(a+3))*x*x + 1
	}
	return ((a*x-5*a)*x+8*a)*x - 4*a
}

// tables writes the tables of the three dimensions to scratch memory: the positions of each tap for each output position, and as many
// weights. where has the offset of each table. The CPU computes them in float64, which is more exact for large images than float32 on the
// GPU.
func (p *resampling) tables(r *shader.Recorder) (m core.Memory, where [3]int, err error) {
	var words []uint32
	wide := r.RealType().Size() / 4 // words of a weight
	for d := range 3 {
		where[d] = len(words)
		n := p.taps() * p.out[d]
		words = append(words, make([]uint32, (1+wide)*n)...)
		at, weight := words[where[d]:][:n], words[where[d]+n:]
		for o := range p.out[d] {
			for k, t := range p.tapsAt(d, o) {
				at[k*p.out[d]+o] = uint32(t.at)
				r.RealWords(weight[:wide*(k*p.out[d]+o)], t.weight)
			}
		}
	}
	if m, err = r.Temp(4 * len(words)); err != nil {
		return m, where, err
	}
	r.Upload(m, words)
	return m, where, nil
}

// bind binds the tables. It returns expressions for the sizes, and a function that declares tap_D(k, o) and weight_D(k, o) for each
// dimension.
func (p *resampling) bind(r *shader.Recorder, s *shader.Builder, m core.Memory, where [3]int) (in, out [3]string, functions func(w *shader.Text)) {
	table := s.WordsOf("table", m)
	s.Specialize(p.taps())
	var taps, weights [3]string
	for d := range 3 {
		in[d], out[d], taps[d], weights[d] = s.Uint(p.in[d]), s.Uint(p.out[d]), s.Uint(where[d]), s.Uint(where[d]+p.taps()*p.out[d])
	}
	return in, out, func(w *shader.Text) {
		for d := range 3 {
			w.Func(fmt.Sprintf("tap_%d(k: u32, o: u32) -> u32", d), "return table[%s + %s + k * %s + o];", table, taps[d], out[d])
			sign := fmt.Sprintf("weight_%d(k: u32, o: u32) -> real", d)
			if r.Float64 {
				w.Func(sign, "let e = %s + %s + 2u * (k * %s + o);\n  return bitcast<real>(pair(table[e], table[e + 1u]));", table, weights[d], out[d])
				continue
			}
			w.Func(sign, "return bitcast<real>(table[%s + %s + k * %s + o]);", table, weights[d], out[d])
		}
	}
}

func (p *resampling) forward(r *shader.Recorder, x, y *core.Operand) error {
	n := p.planes * primitive.Product3(p.out)
	if n == 0 {
		return nil
	}
	m, where, err := p.tables(r)
	if err != nil {
		return err
	}
	s := shader.New(r, "interpolate")
	t := shader.ComputeType(x.DType)
	from, to, count := s.In("x", x, t, expr.Number), s.Out("y", y, t, expr.Number), s.Uint(n)
	in, out, functions := p.bind(r, s, m, where)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		place := func(z, y, x string) string {
			return from + " + ((plane * " + in[0] + " + " + z + ") * " + in[1] + " + " + y + ") * " + in[2] + " + " + x
		}
		functions(w)
		w.Each(count)
		w.Add("  let plane = i / (%s * %s * %s);", out[0], out[1], out[2])
		w.Put(primitive.Unfold("o", "i % ("+out[0]+" * "+out[1]+" * "+out[2]+")", out))
		if p.taps() == 1 {
			w.Add("  st_y(%s + i, ld_x(%s));", to, place("tap_0(0u, o_0)", "tap_1(0u, o_1)", "tap_2(0u, o_2)"))
			return
		}
		taps := strconv.Itoa(p.taps()) + "u"
		w.Add(`  var sum = 0.0;
  for (var a = 0u; a < %s; a++) {
    let wz = weight_0(a, o_0);
    if (wz == 0.0) { continue; }
    for (var b = 0u; b < %s; b++) {
      let wy = wz * weight_1(b, o_1);
      if (wy == 0.0) { continue; }
      for (var c = 0u; c < %s; c++) {
        let w = wy * weight_2(c, o_2);
        if (w != 0.0) { sum = sum + w * ld_x(%s); }
      }
    }
  }
  st_y(%s + i, sum);`, taps, taps, taps, place("tap_0(a, o_0)", "tap_1(b, o_1)", "tap_2(c, o_2)"), to)
	})
}

// backward adds, for each input position, the gradients of the output positions with a tap there. These are contiguous along each
// dimension, because taps ascend with the output position.
func (p *resampling) backward(r *shader.Recorder, dy, dx *core.Operand) error {
	n := p.planes * primitive.Product3(p.in)
	if n == 0 {
		return nil
	}
	m, where, err := p.tables(r)
	if err != nil {
		return err
	}
	s := shader.New(r, "interpolate_grad")
	from, to, count := s.In("g", dy, expr.F32, expr.Number), s.Out("y", dx, expr.F32, expr.Number), s.Uint(n)
	in, out, functions := p.bind(r, s, m, where)
	taps := strconv.Itoa(p.taps()) + "u"
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		functions(w)
		for d := range 3 {
			// first_D is the first output position whose last tap reaches v. share_D is the weight of v in an output position.
			w.Func(fmt.Sprintf("first_%d(v: u32) -> u32", d), `var low = 0u;
  var high = %s;
  for (var s = 0u; s < 32u && low < high; s++) {
    let middle = (low + high) / 2u;
    if (tap_%d(%s - 1u, middle) < v) { low = middle + 1u; } else { high = middle; }
  }
  return low;`, out[d], d, taps)
			w.Func(fmt.Sprintf("share_%d(o: u32, v: u32) -> real", d), `var w = 0.0;
  for (var t = 0u; t < %s; t++) { if (tap_%d(t, o) == v) { w = w + weight_%d(t, o); } }
  return w;`, taps, d, d)
		}
		loop := func(d, body string) string {
			return fmt.Sprintf(`  for (var o_%[1]s = first_%[1]s(v_%[1]s); o_%[1]s < %[2]s; o_%[1]s++) {
    if (tap_%[1]s(0u, o_%[1]s) > v_%[1]s) { break; }
%[3]s  }
`, d, out[d[0]-'0'], body)
		}
		body := loop("0", fmt.Sprintf(`    let wz = share_0(o_0, v_0);
%s`, loop("1", fmt.Sprintf(`    let wy = wz * share_1(o_1, v_1);
%s`, loop("2",
			fmt.Sprintf("    sum = sum + wy * share_2(o_2, v_2) * ld_g(%s + ((plane * %s + o_0) * %s + o_1) * %s + o_2);\n", from, out[0], out[1], out[2]))))))
		w.Each(count)
		w.Add("  let plane = i / (%s * %s * %s);", in[0], in[1], in[2])
		w.Put(primitive.Unfold("v", "i % ("+in[0]+" * "+in[1]+" * "+in[2]+")", in))
		w.Add(`  var sum = 0.0;
%s  st_y(%s + i, sum);`, body, to)
	})
}

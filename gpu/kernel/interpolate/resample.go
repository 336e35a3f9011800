package interpolate

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.Resample, resampleCall) }

// resampleCall adds, for each element of the result, the elements of its window.
func resampleCall(r *shader.Recorder, c *core.Call) error {
	x, y, a := &c.Ins[0], &c.Outs[0], contract.ResampleOf(c)
	n := core.Numel(y.Shape)
	if n == 0 {
		return nil
	}
	out, bytes := y.Shape[a.Dim], !x.DType.IsFloat()
	taps := len(a.Weights) / out
	var words []uint32
	for _, v := range a.Windows {
		words = append(words, uint32(v))
	}
	for _, v := range a.Weights {
		if bytes {
			words = append(words, uint32(int32(v)))
		} else {
			words = r.RealWords(words, v)
		}
	}
	m, err := r.Temp(4 * len(words))
	if err != nil {
		return err
	}
	r.Upload(m, words)
	s := shader.New(r, "resample")
	t := shader.ComputeType(x.DType)
	from, to, count := s.In("x", x, t, expr.Number), s.Out("y", y, t, expr.Number), s.Uint(n)
	table := s.WordsOf("table", m)
	in, inner, rows, each, shift := s.Uint(x.Shape[a.Dim]), s.Uint(core.Numel(x.Shape[a.Dim+1:])), s.Uint(out), s.Uint(taps), s.Uint(a.Shift)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let j = i / %[2]s %% %[3]s;
  let first = table[%[1]s + 2u * j];
  let taps = table[%[1]s + 2u * j + 1u];
  let weights = j * %[4]s;
  let at = %[5]s + (i / (%[2]s * %[3]s) * %[6]s + first) * %[2]s + i %% %[2]s;`, table, inner, rows, each, from, in)
		switch {
		case bytes:
			w.Add(`  var sum = i32((1u << %[4]s) >> 1u);
  for (var k = 0u; k < taps; k++) { sum += i32(table[%[1]s + 2u * %[2]s + weights + k]) * i32(ld_x(at + k * %[3]s).x); }
  st_y(%[5]s + i, pair(u32(clamp(sum >> %[4]s, 0, 255)), 0u));`, table, rows, inner, shift, to)
			return
		case r.Float64:
			w.Add(`  var sum = 0.0;
  for (var k = 0u; k < taps; k++) {
    let e = %[1]s + 2u * (%[2]s + weights + k);
    sum = sum + bitcast<real>(pair(table[e], table[e + 1u])) * ld_x(at + k * %[3]s);
  }`, table, rows, inner)
		default:
			w.Add(`  var sum = 0.0;
  for (var k = 0u; k < taps; k++) { sum = sum + bitcast<real>(table[%[1]s + 2u * %[2]s + weights + k]) * ld_x(at + k * %[3]s); }`, table, rows, inner)
		}
		w.Add("  st_y(%s + i, sum);", to)
	})
}

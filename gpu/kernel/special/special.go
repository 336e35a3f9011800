// Package special has the GPU kernels of special functions that have no elementwise body. The operands of a call have one shape.
package special

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Special, specialFunctionCall)
	kernel.Register(contract.SpecialPair, specialPairCall)
	kernel.Register(contract.NextAfter, nextAfterCall)
	kernel.Register(contract.Frexp, frexpCall)
}

// specialFunctions has the expressions for the functions of one number, v.
var specialFunctions = [...]string{
	contract.SpecialI0: "plait_bessel_i(0.0, v)", contract.SpecialI1: "plait_bessel_i(1.0, v)",
	contract.SpecialI0e: "plait_scaled_i(0.0, v)", contract.SpecialI1e: "plait_scaled_i(1.0, v)",
	contract.SpecialK0: "plait_bessel_k(0.0, v, false)", contract.SpecialK1: "plait_bessel_k(1.0, v, false)",
	contract.SpecialK0e: "plait_bessel_k(0.0, v, true)", contract.SpecialK1e: "plait_bessel_k(1.0, v, true)",
	contract.SpecialJ0: "plait_bessel_j(0, v)", contract.SpecialJ1: "plait_bessel_j(1, v)",
	contract.SpecialY0: "plait_bessel_y(0, v)", contract.SpecialY1: "plait_bessel_y(1, v)",
	contract.SpecialErfcx: "plait_scaled_erfc(v)", contract.SpecialLogNdtr: "plait_log_ndtr(v)",
	contract.SpecialNdtri: "plait_ndtri(v)", contract.SpecialAiryAi: "plait_airy_ai(v)",
}

func specialFunctionCall(r *shader.Recorder, c *core.Call) error {
	s := shader.New(r, "special_function")
	x, y, n := s.In("x", &c.Ins[0], expr.F32, expr.Number), s.Out("y", &c.Outs[0], expr.F32, expr.Number), s.Uint(c.Outs[0].Numel())
	code := s.Specialize(int(contract.SpecialOf(c)))
	return s.Run(r, shader.GroupsFor(c.Outs[0].Numel()), func(w *shader.Text) {
		w.Each(n)
		w.Add(`  let v = ld_x(%s + i);
  st_y(%s + i, %s);`, x, y, specialFunctions[code])
	})
}

// A polynomials is a family of orthogonal polynomials: the one of degree 1 and its derivative, and the recurrence from q of degree m and o
// of degree m-1 to degree m+1, with its derivative. An empty recurrence means 2 x q - o.
type polynomials struct{ first, slope, next, nextSlope string }

var polynomialFamilies = [...]polynomials{ // from contract.SpecialHermiteH on
	{"2.0 * x", "2.0", "2.0 * (x * q - m * o)", "2.0 * (q + x * dq - m * do_)"}, // Hermite, physicists' convention
	{"x", "1.0", "x * q - m * o", "q + x * dq - m * do_"},                       // Hermite, probabilists' convention
	{"1.0 - x", "-1.0", "((2.0 * m + 1.0 - x) * q - m * o) / (m + 1.0)", "((2.0 * m + 1.0 - x) * dq - q - m * do_) / (m + 1.0)"},
	{"x", "1.0", "((2.0 * m + 1.0) * x * q - m * o) / (m + 1.0)", "((2.0 * m + 1.0) * (q + x * dq) - m * do_) / (m + 1.0)"},
	{"x", "1.0", "", ""}, {"2.0 * x", "2.0", "", ""}, {"2.0 * x - 1.0", "2.0", "", ""}, {"2.0 * x + 1.0", "2.0", "", ""}, // Chebyshev
}

const (
	gammaPairs = int(contract.SpecialHermiteH) // codes below are the incomplete gamma functions
	chebyshevT = int(contract.SpecialChebyshevT - contract.SpecialHermiteH)
	maxDegree  = 32768
)

func specialPairCall(r *shader.Recorder, c *core.Call) error {
	s := shader.New(r, "special_pair")
	x, d := s.In("x", &c.Ins[0], expr.F32, expr.Number), s.In("d", &c.Ins[1], expr.F32, expr.Number)
	y, n := s.Out("y", &c.Outs[0], expr.F32, expr.Number), s.Uint(c.Outs[0].Numel())
	a := contract.SpecialPairOf(c)
	code, derivative := s.Specialize(int(a.Function)), s.Flag(a.Derivative)
	groups := shader.GroupsFor(c.Outs[0].Numel())
	if code < gammaPairs {
		return s.Run(r, groups, func(w *shader.Text) {
			w.Each(n)
			w.Add("  st_y(%s + i, plait_gamma_part(ld_x(%s + i), ld_d(%s + i), %v));", y, x, d, code == int(contract.SpecialGammaIncc))
		})
	}
	// The loop runs as often as the degree, so the degree is limited: a driver would mistake a long loop for a hang.
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error {
		return core.Errorf(core.ValueError, c.Op, "the degree at position %d is more than a GPU computes, %d", at, maxDegree)
	})
	return s.Run(r, groups, func(w *shader.Text) {
		family := code - gammaPairs
		start, inner := "", "1.0"
		if shifted := len(polynomialFamilies); family >= shifted {
			family, start, inner = family-shifted+chebyshevT, "  x = 2.0 * x - 1.0;\n", "2.0"
		}
		f := polynomialFamilies[family]
		if f.next == "" {
			f.next, f.nextSlope = "2.0 * x * q - o", "2.0 * (q + x * dq) - do_"
		}
		at0, result := "1.0", "q"
		if derivative {
			at0, result = "0.0", "dq * "+inner
		}
		w.Each(n)
		w.Add(`  var x = ld_x(%s + i);
  let degree = ld_d(%s + i);
  if (plait_isnan_f32(x) || plait_unbounded(degree)) { st_y(%s + i, plait_nan()); return; }`, x, d, y)
		w.Add(`  if (degree >= %d.0) { %s st_y(%s + i, plait_nan()); return; }
  if (degree < 1.0) { st_y(%s + i, select(%s, 0.0, degree <= -1.0)); return; }`, maxDegree+1, fault("i"), y, y, at0)
		w.Add(`%s  var o = 1.0;
  var do_ = 0.0;
  var q = %s;
  var dq = %s;
  let last = u32(degree);
  for (var k = 1u; k < last; k++) {
    let m = real(k);
    let r = %s;
    let dr = %s;
    o = q; q = r; do_ = dq; dq = dr;
  }`, start, f.first, f.slope, f.next, f.nextSlope)
		w.Add("  st_y(%s + i, %s);", y, result)
	})
}

// nextAfterCall: Outs[0] = the next representable number from Ins[0] in the direction of Ins[1].
func nextAfterCall(r *shader.Recorder, c *core.Call) error {
	s := shader.New(r, "nextafter")
	from, to := s.In("x", &c.Ins[0], expr.F32, expr.Number), s.In("t", &c.Ins[1], expr.F32, expr.Number)
	y, n := s.Out("y", &c.Outs[0], expr.F32, expr.Number), s.Uint(c.Outs[0].Numel())
	return s.Run(r, shader.GroupsFor(c.Outs[0].Numel()), func(w *shader.Text) {
		w.Each(n)
		w.Add("  st_y(%s + i, plait_nextafter_f32(ld_x(%s + i), ld_t(%s + i)));", y, from, to)
	})
}

// frexpCall: Outs[0], Outs[1] = the mantissas and exponents of Ins[0].
func frexpCall(r *shader.Recorder, c *core.Call) error {
	s := shader.New(r, "frexp")
	x, y := s.In("x", &c.Ins[0], expr.F32, expr.Number), s.Out("y", &c.Outs[0], expr.F32, expr.Number)
	e, n := s.Out("e", &c.Outs[1], expr.I64, expr.Number), s.Uint(c.Outs[0].Numel())
	return s.Run(r, shader.GroupsFor(c.Outs[0].Numel()), func(w *shader.Text) {
		w.Each(n)
		w.Add(`  let v = ld_x(%s + i);
  let exponent = plait_exponent_f32(v);
  st_e(%s + i, plait_i64_of_i32(exponent));
  st_y(%s + i, plait_mantissa_f32(v, exponent));`, x, e, y)
	})
}

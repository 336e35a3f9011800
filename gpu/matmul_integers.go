package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// integers computes a product of integers, which are summed in 64 bits and wrap.
func (p *product) integers(r *recorder, c *core.Call) error {
	s := newShader(r, "matmul (integers)")
	a, b, to := s.in("a", p.a, expr.I64, expr.Number), s.in("b", p.b, expr.I64, expr.Number), s.both("c", p.out, expr.I64)
	count := p.m * p.n * p.batch.count
	if p.k > 1<<15 && r.device.adapter.Software {
		return core.Errorf(core.NotImplemented, c.Op, "integer products of depth %d are too deep for %s", p.k, r.device.Name())
	}
	n, per, cols, depth := s.uint(count), s.uint(p.m*p.n), s.uint(p.n), s.uint(p.k)
	ar, ac, br, bc, cr, cc := s.uint(p.ar), s.uint(p.ac), s.uint(p.br), s.uint(p.bc), s.uint(p.cr), s.uint(p.cc)
	alpha, beta := s.long(int64(p.alpha)), s.long(int64(p.beta))
	bias, step := "", ""
	if s.flag(p.bias != nil) {
		bias, step = s.in("bias", p.bias, expr.I64, expr.Number), s.uint(p.bias.Strides[0])
	}
	s.flag(p.beta != 0)
	s.choose(len(p.batch.sizes))
	at := s.loop(&p.batch)
	return s.run(r, groupsFor(count), func() string {
		text := `
  let inner = i % ` + per + `;
  let row = inner / ` + cols + `;
  let col = inner % ` + cols + `;
` + walkAs("at_", "i / "+per, len(p.batch.sizes), 3, at, []string{to, a, b}) + `
  var sum = vec2<u32>(0u, 0u);
  for (var j = 0u; j < ` + depth + `; j++) {
    sum = plait_add_i64(sum, plait_mul_i64(ld_a(at_1 + row * ` + ar + ` + j * ` + ac + `), ld_b(at_2 + j * ` + br + ` + col * ` + bc + `)));
  }
  sum = plait_mul_i64(sum, ` + alpha + `);
  let at = at_0 + row * ` + cr + ` + col * ` + cc + `;
`
		if p.beta != 0 {
			text += "  sum = plait_add_i64(sum, plait_mul_i64(ld_c(at), " + beta + "));\n"
		}
		if bias != "" {
			text += "  sum = plait_add_i64(sum, ld_bias(" + bias + " + col * " + step + "));\n"
		}
		return each(n, text+"  st_c(at, sum);\n")
	})
}

package matmul

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// integers computes a product of integers. Sums are 64-bit and wrap.
func (p *Product) integers(r *shader.Recorder, c *core.Call) error {
	s := shader.New(r, "matmul (integers)")
	a, b, to := s.In("a", p.A, expr.I64, expr.Number), s.In("b", p.B, expr.I64, expr.Number), s.InOut("c", p.Out, expr.I64)
	count := p.M * p.N * p.Batch.Count
	if r.GPU.Software && p.K > MaxSoftwareK {
		return core.Errorf(core.NotImplemented, c.Op, "integer products with a K of %d are too long for %s, want at most %d", p.K, r.GPU.Name, MaxSoftwareK)
	}
	n, per, cols, kWord := s.Uint(count), s.Uint(p.M*p.N), s.Uint(p.N), s.Uint(p.K)
	ar, ac, br, bc, cr, cc := s.Uint(p.ARow), s.Uint(p.ACol), s.Uint(p.BRow), s.Uint(p.BCol), s.Uint(p.CRow), s.Uint(p.CCol)
	alpha, beta := s.Long(int64(p.Alpha)), s.Long(int64(p.Beta))
	bias, step := "", ""
	if s.Flag(p.bias != nil) {
		bias, step = s.In("bias", p.bias, expr.I64, expr.Number), s.Uint(p.bias.Strides[0])
	}
	s.Flag(p.Beta != 0)
	s.Specialize(len(p.Batch.Sizes))
	at := s.Loop(&p.Batch)
	return s.Run(r, shader.GroupsFor(count), func(w *shader.Text) {
		w.Each(n)
		w.Add(`  let inner = i %% %s;
  let row = inner / %s;
  let col = inner %% %s;`, per, cols, cols)
		w.Put(shader.WalkAs("at_", "i / "+per, len(p.Batch.Sizes), 3, at, []string{to, a, b}))
		w.Add(`  var sum = pair(0u, 0u);
  for (var j = 0u; j < %s; j++) {
    sum = plait_add_i64(sum, plait_mul_i64(ld_a(at_1 + row * %s + j * %s), ld_b(at_2 + j * %s + col * %s)));
  }`, kWord, ar, ac, br, bc)
		w.Add(`  sum = plait_mul_i64(sum, %s);
  let at = at_0 + row * %s + col * %s;`, alpha, cr, cc)
		if p.Beta != 0 {
			w.Add("  sum = plait_add_i64(sum, plait_mul_i64(ld_c(at), %s));", beta)
		}
		if bias != "" {
			w.Add("  sum = plait_add_i64(sum, ld_bias(%s + col * %s));", bias, step)
		}
		w.Add("  st_c(at, sum);")
	})
}

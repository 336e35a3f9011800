// Package sparse has the GPU kernels of sparse matrices in compressed rows: their products with dense ones.
package sparse

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.CSRMatmul, matmulCall)
	kernel.Register(contract.CSRSampledMatmul, sampledCall)
}

// softwareRow is how many entries a row may have on a software adapter: lavapipe ends loops after 65535 iterations.
const softwareRow = 65000

// A matrix is the first operands of a call as a program sees them. Indices are below 2^32, so that their low words say all.
type matrix struct {
	crow, col, order             string
	rows, columns, entries, most string
	fault                        func(position string) string
}

func bind(r *shader.Recorder, s *shader.Builder, c *core.Call, columns int) matrix {
	rows, entries := c.Ins[0].Numel()-1, c.Ins[1].Numel()
	m := matrix{crow: s.In("crow", &c.Ins[0], expr.I64, expr.Number), col: s.In("col", &c.Ins[1], expr.I64, expr.Number)}
	if s.Flag(c.Ins[2].Present()) {
		m.order = s.In("order", &c.Ins[2], expr.I64, expr.Number)
	}
	most := entries
	if r.GPU.Software {
		most = min(most, softwareRow)
	}
	m.rows, m.columns, m.entries, m.most = s.Uint(rows), s.Uint(columns), s.Uint(entries), s.Uint(most)
	m.fault = s.Faults(r, c, func(c *core.Call, at uint32) error {
		return core.Errorf(core.IndexError, c.Op, "row %d has an entry outside of the matrix of %d columns, or is not a range of its %d entries (and of at most %d)", at, columns, entries, most)
	})
	return m
}

// value returns the expression for the position of the value of entry k.
func (m matrix) value() string {
	if m.order == "" {
		return "k"
	}
	return "ld_order(" + m.order + " + k).x"
}

// matmulCall: an invocation computes an element of the product.
func matmulCall(r *shader.Recorder, c *core.Call) error {
	values, x, y := &c.Ins[3], &c.Ins[4], &c.Outs[0]
	n := y.Numel()
	if n == 0 {
		return nil
	}
	s := shader.New(r, "csr_matmul")
	m := bind(r, s, c, x.Shape[0])
	t := shader.ComputeType(y.DType)
	v, dense, out := s.In("v", values, t, expr.Number), s.In("x", x, t, expr.Number), s.Out("y", y, t, expr.Number)
	count, width := s.Uint(n), s.Uint(x.Shape[1])
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let row = i / %[1]s;
  let column = i - row * %[1]s;
  let first = ld_crow(%[2]s + row);
  let last = ld_crow(%[2]s + row + 1u);
  if (first.y != 0u || last.y != 0u || first.x > last.x || last.x > %[3]s || last.x - first.x > %[4]s) { %[5]s return; }
  var sum = real(0.0);
  for (var k = first.x; k < last.x; k++) {
    let j = ld_col(%[6]s + k);
    let place = %[7]s;
    if (j.y != 0u || j.x >= %[8]s || place >= %[3]s) { %[5]s return; }
    sum += ld_v(%[9]s + place) * ld_x(%[10]s + j.x * %[1]s + column);
  }
  st_y(%[11]s + i, sum);`, width, m.crow, m.entries, m.most, m.fault("row"), m.col, m.value(), m.columns, v, dense, out)
	})
}

// sampledCall: an invocation computes the value of an entry, whose row it searches for.
func sampledCall(r *shader.Recorder, c *core.Call) error {
	a, b, values := &c.Ins[3], &c.Ins[4], &c.Outs[0]
	n := values.Numel()
	if n == 0 {
		return nil
	}
	s := shader.New(r, "csr_sampled_matmul")
	m := bind(r, s, c, b.Shape[0])
	t := shader.ComputeType(values.DType)
	x, z, out := s.In("a", a, t, expr.Number), s.In("b", b, t, expr.Number), s.Out("y", values, t, expr.Number)
	count, width := s.Uint(n), s.Uint(a.Shape[1])
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let k = i;
  var low = 0u;
  var high = %[1]s;
  for (var e = 0u; e < 32u && low < high; e++) {
    let middle = (low + high) / 2u;
    let start = ld_crow(%[2]s + middle + 1u);
    if (start.y == 0u && start.x <= k) { low = middle + 1u; } else { high = middle; }
  }
  let j = ld_col(%[3]s + k);
  let place = %[4]s;
  if (low >= %[1]s || j.y != 0u || j.x >= %[5]s || place >= %[6]s) { %[7]s return; }
  var sum = real(0.0);
  for (var e = 0u; e < %[8]s; e++) { sum += ld_a(%[9]s + low * %[8]s + e) * ld_b(%[10]s + j.x * %[8]s + e); }
  st_y(%[11]s + place, sum);`, m.rows, m.crow, m.col, m.value(), m.columns, m.entries, m.fault("low"), width, x, z, out)
	})
}

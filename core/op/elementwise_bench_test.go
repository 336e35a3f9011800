package op

import (
	"testing"

	"github.com/plait-ml/plait/core"
)

// A small operation, from the call to the result: most of it is not arithmetic.
func BenchmarkSmall(b *testing.B) {
	x := Add(Zeros(1000), core.Num(1))
	y := Clone(x)
	w := Clone(x).Detach().SetRequiresGrad(true)
	for _, c := range []struct {
		name string
		run  func() *core.Tensor
	}{
		{"add", func() *core.Tensor { return Add(x, y) }},
		{"mul/number", func() *core.Tensor { return Mul(x, core.Num(2)) }},
		{"add/graph", func() *core.Tensor { return Add(x, w) }},
		{"mul/graph", func() *core.Tensor { return Mul(x, w) }},
		{"relu/graph", func() *core.Tensor { return Relu(w) }},
		{"add/in place", func() *core.Tensor { return AddInPlace(x, y) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if r := c.run(); r != x {
					r.Release()
				}
			}
		})
	}
}

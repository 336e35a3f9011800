package cpu_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func BenchmarkAddOf1000(b *testing.B) {
	x, y := core.FromSlice(make([]float32, 1000)), core.FromSlice(make([]float32, 1000))
	b.Run("no graph", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			op.Add(x, y).Release()
		}
	})
	x.SetRequiresGrad(true)
	b.Run("graph", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			op.Add(x, y).Release()
		}
	})
	b.Run("graph, mul", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			op.Mul(x, y).Release()
		}
	})
}

package cpu_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func BenchmarkEnqueueClone(b *testing.B) {
	x := core.FromSlice(make([]float32, 1000))
	b.ReportAllocs()
	for b.Loop() {
		op.Clone(x).Release()
	}
}

func BenchmarkEnqueueCloneWithGraph(b *testing.B) {
	x := core.FromSlice(make([]float32, 1000)).SetRequiresGrad(true)
	b.ReportAllocs()
	for b.Loop() {
		op.Clone(x).Release()
	}
}

func BenchmarkReadOneElement(b *testing.B) {
	x := core.FromSlice(make([]float32, 1))
	for b.Loop() {
		y := op.Clone(x)
		y.Item()
		y.Release()
	}
}

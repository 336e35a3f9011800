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

// Calls on the caller's thread, calls on the worker, and small calls queued behind those.
func BenchmarkLaunch(b *testing.B) {
	one, matrix, long := op.Ones(1), op.Ones(64, 64), op.Ones(1<<15)
	run := func(name string, calls ...func() *core.Tensor) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, call := range calls {
					call().Release()
				}
			}
			_ = one.Wait()
		})
	}
	small := func() *core.Tensor { return op.Add(one, one) }
	large := func() *core.Tensor { return op.Add(long, long) }
	run("add of 1", small)
	run("matmul of 64", func() *core.Tensor { return op.MatMul(matrix, matrix) })
	run("add of 32768", large)
	run("adds of 1 behind one of 32768", large, small, small, small, small, small, small, small)
}

func BenchmarkAlloc(b *testing.B) {
	s := core.CurrentContext().Stream(device(b))
	for name, bytes := range map[string]int{"64 bytes": 64, "4 MiB": 4 << 20} {
		piece := func() core.Memory {
			m, err := s.Alloc(bytes)
			if err != nil {
				b.Fatal(err)
			}
			return m
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Free(piece())
			}
		})
		b.Run(name+", without the cache", func(b *testing.B) {
			for b.Loop() {
				s.Free(piece())
				s.Device().EmptyCache()
			}
		})
	}
}

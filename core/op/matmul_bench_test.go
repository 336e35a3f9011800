package op_test

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// BenchmarkMatMulCall is the cost of one small product, from the call to its release, with and without a graph node.
func BenchmarkMatMulCall(b *testing.B) {
	for _, grad := range []bool{false, true} {
		b.Run(fmt.Sprintf("grad=%v", grad), func(b *testing.B) {
			x, y := op.Ones(8, 8), op.Ones(8, 8).SetRequiresGrad(grad)
			b.ReportAllocs()
			for range b.N {
				op.MatMul(x, y).Release()
			}
		})
	}
}

// BenchmarkLinearStep is a layer's forward pass and gradients, 64 rows of 784 to 512.
func BenchmarkLinearStep(b *testing.B) {
	x := op.Ones(64, 784).SetRequiresGrad(true)
	w, bias := op.Ones(512, 784).SetRequiresGrad(true), op.Ones(512).SetRequiresGrad(true)
	g := op.Ones(64, 512)
	for range b.N {
		core.Tidy(func() {
			y := op.Linear(x, w, bias)
			grads, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x, w, bias}, []*core.Tensor{g}, autograd.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if err := grads[2].Wait(); err != nil {
				b.Fatal(err)
			}
		})
	}
	b.ReportMetric(float64(b.N)*6*64*784*512/float64(b.Elapsed()), "GFLOP/s")
}

// BenchmarkEinsum compares products written with einsum and with matmul.
func BenchmarkEinsum(b *testing.B) {
	x, y := op.Ones(8, 128, 4, 32), op.Ones(8, 128, 4, 32)
	b.Run("scores", func(b *testing.B) {
		for range b.N {
			t := op.Einsum("bqhd,bkhd->bhqk", x, y)
			if err := t.Wait(); err != nil {
				b.Fatal(err)
			}
			t.Release()
		}
	})
	b.Run("matmul", func(b *testing.B) {
		for range b.N {
			core.Tidy(func() {
				t := op.MatMul(op.Permute(x, 0, 2, 1, 3), op.Permute(y, 0, 2, 3, 1))
				if err := t.Wait(); err != nil {
					b.Fatal(err)
				}
			})
		}
	})
}

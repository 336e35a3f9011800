package blas_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/blas"
	"github.com/plait-ml/plait/core/cpu/gemm"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// compare times the engine that PLAIT_BLAS names and OpenBLAS alone, in turns, and reports the best time of each. Run
// it with -benchtime=20x, and with VIRTUAL_ENV set to an environment that has scipy-openblas32.
func compare(b *testing.B, engine string, dtype core.DType, threads int, ta, tb bool, m, n, k int) {
	for _, name := range []string{"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} {
		require.NoError(b, os.Unsetenv(name)) // let OpenBLAS choose its kernels itself
	}
	b.Setenv("PLAIT_BLAS", "openblas")
	blas.SetPath("")
	l, err := blas.Info()
	require.NoError(b, err)
	if l.Path == "" {
		b.Skip("no BLAS library on this machine")
	}
	b.Setenv("PLAIT_BLAS", engine)
	blas.SetPath("")
	require.NoError(b, blas.Load())

	x, y, z := make([]float64, m*k), make([]float64, k*n), make([]float64, m*n)
	for _, v := range [][]float64{x, y} {
		half := unsafe.Slice((*float32)(unsafe.Pointer(&v[0])), len(v))
		for i := range v {
			if v[i] = float64(i%17) - 8; dtype == core.Float32 {
				half[i] = float32(i%17) - 8
			}
		}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&x[0])
	pin.Pin(&y[0])
	pin.Pin(&z[0])
	p := gemm.Product{M: m, N: n, K: k, In: int(dtype), Out: int(dtype), Alpha: 1,
		A: gemm.Matrix{Data: unsafe.Pointer(&x[0]), Row: k, Col: 1},
		B: gemm.Matrix{Data: unsafe.Pointer(&y[0]), Row: n, Col: 1},
		C: gemm.Matrix{Data: unsafe.Pointer(&z[0]), Row: n, Col: 1}}
	if ta {
		p.A.Row, p.A.Col = 1, m
	}
	if tb {
		p.B.Row, p.B.Col = 1, k
	}
	workers := pool.New(threads)
	defer workers.Close()
	var memory kernel.Context
	defer memory.FreeScratch()

	ours, theirs := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	best := func(best *time.Duration, fn func()) {
		for range 20 {
			start := time.Now()
			fn()
			*best = min(*best, time.Since(start))
		}
	}
	b.ResetTimer()
	for range b.N {
		time.Sleep(150 * time.Millisecond) // OpenBLAS's threads spin for 0.1 s after a call
		best(&ours, func() { require.NoError(b, p.Run(workers.Ptr(), &memory)) })
		best(&theirs, func() {
			blas.Alone(threads, dtype == core.Float64, ta, tb, m, n, k, p.A.Data, p.B.Data, p.C.Data)
		})
	}
	ops := 2 * float64(m) * float64(n) * float64(k)
	b.ReportMetric(ops/float64(ours), "GFLOP/s")
	b.ReportMetric(ops/float64(theirs), "OpenBLAS-GFLOP/s")
	b.ReportMetric(float64(theirs)/float64(ours), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSquare multiplies square matrices. The goal is at least 0.95 of OpenBLAS's speed from 256 to 2048.
func BenchmarkSquare(b *testing.B) {
	for _, engine := range []string{"none", "openblas"} {
		for _, threads := range []int{1, 2} {
			for _, n := range []int{64, 128, 256, 384, 512, 768, 1024, 1536, 2048} {
				b.Run(fmt.Sprintf("engine=%s/threads=%d/n=%d", engine, threads, n), func(b *testing.B) {
					compare(b, engine, core.Float32, threads, false, false, n, n, n)
				})
			}
		}
	}
}

// BenchmarkLayouts multiplies transposed matrices, as derivatives do, and float64 matrices.
func BenchmarkLayouts(b *testing.B) {
	for _, dtype := range []core.DType{core.Float32, core.Float64} {
		for _, layout := range []string{"NN", "NT", "TN"} {
			for _, n := range []int{256, 1024} {
				b.Run(fmt.Sprintf("%v/%s/n=%d", dtype, layout, n), func(b *testing.B) {
					compare(b, "none", dtype, 2, layout[0] == 'T', layout[1] == 'T', n, n, n)
				})
			}
		}
	}
}

// BenchmarkShapes multiplies matrices of small networks: layers, their gradients, vectors and attention heads.
func BenchmarkShapes(b *testing.B) {
	for _, s := range []struct {
		name    string
		m, n, k int
		ta, tb  bool
	}{
		{"mlp forward", 64, 512, 784, false, true},
		{"mlp input gradient", 64, 512, 256, false, false},
		{"mlp weight gradient", 512, 784, 64, true, false},
		{"mlp head", 64, 10, 256, false, true},
		{"gpt qkv", 1024, 384, 128, false, true},
		{"gpt mlp", 1024, 512, 128, false, true},
		{"gpt weight gradient", 512, 128, 1024, true, false},
		{"vocabulary", 1024, 4096, 128, false, true},
		{"lstm gates", 16, 512, 128, false, true},
		{"head", 128, 128, 32, false, true},
		{"row", 1, 1024, 1024, false, false},
		{"row transposed", 1, 1024, 1024, false, true},
		{"column", 1024, 1, 1024, false, false},
		{"four rows", 4, 1024, 1024, false, true},
		{"deep", 64, 64, 20000, true, false},
		{"dot", 1, 1, 1000000, false, true},
	} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", s.name, threads), func(b *testing.B) {
				compare(b, "none", core.Float32, threads, s.ta, s.tb, s.m, s.n, s.k)
			})
		}
	}
}

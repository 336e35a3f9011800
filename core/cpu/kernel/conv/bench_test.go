package conv

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// BenchmarkConv reports the floating-point operations per second of each pass, including those on padding. Docs and
// reports quote the first layer.
func BenchmarkConv(b *testing.B) {
	for _, c := range []struct {
		name string
		g    geometry
	}{
		{"16-32,3x3,32x32,n16", shape(16, 1, 16, 32, dims{32, 32}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1})},
		{"3-64,7x7s2,224x224,n2", shape(2, 1, 3, 64, dims{224, 224}, dims{7, 7}, dims{2, 2}, dims{3, 3}, dims{1, 1})},
		{"64-64,3x3,56x56,n2", shape(2, 1, 64, 64, dims{56, 56}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1})},
		{"128-128,3x3s2,56x56,n2", shape(2, 1, 128, 128, dims{56, 56}, dims{3, 3}, dims{2, 2}, dims{1, 1}, dims{1, 1})},
		{"256-256,3x3,14x14,n4", shape(4, 1, 256, 256, dims{14, 14}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1})},
		{"512-512,3x3,7x7,n4", shape(4, 1, 512, 512, dims{7, 7}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1})},
		{"256-64,1x1,56x56,n2", shape(2, 1, 256, 64, dims{56, 56}, dims{1, 1}, dims{1, 1}, dims{0, 0}, dims{1, 1})},
		{"512-2048,1x1,7x7,n4", shape(4, 1, 512, 2048, dims{7, 7}, dims{1, 1}, dims{1, 1}, dims{0, 0}, dims{1, 1})},
		{"depthwise-144,3x3,56x56,n2", shape(2, 144, 144, 144, dims{56, 56}, dims{3, 3}, dims{1, 1}, dims{1, 1}, dims{1, 1})},
		{"1d-64-64,k9,4096,n2", shape(2, 1, 64, 64, dims{4096}, dims{9}, dims{1}, dims{4}, dims{1})},
		{"3d-16-32,3x3x3,16x32x32,n2", shape(2, 1, 16, 32, dims{16, 32, 32}, dims{3, 3, 3}, dims{1, 1, 1}, dims{1, 1, 1}, dims{1, 1, 1})},
	} {
		g := c.g
		nx, nw, ny := g.sizes()
		x, w, y, dx, dw := newBuffer(b, g.dtype, nx), newBuffer(b, g.dtype, nw), newBuffer(b, g.dtype, ny), newBuffer(b, g.dtype, nx), newBuffer(b, g.dtype, nw)
		x.set(make([]float64, nx))
		w.set(make([]float64, nw))
		products := float64(ny * nw / max(1, g.cout))
		for _, threads := range []int{1, 2} {
			p := pool.New(threads)
			for _, pass := range []struct {
				name  string
				bytes int
				run   func(scratch *buffer)
			}{
				{"forward", g.forwardScratch(p.Ptr()), func(s *buffer) {
					g.forward(p.Ptr(), x.ptr(), w.ptr(), nil, y.ptr(), s.ptr())
				}},
				{"input", g.inputGradScratch(p.Ptr()), func(s *buffer) {
					g.inputGrad(p.Ptr(), y.ptr(), w.ptr(), nil, dx.ptr(), s.ptr())
				}},
				{"weight", g.weightGradScratch(p.Ptr()), func(s *buffer) {
					g.weightGrad(p.Ptr(), x.ptr(), y.ptr(), dw.ptr(), s.ptr())
				}},
			} {
				b.Run(fmt.Sprintf("%s/%s/threads%d", c.name, pass.name, threads), func(b *testing.B) {
					s := newBuffer(b, rawtensor.Float64, int64(pass.bytes/8+1))
					for b.Loop() {
						pass.run(s)
					}
					b.ReportMetric(2*products*float64(b.N)/b.Elapsed().Seconds()*1e-9, "GFLOP/s")
					b.ReportMetric(float64(pass.bytes)/(1<<20), "scratchMiB")
				})
			}
			p.Close()
		}
	}
}

package copying

import (
	"testing"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// touch writes to every page, since unwritten pages all share the one page of zeros.
func touch(t *rawtensor.Tensor) {
	for i := range t.Memory() {
		t.Memory()[i] = byte(i)
	}
}

func benchmarkCopy(b *testing.B, out, in *rawtensor.Tensor) {
	workers := pool.New(2)
	defer workers.Close()
	touch(in)
	o, i := viewOf(out), viewOf(in)
	copyTo(workers.Ptr(), o, i)
	b.SetBytes(int64(out.Numel() * (rawtensor.Size(out.DType) + rawtensor.Size(in.DType))))
	b.ResetTimer()
	for range b.N {
		copyTo(workers.Ptr(), o, i)
	}
}

// BenchmarkMemmove is the reference for the others: Go's copy, which is the system's memmove on one thread.
func BenchmarkMemmove(b *testing.B) {
	for name, n := range map[string]int{"4MB": 1 << 20, "128MB": 1 << 25} {
		b.Run(name, func(b *testing.B) {
			x, y := rawtensor.New(b, rawtensor.Float32, n), rawtensor.New(b, rawtensor.Float32, n)
			touch(x)
			copy(y.Memory(), x.Memory())
			b.SetBytes(int64(8 * n))
			b.ResetTimer()
			for range b.N {
				copy(y.Memory(), x.Memory())
			}
		})
	}
}

func BenchmarkCopy(b *testing.B) {
	f32 := func(shape ...int) *rawtensor.Tensor { return rawtensor.New(b, rawtensor.Float32, shape...) }
	cases := []struct {
		name    string
		out, in *rawtensor.Tensor
	}{
		{"1K", f32(1000), f32(1000)},
		{"4MB", f32(1 << 20), f32(1 << 20)},
		{"128MB", f32(1 << 25), f32(1 << 25)},
		{"transpose1000", f32(1000, 1000), f32(1000, 1000).Permute(1, 0)},
		{"transpose1024", f32(1024, 1024), f32(1024, 1024).Permute(1, 0)},
		{"transpose5000", f32(5000, 5000), f32(5000, 5000).Permute(1, 0)},
		{"transpose4096", f32(4096, 4096), f32(4096, 4096).Permute(1, 0)},
		{"transposeBytes", rawtensor.New(b, rawtensor.Uint8, 1000, 1000), rawtensor.New(b, rawtensor.Uint8, 1000, 1000).Permute(1, 0)},
		{"transposeHalf", rawtensor.New(b, rawtensor.Float16, 1000, 1000), rawtensor.New(b, rawtensor.Float16, 1000, 1000).Permute(1, 0)},
		{"transposeF64", rawtensor.New(b, rawtensor.Float64, 1000, 1000), rawtensor.New(b, rawtensor.Float64, 1000, 1000).Permute(1, 0)},
		{"transposeToHalf", rawtensor.New(b, rawtensor.BFloat16, 1000, 1000), f32(1000, 1000).Permute(1, 0)},
		{"heads", f32(8, 12, 128, 64), f32(8, 128, 12, 64).Permute(0, 2, 1, 3)},
		{"chwToHwc", f32(256, 256, 3), f32(3, 256, 256).Permute(1, 2, 0)},
		{"hwcToChw", f32(3, 256, 256), f32(256, 256, 3).Permute(2, 0, 1)},
		{"step2", f32(1000000), f32(2000000).Slice(0, 0, 2000000, 2)},
		{"flip", f32(1000000), f32(1000000).Slice(0, 0, 1000000, -1)},
		{"rows3", f32(300000, 3), f32(300000, 5).Slice(1, 0, 3, 1)},
		{"tiny3x3", f32(100000, 3, 3), f32(100000, 3, 3).Permute(0, 2, 1)},
		{"broadcastRow", f32(1000, 1000), f32(1000).Expand(1000, 1000)},
		{"broadcastColumn", f32(1000, 1000), f32(1000, 1).Expand(1000, 1000)},
		{"toHalf", rawtensor.New(b, rawtensor.Float16, 1000000), f32(1000000)},
		{"fromHalf", f32(1000000), rawtensor.New(b, rawtensor.Float16, 1000000)},
		{"toBf16", rawtensor.New(b, rawtensor.BFloat16, 1000000), f32(1000000)},
		{"fromBf16", f32(1000000), rawtensor.New(b, rawtensor.BFloat16, 1000000)},
		{"toInt64", rawtensor.New(b, rawtensor.Int64, 1000000), f32(1000000)},
		{"toFloat64", rawtensor.New(b, rawtensor.Float64, 1000000), f32(1000000)},
		{"byteToFloat", f32(1000000), rawtensor.New(b, rawtensor.Uint8, 1000000)},
		{"fill", f32(1000000), f32().Expand(1000000)},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) { benchmarkCopy(b, c.out, c.in) })
	}
}

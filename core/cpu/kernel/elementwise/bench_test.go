package elementwise

import (
	"testing"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// touch writes a value between 0 and 1 to every element, so that every page has its own memory.
func touch(t *rawtensor.Tensor) *rawtensor.Tensor {
	switch t.DType {
	case rawtensor.Float32:
		for i := range t.Memory()[:len(t.Memory())/4] {
			*(*float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(t.Memory())), 4*i)) = float32(i%1000) / 1001
		}
	default:
		clear(t.Memory())
	}
	return t
}

// BenchmarkMemmove is the reference for the others: Go's copy, which is the system's memmove on one thread. It moves
// two thirds of the bytes of an addition.
func BenchmarkMemmove(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"1K", 1000}, {"256KB", 1 << 16}, {"4MB", 1 << 20}, {"128MB", 1 << 25}} {
		b.Run(c.name, func(b *testing.B) {
			x, y := touch(rawtensor.New(b, rawtensor.Float32, c.n)), touch(rawtensor.New(b, rawtensor.Float32, c.n))
			b.SetBytes(int64(8 * c.n))
			b.ResetTimer()
			for range b.N {
				copy(y.Memory(), x.Memory())
			}
		})
	}
}

func BenchmarkKernels(b *testing.B) {
	of := func(dtype int, shape ...int) *rawtensor.Tensor { return touch(rawtensor.New(b, dtype, shape...)) }
	f32 := func(shape ...int) *rawtensor.Tensor { return of(rawtensor.Float32, shape...) }
	const f16, bf16, i64, i32, u8 = rawtensor.Float16, rawtensor.BFloat16, rawtensor.Int64, rawtensor.Int32, rawtensor.Uint8
	k, m, big := 1000, 1<<20, 1<<25
	flip := func(t *rawtensor.Tensor) *rawtensor.Tensor { return t.Permute(1, 0) }
	for _, c := range []struct {
		name, kernel string
		out          *rawtensor.Tensor
		ins          []*rawtensor.Tensor
	}{
		{"add/1K", "add.f32", f32(k), []*rawtensor.Tensor{f32(k), f32(k)}},
		{"add/256KB", "add.f32", f32(1 << 16), []*rawtensor.Tensor{f32(1 << 16), f32(1 << 16)}},
		{"add/4MB", "add.f32", f32(m), []*rawtensor.Tensor{f32(m), f32(m)}},
		{"add/128MB", "add.f32", f32(big), []*rawtensor.Tensor{f32(big), f32(big)}},
		{"add/rows", "add.f32", f32(k, k), []*rawtensor.Tensor{f32(k, k), f32(k)}},
		{"add/columns", "add.f32", f32(k, k), []*rawtensor.Tensor{f32(k, k), f32(k, 1)}},
		{"add/shortRows", "add.f32", f32(m/4, 3), []*rawtensor.Tensor{f32(m/4, 3), f32(3)}},
		{"add/transposed", "add.f32", f32(k, k), []*rawtensor.Tensor{f32(k, k), flip(f32(k, k))}},
		{"add/transposed1024", "add.f32", f32(1024, 1024), []*rawtensor.Tensor{f32(1024, 1024), flip(f32(1024, 1024))}},
		{"add/bothTransposed", "add.f32", f32(k, k), []*rawtensor.Tensor{flip(f32(k, k)), flip(f32(k, k))}},
		{"add/step2", "add.f32", f32(m), []*rawtensor.Tensor{f32(m), f32(2*m).Slice(0, 0, 2*m, 2)}},
		{"add/narrowed", "add.f32", f32(k, 500), []*rawtensor.Tensor{f32(k, k).Slice(1, 0, 500, 1), f32(k, 500)}},
		{"add/bf16", "add.f32", of(bf16, m), []*rawtensor.Tensor{of(bf16, m), of(bf16, m)}},
		{"add/f16", "add.f32", of(f16, m), []*rawtensor.Tensor{of(f16, m), of(f16, m)}},
		{"add/bf16+f32", "add.f32", f32(m), []*rawtensor.Tensor{of(bf16, m), f32(m)}},
		{"add/i64", "add.i64", of(i64, m), []*rawtensor.Tensor{of(i64, m), of(i64, m)}},
		{"add/i32", "add.i64", of(i32, m), []*rawtensor.Tensor{of(i32, m), of(i32, m)}},
		{"add/u8", "add.i64", of(u8, m), []*rawtensor.Tensor{of(u8, m), of(u8, m)}},
		{"lt/4MB", "lt.f32", of(rawtensor.Bool, m), []*rawtensor.Tensor{f32(m), f32(m)}},
		{"where/4MB", "where.f32", f32(m), []*rawtensor.Tensor{of(rawtensor.Bool, m), f32(m), f32(m)}},
		{"exp/1K", "exp.f32", f32(k), []*rawtensor.Tensor{f32(k)}},
		{"exp/4MB", "exp.f32", f32(m), []*rawtensor.Tensor{f32(m)}},
		{"exp/128MB", "exp.f32", f32(big), []*rawtensor.Tensor{f32(big)}},
		{"tanh/4MB", "tanh.f32", f32(m), []*rawtensor.Tensor{f32(m)}},
		{"gelu/4MB", "gelu.f32", f32(m), []*rawtensor.Tensor{f32(m)}},
		{"geluGrad/4MB", "gelu.grad.x.f32", f32(m), []*rawtensor.Tensor{f32(m), f32(m)}},
		{"pow/4MB", "pow.f32", f32(m), []*rawtensor.Tensor{f32(m), f32(m)}},
		{"sin/4MB", "sin.f32", f32(m), []*rawtensor.Tensor{f32(m)}},
		{"fmod/4MB", "fmod.f32", f32(m), []*rawtensor.Tensor{f32(m), f32(m)}},
		{"exp/f64", "exp.f64", of(rawtensor.Float64, m), []*rawtensor.Tensor{of(rawtensor.Float64, m)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			workers := pool.New(2)
			defer workers.Close()
			ctx := kernel.Context{Pool: workers.Ptr()}
			defer ctx.FreeScratch()
			call, bytes := callOf([]*rawtensor.Tensor{c.out}, c.ins), c.out.Numel()*rawtensor.Size(c.out.DType)
			for _, t := range c.ins {
				bytes += t.Numel() * rawtensor.Size(t.DType)
			}
			b.SetBytes(int64(bytes))
			b.ResetTimer()
			for range b.N {
				if err := run(&ctx, call, table[c.kernel]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNumber(b *testing.B) {
	x, out := rawtensor.New(b, rawtensor.Float32, 1000), rawtensor.New(b, rawtensor.Float32, 1000)
	call := callOf([]*rawtensor.Tensor{out}, []*rawtensor.Tensor{x})
	call.Ins = append(call.Ins, core.Operand{IsNumber: true, Number: core.Number{Float: 2}})
	var ctx kernel.Context
	defer ctx.FreeScratch()
	for range b.N {
		if err := run(&ctx, call, table["mul.f32"]); err != nil {
			b.Fatal(err)
		}
	}
}

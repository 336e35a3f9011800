package kerneltest

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
)

// ViewOf returns the view of a tensor for C.
func ViewOf(t *rawtensor.Tensor) *kernel.View {
	o := operandOf(t)
	v := kernel.ViewOf(&o)
	return &v
}

func RequireSameElements(t *testing.T, out, in *rawtensor.Tensor) {
	t.Helper()
	bad := -1
	for i := range out.Numel() {
		index := out.Unravel(i)
		if out.Bits(index...) != in.Bits(index...) {
			bad = i
			break
		}
	}
	require.Equal(t, -1, bad, "position of the first element that differs")
}

// RequireOthersUntouched checks that all bytes outside the elements of t are still 0xa5.
func RequireOthersUntouched(t *testing.T, out *rawtensor.Tensor) {
	t.Helper()
	memory := out.Memory()
	if len(memory) == 0 {
		return
	}
	own := make([]bool, len(memory))
	out.Each(func(index []int) {
		at := uintptr(out.Addr(index...)) - uintptr(unsafe.Pointer(&memory[0]))
		for b := range rawtensor.Size(out.DType) {
			own[int(at)+b] = true
		}
	})
	for i, mine := range own {
		if !mine && memory[i] != 0xa5 {
			require.Fail(t, "a byte outside the output was written", "byte %d of %d", i, len(memory))
		}
	}
}

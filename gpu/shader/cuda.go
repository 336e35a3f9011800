package shader

import (
	_ "embed"
	"strings"
)

// CUDA is the [Language] of CUDA C++, as NVRTC compiles it. It prints programs in WGSL and translates them as a whole.
//
// The entry point is plait_main. Its parameters are the words of the program by value, [MaxParamBytes] of them, then for each buffer, in the
// order of the bindings, the structure {void *at; unsigned long long bytes;}. Of bytes, the last 16 are padding behind the data, which
// accesses past the end may read and write. Workgroups have one dimension.
type CUDA struct{ WGSL }

// BufferBarrier prints nothing: a barrier of CUDA is for all memory.
func (CUDA) BufferBarrier() string { return "" }

//go:embed cuda/prelude.cuh
var cudaPrelude string

// Translate implements [Language].
func (CUDA) Translate(text string) string { return cudaPrelude + translateCUDA(text) }

// Narrow implements [Language].
func (CUDA) Narrow(bytes int) string {
	if bytes == 1 {
		return "narrow8"
	}
	return "narrow16"
}

// LoadNarrow4 implements [Language].
func (CUDA) LoadNarrow4(buffer, e string) string { return "load_narrow4(" + buffer + ", " + e + ")" }

// StoreNarrow4 implements [Language].
func (CUDA) StoreNarrow4(buffer, e string, v [4]string) string {
	return "store_narrow4(" + buffer + ", " + e + ", vec4<u32>(" + strings.Join(v[:], ", ") + "))"
}

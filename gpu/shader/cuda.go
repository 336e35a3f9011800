package shader

import _ "embed"

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

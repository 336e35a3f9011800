package shader

import (
	_ "embed"
	"regexp"
	"strings"
)

// CUDA is the [Language] of CUDA C++, as NVRTC compiles it. It prints programs in WGSL and translates them as a whole.
//
// The entry point is plait_main. Its parameters are the words of the program by value, [MaxParamBytes] of them, then for each buffer, in the
// order of the bindings, the structure {void *at; unsigned long long bytes;}. Of bytes, the last 16 are padding behind the data, which
// accesses past the end may read and write. Workgroups have one dimension.
type CUDA struct {
	WGSL
	double bool // programs compute in float64
}

// The types and functions of WGSL, and functions of the library: those that are faster in CUDA, and those on float64.
var (
	//go:embed cuda/prelude.cuh
	cudaPrelude string
	//go:embed cuda/library.cuh
	cudaLibrary string
	//go:embed cuda/double.cuh
	cudaDouble string
)

// Float64 implements [Language].
func (CUDA) Float64() Language { return CUDA{double: true} }

// Type implements [Language].
func (l CUDA) Type(name string) string {
	text := l.WGSL.Type(name)
	if l.double {
		text = strings.ReplaceAll(text, "f32", "f64")
	}
	return text
}

// cudaFunctions and doubleFunctions are the functions of the library in [cudaLibrary] and [cudaDouble].
var cudaFunctions, doubleFunctions = functionsOf(cudaLibrary), functionsOf(cudaDouble)

func functionsOf(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^static (?:__forceinline__ )?[\w<>]+ (plait_\w+)\(`).FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	return names
}

// Has implements [Language].
func (l CUDA) Has(function string) bool {
	if l.double {
		function = doubleName(function)
	}
	return cudaFunctions[function] || l.double && doubleFunctions[function]
}

// doubleName returns the name of the version on float64 of a library function.
func doubleName(name string) string {
	if strings.HasPrefix(name, "plait_") {
		return strings.Replace(name, "f32", "f64", 1)
	}
	return name
}

// Translate implements [Language].
func (l CUDA) Translate(text string) string {
	if l.double {
		return cudaPrelude + cudaLibrary + cudaDouble + translateCUDA(text, true)
	}
	return cudaPrelude + cudaLibrary + translateCUDA(text, false)
}

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

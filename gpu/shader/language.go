package shader

import (
	"fmt"
	"slices"
	"strings"
)

// A Language prints the parts of a program that WGSL and CUDA C write differently: declarations, barriers and atomic operations. Kernels do
// not call it; [Text] does.
type Language interface {
	// Type declares one of the types of [Types].
	Type(name string) string
	// Params declares p, the array of parameters, whose elements are [Word4].
	Params() string
	// Buffer declares a storage buffer of elements that the program reads and writes.
	Buffer(binding int, name, element string) string
	// Narrow returns the type of a buffer's elements of 1 or 2 bytes, or "" if buffers have no elements smaller than a word. A value of it is
	// made of the word that holds its bits, and converted to one. LoadNarrow4 and StoreNarrow4 return expressions that read and write four of
	// them from index e on, a multiple of four. LoadNarrow4's has the type [Word4].
	Narrow(bytes int) string
	LoadNarrow4(buffer, e string) string
	StoreNarrow4(buffer, e string, values [4]string) string
	// Shared declares an array in workgroup memory; Private declares one that is private to each invocation. Several sizes declare an array
	// of arrays, with the outermost size first. No size declares a single element.
	Shared(name, element string, sizes ...int) string
	Private(name, element string, sizes ...int) string
	// Struct declares a structure.
	Struct(name string, fields []Variable) string
	// Func opens a function. result is empty if it returns nothing.
	Func(name string, params []Variable, result string) string
	// Main opens the entry point. It defines wg and grid, the number of the workgroup and the size of the grid in x, y and z; group, the
	// number of the workgroup counted along x, then y; and li, the number of the invocation in its workgroup.
	Main(threads int) string
	// Barrier waits for all invocations of the workgroup, and makes their writes to workgroup memory visible. BufferBarrier does so for
	// writes to buffers.
	Barrier() string
	BufferBarrier() string
	// AtomicAdd, AtomicAnd, AtomicOr, AtomicLoad and AtomicStore return expressions that read or change a word of type [AtomicWord].
	AtomicAdd(place, value string) string
	AtomicAnd(place, value string) string
	AtomicOr(place, value string) string
	AtomicLoad(place string) string
	AtomicStore(place, value string) string
	// Float64 returns the language of programs that compute in float64, in which [Real] and its vectors are of float64 numbers. It returns nil
	// if there is no such type.
	Float64() Language
	// Has reports whether the language has a function of the library in a text of its own.
	Has(function string) bool
	// Translate returns a finished program, whose statements are in WGSL, in the language.
	Translate(text string) string
}

// A Variable is a field of a structure, or a parameter of a function.
type Variable struct{ Name, Type string }

// Names of the types in programs. The types u32, i32 and bool have the same name in every language.
const (
	Real       = "real"        // float32, the type of arithmetic; float64 in programs that compute in it
	Real2      = "real2"       // a vector of two
	Real4      = "real4"       // a vector of four
	Real2x4    = "real2x4"     // two vectors of four
	Pair       = "pair"        // a 64-bit integer as two words, the low word first
	Word4      = "word4"       // a vector of four words
	Int4       = "int4"        // a vector of four
	Bool4      = "bool4"       // a vector of four
	AtomicWord = "atomic_word" // a word for atomic operations
)

// Types lists the types that the builder declares, with their sizes in workgroup memory.
var Types = []struct {
	Name  string
	Bytes int
}{{Real, 4}, {Real2, 8}, {Real4, 16}, {Real2x4, 32}, {Pair, 8}, {Word4, 16}, {Int4, 16}, {Bool4, 16}, {AtomicWord, 4}}

// bytesOf returns the size of a type; types that are not in [Types] have 4 bytes.
func (w *Text) bytesOf(name string) int {
	for _, t := range Types {
		if t.Name == name {
			if w.double && strings.HasPrefix(name, Real) {
				return 2 * t.Bytes
			}
			return t.Bytes
		}
	}
	return 4
}

// Component returns the name of element i of a vector.
func Component(i int) string { return "xyzw"[i : i+1] }

// WGSL is the [Language] of WebGPU.
type WGSL struct{}

func (WGSL) Type(name string) string {
	return "alias " + name + " = " + map[string]string{
		Real: "f32", Real2: "vec2<f32>", Real4: "vec4<f32>", Real2x4: "mat2x4<f32>", Pair: "vec2<u32>", Word4: "vec4<u32>", Int4: "vec4<i32>", Bool4: "vec4<bool>",
		AtomicWord: "atomic<u32>",
	}[name] + ";\n"
}

func (WGSL) Params() string {
	return fmt.Sprintf("@group(0) @binding(0) var<uniform> p: array<%s, %d>;\n", Word4, MaxParamBytes/16)
}

func (WGSL) Buffer(binding int, name, element string) string {
	return fmt.Sprintf("@group(0) @binding(%d) var<storage, read_write> %s: array<%s>;\n", binding, name, element)
}

func (WGSL) Narrow(int) string                             { return "" }
func (WGSL) LoadNarrow4(string, string) string             { return "" }
func (WGSL) StoreNarrow4(string, string, [4]string) string { return "" }

func (WGSL) Shared(name, element string, sizes ...int) string {
	return fmt.Sprintf("var<workgroup> %s: %s;\n", name, wgslArray(element, sizes))
}

func (WGSL) Private(name, element string, sizes ...int) string {
	return fmt.Sprintf("var<private> %s: %s;\n", name, wgslArray(element, sizes))
}

func wgslArray(element string, sizes []int) string {
	for _, n := range slices.Backward(sizes) {
		element = fmt.Sprintf("array<%s, %d>", element, n)
	}
	return element
}

func (WGSL) Struct(name string, fields []Variable) string {
	var b strings.Builder
	fmt.Fprintf(&b, "struct %s {\n", name)
	for _, f := range fields {
		fmt.Fprintf(&b, "  %s: %s,\n", f.Name, f.Type)
	}
	return b.String() + "}\n"
}

func (WGSL) Func(name string, params []Variable, result string) string {
	var list []string
	for _, p := range params {
		list = append(list, p.Name+": "+p.Type)
	}
	if result != "" {
		result = " -> " + result
	}
	return fmt.Sprintf("fn %s(%s)%s {\n", name, strings.Join(list, ", "), result)
}

func (WGSL) Main(threads int) string {
	return fmt.Sprintf(`@compute @workgroup_size(%d)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) li: u32) {
  let group = wg.y * grid.x + wg.x;
`, threads)
}

func (WGSL) Barrier() string       { return "  workgroupBarrier();\n" }
func (WGSL) BufferBarrier() string { return "  storageBarrier();\n" }

func (WGSL) AtomicAdd(place, value string) string { return "atomicAdd(&" + place + ", " + value + ")" }
func (WGSL) AtomicAnd(place, value string) string { return "atomicAnd(&" + place + ", " + value + ")" }
func (WGSL) AtomicOr(place, value string) string  { return "atomicOr(&" + place + ", " + value + ")" }
func (WGSL) AtomicLoad(place string) string       { return "atomicLoad(&" + place + ")" }
func (WGSL) AtomicStore(place, value string) string {
	return "atomicStore(&" + place + ", " + value + ")"
}

// Float64 implements [Language].
func (WGSL) Float64() Language { return nil }

// Has implements [Language].
func (WGSL) Has(string) bool { return false }

// Translate implements [Language].
func (WGSL) Translate(text string) string { return text }

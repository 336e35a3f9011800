package shader

import (
	"fmt"
	"regexp"
	"strings"
)

// A Source is the finished text of a program, as a runtime compiles it.
type Source struct {
	Text    string
	Buffers int // how many buffers it binds
	Threads int // invocations of a workgroup
	Shared  int // bytes of workgroup memory
	Dynamic int // bytes of workgroup memory beside what the text declares
}

// A Text is a program that is being written, from top to bottom. The builder has declared parameters and operands before the kernel starts.
// The kernel then declares workgroup memory, structures and functions, and opens the main function last, by [Text.Main], [Text.Each] or
// [Text.EachGroup]; the builder closes it. Statements are written by [Text.Add]. All other methods print in the language of the GPU.
type Text struct {
	Language
	text            strings.Builder
	buffers         int
	threads, shared int
	whole           *Source
	double          bool // it computes in float64
}

func newText(l Language, buffers int, double bool) *Text {
	if l == nil {
		l = WGSL{}
	}
	if double {
		l = l.Float64()
	}
	w := &Text{Language: l, buffers: buffers, double: double}
	w.text.WriteString(l.Params())
	return w
}

// Add writes statements formatted by [fmt.Sprintf], and ends the line.
func (w *Text) Add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.text.WriteString(text)
	if !strings.HasSuffix(text, "\n") {
		w.text.WriteByte('\n')
	}
}

// RealParam returns the expression for a parameter of type [Real], whose first word has the given number, and the number of its words: see
// [Recorder.RealWords].
func (w *Text) RealParam(at int) (expression string, words int) { return realParam(at, w.double) }

// Put writes statements without formatting.
func (w *Text) Put(statements string) { w.Add("%s", statements) }

// Raw writes text in the GPU's own language, which [Language.Translate] leaves as it is. It is for kernels that only one language can
// express: see [Device.Compute]. In CUDA it may stand among functions, where it becomes a member of the program's structure, or statements.
func (w *Text) Raw(text string) { w.text.WriteString(rawBegin + text + rawEnd + "\n") }

// Whole makes a text in the GPU's own language the whole program: nothing else that has been or will be written is part of it. threads is
// the number of invocations of a workgroup, and dynamic the bytes of workgroup memory that the text does not declare.
func (w *Text) Whole(text string, threads, dynamic int) {
	w.whole = &Source{Text: text, Buffers: w.buffers, Threads: threads, Dynamic: dynamic}
}

// Shared declares an array in workgroup memory: see [Language].
func (w *Text) Shared(name, element string, sizes ...int) {
	bytes := w.bytesOf(element)
	for _, n := range sizes {
		bytes *= n
	}
	w.shared += bytes
	w.text.WriteString(w.Language.Shared(name, element, sizes...))
}

// Private declares an array that is private to each invocation.
func (w *Text) Private(name, element string, sizes ...int) {
	w.text.WriteString(w.Language.Private(name, element, sizes...))
}

// Struct declares a structure. Fields are written as "name: type".
func (w *Text) Struct(name string, fields ...string) {
	w.text.WriteString(w.Language.Struct(name, variables(fields)))
}

var signature = regexp.MustCompile(`^(\w+)\((.*)\)(?: -> (\w+))?$`)

// Func writes a function. The signature has the form name(a: type, b: type) -> type. The body is formatted by [fmt.Sprintf].
func (w *Text) Func(sign, body string, args ...any) {
	w.open(sign)
	w.Add("  "+body, args...)
	w.text.WriteString("}\n")
}

// Procedure writes a function whose body calls other methods of the text, such as [Text.Barrier].
func (w *Text) Procedure(sign string, body func()) {
	w.open(sign)
	body()
	w.text.WriteString("}\n")
}

// open writes the beginning of a function.
func (w *Text) open(sign string) {
	m := signature.FindStringSubmatch(sign)
	if m == nil {
		panic("shader: a function's signature is name(a: type) -> type, got " + sign)
	}
	var params []string
	if m[2] != "" {
		params = strings.Split(m[2], ", ")
	}
	w.text.WriteString(w.Language.Func(m[1], variables(params), m[3]))
}

func variables(list []string) []Variable {
	var vars []Variable
	for _, v := range list {
		name, typ, _ := strings.Cut(v, ": ")
		vars = append(vars, Variable{name, typ})
	}
	return vars
}

// Main opens the main function of workgroups of the given number of invocations. It defines wg, grid, group and li: see [Language].
func (w *Text) Main(threads int) {
	w.threads = threads
	w.text.WriteString(w.Language.Main(threads))
}

// Each opens a main function that runs once for each i from 0 to n, in workgroups of [Threads] invocations.
func (w *Text) Each(n string) {
	w.Main(Threads)
	w.Add("  let i = group * %du + li;\n  if (i >= %s) { return; }", Threads, n)
}

// EachGroup opens a main function that runs in n workgroups of the given number of invocations; surplus workgroups return at once.
func (w *Text) EachGroup(threads int, n string) {
	w.Main(threads)
	w.Add("  if (group >= %s) { return; }", n)
}

// Barrier waits for all invocations of the workgroup and makes their writes to workgroup memory visible.
func (w *Text) Barrier() { w.text.WriteString(w.Language.Barrier()) }

// BarrierAll is [Text.Barrier] for both buffers and workgroup memory.
func (w *Text) BarrierAll() {
	w.text.WriteString(w.Language.BufferBarrier())
	w.Barrier()
}

// Words declares a buffer of 32-bit words.
func (w *Text) Words(binding int, name string) { w.text.WriteString(w.Buffer(binding, name, "u32")) }

// bind declares an operand with its functions for loads and stores.
func (w *Text) bind(binding int, x *Binding) {
	x.Shared = x.Shared && !x.takesVec4()
	x.Declare(w, binding)
	if x.in {
		x.Loader(w, x.compute, x.kind)
	}
	if x.out {
		x.Storer(w, x.compute, x.kind)
	}
	if x.in && x.takesVec4() {
		x.loader4(w)
	}
	if x.out && x.takesVec4() {
		x.storer4(w)
	}
}

// source returns the finished program: the types and library functions that it mentions, then its text.
func (w *Text) source() *Source {
	if w.whole != nil {
		return w.whole
	}
	text := w.text.String()
	if w.threads > 0 {
		text += "}\n"
	}
	head := ""
	for _, t := range Types {
		if strings.Contains(text, t.Name) {
			head += w.Type(t.Name)
		}
	}
	return &Source{Text: w.Translate(head + WithLibrary(text, w.Has)), Buffers: w.buffers, Threads: w.threads, Shared: w.shared}
}

package shader

import (
	"fmt"
	"regexp"
	"strings"
)

// A Source is a program as a runtime compiles it.
type Source struct {
	Text    string
	Buffers int // that it binds
	Threads int // of a workgroup
	Shared  int // bytes of workgroup memory
}

// A Text is a program that is being written, from top to bottom. Kernels write statements by [Text.Add] and everything else by the other
// methods, which print it in the language of the GPU. The builder has declared parameters and operands before; workgroup memory,
// structures and functions come next; the main function, which one of [Text.Main], [Text.Each] and [Text.EachGroup] opens, is the last,
// and the builder closes it.
type Text struct {
	Language
	text            strings.Builder
	buffers         int
	threads, shared int
}

func newText(l Language, buffers int) *Text {
	if l == nil {
		l = WGSL{}
	}
	w := &Text{Language: l, buffers: buffers}
	w.text.WriteString(l.Params())
	return w
}

// Add writes statements, formatted as by [fmt.Sprintf], and ends the line.
func (w *Text) Add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.text.WriteString(text)
	if !strings.HasSuffix(text, "\n") {
		w.text.WriteByte('\n')
	}
}

// Put writes statements as they are.
func (w *Text) Put(statements string) { w.Add("%s", statements) }

// Shared declares an array in workgroup memory: see [Language].
func (w *Text) Shared(name, element string, sizes ...int) {
	bytes := bytesOf(element)
	for _, n := range sizes {
		bytes *= n
	}
	w.shared += bytes
	w.text.WriteString(w.Language.Shared(name, element, sizes...))
}

// Private declares an array that each invocation has for itself.
func (w *Text) Private(name, element string, sizes ...int) {
	w.text.WriteString(w.Language.Private(name, element, sizes...))
}

// Struct declares a structure, whose fields are written as "name: type".
func (w *Text) Struct(name string, fields ...string) {
	w.text.WriteString(w.Language.Struct(name, variables(fields)))
}

var signature = regexp.MustCompile(`^(\w+)\((.*)\)(?: -> (\w+))?$`)

// Func writes a function. Its signature is name(a: type, b: type) -> type, and its body formatted as by [fmt.Sprintf].
func (w *Text) Func(sign, body string, args ...any) {
	w.open(sign)
	w.Add("  "+body, args...)
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

// Main opens the main function of workgroups of so many invocations. It defines wg, grid, group and li: see [Language].
func (w *Text) Main(threads int) {
	w.threads = threads
	w.text.WriteString(w.Language.Main(threads))
}

// Each opens a main function that runs for each i from 0 to the number n, with workgroups of [Threads].
func (w *Text) Each(n string) {
	w.Main(Threads)
	w.Add("  let i = group * %du + li;\n  if (i >= %s) { return; }", Threads, n)
}

// EachGroup opens the main function of workgroups of so many invocations; those whose number, group, is not below n return.
func (w *Text) EachGroup(threads int, n string) {
	w.Main(threads)
	w.Add("  if (group >= %s) { return; }", n)
}

// Barrier waits until all invocations of the workgroup are there and workgroup memory has what they wrote.
func (w *Text) Barrier() { w.text.WriteString(w.Language.Barrier()) }

// Meet is [Text.Barrier] for workgroup memory and buffers.
func (w *Text) Meet() {
	w.text.WriteString(w.Language.BufferBarrier())
	w.Barrier()
}

// Words declares a buffer of words.
func (w *Text) Words(binding int, name string) { w.text.WriteString(w.Buffer(binding, name, "u32")) }

// bind declares an operand and how it is loaded and stored.
func (w *Text) bind(binding int, x *Binding) {
	x.Declare(w, binding)
	if x.in {
		x.Loader(w, x.compute, x.kind)
	}
	if x.out {
		x.Storer(w, x.compute, x.kind)
	}
}

// source returns the program with the types and the functions of the library that it mentions.
func (w *Text) source() *Source {
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
	return &Source{Text: head + WithLibrary(text), Buffers: w.buffers, Threads: w.threads, Shared: w.shared}
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core/op"
)

// A manual is what the pages about operations are made from.
type manual struct {
	sources *sources
	python  map[string][]string // where Python finds operations, each with its signature
}

// pythonSignatures reads internal/coverage/python.txt, in which Python has written its functions of operations.
func pythonSignatures(text string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(text) {
		if name, signature, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			out[name] = append(out[name], signature)
		}
	}
	return out
}

// pages returns the pages of the reference, by file.
func (m *manual) pages(families []*family) map[string]string {
	pages := map[string]string{}
	var index strings.Builder
	index.WriteString("<!-- Written by internal/gen/bindings from the rows of core/op. -->\n\n# The operations\n\n" +
		"Each operation is a row of the registry in [core/op](../../core/op), and these pages are written from the rows: what is said of shapes\n" +
		"and dtypes was found by applying the operation. Arguments have the names of Python; in Go they come in the same order, those behind\n" +
		"the plain ones as fields of a struct of options, and C has a parameter for each. Python's signatures are those of its functions,\n" +
		"PyTorch's, which may take other arguments than the engine does; they also take NumPy's names of arguments.\n\n" +
		"Operations run on CPU devices and on GPUs. GPUs under WebGPU have no float64, and an operation that needs it says so where it is called.\n" +
		"Dtypes that are not listed for an operation are refused with an error. A result that cannot be made is an error at once: in Python\n" +
		"an exception, in Go a tensor that carries it, in C a negative handle. It names the operation, what it got and what it wanted.\n\n" +
		"An operation in place changes its first tensor, counts as a change for gradients that were to use the old elements, and fails\n" +
		"where the result has another shape or a dtype of a higher kind, on leaves that require a gradient, and on expanded tensors.\n" +
		"Methods of Python that give a tensor another layout, such as `squeeze_`, are not here: in Go one assigns the view.\n\n" +
		"| page | operations |\n| --- | --- |\n")
	for _, f := range families {
		var names []string
		var body strings.Builder
		for i, c := range f.calls {
			if i > 0 && c.row == f.calls[i-1].row {
				continue
			}
			var other *call
			if i+1 < len(f.calls) && f.calls[i+1].row == c.row {
				other = f.calls[i+1]
			}
			names = append(names, fmt.Sprintf("[%s](%s.md#%s)", c.row.Name, f.name, strings.ToLower(c.row.Name)))
			m.entry(&body, c, other)
		}
		fmt.Fprintf(&index, "| [%s](%s.md) | %s |\n", f.name, f.name, strings.Join(names, ", "))
		pages[f.name+".md"] = "<!-- Written by internal/gen/bindings from the rows of core/op. -->\n\n# " + f.name + "\n" + body.String()
	}
	pages["README.md"] = index.String()
	return pages
}

// entry writes what there is to say of an operation: c is its function, or the one in place if it has no other, and
// inPlace the one in place beside it.
func (m *manual) entry(b *strings.Builder, c, inPlace *call) {
	r := c.row
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", r.Name, sentence(r.Doc))
	line := func(what, format string, args ...any) {
		fmt.Fprintf(b, "- %s: %s\n", what, fmt.Sprintf(format, args...))
	}
	for _, signature := range m.python[c.name] {
		line("Python", "`%s`", signature)
	}
	line("Go", "`op.%s`", m.sources.signature(c.fn))
	line("C", "`plait_%s`", snake(c.goFuncName()))
	if inPlace != nil {
		for _, signature := range m.python[inPlace.name] {
			line("In place", "`%s`", signature)
		}
		line("In place", "`op.%s`, `plait_%s`", inPlace.fn, snake(inPlace.goFuncName()))
	}
	for _, a := range c.args {
		if a.Doc != "" {
			line("`"+a.Name+"`", "%s", prose(a.Doc))
		}
	}
	if shapes := shapesOf(r); shapes != "" {
		line("Shapes", "%s", shapes)
	}
	if dtypes := dtypesOf(r); dtypes != "" {
		line("Dtypes", "%s", dtypes)
	}
	if wide(r) {
		line("GPU", "none: the result is float64")
	}
	line("Gradient", "%s", gradientOf(r))
	if casts := castsOf(r.Autocast); casts != "" {
		line("Autocast", "%s", casts)
	}
	if r.Waits {
		line("Waits", "the call may wait for its inputs, since the shape of the result can depend on their values")
	}
	if more := m.sources.more(c.fn); !strings.Contains(oneLine(r.Doc), more) {
		fmt.Fprintf(b, "\n%s\n", prose(more))
	}
}

// gradientOf says for which arguments an operation has a derivative.
func gradientOf(r *op.Row) string {
	if r.NoGrad != "" {
		return "none: " + r.NoGrad
	}
	var with, without []string
	for _, s := range r.Samples {
		for i, a := range s.Args {
			if i >= len(r.Args) {
				break
			}
			name := "`" + r.Args[i].Name + "`"
			t, ok := a.(op.T)
			if list, isList := a.([]op.T); isList && len(list) > 0 {
				t, ok = list[0], true
			}
			switch {
			case !ok || slices.Contains(with, name):
			case t.NoGrad || t.Fixed:
				without = append(without, name)
			default:
				with = append(with, name)
			}
		}
	}
	text := "yes"
	if len(with) > 0 && len(without) > 0 {
		text = "of " + strings.Join(with, ", ")
	}
	if r.NoDouble != "" {
		text += ", once: " + r.NoDouble
	}
	return text
}

// castsOf says what autocast does with an operation's inputs.
func castsOf(c op.Casts) string {
	to := map[op.Cast]string{op.CastLow: "to the lower dtype", op.CastFloat32: "to float32", op.CastWidest: "to the widest dtype among the inputs"}
	switch {
	case c.CPU == c.GPU:
		return to[c.CPU]
	case to[c.CPU] == "":
		return to[c.GPU] + " on a GPU"
	case to[c.GPU] == "":
		return to[c.CPU] + " on a CPU"
	}
	return to[c.CPU] + " on a CPU, " + to[c.GPU] + " on a GPU"
}

// sentence returns text that begins like a sentence and ends like one.
func sentence(text string) string {
	text = oneLine(strings.TrimSpace(text))
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return prose(text)
}

// prose returns text for Markdown, in which a star is a star.
func prose(text string) string { return strings.ReplaceAll(text, "*", `\*`) }

package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A public says which operations are public in Python as they are: functions at the top of the package, and methods of tensors.
// Operations that PyTorch has are where PyTorch has them, unless a module there says otherwise. One that PyTorch lacks is both, unless
// internal/coverage has found it in a module that is written by hand.
type public struct {
	python                            map[string][]string // functions of operations that internal/coverage has found
	top, tensor, all                  []string            // names of PyTorch's: at its top, of methods, and of any area with operations
	functionsByHand, attributesByHand map[string]bool
	methodsByHand                     map[string]string // functions by hand that are methods as they are: what makes the method, by name
}

// assigned matches lines that give a module or class names: definitions, assignments, and lines of a long import.
var assigned = regexp.MustCompile(`(?m)^( *)(?:def (\w+)|((?:\w+(?:, | = ))*\w+) = |(\w+),$)`)

// namesIn adds the names that a Python file gives a module (indent "") or a class.
func namesIn(text, indent string, names map[string]bool) {
	for _, m := range assigned.FindAllStringSubmatch(text, -1) {
		if m[1] != indent && m[4] == "" {
			continue
		}
		for _, n := range strings.FieldsFunc(m[2]+m[3]+m[4], func(r rune) bool { return r == ',' || r == ' ' || r == '=' }) {
			names[n] = true
		}
	}
}

// defined matches the functions that a module defines, with their decorators.
var defined = regexp.MustCompile(`(?m)^((?:@.*\n)*)def ([a-z]\w*)\(`)

// methodsIn adds the methods that the functions of a module are, but those that another module has, too.
func methodsIn(text, module string, methods map[string]string) {
	found := map[string]string{}
	for _, m := range defined.FindAllStringSubmatch(text, -1) {
		found[m[2]] = module + "." + m[2]
		if strings.Contains(m[1], "@checked\n") {
			found[m[2]] = "method(" + found[m[2]] + ")"
		}
	}
	for name, method := range found {
		if _, twice := methods[name]; twice {
			method = ""
		}
		methods[name] = method
	}
}

// public reads what decides which operations are public as they are.
func (w *writer) public() *public {
	p := &public{python: pythonSignatures(w.text("internal/coverage/python.txt")), functionsByHand: map[string]bool{}, attributesByHand: map[string]bool{},
		methodsByHand: map[string]string{}}
	p.top, p.tensor = w.words("internal/coverage/top.txt"), w.words("internal/coverage/tensor.txt")
	p.all = slices.Concat(p.top, p.tensor, w.words("internal/coverage/functional.txt"))
	for _, name := range []string{"_functions/methods.py", "_tensors/properties.py", "_tensors/sparse.py", "_autograd/gradients.py"} {
		namesIn(w.text("python/plait/"+name), "    ", p.attributesByHand)
	}
	modules, _ := filepath.Glob(filepath.Join(w.root, "python/plait/_functions/*.py"))
	for _, path := range modules {
		if name := filepath.Base(path); name != "methods.py" {
			text := w.text("python/plait/_functions/" + name)
			namesIn(text, "", p.functionsByHand)
			methodsIn(text, strings.TrimSuffix(name, ".py"), p.methodsByHand)
		}
	}
	maps.DeleteFunc(p.methodsByHand, func(name, method string) bool {
		return method == "" || p.attributesByHand[name] || !slices.Contains(p.tensor, name)
	})
	return p
}

// own reports whether only Plait has the operation, and no module that is written by hand: its row alone says what Python has.
func (p *public) own(c *call) bool {
	n := c.row.Name
	return len(p.python[n]) == 0 && len(p.python[c.name]) == 0 && !slices.Contains(p.all, n) && !slices.Contains(p.all, c.name) &&
		!strings.HasPrefix(n, "special_") && !strings.HasPrefix(n, "linalg_") && !strings.HasPrefix(n, "fft_")
}

// function reports whether the operation is a function at the top of the package.
func (p *public) function(c *call) bool {
	return !p.functionsByHand[c.name] && (slices.Contains(p.top, c.name) || p.own(c))
}

// method reports whether it is a method of tensors.
func (p *public) method(c *call) bool {
	first := len(c.args) > 0 && (c.args[0].kind == tensorArg || c.args[0].kind == operandArg)
	_, function := p.methodsByHand[c.name]
	return first && !p.attributesByHand[c.name] && !function && (slices.Contains(p.tensor, c.name) || p.own(c))
}

// signatures returns all functions in Python of all operations: those that internal/coverage has found, and those of Plait's own.
func (p *public) signatures(families []*family) map[string][]string {
	out := map[string][]string{}
	for name, list := range p.python {
		out[name] = list
	}
	for _, f := range families {
		for _, c := range f.calls {
			if !p.own(c) {
				continue
			}
			if p.function(c) {
				out[c.name] = append(out[c.name], fmt.Sprintf("plait.%s(%s) -> %s", c.name, c.pythonParams(), c.pythonResult()))
			}
			if p.method(c) {
				_, rest, _ := strings.Cut(c.pythonParams(), ", ")
				out[c.name] = append(out[c.name], fmt.Sprintf("Tensor.%s(%s) -> %s", c.name, rest, c.pythonResult()))
			}
		}
	}
	return out
}

// functions returns the module of the functions at the top of the package.
func (p *public) functions(families []*family) string {
	var names, own []string
	for _, f := range families {
		for _, c := range f.calls {
			if p.function(c) {
				names = append(names, c.name)
			}
			if p.own(c) {
				own = append(own, c.name)
			}
		}
	}
	slices.Sort(names)
	slices.Sort(own)
	var b strings.Builder
	b.WriteString("# Code generated by internal/gen/bindings; DO NOT EDIT.\n" +
		"\"\"\"Operations that are functions at the top of the package as they are.\"\"\"\n\nfrom plait._ops import (\n")
	for _, n := range names {
		fmt.Fprintf(&b, "    %s,\n", n)
	}
	b.WriteString(")\n\n# Those that PyTorch lacks.\n_OWN: list[str] = [")
	for i, n := range own {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", n)
	}
	b.WriteString("]\n")
	return b.String()
}

// methods returns the class with the methods of tensors.
func (p *public) methods(families []*family) string {
	var modules []string
	for _, method := range p.methodsByHand {
		module, _, _ := strings.Cut(strings.TrimPrefix(method, "method("), ".")
		modules = append(modules, module)
	}
	slices.Sort(modules)
	var b strings.Builder
	b.WriteString("# Code generated by internal/gen/bindings; DO NOT EDIT.\n\"\"\"Operations and functions as methods.\"\"\"\n\nfrom plait import _ops\n" +
		"from plait._functions import (\n")
	for _, m := range slices.Compact(modules) {
		b.WriteString("    " + m + ",\n")
	}
	b.WriteString(")\nfrom plait._functions._checked import method\n\n\n" +
		"class TensorMethods:\n    \"\"\"The operations and the functions of this package that are methods of tensors as they are.\"\"\"\n\n    __slots__ = ()\n\n")
	for _, f := range families {
		for _, c := range f.calls {
			if p.method(c) {
				fmt.Fprintf(&b, "    %s = _ops.%s\n", c.name, c.name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.methodsByHand)) {
		fmt.Fprintf(&b, "    %s = %s\n", name, p.methodsByHand[name])
	}
	return b.String()
}

// Command bindings writes what other languages see of the operations: the flat functions of package capi/bind, their C
// functions and header, and the Python functions with type hints. It takes the path of the repository.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/plait-ml/plait/core/op"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bindings: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: bindings path-of-the-repository")
	}
	w := &writer{root: os.Args[1], kept: map[string]bool{}}
	families := families(op.Rows())
	for _, f := range families {
		w.goFile("capi/bind/gen_"+f.name+".go", f.goSource())
		w.file("python/plait/_ops/"+f.name+".py", f.pythonSource())
	}
	w.file("python/plait/_ops/__init__.py", pythonIndex(families))
	w.file("python/plait/_ops/methods.py", pythonMethods(families, w.lines("internal/coverage/tensor.txt")))
	functions := parseBind(filepath.Join(w.root, "capi/bind"))
	for name, source := range exports(functions) {
		w.goFile("capi/gen_"+name+".go", source)
	}
	w.file("capi/plait.h", header(functions))
	w.file("python/plait/_core.pyi", stubs(functions))
	w.sweep("capi/bind/gen_*.go", "capi/gen_*.go", "python/plait/_ops/*.py")
	if w.err != nil {
		log.Fatal(w.err)
	}
}

// A writer writes generated files and removes those of former runs.
type writer struct {
	root string
	kept map[string]bool
	err  error
}

// lines returns the lines of a file.
func (w *writer) lines(name string) []string {
	b, err := os.ReadFile(filepath.Join(w.root, name))
	if err != nil && w.err == nil {
		w.err = err
	}
	return strings.Fields(string(b))
}

func (w *writer) goFile(name, source string) {
	b, err := format.Source([]byte(source))
	if err != nil {
		w.err = fmt.Errorf("%s: %w\n%s", name, err, source)
		return
	}
	w.file(name, string(b))
}

func (w *writer) file(name, source string) {
	if w.err != nil {
		return
	}
	path := filepath.Join(w.root, name)
	w.kept[path] = true
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, []byte(source)) {
		return
	}
	if w.err = os.MkdirAll(filepath.Dir(path), 0o777); w.err == nil {
		w.err = os.WriteFile(path, []byte(source), 0o666)
	}
}

// sweep removes the files that match and were not written.
func (w *writer) sweep(patterns ...string) {
	for _, p := range patterns {
		paths, _ := filepath.Glob(filepath.Join(w.root, p))
		for _, path := range paths {
			if !w.kept[path] && w.err == nil {
				w.err = os.Remove(path)
			}
		}
	}
}

// camel returns a name such as log_softmax as logSoftmax.
func camel(name string) string {
	parts := strings.Split(name, "_")
	for i, p := range parts {
		if i > 0 && p != "" {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// exported returns a name such as log_softmax as LogSoftmax.
func exported(name string) string {
	c := camel(strings.TrimSuffix(name, "_"))
	return strings.ToUpper(c[:1]) + c[1:]
}

// snake returns a name such as LogSoftmax as log_softmax.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 && !(name[i-1] >= 'A' && name[i-1] <= 'Z') {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

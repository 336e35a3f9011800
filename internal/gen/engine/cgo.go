package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The flags of C that computes. It has lines for a debugger and a profiler, but no variables: those take a fifth of the time
// that the compiler needs. The race detector looks at Go alone, so what is tested under it may be slow, and is compiled in a
// fraction of the time.
const (
	computeFlags = "-O3 -g1 -fopenmp-simd"
	raceFlags    = "-O1 -DPLAIT_BASELINE"
)

const (
	module    = "github.com/plait-ml/plait/"
	cgoOutput = "gen_cgo.go"
)

var (
	includeLine = regexp.MustCompile(`(?m)^\s*#include "([^"]+)"`)
	packageLine = regexp.MustCompile(`(?m)^package (\w+)`)
	calledName  = regexp.MustCompile(`\bC\.(plaitk?_\w+)\(`)
)

// cgo returns gen_cgo.go of each folder below core, empty for none: the flags of the package's C, the functions that neither keep
// pointers nor call Go, whose calls are cheaper for it, and the import of a family's C.
func cgo(root string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, "core"), func(dir string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			files[filepath.Join(dir, cgoOutput)], err = cgoFile(root, dir)
		}
		return err
	})
	return files, err
}

// cgoFile returns the file of one folder.
func cgoFile(root, dir string) (string, error) {
	var doc, pkg, lines string
	functions := map[string]bool{}
	for _, name := range list(dir, "*.go") {
		content, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if base := filepath.Base(name); base == cgoOutput || strings.HasSuffix(base, "_test.go") {
			continue
		}
		pkg = string(packageLine.FindSubmatch(content)[1])
		for _, m := range calledName.FindAllSubmatch(content, -1) {
			functions[string(m[1])] = true
		}
	}
	digest, err := digestOf(root, dir)
	if err != nil {
		return "", err
	}
	compiles := len(list(dir, "*.c")) > 0
	if pkg == "" && compiles {
		pkg = filepath.Base(dir)
		doc = fmt.Sprintf("// Package %s holds the C of package %s, and imports nothing: a package is compiled again when an import of it changes.\n",
			pkg, filepath.Base(filepath.Dir(dir)))
	}
	if compiles {
		lines = "#cgo CFLAGS: " + computeFlags + digest + "\n#cgo race CFLAGS: " + raceFlags + "\n#cgo LDFLAGS: -lm\n"
	} else if digest != "" {
		lines = "#cgo CFLAGS:" + digest + "\n"
	}
	for _, f := range slices.Sorted(maps.Keys(functions)) {
		lines += "#cgo noescape " + f + "\n#cgo nocallback " + f + "\n"
	}
	if pkg == "" || lines == "" {
		return "", nil
	}
	text := generated + doc + "package " + pkg + "\n\n/*\n" + lines + "*/\nimport \"C\"\n"
	if len(list(dir, "c/*.c")) > 0 {
		path, err := filepath.Rel(root, dir)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("\nimport (\n\t_ %q // the kernels\n\t_ %q // plait_parallel, which they call\n)\n",
			module+filepath.ToSlash(path)+"/c", module+"core/cpu/pool")
	}
	return text, nil
}

// list returns the files in dir that match.
func list(dir, pattern string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, pattern))
	return names
}

// digestOf returns a flag with a digest of the headers outside its folder that the package in dir includes; empty if there are
// none. Go's build cache looks at the flags, but not at such headers.
func digestOf(root, dir string) (string, error) {
	work := slices.Concat(list(dir, "*.go"), list(dir, "*.c"), list(dir, "*.h"))
	contents := map[string][]byte{} // of the headers outside dir
	seen := map[string]bool{}
	for len(work) > 0 {
		name := work[0]
		work = work[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		content, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if filepath.Dir(name) != dir {
			contents[name] = content
		}
		for _, m := range includeLine.FindAllSubmatch(content, -1) {
			header, err := resolve(filepath.Dir(name), string(m[1]))
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			work = append(work, header)
		}
	}
	if len(contents) == 0 {
		return "", nil
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		path, err := filepath.Rel(root, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.ToSlash(path), len(contents[name]), contents[name])
	}
	return fmt.Sprintf(" -DPLAIT_HEADERS=0x%08x", binary.BigEndian.Uint32(h.Sum(nil))), nil
}

// resolve finds a header beside the file that includes it. A search path would be an absolute one, and then each checkout
// would compile for itself.
func resolve(dir, header string) (string, error) {
	name := filepath.Join(dir, header)
	_, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no header %q in %s", header, dir)
	}
	return name, err
}

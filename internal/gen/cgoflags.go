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
)

// The flags of C that computes. It has lines for a debugger and a profiler, but no variables: those take a fifth of the time
// that the compiler needs. The race detector looks at Go alone, so what is tested under it may be slow, and is compiled in a
// third of the time.
const (
	computeFlags = "-O3 -g1 -fopenmp-simd"
	raceFlags    = "-O1"
)

var (
	includeLine = regexp.MustCompile(`(?m)^\s*#include "([^"]+)"`)
	flagsLine   = regexp.MustCompile(`(?m)^#cgo CFLAGS:.*$`)
	computeLine = regexp.MustCompile(`(?m)^#cgo CFLAGS: -O3.*$(\n#cgo race CFLAGS:.*$)?`)
	digestFlag  = regexp.MustCompile(` -DPLAIT_HEADERS=\S+`)
)

// cgoFlags writes the flags of the packages below core/cpu, with a digest of the headers outside its folder that a package
// includes: Go's build cache looks at the flags, but not at such headers.
func cgoFlags(root string) error {
	files, err := flagged(root)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err == nil {
			err = write(files[name], name)
		}
	}
	return err
}

// flagged returns the files with flags below core/cpu as they should be.
func flagged(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(filepath.Join(root, "core/cpu"), func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		flag, err := digestOf(root, dir)
		if err != nil {
			return err
		}
		names, _ := filepath.Glob(filepath.Join(dir, "*.go"))
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if !flagsLine.Match(content) {
				continue
			}
			content = computeLine.ReplaceAll(content, []byte("#cgo CFLAGS: "+computeFlags))
			content = flagsLine.ReplaceAllFunc(content, func(line []byte) []byte {
				return append(digestFlag.ReplaceAll(line, nil), flag...)
			})
			files[name] = computeLine.ReplaceAll(content, []byte("$0\n#cgo race CFLAGS: "+raceFlags))
		}
		return nil
	})
	return files, err
}

// digestOf returns the flag for the package in dir; empty if it includes no header of another folder.
func digestOf(root, dir string) (string, error) {
	var work []string
	for _, pattern := range []string{"*.go", "*.c", "*.h"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		work = append(work, names...)
	}
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

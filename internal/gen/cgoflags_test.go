package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFlagsAreThoseOfTheHeaders(t *testing.T) {
	root, err := moduleRoot()
	require.NoError(t, err)
	files, err := flagged(root)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for name, want := range files {
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: run `make generate`", name)
	}
}

func TestADigestFollowsTheHeadersThatAPackageIncludes(t *testing.T) {
	root := t.TempDir()
	put := func(name, content string) {
		name = filepath.Join(root, "core/cpu", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
	}
	flags := func(name string) string {
		require.NoError(t, cgoFlags(root))
		content, err := os.ReadFile(filepath.Join(root, "core/cpu", name))
		require.NoError(t, err)
		line := flagsLine.FindString(string(content))
		require.Equal(t, 1, strings.Count(line, computeFlags), line)
		require.Equal(t, 1, strings.Count(string(content), "#cgo race CFLAGS: "+raceFlags+"\n"), string(content))
		return line
	}
	const source = "package p\n\n/*\n#cgo CFLAGS: -O3\n%*/\nimport \"C\"\n"
	put("include/a.h", "#include \"deep/b.h\"\n")
	put("include/deep/b.h", "int b;\n")
	put("include/c.h", "int c;\n")
	put("one/one.go", strings.ReplaceAll(source, "%", "#include \"own.h\"\n"))
	put("one/own.h", "int own;\n")
	put("one/one.c", "#include \"../include/a.h\"\n#include <math.h>\n")
	put("two/two.go", strings.ReplaceAll(source, "%", "#include \"../include/c.h\"\n"))
	put("none/none.go", strings.ReplaceAll(source, "%", ""))
	one, two := flags("one/one.go"), flags("two/two.go")
	require.Contains(t, one, "-DPLAIT_HEADERS=0x")
	require.NotEqual(t, one, two)
	require.NotContains(t, flags("none/none.go"), "PLAIT_HEADERS")
	require.Equal(t, one, flags("one/one.go"))
	put("one/own.h", "int other;\n") // the build cache sees this one
	require.Equal(t, one, flags("one/one.go"))
	put("include/deep/b.h", "long b;\n")
	require.NotEqual(t, one, flags("one/one.go"))
	require.Equal(t, two, flags("two/two.go"))
	put("include/c.h", "#include \"missing.h\"\n")
	require.ErrorContains(t, cgoFlags(root), `no header "missing.h"`)
}

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADigestFollowsTheHeadersThatAPackageIncludes(t *testing.T) {
	root := t.TempDir()
	put := func(name, content string) {
		name = filepath.Join(root, "core/cpu", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
	}
	written := func(folder string) string {
		files, err := cgo(root)
		require.NoError(t, err)
		return files[filepath.Join(root, "core/cpu", folder, cgoOutput)]
	}
	put("include/a.h", "#include \"deep/b.h\"\n")
	put("include/deep/b.h", "int b;\n")
	put("include/c.h", "int c;\n")
	put("one/c/own.h", "int own;\n")
	put("one/c/one.c", "#include \"../../include/a.h\"\n#include \"own.h\"\n#include <math.h>\n")
	put("two/two.go", "package two\n\n/*\n#include \"../include/c.h\"\n*/\nimport \"C\"\n\nfunc run() { C.plaitk_two(C.int64_t(1)) }\n")
	put("none/none.go", "package none\n")
	one, two := written("one/c"), written("two")
	require.Contains(t, one, "// Package c holds the C of package one,")
	require.Contains(t, one, "#cgo CFLAGS: "+computeFlags+" -DPLAIT_HEADERS=0x")
	require.Contains(t, one, "#cgo race CFLAGS: "+raceFlags+"\n")
	require.NotContains(t, two, computeFlags)
	require.Contains(t, two, "#cgo noescape plaitk_two\n#cgo nocallback plaitk_two\n")
	require.Empty(t, written("none"))
	require.Empty(t, written("include"))
	require.Equal(t, one, written("one/c"))
	put("one/c/own.h", "int other;\n") // the build cache sees this one
	require.Equal(t, one, written("one/c"))
	put("include/deep/b.h", "long b;\n")
	require.NotEqual(t, one, written("one/c"))
	require.Equal(t, two, written("two"))
	put("two/two.go", "package two\n")
	require.Empty(t, written("two"))
	put("include/a.h", "#include \"missing.h\"\n")
	_, err := cgo(root)
	require.ErrorContains(t, err, `no header "missing.h"`)
}

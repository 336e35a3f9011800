// Package tests_go holds the tests that cross rooms: what one package's unit tests cannot see.
package tests_go

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/plait-ml/plait"

// root is the module's folder, seen from this package's tests.
const root = ".."

// layers lists the library's folders from the ground up. A package imports packages of lower layers only. A folder stands
// for everything below it that has no entry of its own, except core; folder/* gives each folder inside it an entry.
var layers = [][]string{
	{"core/internal", "core/disk"},
	{"core"},
	{"core/coretest", "core/backend"},
	{"core/contract"},
	{"core/cpu/pool"},
	{"core/cpu/gemm"},
	{"core/cpu/blas"},
	{"core/cpu/kernel"},
	{"core/cpu/kernel/copying"}, // which other families call
	{"core/cpu/kernel/*"},
	{"core/cpu"},
	{"core/op"},
	{"core/autograd"},
	{"core/safetensors", "core/data", "core/sharing"},
	{"core/nn", "core/optim", "core/meta", "core/replay", "core/vmap", "core/graph", "core/crosscheck"},
	{"gpu/shader"},
	{"gpu/kernel"},
	{"gpu/kernel/internal/primitive", "gpu/kernel/elementwise"},
	{"gpu/kernel/copying"},
	{"gpu/kernel/matmul", "gpu/kernel/reduction", "gpu/kernel/scan"}, // which other families call
	{"gpu/kernel/indexing"},
	{"gpu/kernel/*"},
	{"gpu/driver"}, // above all kernels: none sees it
	{"gpu/cuda/internal"},
	{"gpu/cuda/nvrtc", "gpu/cuda/cublaslt"},
	{"gpu/webgpu", "gpu/cuda"},
	{"gpu", "parallel"},
	{"capi/handle", "capi/dlpack", "capi/python"},
	{"capi/bind"},
	{"capi"},
}

// layerOf returns the folder that governs a package (a path inside the module) and its layer, or -1 for none.
func layerOf(pkg string) (folder string, layer int) {
	layer = -1
	for i, folders := range layers {
		for _, f := range folders {
			if parent, ok := strings.CutSuffix(f, "/*"); ok {
				inside, below := strings.CutPrefix(pkg, parent+"/")
				if !below {
					continue
				}
				first, _, _ := strings.Cut(inside, "/")
				f = parent + "/" + first
			}
			governs := pkg == f || f != "core" && strings.HasPrefix(pkg, f+"/")
			if governs && len(f) > len(folder) {
				folder, layer = f, i
			}
		}
	}
	return folder, layer
}

// sourceFiles calls visit with every Go file of the module that is not a test, by its slash path.
func sourceFiles(t *testing.T, visit func(name string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err = filepath.Rel(root, name)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			switch name {
			case ".git", ".venv", "build", "dist", "internal/tools":
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			visit(name)
		}
		return nil
	})
	require.NoError(t, err)
}

// The files of every build constraint are read, so that a platform that this machine is not cannot hide an import.
func TestImportsPointDown(t *testing.T) {
	seen := 0
	sourceFiles(t, func(name string) {
		pkg := path.Dir(name)
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		require.NoError(t, err)
		seen++
		for _, spec := range file.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if why := checkImport(pkg, target); why != "" {
				t.Errorf("%s: import %q: %s", name, target, why)
			}
		}
	})
	require.NotZero(t, seen)
}

// checkImport says why a package of this module may not import target, or "".
func checkImport(pkg, target string) string {
	first, _, _ := strings.Cut(target, "/")
	inner, ours := strings.CutPrefix(target, module+"/")
	room, _, _ := strings.Cut(pkg, "/")
	helper := strings.HasSuffix(pkg, "test") // a package for tests, as net/nettest is
	if !helper && strings.HasSuffix(target, "test") && ours {
		return "a package for tests"
	}
	if strings.HasPrefix(pkg, "core/cpu/kernel/") && path.Base(pkg) == "c" && target != "C" {
		return "a change in what it imports would compile its C again"
	}
	if !ours {
		if strings.Contains(first, ".") && room == "core" && !helper {
			return "core depends on the standard library alone"
		}
		return ""
	}
	if inner == pkg {
		return ""
	}
	folder, layer := layerOf(pkg)
	targetFolder, targetLayer := layerOf(inner)
	switch {
	case layer < 0 && room == "core":
		return pkg + " has no layer; give it one in layers"
	case layer >= 0 && targetLayer < 0:
		return pkg + " belongs to the library, the other does not"
	case layer >= 0 && targetLayer > layer:
		return targetFolder + " stands above " + folder
	case layer >= 0 && targetLayer == layer && folder != targetFolder:
		return targetFolder + " stands beside " + folder
	}
	return ""
}

func TestCheckImport(t *testing.T) {
	for _, c := range []struct {
		pkg, target string
		allowed     bool
	}{
		{"core", module + "/core/op", false},
		{"core", module + "/gpu", false},
		{"core", "github.com/cogentcore/webgpu/wgpu", false},
		{"core", "unsafe", true},
		{"core/cpu/kernel/reduction", module + "/core/cpu/kernel", true},
		{"core/cpu/kernel/reduction", module + "/core/cpu/kernel/matmul", false},
		{"core/cpu/kernel", module + "/core/cpu/kernel/matmul", false},
		{"core/cpu", module + "/core/cpu/kernel/matmul", true},
		{"core/op", module + "/core/nn", false},
		{"core/nn", module + "/core/op", true},
		{"core/nn", module + "/core/optim", false},
		{"core/op", module + "/capi", false},
		{"core/op", module + "/internal/gen", false},
		{"core/cpu/kernel/indexing", module + "/core/cpu/kernel/copying", true},
		{"core/cpu/kernel/indexing", module + "/core/cpu/kernel/internal/kerneltest", false},
		{"core/cpu/kernel/reduction", module + "/core/cpu/kernel/reduction/c", true},
		{"core/cpu/kernel/reduction/c", module + "/core/cpu/pool", false},
		{"core/cpu/kernel/reduction/c", "C", true},
		{"core/cpu/kernel/internal/kerneltest", "github.com/stretchr/testify/require", true},
		{"core/unheard", module + "/core", false},
		{"gpu", module + "/parallel", false},
		{"parallel/ddp", module + "/parallel/collective", true},
		{"parallel/ddp", module + "/capi", false},
		{"capi", module + "/parallel/ddp", true},
		{"examples/go/traingpt", module + "/core/nn", true},
	} {
		why := checkImport(c.pkg, c.target)
		require.Equal(t, c.allowed, why == "", "%s imports %s: %s", c.pkg, c.target, why)
	}
}

// The compiled module of the Python package is made of all layers: a source distribution has them, and a change in one makes
// the module anew.
func TestPythonPackageIsMadeOfAllLayers(t *testing.T) {
	manifest, err := os.ReadFile(filepath.Join(root, "MANIFEST.in"))
	require.NoError(t, err)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	_, sources, found := strings.Cut(string(makefile), "SOURCES := $(shell find ")
	require.True(t, found)
	sources, _, _ = strings.Cut(sources, "-type f")
	for _, folders := range layers {
		for _, f := range folders {
			top, _, _ := strings.Cut(f, "/")
			require.Contains(t, strings.Split(string(manifest), "\n"), "graft "+top)
			require.Contains(t, strings.Fields(sources), top)
		}
	}
}

package tests_go

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// An operation is filed under one name, the family of its row, in every layer: files of core/op, folders of kernels, pages of the
// reference. These tests say what to move where a family does not match.

// machinery lists the files of core/op that hold what all operations are made with, by how their names begin.
var machinery = []string{"arg_docs", "autocast", "distributed", "doc", "elementwise", "forward", "gen", "inplace", "op_context", "range_check", "row", "sharded", "spread"}

// ownFolders are folders of kernels that no operation's row stands for: whose they are instead.
var ownFolders = map[string]string{
	"combine":     "parallel/collective",
	"elementwise": "the expressions in the rows of all families",
	"fusion":      "chains of elementwise calls",
	"optim":       "core/optim",
	"vmath":       "the vector functions that kernels share",
}

func families() []string {
	var out []string
	for _, r := range op.Rows() {
		out = append(out, r.Family)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// familyOf returns the family with which the name of a file begins, or an empty string.
func familyOf(file string, families []string) string {
	for _, f := range families {
		if file == f+".go" || strings.HasPrefix(file, f+"_") {
			return f
		}
	}
	return ""
}

// goFiles returns the syntax of the Go files in a folder that are no tests, by name.
func goFiles(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	out := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		out[filepath.Base(name)] = f
	}
	return out
}

func TestFilesOfOperationsHaveTheFamilysName(t *testing.T) {
	all := families()
	for name, f := range goFiles(t, "core/op") {
		family := familyOf(name, all)
		if family == "" {
			require.True(t, slices.ContainsFunc(machinery, func(m string) bool { return name == m+".go" || strings.HasPrefix(name, m+"_") }),
				"core/op/%s: the name begins with no family. Rename it to <family>_%s, or add it to the list of machinery here", name, name)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 1 {
				if fn, ok := call.Fun.(*ast.Ident); ok && fn.Name == "register" {
					first := literal(call.Args[0])
					require.Equal(t, family, first, "core/op/%s registers rows of the family %q: move them to a file %s_*.go", name, first, first)
				}
			}
			return true
		})
	}
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}

// kernelFamilies returns, by the variable of core/contract that stands for it, the family of each kernel: the file that declares it.
func kernelFamilies(t *testing.T) map[string]string {
	all, family := families(), map[string]string{}
	for name, f := range goFiles(t, "core/contract") {
		file := strings.TrimSuffix(name, ".go")
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if call, ok := spec.Values[0].(*ast.CallExpr); ok {
				if fn, ok := call.Fun.(*ast.Ident); ok && (fn.Name == "declare" || fn.Name == "reduction") {
					require.True(t, slices.Contains(all, file) || ownFolders[file] != "",
						"core/contract/%s declares the kernel %s: declare it in the file of a family", name, spec.Names[0].Name)
					family[spec.Names[0].Name] = file
				}
			}
			return true
		})
	}
	require.Greater(t, len(family), 90)
	return family
}

// TestKernelsAreInTheFolderOfTheirFamily wants each kernel of core/contract to be registered, on the CPU and on GPUs, by the folder
// of its family.
func TestKernelsAreInTheFolderOfTheirFamily(t *testing.T) {
	all, family := families(), kernelFamilies(t)
	found := 0
	for _, layer := range []string{"core/cpu/kernel", "gpu/kernel"} {
		entries, err := os.ReadDir(filepath.Join(root, layer))
		require.NoError(t, err)
		for _, e := range entries {
			folder := e.Name()
			if !e.IsDir() || folder == "internal" {
				continue
			}
			require.True(t, slices.Contains(all, folder) || ownFolders[folder] != "",
				"%s/%s is no family of a row: move its kernels to the folder of their operation's, or say here whose they are", layer, folder)
			for file, f := range goFiles(t, layer+"/"+folder) {
				for _, kernel := range registered(f) {
					if want := family[kernel]; want != "" {
						require.Equal(t, want, folder, "%s/%s/%s registers the kernel %s of the family %s: move it to %s/%s", layer, folder, file, kernel, want, layer, want)
						found++
					}
				}
			}
		}
	}
	require.Greater(t, found, 2*len(family)*9/10, "kernels that init registers")
}

// TestKernelsAreLaunchedByTheirContracts wants no package but core/contract to name a kernel, so that none is launched or registered
// without one. Kernels that work element by element, whose names end in a type, are described by package expr.
func TestKernelsAreLaunchedByTheirContracts(t *testing.T) {
	coretest.SkipUnderRace(t)
	sourceFiles(t, func(name string) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			if fn, ok := call.Fun.(*ast.SelectorExpr); ok && fn.Sel.Name == "Kernel" {
				kernel := literal(call.Args[0])
				require.True(t, kernel == "" || strings.Contains(kernel, "."), "%s names the kernel %q: declare it in core/contract, and use that variable", name, kernel)
			}
			return true
		})
	})
}

// registered returns what the init functions of a file name of core/contract: the kernels that they register.
func registered(f *ast.File) []string {
	var names []string
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" {
			ast.Inspect(fn, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "contract" {
						names = append(names, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	return names
}

func TestPagesOfTheReferenceAreFamilies(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs/reference/*.md"))
	require.NoError(t, err)
	var pages []string
	for _, name := range names {
		if page := strings.TrimSuffix(filepath.Base(name), ".md"); page != "README" {
			pages = append(pages, page)
		}
	}
	require.Equal(t, families(), pages, "docs/reference has a page for each family: go generate ./capi/bind")
	for _, f := range families() {
		require.Regexp(t, regexp.MustCompile("^[a-z]+$"), f, "a family is one word: what divides it goes into the names of its files")
	}
}

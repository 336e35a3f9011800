package tests_go

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/coretest"
)

// library builds the shared library and returns the directory that holds it and its header.
func library(t *testing.T) string {
	t.Helper()
	coretest.SkipUnderRace(t)
	dir := t.TempDir()
	command(t, "", filepath.Join(root, "internal/make/library"), dir)
	return dir
}

// command runs a command in dir and returns what it printed.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s %v\n%s", name, args, out)
	return string(out)
}

func compiler() string {
	if cc := os.Getenv("CC"); cc != "" {
		return cc
	}
	return "cc"
}

// compile makes a program of C source and the library in dir, with every warning an error.
func compile(t *testing.T, dir, source string) string {
	t.Helper()
	program := filepath.Join(dir, strings.TrimSuffix(filepath.Base(source), ".c"))
	command(t, "", compiler(), "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-I"+dir, source, "-o", program,
		"-L"+dir, "-lplait", "-Wl,-rpath,"+dir)
	return program
}

// A C program trains, sees errors, and leaves no handle behind.
func TestCProgram(t *testing.T) {
	dir := library(t)
	out := command(t, "", compile(t, dir, filepath.Join(root, "capi/testdata/train.c")))
	require.Contains(t, out, "0 ^ 0 = 0\n0 ^ 1 = 1\n1 ^ 0 = 1\n1 ^ 1 = 0\nsorted 4 5 6\n")
	require.Contains(t, out, "plait "+version(t)+"\n")

	t.Run("exports", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("ELF only")
		}
		require.ElementsMatch(t, declared(t), exported(t, filepath.Join(dir, "libplait.so")))
	})
	t.Run("c++", func(t *testing.T) {
		if _, err := exec.LookPath("c++"); err != nil {
			t.Skip("no C++ compiler")
		}
		source := filepath.Join(dir, "header.cc")
		require.NoError(t, os.WriteFile(source, []byte("#include \"plait.h\"\nint main() { return plait_tensor_count() != 0; }\n"), 0o666))
		command(t, "", "c++", "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", source)
	})
	t.Run("documents", func(t *testing.T) { cBlocks(t, dir) })
}

// cBlocks runs the C blocks of documents: each is a whole program, whose "// Output:" comment says what it prints.
func cBlocks(t *testing.T, dir string) {
	found := false
	for _, block := range codeBlocks(t) {
		if block.info != "c" {
			continue
		}
		found = true
		t.Run(block.String(), func(t *testing.T) {
			source := filepath.Join(t.TempDir(), "block.c")
			require.NoError(t, os.WriteFile(source, []byte(block.text), 0o666))
			requireOutput(t, block, command(t, "", compile(t, dir, source)))
		})
	}
	require.True(t, found, "no document has a C program")
}

// declared returns the names of the functions in plait.h.
func declared(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, "capi/plait.h"))
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^[a-z]\w* \**(plait_\w+)\(`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, m[1])
	}
	require.NotEmpty(t, names)
	return names
}

// exported returns the names that a shared library defines for others.
func exported(t *testing.T, file string) []string {
	t.Helper()
	f, err := elf.Open(file)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	var names []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_LOCAL {
			names = append(names, s.Name)
		}
	}
	return names
}

// version returns the version that the Python package's file says.
func version(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, "python/plait/_version.py"))
	require.NoError(t, err)
	m := regexp.MustCompile(`__version__ = "(.+)"`).FindSubmatch(source)
	require.NotNil(t, m)
	return string(m[1])
}

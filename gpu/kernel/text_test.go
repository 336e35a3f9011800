package kernel_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var sources = os.DirFS(".")

// owned are the parts of a program that the builder prints, and the functions that kernels call for them.
var owned = []struct {
	text *regexp.Regexp
	call string
}{
	{regexp.MustCompile(`\bfn \w`), "Text.Func"},
	{regexp.MustCompile(`\bstruct \w+ \{`), "Text.Struct"},
	{regexp.MustCompile(`var<`), "Text.Shared, Text.Private or a method of Builder that binds an operand"},
	{regexp.MustCompile(`@\w+`), "Text.Main, Text.Each or Text.EachGroup"},
	{regexp.MustCompile(`Barrier\(\)`), "Text.Barrier or Text.BarrierAll"},
	{regexp.MustCompile(`\batomic\w*[<(]`), "Builder.AtomicsOf, and Text.AtomicAdd and its like"},
	{regexp.MustCompile(`\barray<`), "Text.Shared or Text.Private"},
	{regexp.MustCompile(`(?:^|[^\w.])f(?:32|16)\b`), "shader.Real, in texts real"},
	{regexp.MustCompile(`\b(?:vec[234]|mat[234]x[234])\b`), "shader.Real4, shader.Pair and their like, in texts real4 and pair"},
	{regexp.MustCompile(`^xyzw$`), "shader.Component"},
}

// each visits the nodes of the kernels' sources.
func each(t *testing.T, set *token.FileSet, visit func(n ast.Node) bool) {
	files := 0
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		text, err := fs.ReadFile(sources, path)
		require.NoError(t, err)
		file, err := parser.ParseFile(set, path, text, 0)
		require.NoError(t, err)
		ast.Inspect(file, visit)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, files, 50)
}

// TestKernelsPrintNoDeclarations checks that kernels print only expressions and statements. Declarations, which shader languages
// write in different ways, are printed by the builder.
func TestKernelsPrintNoDeclarations(t *testing.T) {
	set := token.NewFileSet()
	each(t, set, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return true
			}
			s, err := strconv.Unquote(n.Value)
			require.NoError(t, err)
			for _, o := range owned {
				assert.NotRegexp(t, o.text, s, "%v: the text writes %q itself, call %s", set.Position(n.Pos()), o.text.FindString(s), o.call)
			}
		}
		return true
	})
}

// TestStatementsAreFormats checks that statements are format strings. Only expressions may be concatenated with +.
func TestStatementsAreFormats(t *testing.T) {
	set := token.NewFileSet()
	each(t, set, func(n ast.Node) bool {
		x, ok := n.(*ast.BinaryExpr)
		if !ok || x.Op != token.ADD {
			return true
		}
		line, value := false, false
		var look func(e ast.Expr)
		look = func(e ast.Expr) {
			switch e := e.(type) {
			case *ast.BinaryExpr:
				look(e.X)
				look(e.Y)
			case *ast.BasicLit:
				s, _ := strconv.Unquote(e.Value)
				line = line || strings.Contains(s, "\n")
			default:
				value = true
			}
		}
		look(x)
		assert.False(t, line && value, "%v: statements are put together by +, call Text.Add or fmt.Sprintf", set.Position(x.Pos()))
		return !line
	})
}

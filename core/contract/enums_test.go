package contract_test

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inC matches a line comment that ends in the constant's name in C.
var inC = regexp.MustCompile(`C: (\w+)$`)

// cpuOnly matches enumerators and numbers in C headers that only the CPU kernels use.
var cpuOnly = regexp.MustCompile(`^(PLAITK_MODES|PLAITK_BLOCK|NONZERO_CHUNK|PLAITK_COMBINE_OPS|PLAITK_OPTIM_CHUNK|PLAITK_OPTIM_STATES|` +
	`FFT_MAX_[A-Z_]+|FFT_WHOLE|FFT_SPLIT[A-Z_]*|FFT_REAL|FFT_GROUP|FFT_NEAR|SPECIAL_NEXTAFTER|SPECIAL_FREXP|SPECIAL_FUNCTION|SPECIAL_PAIR)$`)

// TestConstantsMatchC compares each constant whose comment names a C constant with the headers of its family's CPU
// kernels. Those headers may define no other constants except the ones in cpuOnly.
func TestConstantsMatchC(t *testing.T) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, f)
		}
	}
	config := types.Config{Importer: importer.Default(), Error: func(error) {}} // no constant needs the other packages
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	_, _ = config.Check("contract", fset, files, info)
	compared := 0
	for _, f := range files {
		family := strings.TrimSuffix(fset.Position(f.Pos()).Filename, ".go")
		values, named := constantsInC(t, family), map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Comment == nil {
				return true
			}
			m := inC.FindStringSubmatch(strings.TrimSpace(spec.Comment.Text()))
			c, isConst := info.Defs[spec.Names[0]].(*types.Const)
			if m == nil || !isConst {
				return true
			}
			got, ok := constant.Int64Val(c.Val())
			require.True(t, ok)
			at := fset.Position(spec.Pos())
			want, found := values[m[1]]
			require.True(t, found, "%s: no header in core/cpu/kernel/%s/c defines %s: correct the comment of %s, or add it there", at, family, m[1], c.Name())
			require.Equal(t, want, got, "%s: %s is %d, and %s in core/cpu/kernel/%s/c is %d: change the one that was changed last",
				at, c.Name(), got, m[1], family, want)
			named[m[1]] = true
			compared++
			return true
		})
		for name := range values {
			require.True(t, len(named) == 0 || named[name] || cpuOnly.MatchString(name),
				"core/cpu/kernel/%[1]s/c defines %[2]s: add a constant whose comment ends in \"C: %[2]s\" to core/contract/%[1]s.go, or %[2]s to cpuOnly in this test", family, name)
		}
	}
	require.Greater(t, compared, 70)
}

var (
	comment    = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	enum       = regexp.MustCompile(`(?s)\benum\b\s*\w*\s*\{([^}]*)\}`)
	definition = regexp.MustCompile(`(?m)^#define (\w+) (\d+)$`)
)

// constantsInC returns the enumerators and the numbers that the headers of a family's kernels define.
func constantsInC(t *testing.T, family string) map[string]int64 {
	t.Helper()
	values := map[string]int64{}
	headers, err := filepath.Glob("../cpu/kernel/" + family + "/c/*.h")
	require.NoError(t, err)
	for _, name := range headers {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		source := comment.ReplaceAllString(string(text), "")
		for _, m := range definition.FindAllStringSubmatch(source, -1) {
			values[m[1]], _ = strconv.ParseInt(m[2], 10, 64)
		}
		for _, m := range enum.FindAllStringSubmatch(source, -1) {
			next, known := int64(0), true
			for _, e := range strings.Split(m[1], ",") {
				id, value, given := strings.Cut(strings.TrimSpace(e), "=")
				if id = strings.TrimSpace(id); id == "" {
					continue
				}
				if given {
					next, err = strconv.ParseInt(strings.TrimSpace(value), 0, 64)
					known = err == nil // an expression, and the enumerators that follow it, belong to the CPU alone
				}
				if known {
					values[id] = next
					next++
				}
			}
		}
	}
	return values
}

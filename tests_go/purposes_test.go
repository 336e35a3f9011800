package tests_go

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/parallel/collective"
)

const groupType = "*" + module + "/parallel/collective.Group"

// meets are the methods of a group in which ranks meet.
var meets = map[string]bool{"AllReduce": true, "AllReduceMany": true, "AllReduceByNode": true, "Broadcast": true, "BroadcastMany": true, "Reduce": true,
	"AllGather": true, "AllGatherInto": true, "AllGatherParts": true, "AllGatherMade": true, "ReduceScatter": true,
	"ReduceScatterInto": true, "ReduceScatterParts": true, "AllToAll": true, "AllToAllInto": true, "Gather": true, "Scatter": true,
	"Send": true, "Recv": true, "Exchange": true, "StartExchange": true, "Barrier": true, "MonitoredBarrier": true}

// Methods that begin a collective are in the table, so that the next test sees the calls of them.
func TestPurposesKnowTheCollectives(t *testing.T) {
	group, work := reflect.TypeFor[*collective.Group](), reflect.TypeFor[*collective.Work]()
	for m := range group.Methods() {
		for i := range m.Type.NumOut() {
			assert.True(t, m.Type.Out(i) != work || meets[m.Name], "Group.%s begins a collective: add it to meets, in tests_go/purposes_test.go", m.Name)
		}
	}
}

// The collectives that the library itself makes say what they are for: only so do ranks that are at different places, with
// tensors of the same shapes, get an error in place of wrong numbers.
func TestCollectivesOfTheLibraryHaveAPurpose(t *testing.T) {
	coretest.SkipUnderRace(t)
	checked := 0
	for _, dir := range []string{"ddp", "fsdp", "pipeline", "checkpoint", "mesh"} {
		checked += purposesOf(t, filepath.Join(root, "parallel", dir), module+"/parallel/"+dir)
	}
	assert.Greater(t, checked, 30)
}

// purposesOf looks at the collectives of a package and returns how many there are.
func purposesOf(t *testing.T, dir, path string) int {
	fset, exports := token.NewFileSet(), exportsOf(t, dir)
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, f)
		}
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	p := purposes{info: types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}},
		given: map[types.Object][]ast.Expr{}, made: map[types.Object][]ast.Expr{}, asked: map[types.Object]bool{}}
	_, err = conf.Check(path, fset, files, &p.info)
	require.NoError(t, err)
	for _, f := range files {
		ast.Inspect(f, p.collect)
	}
	for _, call := range p.calls {
		assert.True(t, p.has(call.X), "%v: a collective without a purpose: call %s on what Group.For returns", fset.Position(call.Pos()), call.Sel.Name)
	}
	return len(p.calls)
}

// exportsOf returns the compiled packages that a package needs.
func exportsOf(t *testing.T, dir string) map[string]string {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	list.Dir = dir
	out, err := list.Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	return exports
}

// A purposes follows the handles of groups through a package.
type purposes struct {
	info  types.Info
	calls []*ast.SelectorExpr         // of collectives
	given map[types.Object][]ast.Expr // what variables and fields are set to
	made  map[types.Object][]ast.Expr // what functions return
	asked map[types.Object]bool       // on the way
}

func (p *purposes) isGroup(e ast.Expr) bool {
	tv, ok := p.info.Types[e]
	return ok && tv.Type.String() == groupType
}

// collect notes collectives, assignments and results.
func (p *purposes) collect(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if meets[n.Sel.Name] && p.isGroup(n.X) {
			p.calls = append(p.calls, n)
		}
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			if o := p.object(to); o != nil && len(n.Lhs) == len(n.Rhs) {
				p.given[o] = append(p.given[o], n.Rhs[i])
			}
		}
	case *ast.KeyValueExpr:
		if o := p.object(n.Key); o != nil {
			p.given[o] = append(p.given[o], n.Value)
		}
	case *ast.CompositeLit:
		if s, ok := p.info.Types[n].Type.Underlying().(*types.Struct); ok {
			for i, v := range n.Elts {
				if _, named := v.(*ast.KeyValueExpr); !named {
					p.given[s.Field(i)] = append(p.given[s.Field(i)], v)
				}
			}
		}
	case *ast.CallExpr:
		if f, ok := p.object(n.Fun).(*types.Func); ok {
			for i, v := range n.Args[:min(len(n.Args), f.Signature().Params().Len())] {
				param := f.Signature().Params().At(i)
				p.given[param] = append(p.given[param], v)
			}
		}
	case *ast.FuncDecl:
		o := p.info.Defs[n.Name]
		ast.Inspect(n, func(r ast.Node) bool {
			if s, ok := r.(*ast.ReturnStmt); ok && len(s.Results) == 1 {
				p.made[o] = append(p.made[o], s.Results[0])
			}
			return true
		})
	}
	return true
}

// object returns what an expression names.
func (p *purposes) object(e ast.Expr) types.Object {
	switch e := e.(type) {
	case *ast.Ident:
		if o := p.info.Defs[e]; o != nil {
			return o
		}
		return p.info.Uses[e]
	case *ast.SelectorExpr:
		return p.info.Uses[e.Sel]
	}
	return nil
}

// has reports whether a handle comes from Group.For, by all ways on which it can get where it is.
func (p *purposes) has(e ast.Expr) bool {
	from := p.given
	if call, ok := e.(*ast.CallExpr); ok {
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "For" && p.isGroup(s.X) {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "ForBackward" && p.isGroup(s.X) { // keeps the purpose
			return p.asked[p.object(s.X)] || p.has(s.X)
		}
		e, from = call.Fun, p.made
	}
	o := p.object(e)
	if o == nil || p.asked[o] || len(from[o]) == 0 {
		return false
	}
	p.asked[o] = true
	defer delete(p.asked, o)
	for _, value := range from[o] {
		if !p.has(value) {
			return false
		}
	}
	return true
}

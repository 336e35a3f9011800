package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// inPlace writes the in-place variants that the rows name and nobody has written: where all that a function does is to return what
// apply does, its variant is the same with applyInPlace.
func inPlace(p *pkg) string {
	named := map[string]bool{}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && strings.HasSuffix(id.Name, "InPlace") && ast.IsExported(id.Name) && p.functions[id.Name] == nil {
				named[id.Name] = true
			}
			return true
		})
	}
	var b strings.Builder
	b.WriteString("package op\n\nimport \"github.com/plait-ml/plait/core\"\n\n")
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if base := strings.TrimSuffix(name, "InPlace"); p.functions[base] != nil {
			variant(&b, name, p.functions[base])
		}
	}
	return b.String()
}

func variant(b *strings.Builder, name string, f *ast.FuncDecl) {
	if _, ok := f.Body.List[0].(*ast.ReturnStmt); !ok {
		return
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "apply" {
			call.Sel.Name = "applyInPlace"
		}
		return true
	})
	first := f.Type.Params.List[0].Names[0].Name
	fmt.Fprintf(b, "// %s replaces %s by what [%s] returns, and returns it.\n", name, first, f.Name.Name)
	var text bytes.Buffer
	printer.Fprint(&text, token.NewFileSet(), &ast.FuncDecl{Name: ast.NewIdent(name), Type: f.Type, Body: f.Body})
	b.WriteString(text.String() + "\n\n")
}

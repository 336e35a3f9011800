package main

import (
	"fmt"
	"go/ast"
	"strings"
)

// attributes writes, for each struct of attributes that no function reads yet, the method AddTo that adds its fields to a call, and
// the function that reads them: integers and floats each in the fields' order. A slice is the last of its kind.
func attributes(p *pkg) string {
	var b strings.Builder
	b.WriteString("package contract\n\nimport \"github.com/plait-ml/plait/core\"\n\n")
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeSpec); ok {
				s, isStruct := t.Type.(*ast.StructType)
				if name, ok := strings.CutSuffix(t.Name.Name, "Attrs"); ok && isStruct && p.functions[name+"Of"] == nil {
					attribute(&b, name, s)
				}
			}
			return true
		})
	}
	return b.String()
}

func attribute(b *strings.Builder, name string, s *ast.StructType) {
	var ints, floats, fields []string
	list := "" // of integers
	for _, f := range s.Fields.List {
		for _, n := range f.Names {
			value := "a." + n.Name
			next := fmt.Sprintf("c.Ints[%d]", len(ints))
			switch kind := typeName(f.Type); kind {
			case "bool":
				ints, fields = append(ints, "Flag("+value+")"), append(fields, next+" != 0")
			case "int64":
				ints, fields = append(ints, value), append(fields, next)
			case "[]int64":
				list, fields = ".Int("+value+"...)", append(fields, strings.Replace(next, "]", ":]", 1))
			case "float64":
				fields = append(fields, fmt.Sprintf("c.Floats[%d]", len(floats)))
				floats = append(floats, value)
			case "[]float64":
				fields = append(fields, fmt.Sprintf("c.Floats[%d:]", len(floats)))
				floats = append(floats, value+"...")
			default: // int, or a name for numbers
				ints, fields = append(ints, "int64("+value+")"), append(fields, kind+"("+next+")")
			}
		}
	}
	add := "c"
	if ints != nil {
		add += ".Int(" + strings.Join(ints, ", ") + ")"
	}
	add += list
	if floats != nil {
		add += ".Float(" + strings.Join(floats, ", ") + ")"
	}
	fmt.Fprintf(b, "// AddTo adds the attributes to a call and returns it.\nfunc (a %sAttrs) AddTo(c *core.Call) *core.Call { return %s }\n\n", name, add)
	fmt.Fprintf(b, "// %sOf reads the attributes of a call.\nfunc %[1]sOf(c *core.Call) %[1]sAttrs { return %[1]sAttrs{%s} }\n\n", name, strings.Join(fields, ", "))
}

// typeName returns a type of a field as it is written.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.ArrayType:
		return "[]" + typeName(t.Elt)
	}
	return fmt.Sprintf("%T", t)
}

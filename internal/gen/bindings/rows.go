package main

import (
	"fmt"
	"go/token"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A family is the operations that one file registers.
type family struct {
	name  string
	calls []*call
}

// A call is one function of an operation: the one that returns a result, or the one that changes its first tensor.
type call struct {
	row     *op.Row
	name    string // in Python: with an underscore at its end where it changes its first tensor
	fn      string // of package op
	inPlace bool
	changed *arg // the first tensor, if the call is in place
	args    []*arg
	options string // the type of the struct of options, if there is one
	results int    // -1: a list
}

// An arg is one argument of a call.
type arg struct {
	op.Arg
	kind  kind
	null  bool // may be absent
	ptr   bool // the Go function takes a pointer, nil for an absent one
	goArg string
	last  bool // the last argument of a variadic Go function
	star  bool // any number of arguments in Python
}

// A kind says what an argument is.
type kind int

const (
	tensorArg  kind = iota
	operandArg      // a tensor or a number
	tensorsArg
	intsArg
	floatsArg
	intArg
	floatArg
	boolArg
	stringArg
	dtypeArg
	deviceArg
	generatorArg
)

var (
	tensorType    = reflect.TypeFor[*core.Tensor]()
	tensorsType   = reflect.TypeFor[[]*core.Tensor]()
	dtypeType     = reflect.TypeFor[core.DType]()
	deviceType    = reflect.TypeFor[core.Device]()
	generatorType = reflect.TypeFor[*core.Generator]()
)

func kindOf(t reflect.Type) (k kind, ptr bool) {
	switch t {
	case tensorType:
		return tensorArg, false
	case tensorsType:
		return tensorsArg, false
	case dtypeType:
		return dtypeArg, false
	case deviceType:
		return deviceArg, false
	case generatorType:
		return generatorArg, false
	}
	switch t.Kind() {
	case reflect.Pointer:
		k, _ = kindOf(t.Elem())
		return k, true
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Int {
			return intsArg, false
		}
		if t.Elem().Kind() == reflect.Float64 {
			return floatsArg, false
		}
	case reflect.Int:
		return intArg, false
	case reflect.Float64:
		return floatArg, false
	case reflect.Bool:
		return boolArg, false
	case reflect.String:
		return stringArg, false
	}
	panic(fmt.Sprintf("an argument of type %v", t))
}

func families(rows []*op.Row) []*family {
	byName := map[string]*family{}
	var out []*family
	for _, r := range rows {
		f := byName[r.Family]
		if f == nil {
			f = &family{name: r.Family}
			byName[r.Family] = f
			out = append(out, f)
		}
		if r.Func != nil {
			f.calls = append(f.calls, newCall(r, r.Func, false))
		}
		if r.InPlace != nil {
			f.calls = append(f.calls, newCall(r, r.InPlace, true))
		}
	}
	slices.SortFunc(out, func(a, b *family) int { return strings.Compare(a.name, b.name) })
	return out
}

func newCall(r *op.Row, fn any, inPlace bool) *call {
	c := &call{row: r, name: r.Name, inPlace: inPlace}
	if inPlace && !strings.HasSuffix(c.name, "_") {
		c.name += "_"
	}
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("%s: %v", c.name, p))
		}
	}()
	v := reflect.ValueOf(fn)
	full := runtime.FuncForPC(v.Pointer()).Name()
	c.fn = full[strings.LastIndex(full, ".")+1:]
	if strings.HasPrefix(c.fn, "func") {
		panic("its function has no name")
	}
	t := v.Type()
	rest := r.Args
	if r.Func == nil && rest[0].Name != "input" {
		rest = append([]op.Arg{{Name: "input"}}, rest...)
	}
	for i := range t.NumIn() {
		in := t.In(i)
		if in.Kind() == reflect.Struct {
			c.options = in.Name()
			for _, a := range rest {
				if f, ok := in.FieldByName(a.Field); ok && !(inPlace && (a.Name == "dtype" || a.Name == "device")) {
					c.add(a, f.Type, i)
				}
			}
			break
		}
		if len(rest) == 0 || rest[0].Field != "" {
			panic(fmt.Sprintf("argument %d has no description", i))
		}
		c.add(rest[0], in, i)
		rest = rest[1:]
	}
	if inPlace {
		c.changed = c.args[slices.IndexFunc(c.args, func(a *arg) bool { return a.kind == tensorArg })]
	}
	if t.IsVariadic() {
		c.args[len(c.args)-1].last, c.args[len(c.args)-1].star = true, true
	}
	if first := c.args[0]; first.kind == intsArg && first.Name == "size" {
		first.star = true
	}
	switch {
	case t.NumOut() == 1 && t.Out(0) == tensorsType:
		c.results = -1
	default:
		c.results = t.NumOut()
	}
	return c
}

func (c *call) add(a op.Arg, t reflect.Type, position int) {
	x := &arg{Arg: a, goArg: goName(a.Name)}
	if a.Name == "from" || a.Name == "lambda" {
		x.Name += "_" // a keyword in Python
	}
	x.kind, x.ptr = kindOf(t)
	x.null = a.Optional || x.ptr
	if x.kind == tensorArg && (a.Number || position > 0 && len(c.row.Elementwise) > 0) && a.Field == "" && !(c.inPlace && position == 0) {
		x.kind = operandArg
	}
	c.args = append(c.args, x)
}

func goName(name string) string {
	c := camel(name)
	if token.IsKeyword(c) || slices.Contains([]string{"len", "min", "max", "device", "dtype", "tensor", "list", "out", "tensors", "ints", "floats", "generator", "operand", "optional", "result", "results", "changed"}, c) {
		c += "Arg"
	}
	return c
}

// doc returns the first line of the documentation as a sentence that goes on from the name.
func (c *call) doc() string { return strings.TrimSpace(c.row.Doc) }

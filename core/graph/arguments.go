package graph

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// An Argument is an argument of a node. Its value is a [Ref], a list of them, a [Number], nil, or a bool, integer, float, string or list of
// integers or floats.
type Argument struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// A Ref is an argument that is a value of the graph.
type Ref struct {
	ID int `json:"id"`
}

// A Number is a plain number in the place of a tensor.
type Number struct {
	DType string `json:"dtype"`
	Value any    `json:"number"`
}

// A Float is a number that may be infinite or none.
type Float float64

// MarshalJSON implements [json.Marshaler].
func (f Float) MarshalJSON() ([]byte, error) {
	if v := float64(f); math.IsInf(v, 0) || math.IsNaN(v) {
		return fmt.Appendf(nil, `{"float":"%v"}`, v), nil
	}
	return json.Marshal(float64(f))
}

// attributes are the names of the attributes of operations on elements, by their names.
var attributes = op.ElementwiseAttributes()

// arguments returns those of a use, whose tensors stand for the values refs, nil for absent ones and numbers.
func arguments(a core.Application, refs []any) ([]Argument, error) {
	var out []Argument
	names := parameters(a.Op)
	take := func() any {
		r := refs[0]
		refs = refs[1:]
		return r
	}
	for i, arg := range a.Args {
		name := fmt.Sprintf("arg%d", i)
		if i < len(names.positional) {
			name = names.positional[i]
		}
		switch x := arg.(type) {
		case *core.Tensor:
			out = append(out, Argument{name, take()})
			continue
		case []*core.Tensor:
			list := []any{}
			for range x {
				list = append(list, take())
			}
			out = append(out, Argument{name, list})
			continue
		}
		v := reflect.ValueOf(arg)
		if v.Kind() != reflect.Struct {
			plain, err := plainly(a.Op, v)
			if err != nil {
				return nil, err
			}
			out = append(out, Argument{name, plain})
			continue
		}
		for j := range v.NumField() {
			field := v.Type().Field(j)
			name := names.fields[field.Name]
			if name == "" {
				name = strings.ToLower(field.Name)
			}
			if field.Type == reflect.TypeFor[*core.Tensor]() {
				out = append(out, Argument{name, take()})
				continue
			}
			plain, err := plainly(a.Op, v.Field(j))
			if err != nil {
				return nil, err
			}
			out = append(out, Argument{name, plain})
		}
	}
	for i, v := range a.Attrs {
		out = append(out, Argument{attributes[strings.TrimSuffix(a.Op, "_")][i], Float(v)})
	}
	return out, nil
}

// named are the names of the arguments of a row.
type named struct {
	positional []string
	fields     map[string]string
}

func parameters(name string) named {
	r := op.Lookup(name)
	if r == nil {
		r = op.Lookup(strings.TrimSuffix(name, "_"))
	}
	out := named{fields: map[string]string{}}
	if r == nil {
		return out
	}
	if r.Func == nil { // of the variant in place, which alone there is, the first tensor is not among the arguments
		f := reflect.TypeOf(r.InPlace)
		n := 0
		for _, a := range r.Args {
			if a.Field == "" {
				n++
			}
		}
		last := f.NumIn() - 1
		if f.In(last).Kind() == reflect.Struct {
			last--
		}
		if last+1 > n {
			out.positional = append(out.positional, "self")
		}
	}
	for _, a := range r.Args {
		if a.Field == "" {
			out.positional = append(out.positional, a.Name)
		} else {
			out.fields[a.Field] = a.Name
		}
	}
	return out
}

// plainly returns an argument that is not a tensor as what can be written down.
func plainly(name string, v reflect.Value) (any, error) {
	if !v.IsValid() {
		return nil, nil
	}
	switch x := v.Interface().(type) {
	case core.DType:
		return x.String(), nil
	case core.Device:
		return x.String(), nil
	case *core.Generator:
		return nil, nil
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil, nil
		}
		return plainly(name, v.Elem())
	case reflect.Float64:
		return Float(v.Float()), nil
	case reflect.Bool, reflect.Int, reflect.String:
		return v.Interface(), nil
	case reflect.Slice:
		if v.IsNil() {
			return nil, nil
		}
		list := []any{}
		for i := range v.Len() {
			e, err := plainly(name, v.Index(i))
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		return list, nil
	}
	return nil, core.Errorf(core.NotImplemented, name, "an argument of type %v cannot be recorded", v.Type())
}

// number returns a plain number as an argument.
func number(t *core.Tensor) any {
	n := t.Number()
	var v any = Float(n.Float)
	switch {
	case n.DType == core.Bool:
		v = n.Int != 0
	case n.DType.IsComplex():
		v = []Float{Float(n.Float), Float(n.Imag)}
	case !n.DType.IsFloat():
		v = n.Int
	}
	return Number{n.DType.String(), v}
}

// layout returns how the elements of a tensor lie, as a key.
func layout(t *core.Tensor) string { return fmt.Sprint(t.Shape(), t.Strides()) }

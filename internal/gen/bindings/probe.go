package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// shapesOf returns the shapes that an operation makes of some arguments.
func shapesOf(r *op.Row) string {
	if r.Func == nil {
		return ""
	}
	var list []string
	for _, s := range r.Samples {
		if strings.Contains(s.Name, "empty") || len(list) == 3 {
			continue
		}
		var shapes []string
		for _, out := range apply(r, s, core.Float32, false) {
			if out.Err() == nil {
				shapes = append(shapes, shape(out.Shape()))
			}
		}
		var args []string
		for _, a := range s.Args {
			if text := argument(a); text != "" {
				args = append(args, text)
			}
		}
		text := fmt.Sprintf("`(%s)` → `%s`", strings.Join(args, ", "), strings.Join(shapes, ", "))
		if len(shapes) > 0 && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return strings.Join(list, "; ")
}

// dtypesOf returns the dtypes that an operation takes, and those of what it returns.
func dtypesOf(r *op.Row) string {
	if r.Func == nil || !slices.ContainsFunc(r.Samples[0].Args, func(a any) bool { return len(tensorsOf(a)) > 0 }) {
		return ""
	}
	var order []string
	takes := map[string][]string{}
	for _, d := range []core.DType{core.Float16, core.BFloat16, core.Float32, core.Float64, core.Bool, core.Uint8, core.Uint16, core.Int8, core.Int16, core.Int32, core.Int64,
		core.Complex64, core.Complex128} {
		var gives []string
		for _, out := range probe(r, d) {
			switch {
			case out.Err() != nil:
				gives = nil
			case out.DType() == d:
				gives = append(gives, "the same")
			default:
				gives = append(gives, out.DType().String())
			}
			if gives == nil {
				break
			}
		}
		if gives == nil {
			continue
		}
		if n := len(gives); n > 1 && len(slices.Compact(slices.Clone(gives))) == 1 {
			gives = gives[:1]
		}
		result := strings.Join(gives, ", ")
		if takes[result] == nil {
			order = append(order, result)
		}
		takes[result] = append(takes[result], d.String())
	}
	var list []string
	for _, result := range order {
		list = append(list, strings.Join(takes[result], ", ")+" → "+result)
	}
	return strings.Join(list, "; ")
}

// probe applies an operation to its first sample with tensors of a dtype.
func probe(r *op.Row, d core.DType) []*core.Tensor {
	if r.Func == nil {
		return nil
	}
	return apply(r, r.Samples[0], d, true)
}

// wide reports whether an operation returns nothing but float64, whatever it is asked for.
func wide(r *op.Row) bool {
	if r.Func == nil {
		return false
	}
	for _, s := range r.Samples {
		asked := slices.ContainsFunc(s.Args, func(a any) bool {
			_, ok := a.(core.DType)
			return ok || slices.ContainsFunc(tensorsOf(a), func(t op.T) bool { return t.Fixed && t.DType.IsComplex() })
		})
		for _, out := range apply(r, s, core.Float32, false) {
			if asked || out.Err() != nil || out.DType() != core.Float64 {
				return false
			}
		}
	}
	return true
}

// apply applies an operation to a sample whose tensors, but for those that must have another dtype, are of dtype d. With
// varied, where all must have another, they are of dtype d all the same.
func apply(r *op.Row, s op.Sample, d core.DType, varied bool) []*core.Tensor {
	free := func(t op.T) bool { return !t.Fixed }
	some := slices.ContainsFunc(s.Args, func(a any) bool { return slices.ContainsFunc(tensorsOf(a), free) })
	of := func(t op.T) *core.Tensor {
		dtype := d
		if t.Fixed && (some || !varied) {
			dtype = t.DType
		}
		return tensor(t, dtype)
	}
	args := make([]any, len(s.Args))
	for i, a := range s.Args {
		switch x := a.(type) {
		case op.T:
			args[i] = of(x)
		case []op.T:
			var list []*core.Tensor
			for _, t := range x {
				list = append(list, of(t))
			}
			args[i] = list
		default:
			args[i] = a
		}
	}
	outs := r.Call(args...)
	_ = core.Synchronize() // shapes and dtypes are known at the call; what the elements come to does not matter
	return outs
}

func tensorsOf(a any) []op.T {
	switch x := a.(type) {
	case op.T:
		return []op.T{x}
	case []op.T:
		return x
	}
	return nil
}

// tensor returns a tensor as described, with elements in the middle of their range.
func tensor(t op.T, d core.DType) *core.Tensor {
	values := t.Values
	if values == nil {
		values = make([]float64, core.Numel(t.Shape))
		for i := range values {
			if values[i] = (t.Low + t.High) / 2; t.Low == 0 && t.High == 0 {
				values[i] = 0.5
			}
		}
	}
	return op.To(op.Reshape(core.FromSlice(values, len(values)), append([]int{}, t.Shape...)...), d)
}

func shape(s []int) string {
	return "[" + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(s), "[]")), ", ") + "]"
}

// argument shows an argument of a sample: a tensor's shape, a number, a list, or the fields of a struct of options.
func argument(a any) string {
	switch x := a.(type) {
	case nil:
		return "None"
	case op.T:
		return shape(x.Shape)
	case []op.T:
		var list []string
		for _, t := range x {
			list = append(list, shape(t.Shape))
		}
		return "[" + strings.Join(list, ", ") + "]"
	case *core.Tensor:
		return fmt.Sprint(x.Number().Float)
	case []int:
		return shape(x)
	case string:
		return fmt.Sprintf("%q", x)
	}
	v := reflect.ValueOf(a)
	if v.Kind() == reflect.Pointer {
		return argument(v.Elem().Interface())
	}
	if v.Kind() != reflect.Struct {
		return fmt.Sprint(a)
	}
	var fields []string
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		fields = append(fields, v.Type().Field(i).Name+": "+argument(f.Interface()))
	}
	return strings.Join(fields, ", ")
}

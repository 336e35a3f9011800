package coretest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
)

// NothingPanics calls functions, and the methods of what they return and of the structs that the pointers in structs point to,
// with random arguments of which most do not fit: nils, zeros, negative numbers, wrong shapes. They may fail but not panic.
// The same calls are made each time. Methods whose names are in except are not called.
func NothingPanics(t *testing.T, functions map[string]any, structs []any, rounds int, except ...string) {
	t.Helper()
	c := &caller{t: t, except: except, rng: rand.New(rand.NewPCG(1, 2)), known: map[reflect.Type][]reflect.Value{}, reported: map[string]bool{}}
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, s := range structs {
		if v := reflect.ValueOf(s); open(v.Type().Elem()) {
			c.learn(v)
		}
	}
	for range rounds {
		for _, name := range names {
			core.Tidy(func() { c.call(name, reflect.ValueOf(functions[name])) })
		}
	}
}

// open reports whether programs may make a struct themselves: all its fields are exported.
func open(t reflect.Type) bool {
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			return false
		}
	}
	return true
}

// A caller makes calls, and arguments of what they return.
type caller struct {
	t        *testing.T
	rng      *rand.Rand
	known    map[reflect.Type][]reflect.Value // what was returned and what was given, by type
	types    []reflect.Type                   // in the order in which they came
	reported map[string]bool
	except   []string
	depth    int
}

const kept = 6 // values of a type

// learn keeps a value as an argument of later calls, and calls its methods.
func (c *caller) learn(v reflect.Value) {
	for v.IsValid() && v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() || v.Type() == reflect.TypeFor[*core.Tensor]() {
		return
	}
	list, seen := c.known[v.Type()]
	if !seen {
		c.types = append(c.types, v.Type())
	}
	if len(list) < kept {
		list = append(list, v)
	} else {
		list[c.rng.IntN(kept)] = v
	}
	c.known[v.Type()] = list
	if c.depth > 2 || v.NumMethod() == 0 || !strings.Contains(v.Type().String(), ".") {
		return
	}
	c.depth++
	defer func() { c.depth-- }()
	for i := range v.NumMethod() {
		if name := v.Type().Method(i).Name; !slices.Contains(c.except, name) {
			c.call(v.Type().String()+"."+name, v.Method(i))
		}
	}
}

func (c *caller) call(name string, f reflect.Value) {
	t := f.Type()
	var in []reflect.Value
	for i := range t.NumIn() {
		if t.IsVariadic() && i == t.NumIn()-1 {
			for range c.rng.IntN(3) {
				in = append(in, c.value(t.In(i).Elem()))
			}
			break
		}
		in = append(in, c.value(t.In(i)))
		if in[i].Kind() == reflect.Func && t.NumOut() == 0 && in[i].IsNil() {
			return // there is nothing that could carry an error
		}
	}
	var out []reflect.Value
	func() {
		defer func() {
			if p := recover(); p != nil && !c.reported[name] {
				c.reported[name] = true
				c.t.Errorf("%s(%s) panics: %v\n%s", name, describe(in), p, debug.Stack())
			}
		}()
		out = f.Call(in)
	}()
	for _, v := range out {
		c.learn(v)
	}
}

func describe(in []reflect.Value) string {
	list := make([]string, len(in))
	for i, v := range in {
		list[i] = v.Type().String()
		switch v.Kind() {
		case reflect.Pointer, reflect.Func, reflect.Interface, reflect.Map:
			if v.IsNil() {
				list[i] = "nil"
			} else if x, ok := v.Interface().(*core.Tensor); ok && x.Err() == nil {
				list[i] = fmt.Sprintf("tensor %v %v", x.DType(), x.Shape())
			}
		case reflect.Struct:
		default:
			list[i] = fmt.Sprintf("%#v", v.Interface())
		}
	}
	return strings.Join(list, ", ")
}

func pick[T any](c *caller, list ...T) T { return list[c.rng.IntN(len(list))] }

// value returns an argument of type t.
func (c *caller) value(t reflect.Type) reflect.Value {
	if t == reflect.TypeFor[*core.Tensor]() {
		return reflect.ValueOf(c.tensor())
	}
	if c.rng.IntN(2) == 0 {
		if v, ok := c.knownAs(t); ok {
			return v
		}
	}
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Bool:
		v.SetBool(c.rng.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(pick(c, 0, -1, 1, 2, 3, 4, -7)))
	case reflect.Uint8, reflect.Uint, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(pick(c, 0, 1, 2, 3, 200)))
	case reflect.Float64, reflect.Float32:
		v.SetFloat(pick(c, 0, -1, 0.5, 1, 2, math.NaN(), math.Inf(1)))
	case reflect.String:
		v.SetString(pick(c, "", "mean", "sum", "none", "weight", "no such thing"))
	case reflect.Slice:
		if c.rng.IntN(4) > 0 {
			for range c.rng.IntN(4) {
				v = reflect.Append(v, c.value(t.Elem()))
			}
		}
	case reflect.Map:
		if c.rng.IntN(3) > 0 {
			v.Set(reflect.MakeMap(t))
			for range c.rng.IntN(3) {
				v.SetMapIndex(c.value(t.Key()), c.value(t.Elem()))
			}
		}
	case reflect.Pointer:
		if c.rng.IntN(2) == 0 && t.Elem().Kind() != reflect.Struct {
			v.Set(reflect.New(t.Elem()))
			v.Elem().Set(c.value(t.Elem()))
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && c.rng.IntN(3) == 0 {
				v.Field(i).Set(c.value(f.Type))
			}
		}
	case reflect.Func:
		if c.rng.IntN(3) > 0 {
			v.Set(reflect.MakeFunc(t, func(in []reflect.Value) []reflect.Value { return c.results(t, in) }))
		}
	}
	return v
}

// results returns what a made function of type t returns: its arguments, where they fit.
func (c *caller) results(t reflect.Type, in []reflect.Value) []reflect.Value {
	out := make([]reflect.Value, t.NumOut())
	for i := range out {
		out[i] = reflect.Zero(t.Out(i))
		for _, v := range in {
			if v.Type().AssignableTo(t.Out(i)) {
				out[i] = v
			}
		}
	}
	return out
}

// knownAs returns a known value that can be a t.
func (c *caller) knownAs(t reflect.Type) (reflect.Value, bool) {
	if t == reflect.TypeFor[any]() || t == reflect.TypeFor[error]() || t.Kind() != reflect.Interface && len(c.known[t]) == 0 {
		return reflect.Value{}, false
	}
	var fitting []reflect.Value
	for _, k := range c.types {
		if k.AssignableTo(t) {
			fitting = append(fitting, c.known[k]...)
		}
	}
	if len(fitting) == 0 {
		return reflect.Value{}, false
	}
	v := reflect.New(t).Elem()
	v.Set(pick(c, fitting...))
	return v, true
}

// tensor returns a tensor of any sort.
func (c *caller) tensor() *core.Tensor {
	shape := pick(c, []int{}, []int{0}, []int{2}, []int{3}, []int{2, 3}, []int{3, 3}, []int{0, 3}, []int{2, 3, 3}, []int{1, 2, 3, 4}, []int{1, 1, 2, 3, 2})
	switch c.rng.IntN(8) {
	case 0:
		return nil
	case 1:
		return core.Num(2)
	case 2:
		return core.ErrorTensor(core.Errorf(core.ValueError, "test", "an earlier failure"))
	case 3:
		x := core.FromSlice([]float32{1, 1})
		x.Release()
		return x
	case 4:
		return pick(c, ones[float64](shape), ones[int64](shape), ones[int32](shape), ones[uint8](shape))
	}
	return ones[float32](shape).SetRequiresGrad(c.rng.IntN(2) == 0)
}

func ones[T float32 | float64 | int64 | int32 | uint8](shape []int) *core.Tensor {
	v := make([]T, core.Numel(shape))
	for i := range v {
		v[i] = 1
	}
	return core.FromSlice(v, shape...)
}

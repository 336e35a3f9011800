package op

import (
	"reflect"
	"slices"

	"github.com/plait-ml/plait/core"
)

// distributed returns where the first distributed tensor of the list is, or the deepest one of vmap, or nil if all are ordinary. An op whose inputs are distributed
// hands itself to [core.Parts] in its first line, and is called again with this rank's parts:
//
//	if parts := distributed(x, weight, bias); parts != nil {
//		return handOn(parts, "linear", x, weight, bias)
//	}
func distributed(tensors ...*core.Tensor) core.Parts {
	var found core.Parts
	for _, t := range tensors {
		if p := t.Parts(); p != nil && (found == nil || p.Depth() > found.Depth()) {
			found = p
		}
	}
	return found
}

// drawing returns the level of vmap for each part of which operations of the calling thread draw numbers of its own, also where none of their
// tensors is batched; or nil. Package vmap sets it.
var drawing = func() core.Parts { return nil }

// SetDrawing sets the function that says for which level of vmap operations draw numbers, for package vmap.
func SetDrawing(fn func() core.Parts) { drawing = fn }

// recording returns what records the operations of the calling thread that have no tensors, or nil. Package graph sets it.
var recording = func() core.Parts { return nil }

// SetRecording sets the function that says what records operations without tensors, for package graph.
func SetRecording(fn func() core.Parts) { recording = fn }

// drawnFor is [distributed] for operations that draw numbers.
func drawnFor(tensors ...*core.Tensor) core.Parts {
	if p := drawnIn(distributed(tensors...)); p != nil {
		return p
	}
	return recording()
}

// drawnIn returns what deals with an operation that draws numbers and whose tensors are dealt with by p, or nil: a deeper level of vmap whose
// parts draw numbers of their own, if there is one.
func drawnIn(p core.Parts) core.Parts {
	if q := drawing(); q != nil && (p == nil || p.Depth() > 0 && q.Depth() > p.Depth()) {
		return q
	}
	return p
}

// handOn applies the op to distributed tensors. args are those of its Go function.
func handOn(p core.Parts, name string, args ...any) *core.Tensor {
	return handOnList(p, name, args...)[0]
}

// handOn2 is handOn for an op with two results.
func handOn2(p core.Parts, name string, args ...any) (*core.Tensor, *core.Tensor) {
	out := handOnList(p, name, args...)
	return out[0], out[len(out)-1]
}

// handOn3 is handOn for an op with three results.
func handOn3(p core.Parts, name string, args ...any) (*core.Tensor, *core.Tensor, *core.Tensor) {
	out := handOnList(p, name, args...)
	return out[0], out[len(out)/2], out[len(out)-1]
}

// handOnList is handOn for an op with a list of results. After an error it has one.
func handOnList(p core.Parts, name string, args ...any) []*core.Tensor {
	return p.Apply(core.Application{Op: name, Args: args, Call: func(args []any) []*core.Tensor { return Call(name, args) }})
}

// function returns the Go function of a row or, for the name with "_" behind it, of its variant in place.
func function(name string) any {
	if r := rows[name]; r != nil {
		if r.Func != nil {
			return r.Func
		}
		return r.InPlace
	}
	if r := rows[name[:len(name)-1]]; r != nil {
		return r.InPlace
	}
	return nil
}

// Call calls the Go function of an op, or for the name with "_" behind it of its variant in place, with exactly its arguments; a variadic one
// with the slice.
func Call(name string, args []any) []*core.Tensor {
	fn := function(name)
	if out, ok := callDirectly(fn, args); ok {
		return []*core.Tensor{out}
	}
	f := reflect.ValueOf(fn)
	in := make([]reflect.Value, len(args))
	for i, a := range args {
		if in[i] = reflect.ValueOf(a); a == nil {
			in[i] = reflect.Zero(f.Type().In(i))
		}
	}
	call := f.Call
	if f.Type().IsVariadic() {
		call = f.CallSlice
	}
	return results(call(in))
}

// callDirectly calls functions of the most common types without reflection, which takes longer than many ops. ok is false for others.
func callDirectly(fn any, args []any) (out *core.Tensor, ok bool) {
	a := directArgs{args: args, ok: true}
	x := a.tensor(0)
	var call func() *core.Tensor
	switch f := fn.(type) {
	case func(*core.Tensor) *core.Tensor:
		call = func() *core.Tensor { return f(x) }
	case func(_, _ *core.Tensor) *core.Tensor:
		y := a.tensor(1)
		call = func() *core.Tensor { return f(x, y) }
	case func(_, _, _ *core.Tensor) *core.Tensor:
		y, z := a.tensor(1), a.tensor(2)
		call = func() *core.Tensor { return f(x, y, z) }
	case func(*core.Tensor, int) *core.Tensor:
		i := nextArg[int](&a, 1)
		call = func() *core.Tensor { return f(x, i) }
	case func(_ *core.Tensor, _, _ int) *core.Tensor:
		i, j := nextArg[int](&a, 1), nextArg[int](&a, 2)
		call = func() *core.Tensor { return f(x, i, j) }
	case func(*core.Tensor, ...int) *core.Tensor:
		list := nextArg[[]int](&a, 1)
		call = func() *core.Tensor { return f(x, list...) }
	case func(*core.Tensor, []int, bool) *core.Tensor:
		list, on := nextArg[[]int](&a, 1), nextArg[bool](&a, 2)
		call = func() *core.Tensor { return f(x, list, on) }
	case func(*core.Tensor, []int, ReduceOptions) *core.Tensor:
		list, o := nextArg[[]int](&a, 1), nextArg[ReduceOptions](&a, 2)
		call = func() *core.Tensor { return f(x, list, o) }
	case func(_ *core.Tensor, _, _, _ int) *core.Tensor:
		i, j, k := nextArg[int](&a, 1), nextArg[int](&a, 2), nextArg[int](&a, 3)
		call = func() *core.Tensor { return f(x, i, j, k) }
	case func(_ *core.Tensor, _, _, _, _ int) *core.Tensor:
		i, j, k, l := nextArg[int](&a, 1), nextArg[int](&a, 2), nextArg[int](&a, 3), nextArg[int](&a, 4)
		call = func() *core.Tensor { return f(x, i, j, k, l) }
	case func(_ *core.Tensor, _ []int, _, _ *core.Tensor, _ float64) *core.Tensor:
		list, w, b, eps := nextArg[[]int](&a, 1), a.tensor(2), a.tensor(3), nextArg[float64](&a, 4)
		call = func() *core.Tensor { return f(x, list, w, b, eps) }
	case func(*core.Tensor, string) *core.Tensor:
		text := nextArg[string](&a, 1)
		call = func() *core.Tensor { return f(x, text) }
	}
	if call == nil || !a.ok {
		return nil, false
	}
	return call(), true
}

// directArgs are arguments that are taken one after another; ok is false once one was of another type.
type directArgs struct {
	args []any
	ok   bool
}

func (a *directArgs) tensor(i int) *core.Tensor { return nextArg[*core.Tensor](a, i) }

func nextArg[A any](a *directArgs, i int) (value A) {
	if i >= len(a.args) {
		a.ok = false
		return value
	}
	if a.args[i] != nil {
		var ok bool
		value, ok = a.args[i].(A)
		a.ok = a.ok && ok
	}
	return value
}

// results returns the tensors among what a function returned.
func results(values []reflect.Value) []*core.Tensor {
	var out []*core.Tensor
	for _, v := range values {
		switch x := v.Interface().(type) {
		case *core.Tensor:
			out = append(out, x)
		case []*core.Tensor:
			out = append(out, x...)
		}
	}
	return out
}

// behind returns the ordinary tensor behind a batched one, for what it says of the device; others as they are.
func behind(t *core.Tensor) *core.Tensor {
	for p := t.Parts(); p != nil && p.Depth() > 0; p = t.Parts() {
		t = p.Local()
	}
	return t
}

// distributedIn is distributed for a list and further tensors.
func distributedIn(list []*core.Tensor, more ...*core.Tensor) core.Parts {
	p, q := distributed(list...), distributed(more...)
	if p == nil || q != nil && q.Depth() > p.Depth() {
		return q
	}
	return p
}

// anys returns the tensors as arguments.
func anys(list []*core.Tensor) []any {
	out := make([]any, len(list))
	for i, t := range list {
		out[i] = t
	}
	return out
}

// tensorsOf undoes anys.
func tensorsOf(args []any) []*core.Tensor {
	out := make([]*core.Tensor, len(args))
	for i, a := range args {
		out[i], _ = a.(*core.Tensor)
	}
	return out
}

// fields returns the tensors of an argument: itself, those of a list, or those of a struct of options.
func fields(a any) []*core.Tensor {
	switch x := a.(type) {
	case *core.Tensor:
		return []*core.Tensor{x}
	case []*core.Tensor:
		return x
	case nil, int, []int, bool, float64, string:
		return nil
	}
	v := reflect.ValueOf(a)
	if v.Kind() != reflect.Struct {
		return nil
	}
	var out []*core.Tensor
	for i := range v.NumField() {
		if t, ok := v.Field(i).Interface().(*core.Tensor); ok {
			out = append(out, t)
		}
	}
	return out
}

// Replaced returns arguments with other tensors, in the order of [Use].Tensors.
func Replaced(args []any, with []*core.Tensor) []any {
	out := make([]any, len(args))
	for i, a := range args {
		if _, ok := a.(*core.Tensor); ok {
			out[i], with = with[0], with[1:]
			continue
		}
		n := len(fields(a))
		own := with[:n]
		with = with[n:]
		if _, ok := a.([]*core.Tensor); ok {
			out[i] = slices.Clone(own)
			continue
		}
		out[i] = a
		if n > 0 {
			out[i] = withFields(a, own)
		}
	}
	return out
}

// withFields returns a copy of a struct of options with other tensors.
func withFields(a any, tensors []*core.Tensor) any {
	v := reflect.New(reflect.TypeOf(a)).Elem()
	v.Set(reflect.ValueOf(a))
	for i, at := 0, 0; i < v.NumField(); i++ {
		if v.Field(i).Type() == reflect.TypeFor[*core.Tensor]() {
			v.Field(i).Set(reflect.ValueOf(tensors[at]))
			at++
		}
	}
	return v.Interface()
}

package nn

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/plait-ml/plait/core"
)

// A Kind says what a tensor of a module is.
type Kind uint8

// The kinds of tensors in a module.
const (
	Parameter Kind = iota
	Buffer         // state that is saved but not trained
	Transient      // state that is neither
)

// A Named is a tensor of a module with its name.
type Named struct {
	Name   string
	Tensor *core.Tensor
	Kind   Kind

	slot reflect.Value
}

// Set puts t in the tensor's place.
func (n *Named) Set(t *core.Tensor) {
	n.Tensor = t
	n.slot.Set(reflect.ValueOf(t))
}

// A Part is a module within a module, with its name.
type Part struct {
	Name   string
	Module Module
}

// field is what a struct's field means to its module.
type field struct {
	index  int
	name   string
	kind   Kind
	inline bool // the names of its elements are not prefixed with its own
	// embedded says that it is a struct whose fields count as those of the struct around it.
	embedded bool
}

var (
	tensorType = reflect.TypeFor[*core.Tensor]()
	moduleType = reflect.TypeFor[Module]()
	baseType   = reflect.TypeFor[Base]()
	layouts    sync.Map // reflect.Type -> []field
)

// fields returns the fields of a module's struct that hold tensors or modules.
func fields(t reflect.Type) []field {
	if f, ok := layouts.Load(t); ok {
		return f.([]field)
	}
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("plait"), ",")
		if f.Type == baseType || tag[0] == "-" {
			continue
		}
		embedded := f.Anonymous && f.Type.Kind() == reflect.Struct
		if !embedded && !holdsModules(f.Type) && !(f.IsExported() && holdsTensors(f.Type)) {
			continue
		}
		e := field{index: i, name: snake(f.Name), embedded: embedded}
		for _, option := range tag {
			switch name, renamed := strings.CutPrefix(option, "name="); {
			case renamed:
				e.name = name
			case option == "buffer":
				e.kind = Buffer
			case option == "transient":
				e.kind = Transient
			case option == "inline":
				e.inline = true
			}
		}
		list = append(list, e)
	}
	layouts.Store(t, list)
	return list
}

// holdsModules reports whether a field of type t can hold modules. Fields that are not exported count too: a part that was
// overlooked would not be trained.
func holdsModules(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return holdsModules(t.Elem())
	case reflect.Map:
		return t.Key().Kind() == reflect.String && t.Elem().Kind() != reflect.Struct && holdsModules(t.Elem())
	case reflect.Interface, reflect.Pointer:
		return t.Implements(moduleType)
	case reflect.Struct:
		return reflect.PointerTo(t).Implements(moduleType)
	}
	return false
}

func holdsTensors(t reflect.Type) bool {
	return t == tensorType || t.Kind() == reflect.Slice && t.Elem() == tensorType
}

// snake returns a Go field's name as PyTorch writes it: InProjWeight is in_proj_weight.
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		upper := r >= 'A' && r <= 'Z'
		if upper && i > 0 {
			before := s[i-1]
			wordEnds := before >= 'a' && before <= 'z' || before >= '0' && before <= '9'
			acronymEnds := i+1 < len(s) && s[i+1] >= 'a' && s[i+1] <= 'z' && before >= 'A' && before <= 'Z'
			if wordEnds || acronymEnds {
				b.WriteByte('_')
			}
		}
		if upper {
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// A walker visits modules and their tensors.
type walker struct {
	module func(name string, m Module)
	tensor func(n Named)
	above  []Module // what the module is a part of
}

// walk visits the modules at and below m, each before its parts, and their tensors, in the order of the fields. Either
// function may be nil.
func walk(m Module, module func(name string, m Module), tensor func(n Named)) {
	(&walker{module: module, tensor: tensor}).visit(m, "")
}

// absent reports whether m is no module: nil, or a nil pointer.
func absent(m Module) bool { return m == nil || reflect.ValueOf(m).IsNil() }

func (w *walker) visit(m Module, prefix string) {
	if absent(m) || slices.Contains(w.above, m) {
		return
	}
	w.above = append(w.above, m)
	defer func() { w.above = w.above[:len(w.above)-1] }()
	if w.module != nil {
		w.module(prefix, m)
	}
	v := reflect.ValueOf(m).Elem()
	members := m.base().members
	if w.tensor != nil { // a module's own tensors come before its parts', as in PyTorch
		w.ownTensors(v, prefix)
		for i := range members {
			if x := &members[i]; x.tensor != nil {
				w.tensor(Named{Name: join(prefix, x.name), Tensor: x.tensor, Kind: x.kind, slot: reflect.ValueOf(&x.tensor).Elem()})
			}
		}
	}
	w.fields(v, prefix)
	for _, x := range members {
		w.visit(x.module, join(prefix, x.name))
	}
}

// value returns field f of the struct v.
func (f field) value(v reflect.Value) reflect.Value {
	x := v.Field(f.index)
	if !x.CanInterface() { // not exported
		x = reflect.NewAt(x.Type(), x.Addr().UnsafePointer()).Elem()
	}
	return x
}

func (w *walker) ownTensors(v reflect.Value, prefix string) {
	for _, f := range fields(v.Type()) {
		if x := f.value(v); f.embedded {
			w.ownTensors(x, prefix)
		} else {
			w.tensors(x, join(prefix, f.name), f)
		}
	}
}

func (w *walker) tensors(v reflect.Value, name string, f field) {
	switch {
	case v.Type() == tensorType:
		if t := v.Interface().(*core.Tensor); t != nil {
			w.tensor(Named{Name: name, Tensor: t, Kind: f.kind, slot: v})
		}
	case v.Kind() == reflect.Slice && v.Type().Elem() == tensorType:
		for i := range v.Len() {
			w.tensors(v.Index(i), fmt.Sprint(name, ".", i), f)
		}
	}
}

func (w *walker) fields(v reflect.Value, prefix string) {
	for _, f := range fields(v.Type()) {
		name := join(prefix, f.name)
		if f.inline {
			name = prefix
		}
		if x := f.value(v); f.embedded {
			w.fields(x, prefix)
		} else {
			w.parts(x, name)
		}
	}
}

func (w *walker) parts(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Struct:
		w.visit(v.Addr().Interface().(Module), name)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem() == tensorType {
			return
		}
		for i := range v.Len() {
			w.parts(v.Index(i), join(name, fmt.Sprint(i)))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			w.parts(v.MapIndex(k), join(name, k.String()))
		}
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() && v.Type() != tensorType {
			w.visit(v.Interface().(Module), name)
		}
	}
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

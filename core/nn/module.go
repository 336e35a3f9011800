package nn

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/plait-ml/plait/core"
)

// A Module is a pointer to a struct that embeds [Base].
type Module interface{ base() *Base }

// A Layer is a module that maps one tensor to another.
type Layer interface {
	Module
	Forward(x *core.Tensor) *core.Tensor
}

// Base makes a struct a [Module]. Its zero value is a module in training mode.
type Base struct{ eval bool }

func (b *Base) base() *Base { return b }

// Training reports whether the module is in training mode, in which dropout drops and batch statistics are used.
func (b *Base) Training() bool { return !b.eval }

// Train puts m and its parts in training mode.
func Train(m Module) { setMode(m, false) }

// Eval puts m and its parts in evaluation mode.
func Eval(m Module) { setMode(m, true) }

func setMode(m Module, eval bool) {
	for _, p := range Modules(m) {
		p.Module.base().eval = eval
	}
}

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
		if !f.IsExported() || f.Type == baseType || tag[0] == "-" {
			continue
		}
		if f.Type != tensorType && !holdsModules(f.Type) {
			continue
		}
		e := field{index: i, name: snake(f.Name)}
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

func holdsModules(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice:
		return t.Elem() == tensorType || holdsModules(t.Elem())
	case reflect.Map:
		return t.Key().Kind() == reflect.String && holdsModules(t.Elem())
	case reflect.Interface, reflect.Pointer:
		return t.Implements(moduleType)
	}
	return false
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

// walk visits the modules at and below m, each before its parts, and their tensors, in the order of the fields.
func walk(m Module, prefix string, module func(name string, m Module), tensor func(n Named)) {
	if m == nil || reflect.ValueOf(m).IsNil() {
		return
	}
	if module != nil {
		module(prefix, m)
	}
	v := reflect.ValueOf(m).Elem()
	list := fields(v.Type())
	if tensor != nil { // a module's own tensors come before its parts', as in PyTorch
		for _, f := range list {
			walkTensors(v.Field(f.index), join(prefix, f.name), f, tensor)
		}
	}
	for _, f := range list {
		name := join(prefix, f.name)
		if f.inline {
			name = prefix
		}
		walkParts(v.Field(f.index), name, module, tensor)
	}
}

func walkTensors(v reflect.Value, name string, f field, tensor func(n Named)) {
	switch {
	case v.Type() == tensorType:
		if t := v.Interface().(*core.Tensor); t != nil {
			tensor(Named{Name: name, Tensor: t, Kind: f.kind, slot: v})
		}
	case v.Kind() == reflect.Slice && v.Type().Elem() == tensorType:
		for i := range v.Len() {
			walkTensors(v.Index(i), fmt.Sprint(name, ".", i), f, tensor)
		}
	}
}

func walkParts(v reflect.Value, name string, module func(string, Module), tensor func(Named)) {
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem() == tensorType {
			return
		}
		for i := range v.Len() {
			walkParts(v.Index(i), join(name, fmt.Sprint(i)), module, tensor)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			walkParts(v.MapIndex(k), join(name, k.String()), module, tensor)
		}
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() && v.Type() != tensorType {
			walk(v.Interface().(Module), name, module, tensor)
		}
	}
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// Modules returns m and every module in it, by name, each once; m's own name is empty.
func Modules(m Module) []Part {
	var list []Part
	seen := map[Module]bool{}
	walk(m, "", func(name string, m Module) {
		if !seen[m] {
			seen[m] = true
			list = append(list, Part{name, m})
		}
	}, nil)
	return list
}

// NamedTensors returns the parameters and buffers of m and its parts. A tensor that several modules share appears under
// each of its names.
func NamedTensors(m Module) []Named {
	var list []Named
	walk(m, "", nil, func(n Named) { list = append(list, n) })
	return list
}

// NamedParameters returns the parameters of m and its parts, each once, under its first name.
func NamedParameters(m Module) []Named {
	seen := map[*core.Tensor]bool{}
	return slices.DeleteFunc(NamedTensors(m), func(n Named) bool {
		if n.Kind != Parameter || seen[n.Tensor] {
			return true
		}
		seen[n.Tensor] = true
		return false
	})
}

// Parameters returns the parameters of m and its parts, each once.
func Parameters(m Module) []*core.Tensor {
	named := NamedParameters(m)
	list := make([]*core.Tensor, len(named))
	for i, n := range named {
		list[i] = n.Tensor
	}
	return list
}

// Err returns the error of the first tensor of m that could not be made, naming it.
func Err(m Module) error {
	for _, n := range NamedTensors(m) {
		if err := n.Tensor.Err(); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// NumParameters returns the number of elements in the parameters of m.
func NumParameters(m Module) int {
	total := 0
	for _, p := range Parameters(m) {
		total += p.Numel()
	}
	return total
}

// ZeroGrad drops the gradients of m's parameters.
func ZeroGrad(m Module) {
	for _, p := range Parameters(m) {
		p.SetGrad(nil)
	}
}

// SetRequiresGrad makes all parameters of m require gradients, or none.
func SetRequiresGrad(m Module, on bool) {
	for _, p := range Parameters(m) {
		p.SetRequiresGrad(on)
	}
}

package nn

import (
	"reflect"

	"github.com/plait-ml/plait/core"
)

// Replicate returns a copy of m, and of its parts, whose tensors are those that replace returns for m's. Everything else is
// shared: options, functions and hooks. A part that m has twice the copy has twice. Without replace the tensors are shared too.
func Replicate(m Module, replace func(n Named) *core.Tensor) Module {
	if replace == nil {
		replace = func(n Named) *core.Tensor { return n.Tensor }
	}
	c := &cloner{replace: replace, made: map[Module]Module{}}
	return c.module(m)
}

type cloner struct {
	replace func(n Named) *core.Tensor
	made    map[Module]Module
}

func (c *cloner) module(m Module) Module {
	if absent(m) {
		return m
	}
	if n := c.made[m]; n != nil {
		return n
	}
	v := reflect.ValueOf(m).Elem()
	copied := reflect.New(v.Type())
	copied.Elem().Set(v)
	n := copied.Interface().(Module)
	c.made[m] = n
	c.contents(n)
	return n
}

// contents replaces the tensors and parts of m, a shallow copy.
func (c *cloner) contents(m Module) {
	b := m.base()
	members := b.members
	b.members = nil
	for _, x := range members {
		if x.tensor != nil {
			x.tensor = c.replace(Named{Name: x.name, Tensor: x.tensor, Kind: x.kind})
		}
		x.module = c.module(x.module)
		b.members = append(b.members, x)
	}
	if b.hooks != nil {
		h := *b.hooks
		b.hooks = &h
	}
	c.fields(reflect.ValueOf(m).Elem())
}

func (c *cloner) fields(v reflect.Value) {
	for _, f := range fields(v.Type()) {
		x := f.value(v)
		switch {
		case f.embedded:
			c.fields(x)
		case holdsTensors(x.Type()):
			c.tensors(x, f)
		default:
			c.parts(x)
		}
	}
}

func (c *cloner) tensors(v reflect.Value, f field) {
	if v.Type() == tensorType {
		if t := v.Interface().(*core.Tensor); t != nil {
			v.Set(reflect.ValueOf(c.replace(Named{Name: f.name, Tensor: t, Kind: f.kind})))
		}
		return
	}
	list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	reflect.Copy(list, v)
	for i := range list.Len() {
		c.tensors(list.Index(i), f)
	}
	v.Set(list)
}

// parts replaces the modules in v, a field of a copied struct.
func (c *cloner) parts(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		c.contents(v.Addr().Interface().(Module))
	case reflect.Slice:
		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(list, v)
		for i := range list.Len() {
			c.parts(list.Index(i))
		}
		v.Set(list)
	case reflect.Array:
		for i := range v.Len() {
			c.parts(v.Index(i))
		}
	case reflect.Map:
		table := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			e := reflect.New(v.Type().Elem()).Elem()
			e.Set(v.MapIndex(k))
			c.parts(e)
			table.SetMapIndex(k, e)
		}
		v.Set(table)
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			v.Set(reflect.ValueOf(c.module(v.Interface().(Module))))
		}
	}
}

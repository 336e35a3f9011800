package nn

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// A PreHook runs before a layer's Forward on its input. What it returns, if not nil, takes the input's place.
type PreHook func(l Layer, x *core.Tensor) *core.Tensor

// A Hook runs after a layer's Forward on its input and output. What it returns, if not nil, takes the output's place.
type Hook func(l Layer, x, y *core.Tensor) *core.Tensor

// A Wrapper takes the place of a layer's Forward, which it may call, several times for parts of the input.
type Wrapper func(x *core.Tensor, forward func(x *core.Tensor) *core.Tensor) *core.Tensor

// hooks are those of one module, in the order of their registration.
type hooks struct {
	before []*PreHook
	after  []*Hook
	around []*Wrapper
}

// RegisterForwardPreHook makes [Call] of the module run fn first, and returns the function that takes it out again.
func (b *Base) RegisterForwardPreHook(fn PreHook) (remove func()) {
	if fn == nil { // nothing to run
		return func() {}
	}
	h := b.ensureHooks()
	h.before = append(slices.Clone(h.before), &fn)
	return func() {
		h.before = slices.DeleteFunc(slices.Clone(h.before), func(f *PreHook) bool { return f == &fn })
	}
}

// RegisterForwardHook makes [Call] of the module run fn at the end, and returns the function that takes it out again.
func (b *Base) RegisterForwardHook(fn Hook) (remove func()) {
	if fn == nil {
		return func() {}
	}
	h := b.ensureHooks()
	h.after = append(slices.Clone(h.after), &fn)
	return func() { h.after = slices.DeleteFunc(slices.Clone(h.after), func(f *Hook) bool { return f == &fn }) }
}

// WrapForward makes [Call] of the module call fn in place of Forward, and returns the function that takes it out again. A wrapper that is added
// later is around the earlier ones.
func (b *Base) WrapForward(fn Wrapper) (remove func()) {
	if fn == nil {
		return func() {}
	}
	h := b.ensureHooks()
	h.around = append(slices.Clone(h.around), &fn)
	return func() {
		h.around = slices.DeleteFunc(slices.Clone(h.around), func(f *Wrapper) bool { return f == &fn })
	}
}

func (b *Base) ensureHooks() *hooks {
	if b.hooks == nil {
		b.hooks = new(hooks)
	}
	return b.hooks
}

// Call returns l.Forward(x) between the hooks of l. The modules of this package call their parts so; Forward itself runs no
// hooks. Hooks must not be added or removed while another goroutine calls the layer.
func Call(l Layer, x *core.Tensor) *core.Tensor {
	if absent(l) {
		return core.ErrorTensor(core.Errorf(core.TypeError, "call", "the layer is nil"))
	}
	h := l.base().hooks
	if h == nil {
		return l.Forward(x)
	}
	for _, f := range h.before {
		if r := (*f)(l, x); r != nil {
			x = r
		}
	}
	forward := l.Forward
	for _, f := range h.around {
		inner := forward
		forward = func(x *core.Tensor) *core.Tensor { return (*f)(x, inner) }
	}
	y := forward(x)
	for _, f := range h.after {
		if r := (*f)(l, x, y); r != nil {
			y = r
		}
	}
	return y
}

package nn

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// A PreHook runs before a layer's Forward on its input. What it returns, if not nil, takes the input's place.
type PreHook func(l Layer, x *core.Tensor) *core.Tensor

// A Hook runs after a layer's Forward on its input and output. What it returns, if not nil, takes the output's place.
type Hook func(l Layer, x, y *core.Tensor) *core.Tensor

// hooks are those of one module, in the order of their registration.
type hooks struct {
	before []*PreHook
	after  []*Hook
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
	y := l.Forward(x)
	for _, f := range h.after {
		if r := (*f)(l, x, y); r != nil {
			y = r
		}
	}
	return y
}

package nn

import (
	"fmt"
	"slices"

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
type Base struct {
	eval    bool
	members []member
	hooks   *hooks
}

// A member is a tensor or a part that was registered at run time.
type member struct {
	name   string
	kind   Kind
	tensor *core.Tensor
	module Module
}

func (b *Base) base() *Base { return b }

// RegisterParameter adds a parameter whose name is known only at run time; those in fields need no registration.
func (b *Base) RegisterParameter(name string, t *core.Tensor) { b.RegisterTensor(name, t, Parameter) }

// RegisterTensor adds a parameter or buffer whose name is known only at run time.
func (b *Base) RegisterTensor(name string, t *core.Tensor, k Kind) {
	b.members = append(b.members, member{name: name, kind: k, tensor: t})
}

// RegisterModule adds a part whose name is known only at run time.
func (b *Base) RegisterModule(name string, m Module) {
	b.members = append(b.members, member{name: name, module: m})
}

// Registered returns the tensor that was registered under a name, or nil.
func (b *Base) Registered(name string) *core.Tensor {
	for i := range b.members {
		if b.members[i].name == name {
			return b.members[i].tensor
		}
	}
	return nil
}

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

// Modules returns m and every module in it, by name, each once; m's own name is empty.
func Modules(m Module) []Part {
	var list []Part
	seen := map[Module]bool{}
	walk(m, func(name string, m Module) {
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
	walk(m, nil, func(n Named) { list = append(list, n) })
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
		p.DropGrad()
	}
}

// SetRequiresGrad makes all parameters of m require gradients, or none.
func SetRequiresGrad(m Module, on bool) {
	for _, p := range Parameters(m) {
		p.SetRequiresGrad(on)
	}
}

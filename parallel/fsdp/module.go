package fsdp

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// A FullyShardedDataParallel wraps a module whose parameters are sharded over the ranks of a group. Wrapping changes no names.
type FullyShardedDataParallel struct {
	Module nn.Module

	tree        *Tree
	units       []*Unit // units of wrapped layers, inner ones first; the root unit, with all other parameters, is the last
	removeHooks []func()
	knownParams map[*core.Tensor]bool // parameters that the module had in New, with ignored ones
}

// A Policy is the auto-wrap policy: it decides whether a submodule becomes a unit of its own. elements is the number of elements
// of its parameters that are in no unit yet. It is called for submodules before their parents.
type Policy func(name string, m nn.Module, elements int) bool

// BySize wraps submodules whose parameters, without those in units already, have at least so many elements.
func BySize(elements int) Policy {
	return func(_ string, _ nn.Module, n int) bool { return n >= elements }
}

// ByType wraps submodules of the same types as the examples.
func ByType(examples ...nn.Module) Policy {
	var types []reflect.Type
	for _, m := range examples {
		types = append(types, reflect.TypeOf(m))
	}
	return func(_ string, m nn.Module, n int) bool { return n > 0 && slices.Contains(types, reflect.TypeOf(m)) }
}

// New shards the parameters of m over the ranks of group, except those of the modules in ignored. Every rank calls it with its
// own copy of the model. Submodules picked by the policy become units; each must be a layer that m calls by [nn.Call]. All other
// parameters are in the root unit; with a nil policy all parameters are. o.Name is not used.
//
// A model on the meta device has no values yet ([core.WithDevice]). Each rank then creates the values of its shards only, the
// same values that the whole model would have.
func New(m nn.Module, group *collective.Group, policy Policy, o Options, ignored ...nn.Module) (*FullyShardedDataParallel, error) {
	if err := nn.Err(m); err != nil {
		return nil, err
	}
	f := &FullyShardedDataParallel{Module: m, knownParams: map[*core.Tensor]bool{}}
	for _, p := range nn.Parameters(m) {
		f.knownParams[p] = true
	}
	ignoredParams := map[*core.Tensor]bool{}
	for _, i := range ignored {
		for _, p := range nn.Parameters(i) {
			ignoredParams[p] = true
		}
	}
	parts := nn.Modules(m)
	assigned := map[*core.Tensor]bool{} // by a unit
	unassigned := func(part nn.Part) (list []Named) {
		for _, n := range nn.NamedParameters(part.Module) {
			if !assigned[n.Tensor] && !ignoredParams[n.Tensor] {
				list = append(list, Named{joinName(part.Name, n.Name), n.Tensor})
			}
		}
		return list
	}
	names := map[*core.Tensor][]string{} // under which the model has a parameter
	for _, n := range nn.NamedTensors(m) {
		names[n.Tensor] = append(names[n.Tensor], n.Name)
	}
	sharedOutside := func(part nn.Part, t *core.Tensor) bool {
		return slices.ContainsFunc(names[t], func(n string) bool { return !strings.HasPrefix(n, part.Name+".") })
	}
	for i := len(parts) - 1; i >= 1 && policy != nil; i-- {
		part := parts[i]
		elements := 0
		var list []Named
		for _, n := range unassigned(part) {
			if !sharedOutside(part, n.Tensor) { // otherwise the unit that contains all its uses takes it
				list = append(list, n)
				elements += n.Tensor.Numel()
			}
		}
		if slices.Contains(ignored, part.Module) || !policy(part.Name, part.Module, elements) {
			continue
		}
		if _, ok := part.Module.(nn.Layer); !ok {
			return nil, core.Errorf(core.TypeError, "fsdp", "%q, a %T, is no layer: it cannot be a unit", part.Name, part.Module)
		}
		for _, n := range list {
			assigned[n.Tensor] = true
		}
		o := o
		o.Name = part.Name
		if err := f.addUnit(part.Module, group, list, o); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	o.Name = ""
	if err := f.addUnit(nil, group, unassigned(nn.Part{Module: m}), o); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	units := slices.Clone(f.units)
	slices.Reverse(units)
	var err error
	if f.tree, err = NewTree(units); err == nil {
		err = f.materialize()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// materialize gives buffers and ignored parameters on the meta device their values, and registers the buffers with the tree.
func (f *FullyShardedDataParallel) materialize() error {
	var buffers []*core.Tensor
	for _, n := range nn.NamedTensors(f.Module) {
		cat := core.Buffer
		if n.Kind == nn.Parameter {
			cat = core.Parameter
		} else {
			buffers = append(buffers, n.Tensor)
		}
		if err := Materialize(n.Tensor, f.tree.root().device, cat); err != nil {
			return core.Errorf(core.StateError, "fsdp", "%s: %w", n.Name, err)
		}
	}
	return f.tree.SetBuffers(buffers)
}

// addUnit makes a unit of parameters. If m is not nil, hooks on m unshard and reshard the unit around its forward.
func (f *FullyShardedDataParallel) addUnit(m nn.Module, group *collective.Group, params []Named, o Options) error {
	u, err := NewUnit(group, params, o)
	if err != nil {
		return err
	}
	f.units = append(f.units, u)
	if m == nil {
		return nil
	}
	layer := m.(interface {
		RegisterForwardPreHook(fn nn.PreHook) func()
		RegisterForwardHook(fn nn.Hook) func()
	})
	f.removeHooks = append(f.removeHooks, layer.RegisterForwardPreHook(func(_ nn.Layer, x *core.Tensor) *core.Tensor { return u.preForwardHook(x) }),
		layer.RegisterForwardHook(func(_ nn.Layer, _, y *core.Tensor) *core.Tensor { return u.postForwardHook(y) }))
	return nil
}

// preForwardHook is the forward pre-hook of a wrapped layer: it unshards the unit, and casts the input to the dtype of
// computation. If x is an error it does nothing, since the layer only passes the error on.
func (u *Unit) preForwardHook(x *core.Tensor) *core.Tensor {
	if x.Err() != nil {
		if g, err := u.enterGuard(); err == nil {
			defer g.Leave()
			g.Begin()
			u.skippedForwards++
		}
		return x
	}
	if err := u.PreForward([]*core.Tensor{x}); err != nil {
		return core.ErrorTensor(err)
	}
	if p := u.options.Precision; p.Param != nil && !p.KeepInputs && x.Err() == nil && x.DType().IsFloat() {
		return op.To(x, *p.Param)
	}
	return x
}

// postForwardHook is the forward hook of a wrapped layer: it casts the output and reshards the unit.
func (u *Unit) postForwardHook(y *core.Tensor) *core.Tensor {
	g, err := u.enterGuard()
	if err != nil {
		return y // y is the error of preForwardHook
	}
	defer g.Leave()
	if u.skippedForwards > 0 {
		u.skippedForwards--
		g.End()
		return y
	}
	if d := u.options.Precision.Output; d != nil && y.Err() == nil && y.DType().IsFloat() {
		y = op.To(y, *d)
	}
	if err := u.PostForward([]*core.Tensor{y}); err != nil && y.Err() == nil {
		return core.ErrorTensor(err)
	}
	return y
}

// Tree returns the tree of the module's units. The root comes first.
func (f *FullyShardedDataParallel) Tree() *Tree { return f.tree }

// Forward runs the forward pass of the module, which must be a layer.
func (f *FullyShardedDataParallel) Forward(x *core.Tensor) *core.Tensor {
	l, ok := f.Module.(nn.Layer)
	if !ok {
		return core.ErrorTensor(core.Errorf(core.TypeError, "fsdp", "%T maps more than one tensor to another: use Run", f.Module))
	}
	if err := x.Present("fsdp"); err != nil {
		return core.ErrorTensor(err)
	}
	if err := f.checkNewParams(); err != nil {
		return core.ErrorTensor(err)
	}
	root := f.tree.root()
	g, err := root.enterGuard()
	if err != nil {
		return core.ErrorTensor(err)
	}
	defer g.Leave()
	return root.postForwardHook(nn.Call(l, root.preForwardHook(x)))
}

// Run runs a forward pass of a module that is not a layer. fn gets the inputs and returns the outputs.
func (f *FullyShardedDataParallel) Run(fn func(inputs []*core.Tensor) []*core.Tensor, inputs ...*core.Tensor) ([]*core.Tensor, error) {
	if err := f.checkNewParams(); err != nil {
		return nil, err
	}
	root := f.tree.root()
	g, err := root.enterGuard()
	if err != nil {
		return nil, err
	}
	defer g.Leave()
	if err := root.PreForward(inputs); err != nil {
		return nil, errors.Join(err, root.PostForward(nil))
	}
	out := fn(inputs)
	return out, root.PostForward(out)
}

// checkNewParams returns an error if the module has parameters that were created after sharding.
func (f *FullyShardedDataParallel) checkNewParams() error {
	for _, n := range nn.NamedParameters(f.Module) {
		if !f.knownParams[n.Tensor] {
			return core.Errorf(core.StateError, "fsdp", "parameter %s was created after the module was sharded over ranks: its gradients would not be averaged; create parameters before, or ignore its module", n.Name)
		}
	}
	return nil
}

// NoSync runs fn, in which backward accumulates this rank's full gradients and does not reduce them.
func (f *FullyShardedDataParallel) NoSync(fn func() error) error {
	for _, u := range f.units {
		defer u.SetSync(u.SetSync(false))
	}
	return fn()
}

// ClipGradNorm clips the norm of all full gradients: see [Tree.ClipGradNorm].
func (f *FullyShardedDataParallel) ClipGradNorm(maxNorm float64, o optim.ClipOptions) *core.Tensor {
	return f.tree.ClipGradNorm(maxNorm, o)
}

// Settle reshards all units, such as those that [Options.KeepAfterForward] keeps unsharded. It is an error in the middle of a
// pass.
func (f *FullyShardedDataParallel) Settle() error {
	for _, u := range f.units {
		if u.activeForwards > 0 || u.inBackward {
			return core.Errorf(core.StateError, "fsdp", "the unit %q is in the middle of a pass", u.Name())
		}
		if err := u.Reshard(); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the units. The module's tensors stay shards.
func (f *FullyShardedDataParallel) Close() error {
	for _, remove := range f.removeHooks {
		remove()
	}
	f.removeHooks = nil
	var err error
	for _, u := range f.units {
		err = errors.Join(err, u.Close())
	}
	f.units = nil
	return err
}

func joinName(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

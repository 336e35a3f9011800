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

// A FullyShardedDataParallel is a module whose parameters are divided over the ranks of a group. Its names are those of the
// module.
type FullyShardedDataParallel struct {
	Module nn.Module

	tree  *Tree
	units []*Unit // of the modules that are units of their own, and last the rest
	hooks []func()
	known map[*core.Tensor]bool // parameters there were, ignored ones too
}

// A Policy says whether a part of a module, with so many elements in parameters that no unit has yet, becomes a unit of its
// own. It is asked for parts before what they are parts of.
type Policy func(name string, m nn.Module, elements int) bool

// BySize makes units of parts with at least so many elements in parameters that no smaller unit has.
func BySize(elements int) Policy {
	return func(_ string, _ nn.Module, n int) bool { return n >= elements }
}

// ByType makes units of the parts that are of the same types as examples.
func ByType(examples ...nn.Module) Policy {
	var types []reflect.Type
	for _, m := range examples {
		types = append(types, reflect.TypeOf(m))
	}
	return func(_ string, m nn.Module, n int) bool { return n > 0 && slices.Contains(types, reflect.TypeOf(m)) }
}

// New divides the parameters of m over the ranks of group, except those of the modules in ignored; every rank calls it with
// its own copy. A model made on the meta device has no values yet ([core.WithDevice]): each rank makes those of its shards,
// the same that the whole model would have, and no device ever holds more. Parts that the policy picks become units, which must be layers that m calls by [nn.Call]; a nil policy makes
// one unit of all. The name of o is not used.
func New(m nn.Module, group *collective.Group, policy Policy, o Options, ignored ...nn.Module) (*FullyShardedDataParallel, error) {
	if err := nn.Err(m); err != nil {
		return nil, err
	}
	f := &FullyShardedDataParallel{Module: m, known: map[*core.Tensor]bool{}}
	for _, p := range nn.Parameters(m) {
		f.known[p] = true
	}
	out := map[*core.Tensor]bool{}
	for _, i := range ignored {
		for _, p := range nn.Parameters(i) {
			out[p] = true
		}
	}
	parts := nn.Modules(m)
	assigned := map[*core.Tensor]bool{} // by a unit
	own := func(part nn.Part) (list []Named) {
		for _, n := range nn.NamedParameters(part.Module) {
			if !assigned[n.Tensor] && !out[n.Tensor] {
				list = append(list, Named{joined(part.Name, n.Name), n.Tensor})
			}
		}
		return list
	}
	names := map[*core.Tensor][]string{} // under which the model has a parameter
	for _, n := range nn.NamedTensors(m) {
		names[n.Tensor] = append(names[n.Tensor], n.Name)
	}
	outside := func(part nn.Part, t *core.Tensor) bool {
		return slices.ContainsFunc(names[t], func(n string) bool { return !strings.HasPrefix(n, part.Name+".") })
	}
	for i := len(parts) - 1; i >= 1 && policy != nil; i-- {
		part := parts[i]
		elements := 0
		var list []Named
		for _, n := range own(part) {
			if !outside(part, n.Tensor) { // shared with a module that is not in the unit: left to one that has both
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
		if err := f.add(part.Module, group, list, o); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	o.Name = ""
	if err := f.add(nil, group, own(nn.Part{Module: m}), o); err != nil {
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

// materialize gives what is not divided, buffers and ignored parameters, its values if it is on the meta device.
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

// add makes a unit of parameters, gathered when the layer is called.
func (f *FullyShardedDataParallel) add(m nn.Module, group *collective.Group, params []Named, o Options) error {
	u, err := NewUnit(group, params, o)
	if err != nil {
		return err
	}
	f.units = append(f.units, u)
	if m == nil {
		return nil
	}
	hooked := m.(interface {
		RegisterForwardPreHook(fn nn.PreHook) func()
		RegisterForwardHook(fn nn.Hook) func()
	})
	f.hooks = append(f.hooks, hooked.RegisterForwardPreHook(func(_ nn.Layer, x *core.Tensor) *core.Tensor { return u.enterLayer(x) }),
		hooked.RegisterForwardHook(func(_ nn.Layer, _, y *core.Tensor) *core.Tensor { return u.leaveLayer(y) }))
	return nil
}

// enterLayer is PreForward of a layer on x, and returns what to pass to it. A layer on an error only passes it on, and needs no
// parameters: other ranks' units are in other places by then.
func (u *Unit) enterLayer(x *core.Tensor) *core.Tensor {
	if x.Err() != nil {
		if g, err := u.use(); err == nil {
			defer g.Leave()
			g.Begin()
			u.skipped++
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

// leaveLayer is PostForward of a layer that returned y, and returns what to return.
func (u *Unit) leaveLayer(y *core.Tensor) *core.Tensor {
	g, err := u.use()
	if err != nil {
		return y // an error: enterLayer was refused too
	}
	defer g.Leave()
	if u.skipped > 0 {
		u.skipped--
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

// Tree returns the module's units, the rest of the module, which is the root, first.
func (f *FullyShardedDataParallel) Tree() *Tree { return f.tree }

// Forward passes a batch through the module, which must be a layer.
func (f *FullyShardedDataParallel) Forward(x *core.Tensor) *core.Tensor {
	l, ok := f.Module.(nn.Layer)
	if !ok {
		return core.ErrorTensor(core.Errorf(core.TypeError, "fsdp", "%T maps more than one tensor to another: use Run", f.Module))
	}
	if err := x.Usable("fsdp"); err != nil {
		return core.ErrorTensor(err)
	}
	if err := f.created(); err != nil {
		return core.ErrorTensor(err)
	}
	root := f.tree.root()
	g, err := root.use()
	if err != nil {
		return core.ErrorTensor(err)
	}
	defer g.Leave()
	return root.leaveLayer(nn.Call(l, root.enterLayer(x)))
}

// Run runs a forward pass of a module that is not a layer: fn is given to and returns tensors.
func (f *FullyShardedDataParallel) Run(fn func(inputs []*core.Tensor) []*core.Tensor, inputs ...*core.Tensor) ([]*core.Tensor, error) {
	if err := f.created(); err != nil {
		return nil, err
	}
	root := f.tree.root()
	g, err := root.use()
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

// created returns an error if the module has got parameters since it was divided.
func (f *FullyShardedDataParallel) created() error {
	for _, n := range nn.NamedParameters(f.Module) {
		if !f.known[n.Tensor] {
			return core.Errorf(core.StateError, "fsdp", "parameter %s was created after the module was divided over ranks: its gradients would not be averaged; create parameters before, or ignore its module", n.Name)
		}
	}
	return nil
}

// NoSync runs fn, in which backward only adds to this rank's full gradients, and sends none.
func (f *FullyShardedDataParallel) NoSync(fn func() error) error {
	for _, u := range f.units {
		defer u.SetSync(u.SetSync(false))
	}
	return fn()
}

// ClipGradNorm clips the norm of all gradients: see [Tree.ClipGradNorm].
func (f *FullyShardedDataParallel) ClipGradNorm(maxNorm float64, o optim.ClipOptions) *core.Tensor {
	return f.tree.ClipGradNorm(maxNorm, o)
}

// Layout describes how the parameters are divided.
func (f *FullyShardedDataParallel) Layout() []Layout { return f.tree.Layout() }

// Close frees what the units hold. The module's tensors stay shards.
func (f *FullyShardedDataParallel) Close() error {
	for _, remove := range f.hooks {
		remove()
	}
	f.hooks = nil
	var err error
	for _, u := range f.units {
		err = errors.Join(err, u.Close())
	}
	f.units = nil
	return err
}

func joined(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

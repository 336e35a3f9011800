package graph

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Apply applies an operation to the elements and adds a node.
func (p *traced) Apply(a core.Application) []*core.Tensor {
	g := p.graph
	fail := func(err error) []*core.Tensor { return []*core.Tensor{core.ErrorTensor(err)} }
	if g.closed.Load() {
		return fail(core.Errorf(core.StateError, a.Op, "got a tensor of a recording that has ended"))
	}
	if core.CurrentThread() != g.thread {
		return fail(core.Errorf(core.StateError, a.Op, "got a tensor of a recording of another thread"))
	}
	tensors := op.NewUse(a).Tensors
	locals, refs := slices.Clone(tensors), make([]any, len(tensors))
	own := make([]*traced, len(tensors))
	for i, t := range tensors {
		if t == nil {
			continue
		}
		if t.IsNumber() {
			refs[i] = number(t)
			continue
		}
		if q, ok := t.Parts().(*traced); ok {
			own[i], locals[i] = q, q.here
		}
		v, err := g.ValueOf(t)
		if err != nil {
			return fail(err)
		}
		refs[i] = Ref{v}
	}
	if changes(a.Op) && own[0] == nil {
		return fail(core.Errorf(core.NotImplemented, a.Op, "%v, which was made outside of what is recorded, cannot hold what is: change a clone of it, or make it "+
			"by an operation, as zeros does", tensors[0]))
	}
	if changes(a.Op) && own[0].view.memory.frozen {
		return fail(core.Errorf(core.NotImplemented, a.Op, "it changes a parameter, %v, which cannot be recorded: change a clone of it", locals[0]))
	}
	versions := make([]uint32, len(tensors))
	for i, t := range locals {
		if t != nil && t.Storage() != nil {
			versions[i] = t.Storage().Version()
		}
	}
	return core.RunScope(func() []*core.Tensor {
		outs := g.elements(a, locals)
		for _, t := range outs {
			if t.Err() != nil {
				return []*core.Tensor{t}
			}
		}
		for i, t := range locals {
			if t == nil || t.Storage() == nil || t.Storage().Version() == versions[i] {
				continue
			}
			if !changes(a.Op) || t.Storage() != locals[0].Storage() {
				return fail(core.Errorf(core.NotImplemented, a.Op, "it changes %v, its argument, which cannot be recorded: use a module in eval mode", t))
			}
		}
		if changes(a.Op) {
			like := Value{locals[0].DType().String(), slices.Clone(locals[0].Shape())}
			made, err := g.node(a, refs, []Value{like})
			if err == nil {
				err = own[0].view.write(g, a.Op, made[0])
			}
			if err != nil {
				return fail(err)
			}
			return tensors[:1]
		}
		out, err := g.results(a, refs, locals, own, outs)
		if err != nil {
			return fail(err)
		}
		return out
	})
}

// elements applies an operation to ordinary tensors.
func (g *Graph) elements(a core.Application, locals []*core.Tensor) []*core.Tensor {
	g.applies = true
	defer func() { g.applies = false }()
	return a.Call(op.Replaced(a.Args, locals))
}

// results adds the node of an operation and returns the tensors that stand for its results.
func (g *Graph) results(a core.Application, refs []any, locals []*core.Tensor, own []*traced, outs []*core.Tensor) ([]*core.Tensor, error) {
	var likes []Value
	for _, t := range outs {
		likes = append(likes, Value{t.DType().String(), slices.Clone(t.Shape())})
	}
	made, err := g.node(a, refs, likes)
	if err != nil {
		return nil, err
	}
	list := make([]*core.Tensor, len(outs))
	for i, t := range outs {
		whole := &view{memory: &memory{value: made[i]}, value: made[i]}
		if j := shared(t, locals, own, i, len(outs)); j >= 0 {
			from := own[j].view
			whole = &view{from.memory, append(slices.Clone(from.steps), newStep(a, refs, j, outs, i, locals[j])), made[i], from.memory.changes}
		}
		switch {
		case slices.ContainsFunc(locals, func(x *core.Tensor) bool { return x != nil && x.Storage() == t.Storage() }) && len(whole.steps) == 0:
			t = op.Clone(t) // operations in place must not change a constant
		case slices.Contains(locals, t) || slices.Contains(outs[:i], t):
			t = t.Alias(true)
		}
		list[i] = g.stands(t, whole)
	}
	return list, nil
}

// shared returns which input shares memory with result i of n, or -1.
func shared(t *core.Tensor, locals []*core.Tensor, own []*traced, i, n int) int {
	shares := func(j int) bool { return own[j] != nil && locals[j].Storage() == t.Storage() }
	if n == len(locals) && shares(i) {
		return i
	}
	for j := range locals {
		if shares(j) {
			return j
		}
	}
	return -1
}

// node adds a node and returns the values that it makes.
func (g *Graph) node(a core.Application, refs []any, outs []Value) ([]int, error) {
	args, err := arguments(a, refs)
	if err != nil {
		return nil, err
	}
	n := Node{Op: a.Op, Scope: g.scope, Args: args}
	for _, v := range outs {
		g.Values = append(g.Values, v)
		n.Outs = append(n.Outs, len(g.Values)-1)
	}
	g.Nodes = append(g.Nodes, n)
	return n.Outs, nil
}

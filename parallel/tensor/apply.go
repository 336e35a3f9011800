package tensor

import (
	"log"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

var (
	gatheredBytes atomic.Int64
	warned        sync.Map // by the name of an op
)

// GatheredBytes returns how many bytes of parts the ranks of this process have gathered for ops that could not work on them, views included,
// since the process began.
func GatheredBytes() int64 { return gatheredBytes.Load() }

// Apply lays the inputs of an op as one of its strategies wants them, runs it on the parts, and says how the results lie.
func (p *parts) Apply(a core.Application) []*core.Tensor {
	fail := func(err error) []*core.Tensor { return []*core.Tensor{core.ErrorTensor(err)} }
	u, list, err := p.inputs(a)
	if err != nil {
		return fail(err)
	}
	inPlace := strings.HasSuffix(a.Op, "_")
	if inPlace && list[0] != nil && list[0].apart {
		return fail(core.Errorf(core.StateError, a.Op, "got a view of a distributed tensor whose elements had to move to another rank, placed %v, so the change would be lost: change the tensor itself, as with where or masked_fill, or its to_local(), or redistribute it before the view", list[0]))
	}
	rule := op.RuleOf(a.Op)
	if out, ok := p.random(a, u, list); ok {
		return out
	}
	if rule != nil && rule.Compose != nil && rule.Changes == inPlace {
		if out := rule.Compose(u); out != nil {
			return out
		}
	}
	if rule == nil {
		if err := withoutRule(a.Op, list); err != nil {
			return fail(err)
		}
	}
	records := core.CurrentMode().GradEnabled()
	grad := slices.ContainsFunc(list, func(q *parts) bool { return q != nil && (records && q.here.RequiresGrad() || q.here.HasTangent()) })
	var buffer [256]byte
	key, known := p.describe(buffer[:0], a, u, list, grad)
	var chosen []op.Strategy
	if known {
		chosen = decided(key)
	}
	if chosen == nil {
		if chosen = p.chosen(rule, u, list, inPlace, grad); chosen == nil {
			return fail(core.Errorf(core.StateError, a.Op, "the tensor that is changed in place is placed %v, and the operation needs another placement: redistribute it first", list[0]))
		}
		if known {
			decide(key, chosen)
		}
	}
	var out []*core.Tensor
	work := func() []*core.Tensor {
		var local []*core.Tensor
		if local, err = lay(u, list, chosen, rule == nil || rule.View != nil); err == nil {
			out = p.run(a, rule, list, chosen, op.Replaced(a.Args, local))
		}
		return out
	}
	if moves(list, chosen) {
		core.RunScope(work) // releases the moved inputs
	} else {
		work()
	}
	if err != nil {
		return fail(err)
	}
	if err := out[0].Err(); err != nil {
		return out[:1]
	}
	if inPlace {
		return u.Tensors[:1]
	}
	apart := movedView(a.Op, list, chosen)
	for i, t := range out {
		for _, q := range list {
			if q != nil && t == q.here {
				t = t.Alias(true)
			}
		}
		out[i] = wrap(p.results(chosen, i, t.Shape()), t)
		if q, ok := out[i].Parts().(*parts); ok {
			q.apart = apart
		}
	}
	return out
}

// chosen returns the strategy along each dimension of the mesh, or nil if there is none.
func (p *parts) chosen(rule *op.Rule, u *op.Use, list []*parts, inPlace, grad bool) []op.Strategy {
	if rule != nil && rule.View != nil {
		if to := rule.View(u); to != nil {
			if ways := list[0].viewed(to, grad); ways != nil {
				return ways
			}
		}
	}
	ways := []op.Strategy{{In: make([]core.Placement, len(list)), Out: []core.Placement{{}}}}
	if rule != nil && rule.Strategies != nil {
		ways = append(ways, rule.Strategies(u)...)
	}
	each := func(interleaved bool) []op.Strategy {
		chosen := make([]op.Strategy, len(p.placements))
		for axis := range chosen {
			all := ways
			if interleaved {
				all = withInterleaved(ways, list, axis, p.mesh.Shape()[axis])
			}
			way, ok := choose(all, list, axis, inPlace, grad)
			if !ok {
				return nil
			}
			chosen[axis] = way
		}
		return chosen
	}
	chosen := each(rule == nil || rule.Placed == nil)
	if !p.divisible(list, chosen) {
		chosen = each(false)
	}
	return chosen
}

// movedView reports whether the results of an op would be views of an input that was moved for it, or of a copy.
func movedView(name string, list []*parts, chosen []op.Strategy) bool {
	row := op.Lookup(name)
	if row == nil || !row.Shares {
		return false
	}
	for i, q := range list {
		if q == nil {
			continue
		}
		for axis, way := range chosen {
			if q.apart || way.In[i] != q.placements[axis] {
				return true
			}
		}
	}
	return false
}

// inputs returns the use of an op, and where its inputs are: nil for what is absent or a number.
func (p *parts) inputs(a core.Application) (*op.Use, []*parts, error) {
	u := op.NewUse(a)
	u.Parts, u.Ranks = p, p.mesh.Size()
	u.Sharded = func(t *core.Tensor, d int) bool {
		q, ok := t.Parts().(*parts)
		return ok && q.sharded(d)
	}
	list := make([]*parts, len(u.Tensors))
	replicates := core.CurrentMode().Replicates()
	for i, t := range u.Tensors {
		if t == nil {
			continue
		}
		if err := t.Err(); err != nil {
			return nil, nil, err
		}
		if t.IsNumber() {
			continue
		}
		q, ok := t.Parts().(*parts)
		switch {
		case !ok && t.Dim() > 0 && !replicates:
			if err := explained(u.Tensors); err != nil {
				return nil, nil, err
			}
			return nil, nil, core.Errorf(core.TypeError, a.Op, "input %d is an ordinary tensor of shape %v and another is distributed: distribute it, use the other's local part, or let such tensors count as replicated (implicit_replication)", i, t.Shape())
		case !ok:
			q = &parts{layout: layout{p.mesh, t.Shape(), make([]core.Placement, len(p.placements))}, here: t}
		case !same(q.mesh, p.mesh):
			return nil, nil, core.Errorf(core.ValueError, a.Op, "inputs on two meshes, %v and %v: redistribution between meshes is not possible", p.mesh, q.mesh)
		}
		list[i] = q
	}
	return u, list, nil
}

// explained returns what an input says of its use beside ordinary tensors, or nil: see [core.AutogradMeta.Explain].
func explained(inputs []*core.Tensor) error {
	for _, t := range inputs {
		if t == nil || t.Parts() == nil {
			continue
		}
		if meta := t.AutogradMeta(); meta != nil && meta.Explained() != nil {
			return meta.Explained()
		}
	}
	return nil
}

func withoutRule(name string, list []*parts) error {
	for _, q := range list {
		if q == nil || !slices.ContainsFunc(q.placements, func(p core.Placement) bool { return p.Kind != core.Replicated }) {
			continue
		}
		if core.CurrentMode().Strict() {
			return core.Errorf(core.NotImplemented, name, "it has no rule for distributed tensors, and gathering is turned off: redistribute its inputs to Replicate()")
		}
		if _, again := warned.LoadOrStore(name, true); !again {
			log.Printf("plait: %s has no rule for distributed tensors: it gathers its inputs on every rank", name)
		}
		return nil
	}
	return nil
}

// lay moves the inputs to the placements that the chosen strategies want.
func lay(u *op.Use, list []*parts, chosen []op.Strategy, counted bool) ([]*core.Tensor, error) {
	local := slices.Clone(u.Tensors)
	for i, q := range list {
		if q == nil {
			continue
		}
		want := make([]core.Placement, len(chosen))
		var axes uint64
		for axis, way := range chosen {
			want[axis] = way.In[i]
			if want[axis].Kind == core.Replicated && !alike(way) {
				axes |= 1 << axis
			}
		}
		if slices.Equal(want, q.placements) {
			local[i] = q.use(axes)
		} else {
			if counted && gathers(q.placements, want) {
				gatheredBytes.Add(int64(q.here.Numel() * q.here.DType().Size()))
			}
			moved := relay(q.here, q.layout, want)
			if moved.Err() == nil {
				moved = (&parts{layout: q.with(want), here: moved}).divided(axes)
			}
			local[i] = moved
		}
		if err := local[i].Err(); err != nil {
			return nil, err
		}
	}
	return local, nil
}

// moves reports whether the strategies want an input with other placements than it has.
func moves(list []*parts, chosen []op.Strategy) bool {
	for i, q := range list {
		for axis, way := range chosen {
			if q != nil && way.In[i] != q.placements[axis] {
				return true
			}
		}
	}
	return false
}

// gathers reports whether a tensor that is moved between placements is gathered along a dimension of the mesh.
func gathers(from, to []core.Placement) bool {
	for i, p := range from {
		if p.Kind != core.Replicated && to[i].Kind == core.Replicated {
			return true
		}
	}
	return false
}

// alike reports whether all ranks do the same in a strategy.
func alike(s op.Strategy) bool {
	different := func(p core.Placement) bool { return p.Kind != core.Replicated }
	return !slices.ContainsFunc(s.In, different) && !slices.ContainsFunc(s.Out, different)
}

// run calls the op for this rank's parts.
func (p *parts) run(a core.Application, rule *op.Rule, list []*parts, chosen []op.Strategy, args []any) []*core.Tensor {
	if rule != nil && rule.Shape > 0 {
		args = p.sized(rule, list[0].shape, chosen, args)
	}
	if rule != nil && rule.Placed != nil {
		l := list[0].with(nil)
		for _, way := range chosen {
			l.placements = append(l.placements, way.In[0])
		}
		if out := rule.Placed(args, l.shape, l.starts()); out != nil {
			return out
		}
	}
	for _, way := range chosen {
		if way.Local == nil {
			continue
		}
		// The range that this rank has of the sharded dimension, along all dimensions of the mesh that shard it so.
		start, length := 0, way.Size
		for i, w := range chosen {
			if w.Local != nil {
				var more int
				more, length = chunk(length, p.mesh.Shape()[i], p.mesh.Coordinate()[i])
				start += more
			}
		}
		return way.Local(args, start, length)
	}
	return a.Call(args)
}

// sized returns the arguments with the shape of the result, of an input of the given shape, replaced by that of this rank's part.
func (p *parts) sized(rule *op.Rule, input []int, chosen []op.Strategy, args []any) []any {
	at := rule.Shape - 1
	shape, ok := args[at].([]int)
	if ok && rule.Rest {
		if shape = op.SizesFor(shape, core.Numel(input)); shape == nil {
			ok = false // the op says what is wrong
		}
	}
	if !ok {
		return args
	}
	args, shape = slices.Clone(args), slices.Clone(shape)
	l := layout{mesh: p.mesh, shape: slices.Clone(shape)}
	for _, way := range chosen {
		l.placements = append(l.placements, way.Out[0])
		if q := way.Out[0]; q.Kind == core.Sharded {
			l.shape[q.Dim] = way.ResultSize()
		}
	}
	for d := range shape {
		if l.sharded(d) {
			shape[d] = l.length(d)
		}
	}
	args[at] = shape
	return args
}

// results returns how result i lies, of which this rank's part has the given shape.
func (p *parts) results(chosen []op.Strategy, i int, local []int) layout {
	l := layout{mesh: p.mesh, shape: slices.Clone(local)}
	for _, way := range chosen {
		q := way.Out[min(i, len(way.Out)-1)]
		l.placements = append(l.placements, q)
		if q.Kind == core.Sharded {
			l.shape[q.Dim] = way.ResultSize()
		}
	}
	return l
}

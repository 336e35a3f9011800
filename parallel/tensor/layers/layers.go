// Package layers divides the layers of a module among the ranks of a mesh: tensor, sequence and vocabulary parallelism.
//
// A column layer followed by a row layer exchanges once forward, the sum of the row layer's results, and once backward, the sum of the
// gradients of the column layer's input. With the sequence divided between them, a gather and a reduction that scatters take the place of
// each sum.
//
// Shoeybi et al.: Megatron-LM, 2019; Korthikanti et al.: Reducing Activation Recomputation in Large Transformer Models, 2022.
package layers

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/meta"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

const what = "divide"

// A Style says how a layer is divided: one of [Columns], [Rows], [Sequence] and [Heads].
type Style interface {
	// lay returns how the parameters of a layer lie, by their names, and how its inputs and outputs do.
	lay(l nn.Layer) (parameters map[string]core.Placement, f flow, err error)
}

// A flow says how the input and the output of a divided layer lie.
type flow struct {
	free   bool           // they lie as they come, whatever the rest says
	takes  core.Placement // an ordinary input
	works  core.Placement // the input of the layer
	gives  core.Placement // the output
	local  bool           // the output is this rank's part, an ordinary tensor
	pieces int            // of the input that the layer works on
}

// Columns divides the output features of a [nn.Linear], or the columns of an [nn.Embedding].
type Columns struct {
	Input  core.Placement  // of an ordinary input; replicated by default
	Output *core.Placement // along the last dimension by default
	Local  bool            // the output is this rank's part, an ordinary tensor
	// Pieces is how many pieces of its input a Linear works on, so that the exchange of one runs beside the product of another; 0 means 1.
	Pieces int
}

func (s Columns) lay(l nn.Layer) (map[string]core.Placement, flow, error) {
	f := flow{takes: s.Input, works: core.Replicate(), gives: or(s.Output, core.Shard(-1)), local: s.Local, pieces: s.Pieces}
	switch l.(type) {
	case *nn.Linear:
		return map[string]core.Placement{"weight": core.Shard(0), "bias": core.Shard(0)}, f, nil
	case *nn.Embedding:
		return map[string]core.Placement{"weight": core.Shard(1)}, f, nil
	}
	return nil, f, core.Errorf(core.TypeError, what, "Columns wants a Linear or an Embedding, got %T", l)
}

// Rows divides the input features of a [nn.Linear], or the rows of an [nn.Embedding], such as a vocabulary.
type Rows struct {
	Input  *core.Placement // of an ordinary input: that of a Linear is divided along the last dimension by default, an Embedding's replicated
	Output core.Placement  // replicated by default; core.Shard(1) divides a sequence
	Local  bool            // the output is this rank's part, an ordinary tensor
	Pieces int             // see [Columns]
}

func (s Rows) lay(l nn.Layer) (map[string]core.Placement, flow, error) {
	switch l.(type) {
	case *nn.Linear:
		f := flow{takes: or(s.Input, core.Shard(-1)), works: core.Shard(-1), gives: s.Output, local: s.Local, pieces: s.Pieces}
		return map[string]core.Placement{"weight": core.Shard(1)}, f, nil
	case *nn.Embedding:
		f := flow{takes: or(s.Input, core.Replicate()), works: core.Replicate(), gives: s.Output, local: s.Local, pieces: s.Pieces}
		return map[string]core.Placement{"weight": core.Shard(0)}, f, nil
	}
	return nil, flow{}, core.Errorf(core.TypeError, what, "Rows wants a Linear or an Embedding, got %T", l)
}

// Sequence is for a norm, a dropout or another layer that works on each element of a sequence: it works on this rank's part of it, with
// replicated parameters.
type Sequence struct {
	Dim   *int           // the dimension of the sequence; 1 by default
	Input core.Placement // of an ordinary input; replicated by default
	Local bool           // the output is this rank's part, an ordinary tensor
}

func (s Sequence) lay(l nn.Layer) (map[string]core.Placement, flow, error) {
	d := core.Shard(1)
	if s.Dim != nil {
		d = core.Shard(*s.Dim)
	}
	return nil, flow{takes: s.Input, works: d, gives: d, local: s.Local}, nil
}

// Heads divides the features that a [nn.MultiheadAttention] makes of its inputs. Its OutProj has a style of its own, [Rows].
type Heads struct{}

func (Heads) lay(l nn.Layer) (map[string]core.Placement, flow, error) {
	if _, ok := l.(*nn.MultiheadAttention); !ok {
		return nil, flow{}, core.Errorf(core.TypeError, what, "Heads wants a MultiheadAttention, got %T", l)
	}
	own := map[string]core.Placement{}
	for _, name := range []string{"in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight"} {
		own[name] = core.Shard(0)
	}
	return own, flow{free: true}, nil
}

func or(p *core.Placement, other core.Placement) core.Placement {
	if p != nil {
		return *p
	}
	return other
}

// A part is a layer that the plan names.
type part struct {
	layer nn.Layer
	flow  flow
}

// Divide divides layers of m among the ranks of a mesh of one dimension. plan has styles by the names of layers, in which * stands for a part
// of a name between dots. All ranks call it with the same plan; the parameters are those of the first rank. The parameters of the named
// layers become new tensors, and the old ones are released: make optimisers afterwards. A parameter that several modules share stays one,
// and lies as the first layer says.
//
// Layers that take the same input share the exchange of its gradient if that is a distributed tensor, as the output of a [Sequence] layer is, or
// during a pass; see [mesh.Mesh.BeginPass].
// Call layers by [nn.Call], as the modules of package nn do, for ordinary inputs to be laid. Ordinary tensors beside distributed ones count as
// replicated in a mode that says so; see [core.Mode.WithReplicates].
//
// Errors: a mesh of several dimensions, a name that is no layer's, a layer that a style does not know, ranks with different plans. The
// module is then unchanged.
func Divide(m nn.Module, on *mesh.Mesh, plan map[string]Style) error {
	if n := len(on.Shape()); n != 1 {
		return core.Errorf(core.ValueError, what, "want a mesh of one dimension, got %v", on)
	}
	if err := compare(on, m, plan); err != nil {
		return err
	}
	parts, placements, err := chosen(m, plan)
	if err != nil {
		return err
	}
	made := map[*core.Tensor]*core.Tensor{}
	release := func(list func(func(*core.Tensor) bool)) {
		for t := range list {
			t.Release()
		}
	}
	for _, n := range nn.NamedTensors(m) { // in the same order on all ranks
		at, ok := placements[n.Tensor]
		if !ok || made[n.Tensor] != nil || n.Tensor.Parts() != nil {
			continue
		}
		t := distribute(n.Tensor, on, at)
		if err := t.Err(); err != nil {
			release(maps.Values(made))
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		made[n.Tensor] = t.Keep()
	}
	for _, n := range nn.NamedTensors(m) {
		if t := made[n.Tensor]; t != nil {
			n.Set(t)
		}
	}
	release(maps.Keys(made))
	s := &shared{on: on}
	for _, p := range parts {
		if !p.flow.free {
			p.hook(s)
		}
	}
	return nil
}

// distribute returns a tensor as a distributed one. One on the meta device has its values, as a whole, for a moment.
func distribute(t *core.Tensor, on *mesh.Mesh, at core.Placement) *core.Tensor {
	requires := t.RequiresGrad()
	if t.Device().Kind() == core.MetaKind {
		dev, err := core.CurrentContext().DefaultDevice()
		if err != nil {
			return core.ErrorTensor(err)
		}
		t = meta.Materialize(t.Detach(), dev)
	}
	d := tensor.Distribute(t, on, []core.Placement{at})
	if d.Err() != nil {
		return d
	}
	return d.SetRequiresGrad(requires)
}

// missing reports whether there is no style: nil, or a nil pointer.
func missing(s Style) bool {
	v := reflect.ValueOf(s)
	return s == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// Check returns the error that [Divide] would return for a plan that does not fit the module, which it does not change.
func Check(m nn.Module, plan map[string]Style) error {
	_, _, err := chosen(m, plan)
	return err
}

// Here returns a plan for the layers of m that are not elsewhere, by their own names: of a module of which other ranks have some layers.
func Here(m nn.Module, plan map[string]Style, elsewhere func(nn.Module) bool) map[string]Style {
	own := map[string]Style{}
	for _, p := range nn.Modules(m) {
		if pattern, ok := namedBy(plan, p.Name); ok && !elsewhere(p.Module) {
			own[p.Name] = plan[pattern]
		}
	}
	return own
}

// namedBy returns the first pattern of a plan that a name matches.
func namedBy(plan map[string]Style, name string) (pattern string, ok bool) {
	for _, pattern := range slices.Sorted(maps.Keys(plan)) {
		if matches(pattern, name) {
			return pattern, true
		}
	}
	return "", false
}

// chosen returns the layers that a plan names, and how their tensors lie.
func chosen(m nn.Module, plan map[string]Style) (parts []part, placements map[*core.Tensor]core.Placement, err error) {
	placements = map[*core.Tensor]core.Placement{}
	for _, p := range nn.Modules(m) {
		pattern, ok := namedBy(plan, p.Name)
		if !ok {
			continue
		}
		l, ok := p.Module.(nn.Layer)
		if !ok {
			return nil, nil, core.Errorf(core.TypeError, what, "%s is a %T, want a layer, which maps one tensor to another", p.Name, p.Module)
		}
		if missing(plan[pattern]) {
			return nil, nil, core.Errorf(core.ValueError, what, "%s has no style", pattern)
		}
		own, f, err := plan[pattern].lay(l)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		if f.pieces < 0 {
			return nil, nil, core.Errorf(core.ValueError, what, "%s: want at least one piece, got %d", p.Name, f.pieces)
		}
		parts = append(parts, part{l, f})
		for _, n := range nn.NamedTensors(l) {
			if _, ok := placements[n.Tensor]; !ok && !within(p.Name, n.Name, plan) {
				placements[n.Tensor] = own[n.Name] // replicated if the style does not say
			}
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(plan)) {
		if !slices.ContainsFunc(nn.Modules(m), func(p nn.Part) bool { return matches(pattern, p.Name) }) {
			var names []string
			for _, p := range nn.Modules(m) {
				if p.Name != "" {
					names = append(names, p.Name)
				}
			}
			return nil, nil, core.Errorf(core.ValueError, what, "the plan names %q; the module has %s", pattern, strings.Join(names, ", "))
		}
	}
	return parts, placements, nil
}

// within reports whether a tensor of a module belongs to a part of it that has a style of its own.
func within(module, tensor string, plan map[string]Style) bool {
	for i, r := range tensor {
		if r == '.' {
			if _, ok := namedBy(plan, strings.TrimPrefix(module+"."+tensor[:i], ".")); ok {
				return true
			}
		}
	}
	return false
}

// matches reports whether a name is a pattern's, in which * stands for a part between dots.
func matches(pattern, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(name, ".", "/"))
	return err == nil && ok
}

// hook makes the layer's input and output lie as its flow says.
func (p part) hook(s *shared) {
	type base interface {
		RegisterForwardPreHook(fn nn.PreHook) (remove func())
		RegisterForwardHook(fn nn.Hook) (remove func())
		WrapForward(fn nn.Wrapper) (remove func())
	}
	b := p.layer.(base)
	_, linear := p.layer.(*nn.Linear)
	inPieces := linear && p.flow.pieces > 1
	b.RegisterForwardPreHook(func(_ nn.Layer, x *core.Tensor) *core.Tensor {
		if x.Err() != nil {
			return x
		}
		if x.Parts() == nil {
			takes, whole := along(p.flow.takes, x), p.whole(x)
			x = s.distributed.once(s.on, x, fmt.Sprint(takes, whole), func() []*core.Tensor {
				return []*core.Tensor{tensor.FromLocal(x, s.on, []core.Placement{takes}, whole)}
			})[0]
		}
		if inPieces {
			return x
		}
		return s.laid.once(s.on, x, fmt.Sprint(p.flow.works), func() []*core.Tensor { return []*core.Tensor{laid(x, p.flow.works)} })[0]
	})
	if inPieces {
		b.WrapForward(func(x *core.Tensor, forward func(x *core.Tensor) *core.Tensor) *core.Tensor {
			return p.inPieces(s, x, forward)
		})
	}
	b.RegisterForwardHook(func(_ nn.Layer, _, y *core.Tensor) *core.Tensor {
		y = laid(y, p.flow.gives)
		if p.flow.local && y.Parts() != nil {
			return tensor.Local(y, nil)
		}
		return y
	})
}

// inPieces calls forward with one piece of x after the other, cut along a dimension that the ranks do not divide, and joins what it makes.
func (p part) inPieces(s *shared, x *core.Tensor, forward func(x *core.Tensor) *core.Tensor) *core.Tensor {
	dim := -1
	for d := 0; x.Err() == nil && d < x.Dim()-1 && dim < 0; d++ {
		divided := slices.ContainsFunc(append(tensor.Placements(x), along(p.flow.works, x), along(p.flow.gives, x)), func(q core.Placement) bool {
			return q.Kind == core.Sharded && q.Dim == d
		})
		if !divided && x.Size(d) > 1 {
			dim = d
		}
	}
	if dim < 0 {
		return forward(laid(x, p.flow.works))
	}
	pieces := s.pieces.once(s.on, x, fmt.Sprint(p.flow.works, p.flow.pieces, dim), func() (list []*core.Tensor) {
		n, begin := x.Size(dim), 0
		for i := range p.flow.pieces {
			if end := n * (i + 1) / p.flow.pieces; end > begin {
				list = append(list, laid(op.Narrow(x, dim, begin, end-begin), p.flow.works))
				begin = end
			}
		}
		return list
	})
	list := make([]*core.Tensor, len(pieces))
	for i, piece := range pieces {
		list[i] = laid(forward(piece), p.flow.gives)
	}
	return op.Cat(list, dim)
}

// shared has what layers have made of their last inputs, so that layers with the same input, as those of queries, keys and values, share
// what they make of it, and so their exchanges. That is during a pass, in which the layers are called after each other.
type shared struct {
	on                        *mesh.Mesh
	distributed, laid, pieces lastMade
}

// lastMade has what was made of a tensor, by what it is.
type lastMade struct {
	mu   sync.Mutex
	of   weak.Pointer[core.Tensor]
	as   use
	made map[string][]*core.Tensor
}

// A use says what a tensor was and how it was used.
type use struct {
	pass           *mesh.Pass
	storage        weak.Pointer[core.Storage]
	version        uint32
	requires, grad bool
}

// once returns what it returned before for x and what, or else what fn makes.
func (l *lastMade) once(on *mesh.Mesh, x *core.Tensor, what string, fn func() []*core.Tensor) []*core.Tensor {
	as := use{pass: on.Pass(), requires: x.RequiresGrad(), grad: core.CurrentMode().GradEnabled()}
	here := x
	if p := x.Parts(); p != nil {
		here = p.Local()
	}
	memory := here.Storage()
	if !as.pass.Open() || memory == nil {
		return fn()
	}
	as.storage, as.version = weak.Make(memory), memory.Version()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of.Value() != x || l.as != as {
		l.of, l.as, l.made = weak.Make(x), as, map[string][]*core.Tensor{}
	}
	released := func(t *core.Tensor) bool { return t.Present(what) != nil }
	if l.made[what] == nil || slices.ContainsFunc(l.made[what], released) {
		l.made[what] = fn()
	}
	return l.made[what]
}

// whole returns the shape of the whole of which an ordinary input is a part, if its features tell; otherwise nil.
func (p part) whole(x *core.Tensor) []int {
	l, ok := p.layer.(*nn.Linear)
	if !ok || x.Dim() == 0 || along(p.flow.takes, x) != core.Shard(x.Dim()-1) {
		return nil
	}
	shape := slices.Clone(x.Shape())
	shape[x.Dim()-1] = l.Weight.Size(1)
	return shape
}

// along returns a placement of x, of which a dimension may have been counted from the end.
func along(p core.Placement, x *core.Tensor) core.Placement {
	if p.Kind == core.Sharded && p.Dim < 0 {
		p.Dim += x.Dim()
	}
	return p
}

// laid returns a distributed tensor with another placement.
func laid(x *core.Tensor, to core.Placement) *core.Tensor {
	if x.Err() != nil || x.Parts() == nil {
		return x
	}
	if to = along(to, x); tensor.Placements(x)[0] == to {
		return x
	}
	return tensor.Redistribute(x, []core.Placement{to})
}

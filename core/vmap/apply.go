package vmap

import (
	"slices"
	"strings"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A use is the use of an operation on batched tensors.
type use struct {
	core.Application
	*Level
	// tensors are the tensors and numbers among the arguments, in order, those of lists and options included; nil where absent.
	tensors []*core.Tensor
	// whole are the tensors behind those that are batched, and the others as they are.
	whole   []*core.Tensor
	batched []bool
}

// A rule applies an operation to all parts at once. It returns batched tensors, or nil if it cannot for the arguments.
type rule func(u *use) []*core.Tensor

var (
	rules map[string]rule
	// refused says why an operation has no meaning inside vmap.
	refused map[string]string
)

var loops struct {
	sync.Mutex
	seen map[string]bool
	news []string
}

// Looped returns the names of the operations that were applied to parts one by one, for want of a rule, since the last call. Each is named
// once in the life of the process.
func Looped() []string {
	loops.Lock()
	defer loops.Unlock()
	out := loops.news
	loops.news = nil
	return out
}

func looped(name string) {
	loops.Lock()
	defer loops.Unlock()
	if !loops.seen[name] {
		if loops.seen == nil {
			loops.seen = map[string]bool{}
		}
		loops.seen[name] = true
		loops.news = append(loops.news, name)
	}
}

// HasRule reports whether there is a rule for the row of a name, which may not hold for all of its arguments.
func HasRule(name string) bool { return rules[name] != nil }

func (p *parts) Apply(a core.Application) []*core.Tensor {
	u := &use{Application: a, Level: p.level, tensors: op.NewUse(a).Tensors}
	fail := func(err error) []*core.Tensor { return []*core.Tensor{core.ErrorTensor(err)} }
	for _, t := range u.tensors {
		if t == nil {
			continue
		}
		if err := t.Present(a.Op); err != nil {
			return fail(err)
		}
		if q, ok := t.Parts().(*parts); ok && q.level.depth > u.depth {
			u.Level = q.level
		}
	}
	if u.closed.Load() {
		return fail(core.Errorf(core.StateError, a.Op, "got a tensor of a vmap that has ended: return from the function what is used outside"))
	}
	u.whole, u.batched = slices.Clone(u.tensors), make([]bool, len(u.tensors))
	for i, t := range u.tensors {
		if q, ok := t.Parts().(*parts); ok {
			switch {
			case q.level == u.Level:
				u.whole[i], u.batched[i] = q.here, true
			case q.level.depth == u.depth:
				return fail(core.Errorf(core.StateError, a.Op, "got tensors of two vmaps, of which one has ended: return from the function what is used outside"))
			}
		}
	}
	base := strings.TrimSuffix(a.Op, "_")
	if why := refused[base]; why != "" {
		return fail(core.Errorf(core.NotImplemented, a.Op, "not possible inside vmap: %s", why))
	}
	if changes(a.Op) && !u.batched[0] {
		return fail(core.Errorf(core.NotImplemented, a.Op, "inside vmap a tensor that is the same for all parts, %v, cannot hold what differs from part to part: "+
			"make it from one that is batched, as x.new_zeros does, or use an operation out of place", u.tensors[0]))
	}
	return core.RunScope(func() (out []*core.Tensor) {
		u.within(func() { out = u.run(base) })
		for _, t := range out {
			if t.Err() != nil {
				return []*core.Tensor{t}
			}
		}
		if changes(a.Op) {
			return u.tensors[:1]
		}
		for i, t := range out {
			if q, ok := t.Parts().(*parts); !ok || q.level != u.Level {
				out[i] = u.Batched(t)
			}
		}
		return out
	})
}

// changes reports whether an operation changes its first tensor.
func changes(name string) bool { return strings.HasSuffix(name, "_") }

func (u *use) run(base string) []*core.Tensor {
	if u.Each {
		return each(u)
	}
	if r := rules[u.Op]; r != nil {
		if out := r(u); out != nil {
			return out
		}
	} else if r, row := rules[base], op.Lookup(base); r != nil && changes(u.Op) && row.Func != nil {
		if out := u.replace(r, row); out != nil {
			return out
		}
	}
	out := u.loop()
	if op.Lookup(base) != nil && (len(out) == 0 || out[0].Err() == nil) {
		looped(u.Op)
	}
	return out
}

// replace copies what the operation of a row makes of a tensor to its place. The derivative may need what is overwritten.
func (u *use) replace(r rule, row *op.Row) []*core.Tensor {
	v := &use{Level: u.Level, tensors: slices.Clone(u.tensors), whole: slices.Clone(u.whole), batched: u.batched}
	v.whole[0] = op.Clone(u.whole[0])
	if v.tensors[0] = u.with(v.whole[0].Alias(true)); v.tensors[0].Err() != nil {
		return v.tensors[:1]
	}
	v.Application = core.Application{Op: row.Name, Args: op.Replaced(u.Args, v.tensors), Call: func(args []any) []*core.Tensor { return row.Call(args...) }}
	out := r(v)
	if out == nil || out[0].Err() != nil {
		return out
	}
	return []*core.Tensor{op.CopyInPlace(u.tensors[0], out[0])}
}

// call calls the operation with other tensors, and returns its results, whose dimension 0 is the batch, as batched ones.
func (u *use) call(tensors []*core.Tensor) []*core.Tensor { return u.callWith(u.Args, tensors) }

// callWith is call with other arguments of the same form.
func (u *use) callWith(args []any, tensors []*core.Tensor) []*core.Tensor {
	for _, t := range tensors {
		if t != nil && t.Err() != nil {
			return []*core.Tensor{t}
		}
	}
	return u.results(u.Call(op.Replaced(args, tensors)))
}

// results returns tensors whose dimension 0 is the batch as batched ones.
func (u *use) results(out []*core.Tensor) []*core.Tensor {
	out = slices.Clone(out)
	for i, t := range out {
		if slices.Contains(u.whole, t) || slices.Contains(u.tensors, t) {
			t = t.Alias(true)
		}
		out[i] = u.with(t)
	}
	return out
}

// loop applies the operation to the parts one by one. Where these draw the same numbers, each starts with what the first one started with.
func (u *use) loop() []*core.Tensor {
	var columns [][]*core.Tensor
	restart := func() {}
	if u.same {
		restart = u.restarting()
	}
	for i := range u.size {
		restart()
		own := slices.Clone(u.tensors)
		for j, t := range u.whole {
			if u.batched[j] {
				own[j] = op.Select(t, 0, i)
			}
		}
		out := u.Call(op.Replaced(u.Args, own))
		for j, t := range out {
			if t.Err() != nil {
				return []*core.Tensor{t}
			}
			if i == 0 {
				columns = append(columns, nil)
			}
			columns[j] = append(columns[j], t)
		}
	}
	out := make([]*core.Tensor, len(columns))
	if changes(u.Op) {
		return u.tensors[:1]
	}
	for j, c := range columns {
		for _, t := range c {
			if !slices.Equal(t.Shape(), c[0].Shape()) {
				return []*core.Tensor{core.ErrorTensor(core.Errorf(core.NotImplemented, u.Op, "not possible inside vmap: the shape of its result depends on values, got %v and %v for two parts", c[0].Shape(), t.Shape()))}
			}
		}
		out[j] = u.with(op.Stack(c, 0))
	}
	return out
}

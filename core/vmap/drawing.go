package vmap

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// draws are the levels for each part of which threads draw random numbers.
var draws struct {
	open atomic.Int32
	sync.Mutex
	byThread map[uintptr]*drawer
}

// A drawer is a thread that draws numbers.
type drawer struct {
	levels []*Level // the outermost first
	below  int      // only levels of less depth count, if it is not 0: an operation is being applied at that depth
}

func init() { op.SetDrawing(drawing) }

func (l *Level) draw() {
	l.thread = core.CurrentThread()
	draws.Lock()
	defer draws.Unlock()
	if draws.byThread == nil {
		draws.byThread = map[uintptr]*drawer{}
	}
	d := draws.byThread[l.thread]
	if d == nil {
		d = &drawer{}
		draws.byThread[l.thread] = d
	}
	d.levels = append(d.levels, l)
	draws.open.Add(1)
}

func (l *Level) drawNoMore() {
	draws.Lock()
	defer draws.Unlock()
	d := draws.byThread[l.thread]
	if d.levels = slices.DeleteFunc(d.levels, func(m *Level) bool { return m == l }); len(d.levels) == 0 {
		delete(draws.byThread, l.thread)
	}
	draws.open.Add(-1)
}

// drawing returns the innermost level for which the calling thread draws numbers, or nil.
func drawing() core.Parts {
	if draws.open.Load() == 0 {
		return nil
	}
	draws.Lock()
	defer draws.Unlock()
	if d := draws.byThread[core.CurrentThread()]; d != nil {
		for _, l := range slices.Backward(d.levels) {
			if d.below == 0 || l.depth < d.below {
				return &parts{level: l}
			}
		}
	}
	return nil
}

// within runs fn, which applies an operation at the level: what it draws is drawn for the parts already.
func (l *Level) within(fn func()) {
	if draws.open.Load() == 0 {
		fn()
		return
	}
	old := DrawBelow(l.depth)
	defer DrawBelow(old)
	fn()
}

// DrawBelow has operations of the calling thread draw numbers only for the levels around the one at a depth, or for all if that is 0, and returns
// the depth before.
func DrawBelow(depth int) (before int) {
	draws.Lock()
	defer draws.Unlock()
	if d := draws.byThread[core.CurrentThread()]; d != nil {
		before, d.below = d.below, depth
	}
	return before
}

// restarting returns a function that takes back what the operation has drawn since.
func (u *use) restarting() func() {
	type state struct{ seed, offset uint64 }
	before := map[*core.Generator]state{}
	note := func(g *core.Generator) {
		if g != nil {
			seed, offset := g.State()
			before[g] = state{seed, offset}
		}
	}
	for _, a := range u.Args {
		if o, ok := a.(op.RandomOptions); ok {
			note(o.Generator)
		}
	}
	for _, t := range u.tensors {
		if t != nil && !t.IsNumber() {
			note(core.CurrentContext().Generator(t.Device()))
		}
	}
	return func() {
		for g, s := range before {
			if seed, offset := g.State(); seed != s.seed || offset != s.offset {
				g.SetState(s.seed, s.offset)
			}
		}
	}
}

// drawRules are those of operations that draw random numbers.
func drawRules(add func(r rule, names string)) {
	// alike adds a rule for parts that draw numbers of their own, and one for parts that draw the same.
	alike := func(own, same rule, names string) {
		add(func(u *use) []*core.Tensor {
			if u.same {
				return same(u)
			}
			return own(u)
		}, names)
	}
	loop := func(*use) []*core.Tensor { return nil }
	shaped := func(i int) rule {
		return func(u *use) []*core.Tensor {
			args := slices.Clone(u.Args)
			shape, ok := args[i].([]int)
			if !ok {
				return nil
			}
			args[i] = append([]int{u.size}, shape...)
			return u.results(u.Call(args))
		}
	}
	add(shaped(0), "rand randn")
	add(shaped(2), "randint")
	all := func(u *use) []*core.Tensor { return u.call(u.all()) }
	alike(all, func(u *use) []*core.Tensor { return u.callOnce(u.part()) }, "rand_like randn_like randint_like")
	filled := func(u *use) []*core.Tensor {
		if len(u.tensors) > 1 && u.batched[1] {
			return nil // a probability of each part
		}
		drawn := u.callOnce(op.EmptyLike(u.part(), op.TensorOptions{}))
		return []*core.Tensor{op.CopyInPlace(u.tensors[0], drawn[0])}
	}
	alike(all, filled, "uniform_ normal_ exponential_ log_normal_ cauchy_ geometric_ trunc_normal_ random_")
	alike(each, filled, "bernoulli_")
	alike(all, loop, "bernoulli")
	alike(all, func(u *use) []*core.Tensor {
		parts := make([]*core.Tensor, u.size)
		for i := range parts {
			restart := u.restarting()
			if parts[i] = u.callOnce(op.Select(u.whole[0], 0, i))[0]; parts[i].Err() != nil {
				return parts[i : i+1]
			}
			if i+1 < len(parts) {
				restart()
			}
		}
		return u.results([]*core.Tensor{op.Stack(parts, 0)})
	}, "poisson")
	training := func(own, same rule, names string) {
		alike(own, same, names)
		for _, n := range strings.Fields(names) {
			r := rules[n]
			rules[n] = func(u *use) []*core.Tensor {
				switch {
				case argument[bool](u, len(u.Args)-1):
					return r(u)
				case u.Op == "rrelu":
					return each(u)
				}
				return []*core.Tensor{u.Batched(u.tensors[0])}
			}
		}
	}
	training(all, sameDropout, "dropout")
	training(all, sameAlpha, "alpha_dropout")
	training(all, func(u *use) []*core.Tensor {
		slopes := u.callOnce(op.FullLike(u.part(), core.Num(-1), op.TensorOptions{}))[0]
		x := u.tensors[0]
		return []*core.Tensor{op.Where(op.Ge(x, core.Num(0)), x, op.Mul(x, op.Neg(slopes)))}
	}, "rrelu")
	things := func(rank int) rule {
		return func(u *use) []*core.Tensor {
			if u.tensors[0].Dim() != rank {
				return nil
			}
			return u.folded(u.Args, u.all())
		}
	}
	training(things(3), sameChannels, "dropout1d")
	training(things(4), sameChannels, "dropout2d")
	training(things(5), sameChannels, "dropout3d")
	training(things(5), sameAlpha, "feature_alpha_dropout")
	alike(func(u *use) []*core.Tensor {
		if u.tensors[0].Dim() == 1 {
			return u.call(u.all())
		}
		if u.tensors[0].Dim() != 2 {
			return nil
		}
		return u.folded(u.Args, u.all())
	}, loop, "multinomial")
}

// part returns the first tensor of the first part: what is drawn for all parts is of its shape, dtype and device.
func (u *use) part() *core.Tensor { return op.Select(u.whole[0].Detach(), 0, 0) }

// callOnce calls the operation with another first tensor, which is not batched at the level.
func (u *use) callOnce(first *core.Tensor) []*core.Tensor {
	if first.Err() != nil {
		return []*core.Tensor{first}
	}
	tensors := slices.Clone(u.tensors)
	tensors[0] = first
	return u.Call(op.Replaced(u.Args, tensors))
}

// onOnes returns what the operation makes of ones of a part's shape.
func (u *use) onOnes(o op.TensorOptions) *core.Tensor { return u.callOnce(op.OnesLike(u.part(), o))[0] }

// sameDropout drops the same elements of all parts.
func sameDropout(u *use) []*core.Tensor {
	x, mask, p := u.tensors[0], u.onOnes(op.TensorOptions{}), argument[float64](u, 1)
	if x.DType().IsComplex() || mask.Err() != nil {
		return []*core.Tensor{op.Mul(x, mask)}
	}
	scale := 0.0
	if p < 1 {
		scale = 1 / (1 - p)
	}
	kept := op.Ne(mask, core.Num(0))
	return []*core.Tensor{op.Where(kept, op.Mul(x, core.Num(scale)), core.Num(0))}
}

// sameChannels drops the same channels of all parts.
func sameChannels(u *use) []*core.Tensor {
	return []*core.Tensor{op.Mul(u.tensors[0], u.onOnes(op.TensorOptions{}))}
}

// sameAlpha is for what is added to all elements, also to those that are dropped: it is what becomes of zeros.
func sameAlpha(u *use) []*core.Tensor {
	x := u.tensors[0]
	o := op.TensorOptions{}
	if x.DType().IsHalf() {
		o.DType = ptr(core.Float32)
	}
	restart := u.restarting()
	shift := u.callOnce(op.ZerosLike(u.part(), o))[0]
	restart()
	factor := op.Sub(u.onOnes(o), shift)
	return []*core.Tensor{op.To(op.Add(op.Mul(x, factor), shift), x.DType())}
}

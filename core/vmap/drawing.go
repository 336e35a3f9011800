package vmap

import (
	"slices"
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
	swap := func(below int) (old int) {
		draws.Lock()
		defer draws.Unlock()
		if d := draws.byThread[core.CurrentThread()]; d != nil {
			old, d.below = d.below, below
		}
		return old
	}
	old := swap(l.depth)
	defer swap(old)
	fn()
}

// drawRules are those of operations that draw random numbers.
func drawRules(add func(r rule, names string)) {
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
	add(all, `rand_like randn_like randint_like bernoulli uniform_ normal_ exponential_ log_normal_ cauchy_ geometric_ trunc_normal_ random_`)
	add(each, "bernoulli_")
	training := func(r rule) rule {
		return func(u *use) []*core.Tensor {
			if !argument[bool](u, len(u.Args)-1) {
				if u.Op == "rrelu" {
					return each(u)
				}
				return []*core.Tensor{u.Batched(u.tensors[0])}
			}
			return r(u)
		}
	}
	add(training(all), "dropout alpha_dropout rrelu")
	things := func(rank int) rule {
		return training(func(u *use) []*core.Tensor {
			if u.tensors[0].Dim() != rank {
				return nil
			}
			return u.folded(u.Args, u.all())
		})
	}
	add(things(3), "dropout1d")
	add(things(4), "dropout2d")
	add(things(5), "dropout3d feature_alpha_dropout")
	add(func(u *use) []*core.Tensor {
		if u.tensors[0].Dim() == 1 {
			return u.call(u.all())
		}
		if u.tensors[0].Dim() != 2 {
			return nil
		}
		return u.folded(u.Args, u.all())
	}, "multinomial")
}

package optim

import (
	"errors"
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// NewLBFGS returns the limited-memory BFGS method (Liu and Nocedal 1989, "On the limited memory BFGS method for large
// scale optimization") over all parameters as one vector, complex numbers as two real ones; they must be on one device
// and of one precision, and distributed ones on one mesh, where each rank keeps its parts of the vectors. It steps with
// [Optimizer.StepWith], which ends after max_eval evaluations of the loss, or after one more that a line search ends with.
// Hyperparameters: lr 1, max_iter 20, max_eval 0 (5/4 max_iter), tolerance_grad 1e-7, tolerance_change 1e-9,
// history_size 100, strong_wolfe 0 (1 searches along each direction for a step that meets the strong Wolfe conditions,
// Nocedal and Wright 2006, chapter 3).
func NewLBFGS(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("lbfgs", h, Params{Tensors: params})
}

func init() {
	define(&algorithm{
		name: "lbfgs",
		defaults: Hyper{"lr": 1, "max_iter": 20, "max_eval": 0, "tolerance_grad": 1e-7, "tolerance_change": 1e-9,
			"history_size": 100, "strong_wolfe": 0},
		limits:  append(atLeastZero("max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size"), flag("strong_wolfe")...),
		closure: true,
	})
}

// lbfgs is what the method keeps from step to step.
type lbfgs struct {
	iterations  int // over all steps
	evaluations int
	direction   *core.Tensor
	rate        float64
	grad        *core.Tensor   // before the last move
	loss        float64        // before the last move
	changes     []*core.Tensor // of the gradient, oldest first
	moves       []*core.Tensor
	curvatures  []float64 // 1 over the product of the two
	scale       float64   // of the initial inverse Hessian

	shown map[string]*core.Tensor // see [Optimizer.wholeVectors]
}

func (l *lbfgs) tensors() []*core.Tensor {
	out := append(append([]*core.Tensor{}, l.changes...), l.moves...)
	for _, t := range []*core.Tensor{l.direction, l.grad} {
		if t != nil {
			out = append(out, t)
		}
	}
	return out
}

func (l *lbfgs) release() {
	for _, t := range l.tensors() {
		t.Release()
	}
	l.forget()
}

func (l *lbfgs) bytes() int {
	n := 0
	for _, t := range l.tensors() {
		n += t.Storage().Size()
	}
	return n
}

// A problem is one step of the method: the vector of parameters, and how its loss and gradient are evaluated. The first
// error stops everything that follows.
type problem struct {
	slots []*slot
	ranks *sharing // nil if no parameter is distributed
	loss  func() (*core.Tensor, error)
	hyper Hyper
	err   error
	temps []*core.Tensor
}

// hold makes t live until the step ends.
func (p *problem) hold(t *core.Tensor) *core.Tensor {
	if p.err == nil {
		p.err = t.Err()
	}
	p.temps = append(p.temps, t)
	return t
}

// read returns the value of a 0-d tensor and releases it.
func (p *problem) read(t *core.Tensor) float64 {
	defer t.Release()
	if p.err != nil {
		return 0
	}
	v, err := t.Item()
	p.err = err
	return v
}

func (p *problem) dot(x, y *core.Tensor) float64 {
	if p.ranks != nil && p.err == nil {
		return p.read(p.ranks.dot(x, y))
	}
	return p.read(op.Dot(x, y))
}

// norm returns the sum (power 1) or the largest (power infinity) of the absolute values of x.
func (p *problem) norm(x *core.Tensor, power float64) float64 {
	if p.err != nil {
		return 0
	}
	if p.ranks != nil {
		return p.read(p.ranks.norm(x, power))
	}
	return p.read(reduceList([]*core.Tensor{x}, power, true))
}

// add returns x + a y.
func (p *problem) add(x, y *core.Tensor, a float64) *core.Tensor {
	return p.hold(op.AddScaled(x, y, a))
}

func (p *problem) times(x *core.Tensor, a float64) *core.Tensor {
	return p.hold(op.Mul(x, core.Num(a)))
}

// evaluate returns the loss and the gradient at the parameters as they are.
func (p *problem) evaluate() (float64, *core.Tensor) {
	if p.err != nil {
		return 0, nil
	}
	v, err := evaluate(p.loss)
	if err == nil && p.ranks != nil {
		v, err = p.ranks.agreed(v, p.slots[0])
	}
	if err != nil {
		p.err = err
		return 0, nil
	}
	return v, p.gradient()
}

func (p *problem) gradient() *core.Tensor {
	parts := make([]*core.Tensor, len(p.slots))
	for i, s := range p.slots {
		g, lender := s.param.BorrowGrad()
		defer lender.ReturnGrad()
		if g == nil {
			d := precision(s)
			parts[i] = op.ZerosWith([]int{numbers(s, s.param)}, op.TensorOptions{DType: &d, Device: s.param.Device()})
		} else if err := s.sound(algorithms["lbfgs"], g); err != nil {
			p.err = err
			return nil
		} else {
			parts[i] = flat(g)
		}
		defer parts[i].Release()
	}
	return p.hold(op.Cat(parts, 0))
}

// move adds a d to the parameters.
func (p *problem) move(d *core.Tensor, a float64) {
	at := 0
	for _, s := range p.slots {
		if p.err != nil {
			return
		}
		n := numbers(s, s.param)
		core.Tidy(func() {
			p.err = op.AddScaledInPlace(s.param, shaped(op.Narrow(d, 0, at, n), s.param.DType(), s.param.Shape()), a).Err()
		})
		at += n
	}
}

// precision returns the dtype of the vectors in which a parameter lies.
func precision(s *slot) core.DType { return s.param.DType().Part() }

// numbers returns how many elements of a vector those of t are, which is a parameter or like one.
func numbers(s *slot, t *core.Tensor) int {
	if s.param.DType().IsComplex() {
		return 2 * t.Numel()
	}
	return t.Numel()
}

// flat returns the numbers of t as a vector.
func flat(t *core.Tensor) *core.Tensor {
	if t.DType().IsComplex() {
		parts := op.ViewAsReal(t)
		defer parts.Release()
		return op.Reshape(parts, -1)
	}
	return op.Reshape(t, -1)
}

// shaped returns the tensor of dtype d and the given shape whose numbers those of v are.
func shaped(v *core.Tensor, d core.DType, shape []int) *core.Tensor {
	if !d.IsComplex() {
		return op.Reshape(v, shape...)
	}
	return op.Reshape(op.ViewAsComplex(op.Reshape(v, -1, 2)), shape...)
}

// place copies saved values back into the parameters.
func (p *problem) place(saved []*core.Tensor) error {
	for i, s := range p.slots {
		if err := op.CopyInPlace(s.param, saved[i]).Err(); err != nil {
			return err
		}
	}
	return nil
}

// stepLBFGS makes one step; on an error the parameters and the method's memory are what they were.
func (o *Optimizer) stepLBFGS(loss func() (*core.Tensor, error)) (first float64, err error) {
	if !o.stepping.CompareAndSwap(false, true) {
		return 0, core.Errorf(core.StateError, "lbfgs", "the optimiser is in the midst of a step, perhaps of another thread")
	}
	defer o.stepping.Store(false)
	o.lock()
	defer o.mu.Unlock()
	free := func() (*core.Tensor, error) { // the loss may use the optimiser, as to clear gradients
		o.mu.Unlock()
		defer o.lock()
		return loss()
	}
	g := o.groups[0]
	p := &problem{slots: g.slots, loss: free, hyper: g.values()}
	core.NoGrad(func() {
		for _, s := range g.slots {
			if precision(s) != precision(g.slots[0]) || s.param.Device() != g.slots[0].param.Device() {
				err = core.Errorf(core.ValueError, "lbfgs", "parameters must share precision and device, got %v and %v", g.slots[0].param, s.param)
				return
			}
		}
		if p.ranks, err = shared(g.slots); err != nil {
			return
		}
		before := make([]*core.Tensor, len(g.slots))
		for i, s := range g.slots {
			before[i] = p.hold(op.Clone(s.param))
		}
		old := o.lbfgs
		if old == nil {
			old = &lbfgs{scale: 1}
		}
		next := *old
		next.changes, next.moves = append([]*core.Tensor{}, old.changes...), append([]*core.Tensor{}, old.moves...)
		next.curvatures = append([]float64{}, old.curvatures...)
		if p.err == nil {
			first = next.step(p)
		}
		if err = p.err; err != nil {
			if next.evaluations > old.evaluations {
				err = errors.Join(err, p.place(before))
			}
			p.release(old)
			return
		}
		next.keep(p)
		old.forget()
		next.shown = nil
		p.release(&next)
		for _, t := range old.tensors() {
			if !contains(next.tensors(), t) {
				t.Release()
			}
		}
		o.lbfgs = &next
	})
	return first, err
}

// release frees what the step made but what l refers to.
func (p *problem) release(l *lbfgs) {
	kept := l.tensors()
	for _, t := range p.temps {
		if !contains(kept, t) {
			t.Release()
		}
	}
}

func contains(list []*core.Tensor, t *core.Tensor) bool {
	for _, x := range list {
		if x == t {
			return true
		}
	}
	return false
}

// keep takes what the method remembers out of every scope and counts it as optimiser state.
func (l *lbfgs) keep(p *problem) {
	for _, t := range l.tensors() {
		t.Keep().Storage().SetCategory(core.OptimizerState)
	}
}

// step iterates until a tolerance or a limit is met and returns the loss that it started from.
func (l *lbfgs) step(p *problem) float64 {
	h := p.hyper
	maxIter, maxEval := int(h["max_iter"]), int(h["max_eval"])
	if maxEval == 0 {
		maxEval = maxIter * 5 / 4
	}
	first, grad := p.evaluate()
	loss := first
	evals := 1
	l.evaluations++
	if p.err != nil || p.norm(grad, math.Inf(1)) <= h["tolerance_grad"] {
		return first
	}
	for n := 1; n <= maxIter && p.err == nil; n++ {
		l.iterations++
		d := l.towards(p, grad)
		before := loss
		l.grad, l.loss, l.direction = grad, loss, d
		l.rate = h["lr"]
		if l.iterations == 1 {
			l.rate *= min(1, 1/p.norm(grad, 1))
		}
		slope := p.dot(grad, d)
		if p.err != nil || slope > -h["tolerance_change"] {
			break
		}
		count := 0
		if h["strong_wolfe"] != 0 {
			s := &lineSearch{problem: p, direction: d, loss: loss, slope: slope, limit: maxEval - evals}
			loss, grad, l.rate = s.run(l.rate, grad)
			count = s.evaluations
		} else {
			p.move(d, l.rate)
			if n < maxIter {
				loss, grad = p.evaluate()
				count = 1
			}
		}
		evals += count
		l.evaluations += count
		if p.err != nil || n == maxIter || evals >= maxEval || p.norm(grad, math.Inf(1)) <= h["tolerance_grad"] ||
			math.Abs(l.rate)*p.norm(d, math.Inf(1)) <= h["tolerance_change"] || math.Abs(loss-before) < h["tolerance_change"] {
			break
		}
	}
	return first
}

// towards returns the direction of descent: minus the gradient times the inverse Hessian as the history has it.
func (l *lbfgs) towards(p *problem, grad *core.Tensor) *core.Tensor {
	if l.direction == nil {
		return p.times(grad, -1)
	}
	y, s := p.add(grad, l.grad, -1), p.times(l.direction, l.rate)
	if ys := p.dot(y, s); ys > 1e-10 {
		if limit := int(p.hyper["history_size"]); limit > 0 {
			if len(l.moves) == limit {
				l.changes, l.moves, l.curvatures = l.changes[1:], l.moves[1:], l.curvatures[1:]
			}
			l.changes, l.moves, l.curvatures = append(l.changes, y), append(l.moves, s), append(l.curvatures, 1/ys)
		}
		l.scale = ys / p.dot(y, y)
	}
	// The two loops of Nocedal and Wright's algorithm 7.4.
	d := p.times(grad, -1)
	alpha := make([]float64, len(l.moves))
	for i := len(l.moves) - 1; i >= 0 && p.err == nil; i-- {
		alpha[i] = p.dot(l.moves[i], d) * l.curvatures[i]
		d = p.add(d, l.changes[i], -alpha[i])
	}
	if p.err == nil {
		d = p.times(d, l.scale)
	}
	for i := 0; i < len(l.moves) && p.err == nil; i++ {
		d = p.add(d, l.moves[i], alpha[i]-p.dot(l.changes[i], d)*l.curvatures[i])
	}
	return d
}

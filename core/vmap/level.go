package vmap

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A Level is one use of vmap. Levels nest: a tensor that is batched at one may itself be made of a tensor that is batched at the levels around
// it. An operation is dealt with at the innermost level at which one of its tensors is batched.
type Level struct {
	depth, size int
	thread      uintptr // that draws, if the parts do
	same        bool    // the parts draw the same
	closed      atomic.Bool
}

// Draws says which random numbers the parts of a batch get.
type Draws int

const (
	// Unsettled is for functions that draw none.
	Unsettled Draws = iota
	// Different numbers are drawn for each part by operations of the calling thread, also where none of their tensors is batched.
	Different
	// Same numbers are drawn once, for all parts: those that an ordinary tensor of a part's shape gets.
	Same
)

// Enter returns a new level, for a batch of size parts, inside another or nil.
func Enter(outer *Level, size int, draws Draws) *Level {
	l := &Level{depth: 1, size: size, same: draws == Same}
	if outer != nil {
		l.depth = outer.depth + 1
	}
	if draws == Different {
		l.draw()
	}
	return l
}

// Exit ends the level. Tensors that are batched at it can no longer be used.
func (l *Level) Exit() {
	l.closed.Store(true)
	if l.thread != 0 {
		l.drawNoMore()
	}
}

// Size returns the number of parts.
func (l *Level) Size() int { return l.size }

// Wrap returns the tensor that stands for each part of t along dimension 0, the batch, differentiably.
func (l *Level) Wrap(t *core.Tensor) *core.Tensor {
	if err := t.Present("vmap"); err != nil {
		return core.ErrorTensor(err)
	}
	if t.IsNumber() || t.Dim() == 0 || t.Size(0) != l.size {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "vmap", "got %v, want a tensor of %d parts along dimension 0", t, l.size))
	}
	return l.with(t.Alias(true))
}

// Unwrap returns the tensor whose dimension 0 is the batch of t, differentiably; nil if t is not batched at the level.
func (l *Level) Unwrap(t *core.Tensor) *core.Tensor {
	if p, ok := t.Parts().(*parts); ok && p.level == l {
		return p.here.Alias(true)
	}
	return nil
}

// Batched returns t batched at the level: a tensor that is not stands for the same in every part.
func (l *Level) Batched(t *core.Tensor) *core.Tensor {
	if t.Err() != nil {
		return t
	}
	if p, ok := t.Parts().(*parts); ok && p.level == l {
		return t.Alias(true)
	} else if ok && p.level.depth > l.depth {
		return p.level.with(l.Batched(p.here))
	}
	return l.with(l.repeated(t))
}

// Whole returns the tensor whose dimension 0 is the batch of t at the innermost level at which it is batched; nil for an ordinary tensor.
func Whole(t *core.Tensor) *core.Tensor {
	if p, ok := t.Parts().(*parts); ok {
		return p.here.Alias(true)
	}
	return nil
}

// Depth returns at how many levels at most, counted from the outermost, t is batched; 0 for an ordinary tensor.
func Depth(t *core.Tensor) int {
	if p := t.Parts(); p != nil {
		return p.Depth()
	}
	return 0
}

// with returns the tensor that stands for each part of a tensor along dimension 0. It takes over the tensor.
func (l *Level) with(t *core.Tensor) *core.Tensor {
	if t.Err() != nil {
		return t
	}
	if t.Dim() == 0 || t.Size(0) != l.size {
		return core.ErrorTensor(core.Errorf(core.StateError, "vmap", "a rule has made a tensor of shape %v for %d parts", t.Shape(), l.size))
	}
	return core.NewDistributed(core.CurrentMode(), &parts{l, t}, t.DType(), t.Shape()[1:])
}

// repeated returns a tensor in which each part of the batch is t.
func (l *Level) repeated(t *core.Tensor) *core.Tensor {
	return op.Expand(op.Unsqueeze(t, 0), append([]int{l.size}, t.Shape()...)...)
}

// parts implements [core.Parts].
type parts struct {
	level *Level
	here  *core.Tensor // of which dimension 0 is the batch
}

func (p *parts) Local() *core.Tensor { return p.here }

func (p *parts) With(local *core.Tensor) *core.Tensor { return p.level.with(local) }

// Gradient differs from With where the gradient is batched at an inner level, as in vmap of what vjp returns.
func (p *parts) Gradient(local *core.Tensor) *core.Tensor { return p.level.lift(local, 0) }

// lift returns the tensor that stands for each part of t along dimension at.
func (l *Level) lift(t *core.Tensor, at int) *core.Tensor {
	if q, ok := t.Parts().(*parts); ok && q.level.depth > l.depth {
		return q.level.with(l.lift(q.here, at+1))
	}
	if at > 0 && t.Err() == nil {
		t = op.Movedim(t, []int{at}, []int{0})
	}
	return l.with(t)
}

// lower undoes lift: the parts lie along dimension at.
func (l *Level) lower(t *core.Tensor, at int) *core.Tensor {
	q, ok := t.Parts().(*parts)
	switch {
	case ok && q.level == l && at == 0:
		return q.here
	case ok && q.level == l:
		return op.Movedim(q.here, []int{0}, []int{at})
	case ok && q.level.depth > l.depth:
		return q.level.with(l.lower(q.here, at+1))
	}
	shape := slices.Insert(slices.Clone(t.Shape()), at, l.size)
	return op.Expand(op.Unsqueeze(t, at), shape...)
}

func (p *parts) Seed(name string, grad *core.Tensor) (*core.Tensor, error) {
	if grad == nil {
		if n := core.Numel(p.here.Shape()[1:]); n != 1 {
			return nil, core.Errorf(core.ValueError, name, "a gradient can be implied only for an output with one element, got shape %v", p.here.Shape()[1:])
		}
		ones := op.OnesLike(p.here, op.TensorOptions{})
		return ones, ones.Err()
	}
	return p.Take(name, grad)
}

func (p *parts) Take(name string, t *core.Tensor) (*core.Tensor, error) {
	if err := t.Present(name); err != nil {
		return nil, err
	}
	if !slices.Equal(t.Shape(), p.here.Shape()[1:]) {
		return nil, core.Errorf(core.ShapeError, name, "got %v, want the shape %v", t, p.here.Shape()[1:])
	}
	out := p.level.lower(t, 0)
	return out, out.Err()
}

func (p *parts) Whole() *core.Tensor {
	return core.ErrorTensor(core.Errorf(core.StateError, "vmap", "the elements of %v are not known inside vmap", p))
}

func (p *parts) Like(shape []int, fill func(local []int) *core.Tensor) *core.Tensor {
	whole := append([]int{p.level.size}, shape...)
	if q := p.here.Parts(); q != nil {
		return p.level.with(q.Like(whole, fill))
	}
	return p.level.with(fill(whole))
}

func (p *parts) First() bool                                                       { return true }
func (p *parts) Pending() bool                                                     { return false }
func (p *parts) Sparse() bool                                                      { return false }
func (p *parts) Recorded() bool                                                    { return false }
func (p *parts) Depth() int                                                        { return p.level.depth }
func (p *parts) Release()                                                          { p.here.Release() }
func (p *parts) Combine(_ string, t *core.Tensor, _ core.Combination) *core.Tensor { return t }

func (p *parts) Beside(q core.Parts) bool {
	other, ok := q.(*parts)
	return ok && other.level == p.level
}

func (p *parts) String() string { return fmt.Sprintf("a batch of %d", p.level.size) }

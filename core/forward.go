package core

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A ForwardLevel is one forward-mode derivative that is being taken. While it is open, tensors may carry a tangent at it, and operations on
// them compute the tangents of their results. Levels nest: a tangent at one level may itself have tangents at the levels around it.
//
// Tangents belong to a tensor's place in the graph, or for a view to that of its base, so that operations in place through either change
// the tangents of both.
type ForwardLevel struct {
	depth  int // 1 for the outermost level of its thread
	thread uintptr
	closed atomic.Bool

	mu      sync.Mutex
	holders []tangentHolder // that have a tangent at the level
}

// maxForwardDepth is how deep levels nest: a mode holds the depth in three bits.
const maxForwardDepth = 7

var forward struct {
	open     atomic.Int32 // levels of all threads
	mu       sync.Mutex
	byThread map[uintptr][]*ForwardLevel
}

// EnterForward opens a level inside those of the calling thread, which must stay the caller's until [ForwardLevel.Exit].
func EnterForward() (*ForwardLevel, error) {
	refuseRecording("the step takes a forward-mode derivative")
	l := &ForwardLevel{thread: CurrentThread()}
	forward.mu.Lock()
	defer forward.mu.Unlock()
	list := forward.byThread[l.thread]
	if l.depth = len(list) + 1; l.depth > maxForwardDepth {
		return nil, Errorf(StateError, "forward_ad", "levels nest %d deep at most", maxForwardDepth)
	}
	if forward.byThread == nil {
		forward.byThread = map[uintptr][]*ForwardLevel{}
	}
	forward.byThread[l.thread] = append(list, l)
	forward.open.Add(1)
	return l, nil
}

// Exit closes the level, which must be the innermost of its thread, and drops the tangents at it.
func (l *ForwardLevel) Exit() error {
	forward.mu.Lock()
	list := forward.byThread[l.thread]
	if len(list) == 0 || list[len(list)-1] != l {
		forward.mu.Unlock()
		return Errorf(StateError, "forward_ad", "exiting a level that was not the last to be entered")
	}
	if list = list[:len(list)-1]; len(list) == 0 {
		delete(forward.byThread, l.thread)
	} else {
		forward.byThread[l.thread] = list
	}
	forward.mu.Unlock()
	l.closed.Store(true)
	l.mu.Lock()
	holders := l.holders
	l.holders = nil
	l.mu.Unlock()
	for _, h := range holders {
		h.dropTangents(l)
	}
	forward.open.Add(-1)
	return nil
}

// Depth returns how many levels of its thread the level is in, itself included.
func (l *ForwardLevel) Depth() int { return l.depth }

// Closed reports whether the level has been exited.
func (l *ForwardLevel) Closed() bool { return l.closed.Load() }

// ForwardActive reports whether a level is open, in any thread.
func ForwardActive() bool { return forward.open.Load() != 0 }

// ForwardLevels returns the open levels of the calling thread, the outermost first.
func ForwardLevels() []*ForwardLevel {
	forward.mu.Lock()
	defer forward.mu.Unlock()
	return slices.Clone(forward.byThread[CurrentThread()])
}

// Below returns m in which operations see only tangents at levels around l.
func (m Mode) Below(l *ForwardLevel) Mode {
	return m&^(modeForwardMask<<modeForwardShift) | Mode(l.depth)<<modeForwardShift
}

// Sees reports whether operations in m see tangents at level l.
func (m Mode) Sees(l *ForwardLevel) bool {
	limit := int(m >> modeForwardShift & modeForwardMask)
	return (limit == 0 || l.depth < limit) && !l.closed.Load()
}

// A tangent is the tangent of a value at a level. Several places may hold it.
type tangent struct {
	level *ForwardLevel
	value *Tensor
	refs  *atomicCount
}

func (t tangent) retain() tangent {
	t.refs.inc()
	return t
}

func (t tangent) release() {
	if t.refs != nil && t.refs.dec() == 0 {
		t.value.Release()
	}
}

type tangentHolder interface{ dropTangents(l *ForwardLevel) }

// tangents are those of one value, at most one for each level.
type tangents []tangent

// set replaces the tangent at v's level, and returns the old one, which the caller releases when it holds no lock. It takes over the
// reference.
func (list *tangents) set(v tangent) (old tangent) {
	old = list.take(v.level)
	*list = append(*list, v)
	return old
}

// take removes and returns the tangent at a level. Without one it returns the zero tangent.
func (list *tangents) take(l *ForwardLevel) (v tangent) {
	for i, v := range *list {
		if v.level == l {
			*list = slices.Delete(*list, i, i+1)
			return v
		}
	}
	return v
}

func (meta *AutogradMeta) dropTangents(l *ForwardLevel) {
	if r := meta.rare.Load(); r != nil {
		meta.mu.Lock()
		v := r.tangents.take(l)
		meta.mu.Unlock()
		v.release()
	}
}

// clearTangents drops all tangents at the end of the metadata.
func (meta *AutogradMeta) clearTangents() {
	if r := meta.rare.Load(); r != nil {
		meta.mu.Lock()
		list := r.tangents
		r.tangents = nil
		meta.mu.Unlock()
		for _, v := range list {
			v.release()
		}
	}
}

// dropTangents of a node drops those of its outputs.
func (n *Node) dropTangents(l *ForwardLevel) {
	var gone tangents
	n.mu.Lock()
	if n.extra != nil {
		for i, list := range n.extra.tangents {
			gone = append(gone, list.take(l))
			n.extra.tangents[i] = list
		}
	}
	n.mu.Unlock()
	for _, v := range gone {
		v.release()
	}
}

// holder returns the metadata that has t's tangents, or nil: its base's if t is a view.
func (t *Tensor) holder() *AutogradMeta {
	if v := t.view.Load(); v != nil {
		return v.base
	}
	return t.autograd.Load()
}

// TangentLevels returns the levels, of those that m sees, at which t has a tangent, the outermost first.
func (t *Tensor) TangentLevels(m Mode) (levels []*ForwardLevel) {
	if t == nil || t.isNumber {
		return nil
	}
	meta := t.here().holder()
	if meta == nil {
		return nil
	}
	r := meta.rare.Load()
	if r == nil {
		return nil
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	for _, v := range r.tangents {
		if m.Sees(v.level) {
			levels = append(levels, v.level)
		}
	}
	slices.SortFunc(levels, func(a, b *ForwardLevel) int { return a.depth - b.depth })
	return levels
}

// HasTangent reports whether t has a tangent that the current mode sees.
func (t *Tensor) HasTangent() bool { return ForwardActive() && len(t.TangentLevels(CurrentMode())) > 0 }

// RefuseTangent returns an error if t has a tangent that the current mode sees, for an operation that would drop it.
func RefuseTangent(op string, t *Tensor) error {
	if t.HasTangent() {
		return Errorf(NotImplemented, op, "has no forward-mode derivative, got a tensor with a tangent")
	}
	return nil
}

// BaseTangent returns the tangent at level l of the value that t is a view of, or of t itself if it is none; or nil.
func (t *Tensor) BaseTangent(l *ForwardLevel) *Tensor {
	meta := t.holder()
	if meta == nil {
		return nil
	}
	r := meta.rare.Load()
	if r == nil {
		return nil
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	for _, v := range r.tangents {
		if v.level == l {
			return v.value
		}
	}
	return nil
}

// SetBaseTangent makes v the tangent at level l of the value that t is a view of, or of t itself if it is none. It takes over v, which must
// lie in memory as that value does.
func (t *Tensor) SetBaseTangent(l *ForwardLevel, v *Tensor) {
	meta := t.holder()
	if meta == nil {
		meta = t.EnsureAutogradMeta()
	}
	of := tangent{level: l, value: v.Keep(), refs: new(atomicCount)}
	of.refs.set(1)
	r := meta.extended()
	meta.mu.Lock()
	old := r.tangents.set(of)
	meta.mu.Unlock()
	old.release()
	l.hold(meta)
}

func (l *ForwardLevel) hold(h tangentHolder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders = append(l.holders, h)
}

// SetOutputTangent makes v the tangent at level l of output index, for a derivative that asks for the output. It takes over v.
func (n *Node) SetOutputTangent(index int, l *ForwardLevel, v *Tensor) {
	of := tangent{level: l, value: v.Keep(), refs: new(atomicCount)}
	of.refs.set(1)
	x := n.extras()
	n.mu.Lock()
	if x.tangents == nil {
		x.tangents = map[int]tangents{}
	}
	list := x.tangents[index]
	old := list.set(of)
	x.tangents[index] = list
	n.mu.Unlock()
	old.release()
	l.hold(n)
}

// SavesOutput reports whether the derivative may ask for output index.
func (n *Node) SavesOutput(index int) bool {
	return slices.ContainsFunc(n.saved, func(s saved) bool { return s.output && s.index == index })
}

// restore gives an unpacked output of n, whose lock the caller holds, its tangents.
func (n *Node) restore(meta *AutogradMeta, index int) {
	if n.extra == nil || len(n.extra.tangents[index]) == 0 {
		return
	}
	r := meta.extended()
	for _, v := range n.extra.tangents[index] {
		r.tangents = append(r.tangents, v.retain())
	}
}

// LastNode returns the highest [Node.ID] so far.
func LastNode() uint64 { return nodeIDs.Load() }

// Underived runs fn without recording gradients and without seeing tangents, for values whose derivatives are taken otherwise or are none.
func Underived(fn func()) {
	WithMode(func(m Mode) Mode { return m.WithGrad(false).WithoutTangents() }, fn)
}

// WithoutTangents returns m in which operations see no tangents.
func (m Mode) WithoutTangents() Mode {
	return m&^(modeForwardMask<<modeForwardShift) | 1<<modeForwardShift
}

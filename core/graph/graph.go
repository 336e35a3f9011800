package graph

import (
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A Graph is what a recording has found so far. Operations are recorded on the thread that began it, until [Graph.End].
type Graph struct {
	Values    []Value
	Nodes     []Node
	Constants []Constant

	thread  uintptr
	closed  atomic.Bool
	applies bool // an operation is being applied: those that it is made of are not recorded
	scope   string
	known   map[place]int // values of constants
}

// A Value is a tensor of the graph, which never changes. Its number is its index in [Graph.Values].
type Value struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// A Node is an operation of the graph.
type Node struct {
	Op    string     `json:"op"`    // the name of its row, or of the operation on elements
	Scope string     `json:"scope"` // what [Graph.SetScope] was called with last
	Args  []Argument `json:"args"`
	Outs  []int      `json:"outs"` // the values it makes
}

// A Constant is a value that is not computed in the graph.
type Constant struct {
	Value  int
	Tensor *core.Tensor // its elements, which are not changed later
	origin *core.Tensor // keeps the memory that it was found in
}

// A place is where the elements of a constant were found.
type place struct {
	storage *core.Storage
	version uint32
	offset  int
	dtype   core.DType
	layout  string
}

// open are the graphs that are being recorded, by thread.
var open struct {
	count atomic.Int32
	sync.Mutex
	byThread map[uintptr]*Graph
}

func init() { op.SetRecording(recording) }

// recording returns what records the operations of the calling thread that have no tensors, or nil.
func recording() core.Parts {
	if open.count.Load() == 0 {
		return nil
	}
	open.Lock()
	defer open.Unlock()
	if g := open.byThread[core.CurrentThread()]; g != nil && !g.applies {
		return &traced{graph: g}
	}
	return nil
}

// Begin starts a recording of the calling thread's operations. A goroutine must be locked to its thread until the end.
func Begin() (*Graph, error) {
	g := &Graph{thread: core.CurrentThread(), known: map[place]int{}}
	open.Lock()
	defer open.Unlock()
	if open.byThread[g.thread] != nil {
		return nil, core.Errorf(core.StateError, "graph", "this thread records a graph already")
	}
	if open.byThread == nil {
		open.byThread = map[uintptr]*Graph{}
	}
	open.byThread[g.thread] = g
	open.count.Add(1)
	return g, nil
}

// End ends the recording. Its tensors can no longer be used; calling it again does nothing.
func (g *Graph) End() {
	if g.closed.Swap(true) {
		return
	}
	open.Lock()
	defer open.Unlock()
	delete(open.byThread, g.thread)
	open.count.Add(-1)
}

// SetScope sets where later operations are said to come from, such as the name of a module.
func (g *Graph) SetScope(name string) { g.scope = name }

// Input returns a tensor that stands for a new value, which no node makes, with the elements of t.
func (g *Graph) Input(t *core.Tensor) *core.Tensor {
	if err := g.takes(t); err != nil {
		return core.ErrorTensor(err)
	}
	return g.fresh(op.Clone(t), g.value(t)) // operations in place change the clone
}

// Parameter is Input for a tensor that operations in place must not change: its elements are not copied.
func (g *Graph) Parameter(t *core.Tensor) *core.Tensor {
	if err := g.takes(t); err != nil {
		return core.ErrorTensor(err)
	}
	id := g.value(t)
	return g.stands(t.Alias(false), &view{memory: &memory{value: id, frozen: true}, value: id})
}

func (g *Graph) takes(t *core.Tensor) error {
	if err := t.Usable("graph"); err != nil {
		return err
	}
	if t.IsNumber() {
		return core.Errorf(core.TypeError, "graph", "got %v, want a tensor with memory", t)
	}
	return nil
}

// ValueOf returns the value that a tensor stands for now. That of an ordinary tensor is a constant.
func (g *Graph) ValueOf(t *core.Tensor) (int, error) {
	if err := t.Present("graph"); err != nil {
		return 0, err
	}
	if v, ok := t.Parts().(*traced); ok {
		if v.graph != g {
			return 0, core.Errorf(core.StateError, "graph", "got a tensor of another recording")
		}
		return v.view.read(g)
	}
	if t.Parts() != nil {
		return 0, core.Errorf(core.NotImplemented, "graph", "got %v, want a tensor that one device has whole", t)
	}
	return g.constant(t)
}

// Holds reports whether a tensor stands for a value of the graph.
func (g *Graph) Holds(t *core.Tensor) bool {
	v, ok := t.Parts().(*traced)
	return ok && v.graph == g
}

// value adds a value that is like t.
func (g *Graph) value(t *core.Tensor) int {
	g.Values = append(g.Values, Value{t.DType().String(), append([]int{}, t.Shape()...)})
	return len(g.Values) - 1
}

// constant returns the value of an ordinary tensor, as it is now.
func (g *Graph) constant(t *core.Tensor) (int, error) {
	if err := t.Usable("graph"); err != nil {
		return 0, err
	}
	at := place{t.Storage(), t.Storage().Version(), t.Offset(), t.DType(), layout(t)}
	if id, ok := g.known[at]; ok {
		return id, nil
	}
	origin := t.Alias(false).Keep()
	copied := op.Clone(origin)
	if err := copied.Err(); err != nil {
		return 0, err
	}
	id := g.value(t)
	g.known[at] = id
	g.Constants = append(g.Constants, Constant{id, copied.Keep(), origin})
	return id, nil
}

// fresh returns a tensor that stands for a value and has memory of its own. It takes over t.
func (g *Graph) fresh(t *core.Tensor, value int) *core.Tensor {
	if t.Err() != nil {
		return t
	}
	return g.stands(t, &view{memory: &memory{value: value}, value: value})
}

func (g *Graph) stands(t *core.Tensor, v *view) *core.Tensor {
	return core.NewDistributed(core.CurrentMode(), &traced{graph: g, here: t, view: v}, t.DType(), t.Shape())
}

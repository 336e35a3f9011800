package bind

import (
	"encoding/json"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/graph"
)

// GraphBegin starts recording the calling thread's operations as a graph. End it with [GraphEnd], and release it.
func GraphBegin() (status Object) {
	defer protect("graph", &status)
	g, err := graph.Begin()
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(g)
}

// GraphEnd ends a recording. Its tensors can no longer be used.
func GraphEnd(recording Object) (status Status) {
	defer protect("graph", &status)
	g, err := recorded(recording)
	if err != nil {
		return failure(err)
	}
	g.End()
	return 0
}

func recorded(recording Object) (*graph.Graph, error) {
	g, ok := handle.Object[*graph.Graph](recording)
	if !ok {
		return nil, core.Errorf(core.TypeError, "graph", "%d is not the handle of a recording", recording)
	}
	return g, nil
}

// GraphInput returns a tensor that stands for a new value of the graph, with the elements of t. One that is fixed shares them: operations in
// place are refused.
func GraphInput(recording Object, t Tensor, fixed bool) (status Tensor) {
	defer protect("graph", &status)
	g, err := recorded(recording)
	if err != nil {
		return failure(err)
	}
	if fixed {
		return result(g.Parameter(tensor(t)))
	}
	return result(g.Input(tensor(t)))
}

// GraphValue returns the number of the value that a tensor stands for; that of an ordinary tensor is a new constant, or one that the graph has.
func GraphValue(recording Object, t Tensor) (status int64) {
	defer protect("graph", &status)
	g, err := recorded(recording)
	if err != nil {
		return failure(err)
	}
	v, err := g.ValueOf(tensor(t))
	if err != nil {
		return failure(err)
	}
	return int64(v)
}

// GraphScope sets where later operations are said to come from.
func GraphScope(recording Object, name string) (status Status) {
	defer protect("graph", &status)
	g, err := recorded(recording)
	if err != nil {
		return failure(err)
	}
	g.SetScope(name)
	return 0
}

// GraphText returns what was recorded as JSON: "values", "nodes", and "constants", the values of those. It is empty if the recording is none.
func GraphText(recording Object) string {
	g, err := recorded(recording)
	if err != nil {
		return ""
	}
	constants := []int{}
	for _, c := range g.Constants {
		constants = append(constants, c.Value)
	}
	text, err := json.Marshal(map[string]any{"values": g.Values, "nodes": g.Nodes, "constants": constants})
	if err != nil {
		return ""
	}
	return string(text)
}

// GraphConstant returns constant i.
func GraphConstant(recording Object, i int64) (status Tensor) {
	defer protect("graph", &status)
	g, err := recorded(recording)
	if err != nil {
		return failure(err)
	}
	if i < 0 || i >= int64(len(g.Constants)) {
		return failure(core.Errorf(core.IndexError, "graph", "got %d, want a number of one of %d constants", i, len(g.Constants)))
	}
	return result(g.Constants[i].Tensor.Alias(false))
}

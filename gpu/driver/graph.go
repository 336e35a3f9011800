package driver

// A GraphGPU is a GPU that keeps commands and runs them again at little cost. Its command lists are [GraphList]s.
type GraphGPU interface {
	GPU
	// NewGraph returns a graph of the commands of a list, which does not change with the list. data is what [GPU.Submit] would write to the
	// parameter buffer.
	NewGraph(l CommandList, params Buffer, data []byte) (Graph, error)
}

// A Graph is commands that run together.
type Graph interface {
	// Release frees the graph. Nothing that uses it may be in flight.
	Release()
}

// A GraphList is a command list that takes graphs.
type GraphList interface {
	CommandList
	// Graph appends a graph.
	Graph(g Graph)
}

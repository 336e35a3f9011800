// Package graph records the operations of a forward pass as a graph, which other programs' formats can be made of.
//
// The tensors of a recording are an implementation of [core.Parts] above the operations: each stands for a value of the graph and holds the
// ordinary tensor with its elements, so shapes and views are those of the pass. Values never change: an operation in place makes a new one,
// and tensors that share the memory stand for what it left there. Elements cannot be read, because what a program decides by them would not
// be in the graph.
package graph

// Package core defines what all of Plait is built on: dtypes, shapes, devices and streams, storages, tensors, and the nodes of the autograd
// graph.
//
// An operation of package op checks its arguments, allocates its outputs on the current [Stream] of the inputs' [Device], and launches a
// kernel by name as a [Call] with operands and attributes. Launch returns at once; the device runs calls in stream order. If a gradient is
// required, the operation also records a [Node] with the function that computes it. Nothing blocks until a value is read.
//
// Errors of shapes, dtypes, devices or allocation travel in the returned tensor ([Tensor.Err]). Later operations pass them on, and reading
// a value returns them.
package core

import _ "github.com/plait-ml/plait/core/internal/needcgo" // a readable error where there is no C compiler

// Package core holds what every part of Plait is made of: dtypes, shapes, devices and their streams, storages and
// tensors that know their gradient.
//
// The path of one operation: a function of package op checks its arguments, allocates the outputs in the memory of the
// current [Stream] of the inputs' [Device], and launches a kernel, by name, as a [Call] of operands and attributes. The
// call returns at once; the device runs the stream in order. If a gradient is wanted, the function also records a [Node]
// that remembers how to compute it. Nothing waits until somebody reads a value.
//
// Errors that shapes, dtypes, devices or allocation reveal are carried by the returned tensor ([Tensor.Err]); later
// operations pass them on, and whatever reads a value returns them.
package core

import _ "github.com/plait-ml/plait/core/internal/needcgo" // a readable error where there is no C compiler

// Package vmap applies functions of tensors to all parts of a batch at once. Inside a [Level], a batched tensor has the shape of one part, and
// every operation works once on the tensor behind it, whose dimension 0 is the batch: a rule for each row of package op says how. A row without
// one is applied to the parts one by one.
//
// The place in the graph of a batched tensor is that of the tensor behind it, so derivatives of all parts are taken at once too.
package vmap

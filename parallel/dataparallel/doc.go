// Package dataparallel trains one module on many devices from one thread: a batch is scattered over them, each has a replica
// of the module for its part, and the outputs are gathered on one device, where the loss is taken. So the gradients of the
// replicas add up to the module's own, however the batch was cut.
//
// [Replicas] copies parameters and sums gradients for the modules of any language, and [Scatter], [Gather] and [Measurement] are
// what those modules are made of; [DataParallel] is the module of package nn. The devices work at the same time because calls
// only enqueue: nothing here waits for a value.
package dataparallel

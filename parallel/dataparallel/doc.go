// Package dataparallel trains one module on many devices from one thread. A batch is scattered over the devices, each runs a replica of the
// module on its slice, and the outputs are gathered on one device, which computes the loss. The gradients of the replicas therefore add up
// to the module's, however the batch was split.
//
// [Replicas] copies parameters and sums gradients for modules of any language; [Scatter], [Gather] and [Measurement] are the other building
// blocks. [DataParallel] uses them for modules of package nn. The devices run at the same time because calls only enqueue work: nothing
// here waits for a value.
package dataparallel

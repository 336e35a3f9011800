// Package gpu is the runtime of GPU devices, which are driven through CUDA or WebGPU: in-order streams whose calls become lists of commands,
// memory in slabs that is reused in stream order, and compiled programs. Importing it registers the devices gpu:0, gpu:1, ... On a machine
// without a GPU or a driver there are none, and the error of opening one says why.
//
// The files, in the order in which a call passes them:
//   - package backend has the queue of a stream; stream.go: the calls that somebody waits for
//   - worker.go: the stream's worker, which has kernels of package kernel record dispatches; fusing.go fuses elementwise calls
//   - encoder.go: the commands of dispatches; program.go: compiled programs and bind groups
//   - batch.go, pacing.go, software_pacing.go: when a batch is submitted, and how long it is; completion.go: when it has run
//   - adapter.go, listing.go: the GPUs of all drivers
//   - driver_thread.go: the goroutine that makes all calls of the driver
//   - link.go: GPUs that use each other's memory; signal.go: those of several processes, which wait for each other; product.go: matrix products of a vendor's library
//   - transfer.go, staging.go: copies between the host and the device
//   - memory.go: slabs, which are behind the caches of package backend
//
// Arithmetic is float32, or float64 for calls with an operand of float64. Under WebGPU, denormal numbers may be flushed to zero, and float64 is
// not supported, because WGSL has no such type. A call without a kernel on the device is an error that names it; there is no fallback to the
// CPU.
package gpu

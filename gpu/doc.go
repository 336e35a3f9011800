// Package gpu is the runtime of GPU devices, which speak WebGPU: in-order streams whose calls become command lists, memory in slabs that
// are divided in stream order, and compiled programs. Importing it registers the devices gpu:0, gpu:1, ... A machine without a GPU or a
// Vulkan loader has none, and opening one says why.
//
// A call on its way:
//   - package backend: the stream's queue takes it; stream.go: which calls somebody waits for
//   - worker.go: the stream's worker has its kernel, of package kernel, record dispatches; fusing.go joins elementwise calls
//   - encoder.go: dispatches become commands of a batch, with programs that program.go compiles at their first use
//   - batch.go, pacing.go, software_pacing.go: when a batch goes to the GPU, and how much at a time
//   - driver_thread.go: the one goroutine that talks to the driver submits it, and sees its end
//   - transfer.go, staging.go: bytes between the host and the device
//   - memory.go: slabs, behind the caches of package backend
//
// Arithmetic is that of float32. Numbers closer to zero than 2^-126 may count as zero. float64 is not supported: WGSL has no such type. A
// kernel that the device lacks is an error that names it; nothing is computed elsewhere instead.
package gpu

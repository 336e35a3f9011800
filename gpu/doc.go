// Package gpu is the GPU device, which speaks WebGPU: in-order streams whose calls become command lists, memory in slabs
// that are divided in stream order, and kernels in WGSL. Importing it registers the devices gpu:0, gpu:1, ... A machine
// without a GPU or a Vulkan loader has none, and opening one says why.
//
// A call on its way: the stream's queue takes it; the stream's worker turns it into dispatches, with programs that are
// generated and compiled at their first use; a batch of dispatches goes to the device's owner, the one goroutine that talks
// to the driver; and when the GPU has run the batch, whoever waits for its calls goes on.
//
// Arithmetic is that of float32. Numbers closer to zero than 2^-126 may count as zero. float64 is not supported: WGSL has no
// such type. A kernel that the device lacks is an error that names it; nothing is computed elsewhere instead.
package gpu

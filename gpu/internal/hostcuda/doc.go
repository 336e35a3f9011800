// Package hostcuda is a driver for tests: it runs programs in CUDA C++ on the CPU, where there is no GPU. The host's C++ compiler compiles
// them behind cuda.h, which defines what NVRTC has built in. It stands in for a GPU that computes: results are compared with the CPU's
// kernels.
//
// It finds what a GPU may hide. Workgroup memory and new buffers are full of NaNs, and guard pages surround each buffer. A write behind the
// data of a buffer is an error, and so is a barrier that some invocations of a workgroup do not reach. Invocations and workgroups run one
// after the other, forwards on one device and backwards on another: a missing barrier shows on one of them.
//
// Programs with PTX, which use tensor cores, do not compile. The device has a compute capability of 7.5, for which there are none.
package hostcuda

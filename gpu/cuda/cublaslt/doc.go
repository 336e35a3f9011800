// Package cublaslt computes matrix products by cuBLASLt, NVIDIA's library. The library is not linked: it is loaded when a GPU is opened, in
// version 13 or 12. The package declares what it calls itself. Plans, the library's choices of an algorithm, are made once for each shape.
//
// The driver of CUDA turns each [driver.Product] into a [Command], and calls the C function plaitk_lt_run for it while it submits a list of
// commands.
package cublaslt

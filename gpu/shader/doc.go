// Package shader is the language in which kernels of GPUs are written: a [Builder] declares what a program binds and its parameters and
// names what it specialises on, the text around it is WGSL, and a [Recorder] takes the dispatches. A kernel says the same things in the
// same order on every call; the text is written only when no program of the same [Key] was compiled before.
//
// In the order of a call:
//   - recorder.go: what kernels record to, and the interface to the runtime behind it
//   - device.go, tuning.go: what they know of the GPU, and the figures by which they choose
//   - builder.go, access.go: operands and parameters; loads and stores of every dtype
//   - loop.go: indices of operands with any strides
//   - text.go, workgroup.go: pieces of text that kernels share
//   - library: functions in WGSL, of which a program gets those that it mentions
package shader
